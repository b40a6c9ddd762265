"""Each recipe of CONTRIBUTING.md lists every place of its example."""

import pathlib

import pytest
import recipes
from house_support import write

TOP = pathlib.Path(__file__).parents[2]
DOCUMENT = """# Contributing

## Recipes

### A thing

Example: `BigThing`, `big_thing`. Two places.

1. `crates/one/src/a.rs`: what it does.

| in `python/reverb/` | what |
|---|---|
| `a.py`, `parts/` | its class |

Then `docs/a.md`.

Also `python/reverb/c.py`, if it is heavy.

## A map of the tests

`crates/one/src/z.rs`
"""
FILES = {
    "CONTRIBUTING.md": DOCUMENT,
    "crates/one/Cargo.toml": "",
    "crates/one/src/a.rs": "fn big_thing() {}",
    "crates/one/src/b.rs": "// BigThing\nfn big_thing_2() {}\n#[cfg(test)]\nmod tests {\nuse a::BigThing;\n}",
    "crates/one/tests/a.rs": "fn big_thing() {}",
    "crates/one/web/a.js": "f();",
    "proto/reverb/a.proto": "// BigThing\n",
    "python/reverb/a.py": '"""Has a BigThing."""',
    "python/reverb/parts/a.py": "class BigThing: ...",
    "python/reverb/parts/b.py": "class BigThing: ...",
    "python/reverb/c.py": "",
    "docs/a.md": "`BIG_THING`",
}


def test_recipes_are_read():
    """A check that sees no recipes would accept everything."""
    assert {"A selector", "An RPC", "An error case", "A table option"} <= {
        recipe.title for recipe in recipes.recipes_of(TOP) if len(recipe.listed) > 5
    }


def test_recipes_list_every_place_of_their_examples():
    assert not (problems := recipes.faults(TOP)), "\n".join(["", *problems])


def test_recipe_that_lists_every_place_passes(tmp_path):
    assert recipes.faults(write(tmp_path, FILES)) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("crates/one/build.rs", "fn main() { big_thing() }"),
        ("crates/one/src/b.rs", "use a::{BigThing};"),
        ("crates/one/web/a.js", "f(BigThing);"),
        ("proto/reverb/a.proto", "message BigThing {}"),
        ("python/reverb/b.py", "from reverb.a import BigThing"),
        ("python/reverb/b.pyi", "def big_thing(): ..."),
    ],
)
def test_place_that_a_recipe_omits_is_refused(tmp_path, file, text):
    (problem,) = recipes.faults(write(tmp_path, {**FILES, file: text}))
    assert problem.startswith(f"A thing: {file} has ")


@pytest.mark.parametrize("file", ["crates/one/src/a.rs", "python/reverb/a.py", "docs/a.md"])
def test_place_that_a_recipe_lists_without_need_is_refused(tmp_path, file):
    (problem,) = recipes.faults(write(tmp_path, {**FILES, file: ""}))
    assert problem == f"A thing: {file} is listed, and has none of BigThing, big_thing"


def test_recipe_without_an_example_is_refused(tmp_path):
    (problem,) = recipes.faults(write(tmp_path, {**FILES, "CONTRIBUTING.md": DOCUMENT.replace("Example:", "As in")}))
    assert problem.startswith("A thing: a line `Example: ...`")
