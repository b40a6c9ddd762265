"""The checks: each takes a source tree and says what is wrong in it, a text for each fault."""

import functools
import re

import error_texts_python
import error_texts_rust
import python_imports
import rules
import rust_imports
from lines import Source
from manifests import crates_of

PACKAGE_FOLDER = "python/reverb/"


class Tree:
    """A source tree, read once for all checks.

    Args:
      top: Its root folder.
    """

    def __init__(self, top):
        self.top = top

    @functools.cached_property
    def rust(self):
        return rust_imports.graph_of(self.top)

    @functools.cached_property
    def python(self):
        return python_imports.graph_of(self.top)

    @functools.cached_property
    def sources(self):
        return [Source(path) for path in code_files(self.top, rules.CODE_FOLDERS, (".js", ".py", ".rs"))]

    def name_of(self, source):
        return source.path.relative_to(self.top).as_posix()


def cycles(tree):
    """Files that name each other around a circle."""
    return [*tree.rust.cycles(), *tree.python.cycles()]


def crate_floors(tree):
    """Crates that use what does not lie below them, by their manifests or by their code."""
    floors = {name: number for number, names in enumerate(rules.CRATES) for name in names}
    crates = crates_of(tree.top)
    problems = [f"{crate.name} has no floor in rules.CRATES" for crate in crates if crate.name not in floors]
    known = {crate.name: crate for crate in crates if crate.name in floors}
    used = {(name, other, f"{name}/Cargo.toml") for name in known for other in known[name].dependencies}
    for source, target, names in tree.rust.arrows():
        used.add((crate_of(source), crate_of(target), f"{source} ({', '.join(names)})"))
    for name, other, place in sorted(used):
        if name in known and other in known and name != other and floors[other] >= floors[name]:
            problems.append(f"{place} uses {other}, which does not lie below {name}")
    return problems


def crate_of(file):
    return file.split("/")[1]


def foreign_names(tree):
    """Libraries that a crate must not name."""
    problems = []
    for crate in crates_of(tree.top):
        refused = rules.NOT_IN_CRATE.get(crate.name, ())
        named = sorted(name for name in crate.dependencies if name.replace("-", "_") in refused)
        problems += [f"{crate.name}/Cargo.toml names {name}" for name in named]
    for file, paths in sorted(tree.rust.outside.items()):
        refused = rules.NOT_IN_CRATE.get(crate_of(file), ())
        named = sorted(path for path in paths if any(f"{path}::".startswith(f"{name}::") for name in refused))
        problems += [f"{file} names {path}" for path in named]
    return problems


def parts_apart(tree):
    """Arrows between parts of a crate, or of the package, that know nothing of each other."""
    pairs = [pair for one, other in rules.APART_IN_CRATES for pair in ((one, other), (other, one))]
    groups = [[PACKAGE_FOLDER + part for part in group] for group in rules.APART_IN_PACKAGE]
    pairs += [(one, other) for group in groups for one in group for other in group if one != other]
    problems = []
    for graph in (tree.rust, tree.python):
        for source, target, names in graph.arrows():
            for one, other in pairs:
                if is_below(source, one) and is_below(target, other):
                    problems.append(f"{source} uses {target}: {', '.join(names)}; {one} and {other} stay apart")
    return problems


def is_below(file, part):
    """Whether a file is a module (with or without its ending) or lies in its folder."""
    return file.startswith((f"{part.rstrip('/')}/", f"{part}.rs", f"{part}.py"))


def kinds_told_apart(tree):
    """Files that name a case of a type which only one file tells apart."""
    problems = []
    for kind, home in rules.KINDS.items():
        case = re.compile(rf"\b{kind}::[A-Z]\w*")
        for path in sorted(tree.top.glob("crates/*/src/**/*.rs")):
            file = path.relative_to(tree.top).as_posix()
            code = re.sub(r"//.*", "", path.read_text())
            named = sorted(set(case.findall(code))) if file != home else []
            problems += [f"{file} names {name}; only {home} tells the cases of {kind} apart" for name in named]
    return problems


def forgotten_calls(tree):
    """Calls of our protocol that the client does not make, or that do not reach Python."""

    def code(pattern):
        texts = [re.sub(r"(//|#).*", "", path.read_text()) for path in sorted(tree.top.glob(pattern))]
        return "\n".join(texts)

    rpcs = re.findall(r"\brpc (\w+)\(", code("proto/reverb/replay/v1/*.proto"))
    client = code("crates/reverb-net/src/client/*.rs") + code("crates/reverb-net/src/replay_v1/client/*.rs")
    problems = [
        f"no client makes the call {rpc}"
        for rpc in rpcs
        if not re.search(rf"\.{re.sub(r'(?<!^)(?=[A-Z])', '_', rpc).lower()}\(", client)
    ]
    binding = code("crates/reverb-python/src/**/*.rs")
    calls = re.findall(r"\bimpl ToAll for (\w+)", client)
    problems += [f"the extension makes no call {call}" for call in calls if not re.search(rf"\b{call}\b", binding)]
    stub = code("python/reverb/_rust.pyi").partition("\nclass Client:")[2].partition("\nclass ")[0]
    package = code("python/reverb/**/*.py")
    names = re.findall(r"^    def ([a-z]\w*)\(", stub, re.MULTILINE)
    problems += [f"nothing uses Client.{name} of the extension" for name in names if f".{name}" not in package]
    return problems


def module_floors(tree):
    """Python modules that import what lies above them, or have no floor."""
    return floor_problems(tree.python, rules.MODULES, PACKAGE_FOLDER, "rules.MODULES")


def part_floors(tree):
    """Parts of a crate that use what lies above them, or have no floor."""
    return [
        problem
        for crate, floors in rules.PARTS.items()
        for problem in floor_problems(tree.rust, floors, f"crates/{crate}/src/", f"rules.PARTS[{crate!r}]")
    ]


