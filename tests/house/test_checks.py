"""Every check refuses what it is for, and nothing else."""

import checks
import pytest
import rules
from checks import Tree
from house_support import crate, manifest, package, write

FLOORS = (("errors", "_binding"), ("data/",), ("data/make", "client"), ("cli/", "tf/"), ("__init__",))


@pytest.fixture(autouse=True)
def _floors(monkeypatch):
    monkeypatch.setattr(rules, "MODULES", FLOORS)
    monkeypatch.setattr(rules, "APART_IN_PACKAGE", (("cli/", "tf/"),))
    monkeypatch.setattr(rules, "PARTS", {"reverb-net": (("thing",), ("lib",))})


MODULES = {
    "errors.py": "class Error(Exception): ...",
    "_binding.py": "from reverb._rust import Client",
    "data/a.py": "from reverb.errors import Error\nfrom reverb._binding import Client",
    "data/make.py": "from reverb.data.a import Error",
    "client.py": "from reverb.data import make",
    "cli/app.py": "from reverb.client import make",
    "tf/b.py": "",
    "_rust.pyi": "",
}
CRATES = (
    "reverb-core",
    "reverb-formats",
    "reverb-service",
    "reverb-secure",
    "reverb-observe",
    "reverb-store",
    "reverb-net",
    "reverb-python",
)


@pytest.fixture
def top(tmp_path):
    """A tree that every check accepts."""
    for number, name in enumerate(CRATES):
        apart = (
            {"reverb-service", "reverb-secure"},
            {"reverb-store", "reverb-secure"},
            {"reverb-store", "reverb-net"},
            {"reverb-store", "reverb-observe"},
        )
        below = [other for other in CRATES[:number] if {name, other} not in apart]
        uses = "".join(f"use {other.replace('-', '_')}::Thing;" for other in below)
        crate(
            tmp_path,
            {"lib.rs": f"mod thing; pub use thing::Thing; {uses}", "thing.rs": "pub struct Thing;"},
            name,
            below,
        )
    return package(tmp_path, MODULES)


def test_clean_tree_passes_every_check(top):
    assert [problem for check in checks.ALL for problem in check(Tree(top))] == []


def test_cycles_in_both_languages_are_refused(top):
    crate(top, {"thing.rs": "pub struct Thing; pub use crate::other::Other;"}, "reverb-core")
    crate(
        top,
        {"lib.rs": "mod thing; mod other;", "other.rs": "use crate::thing::Thing; pub struct Other;"},
        "reverb-core",
    )
    package(top, {"errors.py": "def f():\n    from reverb.data.a import Error"})
    assert len(checks.cycles(Tree(top))) == 2


def test_crate_that_uses_one_above_is_refused(top):
    write(top, {"crates/reverb-core/Cargo.toml": manifest("reverb-core", "reverb-formats")})
    assert checks.crate_floors(Tree(top)) == [
        "reverb-core/Cargo.toml uses reverb-formats, which does not lie below reverb-core"
    ]


def test_crates_of_one_floor_do_not_use_each_other(top):
    crate(top, {"lib.rs": "use reverb_net::Thing;"}, "reverb-store", ["reverb-net"])
    problems = checks.crate_floors(Tree(top))
    assert len(problems) == 2
    assert "crates/reverb-store/src/lib.rs (reverb_net::thing::Thing) uses reverb-net" in problems[0]


def test_crate_without_a_floor_is_refused(top):
    crate(top, {"lib.rs": ""}, "reverb-more")
    assert checks.crate_floors(Tree(top)) == ["reverb-more has no floor in rules.CRATES"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("reverb-formats", "use std::fs;"),
        ("reverb-formats", "use std::{io, fs::File};"),
        ("reverb-formats", "fn f() { std::fs::read(x) }"),
        ("reverb-formats", "fn f() { log!(tokio::spawn(x)) }"),
        ("reverb-core", "#[tokio::main] async fn f() {}"),
        ("reverb-core", "use pyo3::prelude::*;"),
        ("reverb-core", "use std as s; fn f() { s::net::TcpStream::connect(x) }"),
        ("reverb-net", "use numpy::PyArray1;"),
        ("reverb-observe", "use tonic::Code;"),
        ("reverb-service", "fn f(status: tonic::Status) {}"),
    ],
)
def test_crate_that_names_a_foreign_library_is_refused(top, name, code):
    crate(top, {"lib.rs": code}, name)
    (problem,) = checks.foreign_names(Tree(top))
    assert problem.startswith(f"crates/{name}/src/lib.rs names ")


