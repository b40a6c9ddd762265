import error_texts_python
import error_texts_rust
import pytest

RUST_CASES = """
pub enum Error {
    Invalid(String),
    Limit(u64),
    Table { table: String, reason: String, size: u64 },
}
"""

RUST_FOUND = {
    "guard": 'match r { Err(Error::Invalid(reason)) if reason.starts_with("Load") => 1, _ => 2 }',
    "arm": 'match e { crate::Error::Invalid(text) => text.contains("x"), _ => false }',
    "if_let": 'if let Err(Error::Invalid(why)) = r { if why == "late" { f() } }',
    "let_else": 'let Err(Error::Invalid(why)) = r else { return }; if why.as_str() != "late" { f() }',
    "chain": 'if let Error::Invalid(why) = r && why.ends_with("late") { f() }',
    "while": 'while let Err(Error::Invalid(why)) = r { if why.contains("late") { f() } }',
    "closure": 'r.map_err(|Error::Invalid(why)| why.find("x").is_some())',
    "matches": 'matches!(r, Err(Error::Invalid(why)) if why.contains("x"))',
    "inner_match": 'match e { Error::Invalid(text) => match text.as_str() { "late" => 1, _ => 2 }, _ => 3 }',
    "text_field": 'match e { Error::Table { reason, .. } => reason == "late", _ => false }',
    "renamed_field": 'match e { Error::Table { reason: why, .. } => why == "late", _ => false }',
    "part_of_data": 'match e { Error::Table { table, .. } => table.contains("x"), _ => false }',
    "use_case": 'match e { Invalid(text) => text.contains("x"), _ => false }',
    "foreign_case": 'match e { io::Error::Odd(text) => text.contains("x"), _ => false }',
    "to_string": 'if error.to_string().contains("x") { f() }',
    "message": 'if status.message().starts_with("x") { f() }',
    "compared_message": 'if status.message() == "x" { f() }',
    "matched_message": 'match status.message() { "x" => 1, _ => 2 }',
    "named": 'let text = error.to_string(); let lower = text.to_lowercase(); if lower.contains("x") { f() }',
    "formatted": 'if format!("{error:?}").contains("x") { f() }',
    "in_macro": 'tracing::warn!(late = error.to_string().contains("x"), "late")',
    "in_list": '["late", "lost"].contains(&error.to_string().as_str())',
    "field": 'if failure.text == "x" { f() }',
}

RUST_CLEAN = {
    "kinds": "match e { Error::Invalid(_) => 1, Error::Limit(n) if n == 3 => 2, _ => 3 }",
    "names": "match e { Error::Table { table, size, .. } => table == name && size == 3, _ => false }",
    "new_text": 'match e { Error::Invalid(text) => Error::Invalid(format!("{place}: {text}")), e => e }',
    "logged": 'tracing::warn!("{}", error.to_string())',
    "other_texts": 'if name.starts_with("x") && line.to_string().contains("y") && x.kind() == NotFound { f() }',
    "after_arm": 'match e { Error::Invalid(text) => drop(text), _ => () } let text = "x"; text.contains("y")',
    "empty": "match e { Error::Invalid(text) => text.is_empty(), _ => false }",
}


@pytest.mark.parametrize("code", RUST_FOUND.values(), ids=RUST_FOUND)
def test_rust_that_decides_by_a_text_is_found(code):
    sources = {"error.rs": RUST_CASES, "a.rs": f"fn f() {{\n\n {code} }}"}
    found = error_texts_rust.found_in(sources)
    assert {(file, line) for file, line, _ in found} == {("a.rs", 3)}


@pytest.mark.parametrize("code", RUST_CLEAN.values(), ids=RUST_CLEAN)
def test_rust_that_decides_otherwise_is_not_found(code):
    assert error_texts_rust.found_in({"error.rs": RUST_CASES, "a.rs": f"fn f() {{ {code} }}"}) == []


def test_rust_tests_may_read_texts():
    code = '#[cfg(test)] mod tests { fn f() { assert!(error.to_string().contains("x")) } }'
    assert error_texts_rust.found_in({"a.rs": code}) == []


PYTHON_FOUND = [
    "try: f()\nexcept ValueError as problem:\n    if 'late' in str(problem): g()",
    "try: f()\nexcept ValueError as problem:\n    if problem.args[0] == 'late': g()",
    "try: f()\nexcept ValueError as problem:\n    a = str(problem)\n    b = a.lower()\n    b.find('x')",
    "def f(error): return str(error) == 'late'",
    "def f(error): return str(error).startswith('late')",
    "def f(error): return error.args[0].startswith('late')",
    "def f(error): return re.search('late', str(error))",
    "def f(error): return PATTERN.match(f'{error}')",
    "def f(read_error): return 'late' not in repr(read_error)",
    "def f(error): return error.details() == 'late'",
    "def f(error):\n    match str(error):\n        case 'late': g()",
    "def f(error): return (text := str(error)) and text.find('x') > 0",
]

PYTHON_CLEAN = [
    "try: f()\nexcept ValueError as error:\n    raise TypeError(f'{place}: {error}') from None",
    "try: f()\nexcept OSError as error:\n    if error.errno == 2: g()",
    "def f(error): return isinstance(error, KeyError)",
    "def f(error): return str(error) or 'no reason'",
    "def f(name): return str(name).startswith('x') or 'x' in str(name)",
    "def f(error): log(str(error))",
    "def f(error): return error.message is not None",
]


@pytest.mark.parametrize("code", PYTHON_FOUND)
def test_python_that_decides_by_a_text_is_found(code):
    assert error_texts_python.found_in(code) != []


@pytest.mark.parametrize("code", PYTHON_CLEAN)
def test_python_that_decides_otherwise_is_not_found(code):
    assert error_texts_python.found_in(code) == []