def floor_problems(graph, floors, folder, where):
    """Files of a folder that use what lies above them, or have no floor, and floors without a file."""
    problems, floor_of, fitting = [], {}, set()
    files = [file for file in graph.names if file.startswith(folder)]
    for file in files:
        entries = [entry for entries in floors for entry in entries if is_below(file, folder + entry)]
        if not entries:
            problems.append(f"{file} has no floor in {where}")
            continue
        best = max(entries, key=len)
        fitting.add(best)
        floor_of[file] = next(number for number, entries in enumerate(floors) if best in entries)
    if files:
        entries = [entry for entries in floors for entry in entries]
        problems += [f"{where} has {entry}, which no file fits" for entry in entries if entry not in fitting]
    for source, target, names in graph.arrows():
        if source in floor_of and target in floor_of and floor_of[target] > floor_of[source]:
            problems.append(f"{source} imports {target} from a floor above: {', '.join(names)}")
    return problems


def loose_files(tree):
    """Crates with more files outside of folders than is allowed."""
    problems = []
    for crate, most in rules.MAX_LOOSE_FILES.items():
        count = sum(1 for _ in (tree.top / "crates" / crate / "src").glob("*.rs"))
        if count > most:
            problems.append(f"crates/{crate}/src has {count} files outside of folders, more than {most}")
    return problems


def importers_of_extension(tree):
    """Modules other than the binding that import the extension."""
    graph = tree.python
    binding = f"{PACKAGE_FOLDER}{rules.BINDING}.py"
    importers = [file for file, names in graph.outside.items() if rules.EXTENSION in names and file != binding]
    return [f"{file} imports {rules.EXTENSION}; only {binding} may" for file in sorted(importers)]


def long_files(tree):
    """Files that have more lines of code than is allowed."""
    return [
        f"{tree.name_of(source)} has {source.count()} lines of code, more than {rules.MAX_LINES}"
        for source in tree.sources
        if source.has_more_than(rules.MAX_LINES)
    ]


def long_functions(tree):
    """Functions that have more lines of code than is allowed. A linter counts those of JavaScript."""
    return [
        f"{tree.name_of(source)}:{function.line}: {function.name} has {function.length} lines of code, "
        f"more than {rules.MAX_FUNCTION_LINES}"
        for source in tree.sources
        if source.path.suffix != ".js" and not any(is_below(tree.name_of(source), part) for part in rules.KEPT)
        for function in source.functions_of_more_than(rules.MAX_FUNCTION_LINES)
    ]


# What reads or changes the environment, and variables that are named for another library to read.
USE_OF_ENVIRONMENT = re.compile(
    r"\b(?:environb?\b|(?:get|put|unset)env\b|envvar=[\"']|env::(?:var|set_var|remove_var)).*"
)


def environment(tree):
    """Uses of environment variables outside the one module for that."""
    problems = []
    for source in tree.sources:
        file = tree.name_of(source)
        if file == rules.ENVIRONMENT or not re.match(r"python/|crates/[\w-]+/src/", file):
            continue
        for number, line in enumerate(source.untested_code().splitlines(), 1):
            used, allowed = USE_OF_ENVIRONMENT.search(line), rules.READS_ENVIRONMENT.get(file)
            if used and not (allowed and f'"{allowed}"' in line):
                problems.append(f"{file}:{number} uses the environment ({used[0]}); only {rules.ENVIRONMENT} does")
    return problems


def error_texts(tree):
    """Code that decides by the text of an error. Tests may: they say what a text must be."""
    problems = []
    for path in code_files(tree.top, ("benchmarks", "examples", "python"), (".py",)):
        file = path.relative_to(tree.top).as_posix()
        problems += [f"{file}:{line}: {text}" for line, text in error_texts_python.found_in(path.read_text())]
    sources = {
        path.relative_to(tree.top).as_posix(): path.read_text()
        for path in sorted(tree.top.glob("crates/*/src/**/*.rs"))
    }
    problems += [f"{file}:{line}: {text}" for file, line, text in error_texts_rust.found_in(sources)]
    return problems


def unlisted_rust_tests(tree):
    """Files of Rust tests that no executable includes: cargo would leave out their tests without a word."""
    tests = sorted(tree.top.glob("crates/*/tests/**/*.rs"))
    included = set()
    for path in tests:
        is_root = path.name in ("main.rs", "mod.rs") or path.parent.name == "tests"
        folder = path.parent if is_root else path.with_suffix("")
        for place, name in re.findall(r'(?:#\[path = "(.+)"\]\s+)?\bmod (\w+);', path.read_text()):
            files = [path.parent / place] if place else [folder / f"{name}.rs", folder / name / "mod.rs"]
            included |= {file.resolve() for file in files}
    return [
        f"{path.relative_to(tree.top).as_posix()} is in no test executable: name it by `mod` in its folder's main.rs"
        for path in tests
        if path.name != "main.rs" and path.parent.name != "tests" and path.resolve() not in included
    ]


def code_files(top, folders, endings):
    for folder in folders:
        for path in sorted((top / folder).rglob("*")):
            parts = path.relative_to(top).parts
            hidden = {part for part in parts if part.startswith(".") or part in ("__pycache__", "node_modules")}
            if path.suffix in endings and not hidden and parts[2:3] != ("target",):
                yield path


ALL = (
    cycles,
    crate_floors,
    foreign_names,
    parts_apart,
    kinds_told_apart,
    forgotten_calls,
    module_floors,
    part_floors,
    loose_files,
    importers_of_extension,
    long_files,
    long_functions,
    environment,
    error_texts,
    unlisted_rust_tests,
)