def test_manifest_that_names_a_foreign_library_is_refused(top):
    write(top, {"crates/reverb-core/Cargo.toml": manifest("reverb-core", "tokio")})
    assert checks.foreign_names(Tree(top)) == ["reverb-core/Cargo.toml names tokio"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("replay_v1/server", "replay_v1/client"),
        ("replay_v1/client", "replay_v1/server"),
        ("replay_v1", "dm_reverb"),
        ("dm_reverb", "replay_v1/client"),
    ],
)
def test_parts_of_a_crate_stay_apart(top, source, target):
    parts = ["replay_v1", "replay_v1/server", "replay_v1/client", "dm_reverb"]
    files = {f"{part}/mod.rs": "pub mod part;" for part in parts} | {
        f"{part}/part.rs": "pub struct P;" for part in parts
    }
    files["lib.rs"] = "mod replay_v1; mod dm_reverb;"
    files["replay_v1/mod.rs"] = "pub mod part; pub mod server; pub mod client;"
    crate(top, files, "reverb-net")
    assert checks.parts_apart(Tree(top)) == []
    crate(top, {f"{source}/part.rs": f"use crate::{target.replace('/', '::')}::part::P;"}, "reverb-net")
    assert len(checks.parts_apart(Tree(top))) == 1


def test_kinds_of_roads_are_told_apart_in_one_file_only(top):
    road = "pub enum Road { Here, There } fn f(road: Road) -> bool { matches!(road, Road::Here) }"
    other = "use crate::client::road::Road; fn g(road: &Road) { road.is_open(); Road::open(); } // Road::Here"
    crate(top, {"client/road.rs": road, "client/other.rs": other}, "reverb-net")
    assert checks.kinds_told_apart(Tree(top)) == []
    crate(top, {"client/other.rs": "fn g(road: Road) { if let Road::There = road {} }"}, "reverb-net")
    assert len(checks.kinds_told_apart(Tree(top))) == 1


def test_a_call_that_does_not_reach_users_is_refused(top):
    write(top, {"proto/reverb/replay/v1/replay.proto": "service S { rpc CountItems(A) returns (B); } // rpc Old()"})
    assert checks.forgotten_calls(Tree(top)) == ["no client makes the call CountItems"]
    code = "impl ToAll for CountItems {} fn f() { service.count_items(request) }"
    crate(top, {"client/unary.rs": code}, "reverb-net")
    assert checks.forgotten_calls(Tree(top)) == ["the extension makes no call CountItems"]
    crate(top, {"client.rs": "fn count(client: &Client) { client.call(CountItems, None) }"}, "reverb-python")
    package(top, {"_rust.pyi": "\nclass Client:\n    def count(self) -> int: ...\n"})
    assert checks.forgotten_calls(Tree(top)) == ["nothing uses Client.count of the extension"]
    package(top, {"client.py": "def count(client): return client.count()"})
    assert checks.forgotten_calls(Tree(top)) == []


def test_parts_of_the_package_stay_apart(top):
    package(top, {"tf/b.py": "def f():\n    import reverb.cli.app\n"})
    (problem,) = checks.parts_apart(Tree(top))
    assert problem.startswith("python/reverb/tf/b.py uses python/reverb/cli/app.py: app; ")


def test_module_that_imports_from_a_floor_above_is_refused(top):
    package(
        top,
        {"errors.py": "def f():\n    from reverb.client import make\n", "data/a.py": "from reverb.data import make"},
    )
    problems = checks.module_floors(Tree(top))
    assert problems[0] == "python/reverb/data/a.py imports python/reverb/data/make.py from a floor above: make"
    assert "python/reverb/errors.py imports python/reverb/client.py from a floor above: make" in problems


def test_module_without_a_floor_and_floor_without_a_module_are_refused(top):
    package(top, {"new.py": ""})
    (top / "python/reverb/client.py").unlink()
    assert checks.module_floors(Tree(top)) == [
        "python/reverb/new.py has no floor in rules.MODULES",
        "rules.MODULES has client, which no file fits",
    ]


def test_part_of_a_crate_that_uses_a_floor_above_is_refused(top, monkeypatch):
    monkeypatch.setitem(rules.PARTS, "reverb-net", (("low/", "thing"), ("high/",), ("gone/",), ("lib",)))
    files = {
        "lib.rs": "mod high; mod low; mod new; mod thing; pub use high::part::P; pub use thing::Thing;",
        "high/mod.rs": "pub mod part;",
        "high/part.rs": "use crate::thing::Thing; pub struct P;",
        "low/mod.rs": "use crate::high::part::P;",
        "new.rs": "",
    }
    crate(top, files, "reverb-net")
    assert checks.part_floors(Tree(top)) == [
        "crates/reverb-net/src/new.rs has no floor in rules.PARTS['reverb-net']",
        "rules.PARTS['reverb-net'] has gone/, which no file fits",
        "crates/reverb-net/src/low/mod.rs imports crates/reverb-net/src/high/part.rs from a floor above: "
        "reverb_net::high::part::P",
    ]


