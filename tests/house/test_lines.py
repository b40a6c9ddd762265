"""Lines of code are counted as a reader would count them."""

import counts
import pytest
from house_support import write
from lines import Source


def source(folder, name, text):
    return Source(write(folder, {name: text}) / name)


PYTHON = '''
"""A module.

About nothing."""

import os  # Behind code.

# A comment
TEXT = """a text

# of three lines"""


def f(a):
    """One line."""
    "Another."
    return f"""{a}
    """


class A:
    b: int
    """About a field."""
'''
RUST = """
//! A module.

/* One
more */ use a::b; // Behind code.

/// A function: `fn g() {}`.
#[inline]
fn f() {
    // A comment.
    let url = "http://a
        /* no comment */";
}

#[cfg(test)]
mod tests {
    #[test]
    fn g() {}
}

#[cfg(test)]
mod more;
mod most;
"""
PAGE = {
    "a.js": '/* One\n * more */\nimport "b"; // Behind code.\n\n  // A comment.\n/** A type. */\nconst url = "http://a";\n',
    "a.css": "/* One\nmore */\n\nb {\n  /* A comment. */\n  color: red; /* Red. */\n}\n",
    "a.html": "<!doctype html>\n<!-- One\nmore -->\n<p>\n",
}


def test_comments_docstrings_and_blanks_are_no_code(tmp_path):
    # The import, two lines of a text, three of the function and two of the class.
    assert source(tmp_path, "a.py", PYTHON).count() == 9 - 1
    assert source(tmp_path, "a.rs", RUST).count() == 1 + 5 + 5 + 3
    assert [source(tmp_path, name, text).count() for name, text in PAGE.items()] == [2, 3, 2]


def test_only_lines_of_code_make_a_file_or_a_function_long(tmp_path):
    python, rust = source(tmp_path, "a.py", PYTHON), source(tmp_path, "a.rs", RUST)
    assert [(function.name, function.length) for function in python.functions_of_more_than(2)] == [("f", 3)]
    assert python.functions_of_more_than(3) == []
    assert python.has_more_than(7)
    assert not python.has_more_than(8)
    assert [(function.name, function.length) for function in rust.functions_of_more_than(0)] == [("f", 4), ("g", 1)]


def test_what_only_tests_compile_is_left_out(tmp_path):
    rust = source(tmp_path, "a.rs", RUST)
    assert rust.count_untested() == 1 + 5 + 1
    assert rust.modules_for_tests() == {"more"}


def test_parts_of_a_tree_are_counted(tmp_path):
    write(
        tmp_path,
        {
            "crates/one/Cargo.toml": "",
            "crates/one/build.rs": "fn main() {}",
            "crates/one/src/lib.rs": RUST,
            "crates/one/src/more.rs": "fn f() {}",
            "crates/one/src/most.rs": "fn f() {}",
            "crates/one/tests/test.rs": "fn f() {}",
            **{f"crates/one/web/{name}": text for name, text in PAGE.items()},
            "crates/one/web/types.d.ts": "type A = number;",
            "crates/one/web/made.js": "// @generated\nf();",
            "python/reverb/a.py": PYTHON,
            "python/reverb/b/c.py": "f()",
            "python/reverb/b/d/e.py": "f()\ng()",
            "examples/f.py": "f()",
        },
    )
    assert counts.of_product(tmp_path) == {
        "crates/one": 1 + 7 + 1,
        "crates/one/web": 2 + 3 + 2,
        "python/reverb": 8,
        "python/reverb/b": 3,
    }
    assert counts.of_others(tmp_path) == {"examples": 1}


@pytest.mark.parametrize("option", [[], ["--count"]])
def test_both_are_shown(tmp_path, option, capsys, monkeypatch):
    import show

    write(tmp_path, {"python/reverb/a.py": "f()", "crates/one/Cargo.toml": '[package]\nname = "one"'})
    write(tmp_path, {"crates/one/src/lib.rs": "use a;\nuse b;"})
    monkeypatch.setattr("sys.argv", ["show.py", str(tmp_path), *option])
    show.main()
    shown = capsys.readouterr().out
    assert ("in all             3" in shown) == bool(option)
    assert ("== cycles" in shown or "== rust" in shown) != bool(option)