def test_crate_with_many_files_outside_of_folders_is_refused(top):
    crate(top, {f"loose_{number}.rs": "" for number in range(6)} | {"folder/mod.rs": ""}, "reverb-net")
    assert checks.loose_files(Tree(top)) == []
    crate(top, {"loose_6.rs": ""}, "reverb-net")
    assert checks.loose_files(Tree(top)) == ["crates/reverb-net/src has 9 files outside of folders, more than 8"]


@pytest.mark.parametrize("code", ["from reverb import _rust", "import reverb._rust", "from reverb._rust import Client"])
def test_only_the_binding_imports_the_extension(top, code):
    package(top, {"data/a.py": code})
    assert checks.importers_of_extension(Tree(top)) == [
        "python/reverb/data/a.py imports reverb._rust; only python/reverb/_binding.py may"
    ]


FREE = {
    "py": '"""Says\n\nmuch."""\n# And more.\n',
    "rs": "//! Says\n\n/* much */\n/// And more.\n",
    "js": "/* Says */\n\n// much.\n",
}


@pytest.mark.parametrize("folder", ["benchmarks", "crates/reverb-core/tests", "examples", "python", "tests/unit"])
@pytest.mark.parametrize(("ending", "line"), [("py", "f()\n"), ("rs", "use a;\n"), ("js", "f();\n")])
def test_files_with_many_lines_of_code_are_refused(top, folder, ending, line):
    free = FREE[ending]
    write(top, {f"{folder}/short.{ending}": free + line * 500 + free, f"{folder}/long.{ending}": free + line * 501})
    assert checks.long_files(Tree(top)) == [f"{folder}/long.{ending} has 501 lines of code, more than 500"]


def test_functions_with_many_lines_of_code_are_refused(top):
    package(
        top,
        {
            "errors.py": 'def short():\n    """Says\n    much."""\n    # And more.\n\n' + "    f()\n" * 59,
            "data/a.py": "class A:\n  async def long(self):\n" + "    f()\n" * 60,
        },
    )
    short = "fn short() {\n    // Says much.\n\n" + "    f();\n" * 58 + "}\n"
    thing = "impl Thing {\nfn long() {\n" + "    f();\n" * 59 + "}\n}\n"
    crate(top, {"thing.rs": f"pub struct Thing;\n{short}{thing}"}, "reverb-core")
    assert checks.long_functions(Tree(top)) == [
        "crates/reverb-core/src/thing.rs:65: long has 61 lines of code, more than 60",
        "python/reverb/data/a.py:2: long has 61 lines of code, more than 60",
    ]


def test_code_that_decides_by_the_text_of_an_error_is_refused(top):
    package(top, {"errors.py": "def f(error):\n    return 'late' in str(error)"})
    crate(top, {"thing.rs": 'pub struct Thing;\nfn f() { status.message() == "late" }'}, "reverb-core")
    write(top, {"tests/test_a.py": "def f(error): assert 'late' in str(error)"})
    assert checks.error_texts(Tree(top)) == [
        "python/reverb/errors.py:2: 'late' in str(error)",
        'crates/reverb-core/src/thing.rs:2: status.message() == "late"',
    ]


def test_use_of_the_environment_is_refused(top):
    package(
        top,
        {
            "errors.py": "# os.environ\nimport os\nos.getenv('A')\ndel os.environ['A']\n",
            "cli/app.py": "from reverb.client import make\nenvvar='A'\nenvvar=ADDRESS\n",
            "cli/top.py": "os.environ.get('COLUMNS')\nos.environ.get('LINES')\nos.environ.get(\"COLUMNS\")\n",
            "_settings.py": "os.environ",
        },
    )
    crate(top, {"thing.rs": 'pub struct Thing;\nfn f() { std::env::var_os("A") }'}, "reverb-core")
    write(top, {"crates/reverb-core/build.rs": 'std::env::var("OUT_DIR")', "tests/test_a.py": "os.environ"})
    assert [problem.partition(" uses")[0] for problem in checks.environment(Tree(top))] == [
        "crates/reverb-core/src/thing.rs:2",
        "python/reverb/cli/app.py:2",
        "python/reverb/cli/top.py:1",
        "python/reverb/cli/top.py:2",
        "python/reverb/errors.py:3",
        "python/reverb/errors.py:4",
    ]


def test_rust_test_that_no_executable_includes_is_refused(top):
    tests = "crates/reverb-core/tests"
    write(
        top,
        {
            f"{tests}/alone.rs": '#[path = "common/shared.rs"]\nmod shared;',
            f"{tests}/common/shared.rs": "",
            f"{tests}/behaviour/main.rs": "mod listed;",
            f"{tests}/behaviour/listed.rs": "mod part;",
            f"{tests}/behaviour/listed/part.rs": "",
        },
    )
    assert checks.unlisted_rust_tests(Tree(top)) == []
    write(top, {f"{tests}/behaviour/forgotten.rs": ""})
    (problem,) = checks.unlisted_rust_tests(Tree(top))
    assert problem.startswith(f"{tests}/behaviour/forgotten.rs is in no test executable")
