import rust_imports
from house_support import crate, rust_arrows, write

A_TYPE = "pub struct Thing; pub fn make() {} pub enum Kind { Small, Large }"


def test_use_lines_are_arrows_to_where_names_are_defined(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; mod c; mod d; mod e;",
        "a.rs": A_TYPE,
        "b.rs": "use crate::a::Thing;",
        "c.rs": "use crate::{self as top, a::{make as build, Kind::{self, Small}}};",
        "d.rs": "use super::a; fn f() { a::make() }",
        "e.rs": "use self::super::a::*; fn f(thing: Thing) {}",
    }
    assert rust_arrows(crate(tmp_path, files)) == {(f"{name}.rs", "a.rs") for name in "bcde"}


def test_declaring_a_module_and_importing_one_are_no_arrows(tmp_path):
    files = {"lib.rs": "pub mod a; mod b;", "a.rs": A_TYPE, "b.rs": "use crate::a; use a::*;"}
    assert rust_arrows(crate(tmp_path, files)) == set()


def test_paths_written_in_full_are_arrows_wherever_they_stand(tmp_path):
    places = {
        "call": "fn f() { crate::a::make() }",
        "type": "fn f(x: &[Vec<crate::a::Thing>]) {}",
        "bound": "fn f<T: Into<crate::a::Thing>>(x: T) {}",
        "turbofish": "fn f() { g::<crate::a::Thing>(); x.collect::<Vec<super::a::Thing>>() }",
        "pattern": "fn f(x: u8) { match x { crate::a::Kind::Small => 1, _ => 2 } }",
        "cast": "impl<T> X for Y<T> where T: crate::a::Thing {}",
        "qualified": "fn f() { <crate::a::Thing as Default>::default() }",
        "impls": "impl super::a::Thing { fn f(&self) {} }",
        "attribute": "#[derive(crate::a::Thing)] struct X;",
        "attribute_text": '#[serde(with = "crate::a::make")] struct X;',
        "derived": 'struct X { #[serde(default = "crate::a::make")] x: u8 }',
        "macro_call": "fn f() { vec![1, crate::a::make()] }",
        "macro_deep": "fn f() { outer!(inner!({ x => crate::a::Thing { y } })) }",
        "macro_use": "thread_local! { use crate::a::{Kind, self as b}; }",
        "macro_rule": "macro_rules! m { ($x:expr) => { $crate::a::make($x) } }",
        "inside_function": "fn f() { if true { use crate::a::make; make() } }",
        "constant": "const X: u8 = { crate::a::make() };",
        "inline_module": "mod inner { mod more { fn f() { super::super::super::a::make() } } }",
    }
    files = {"lib.rs": "mod a;" + "".join(f"mod {name};" for name in places), "a.rs": A_TYPE}
    files |= {f"{name}.rs": text for name, text in places.items()}
    assert rust_arrows(crate(tmp_path, files)) == {(f"{name}.rs", "a.rs") for name in places}


def test_what_only_tests_compile_is_left_out(tmp_path):
    tests = "#[cfg(test)] mod tests { use crate::a::Thing; } #[test] fn f() { crate::a::make() }"
    more = "#[cfg(all(test, unix))] use crate::a::Kind; #[cfg(test)] mod in_file;"
    files = {"lib.rs": "mod a; mod b;", "a.rs": A_TYPE, "b.rs": tests + more, "b/in_file.rs": "use crate::a::Thing;"}
    write(tmp_path, {"crates/one/tests/t.rs": "use one::a::Thing;", "crates/one/benches/b.rs": "use one::a::Thing;"})
    assert rust_arrows(crate(tmp_path, files)) == set()


def test_comments_and_visibility_are_no_arrows(tmp_path):
    text = "//! [`crate::a::Thing`]\n/// See [`crate::a::make`].\npub(in crate::a) fn f() {} /* crate::a::make() */"
    assert rust_arrows(crate(tmp_path, {"lib.rs": "mod a; mod b;", "a.rs": A_TYPE, "b.rs": text})) == set()


def test_arrows_pass_through_re_exports(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; mod c; pub use a::Thing as Renamed; use a::deep::Deep;",
        "a/mod.rs": "pub mod deep; pub use deep::Thing;",
        "a/deep.rs": "pub struct Thing; pub struct Deep;",
        "b.rs": "use crate::Renamed;",
        "c.rs": "fn f() { super::Deep::new() }",
    }
    arrows = rust_arrows(crate(tmp_path, files))
    assert {("b.rs", "a/deep.rs"), ("c.rs", "a/deep.rs")} <= arrows
    assert {target for source, target in arrows if source in ("b.rs", "c.rs")} == {"a/deep.rs"}
    # To re-export is an arrow of its own.
    assert ("a/mod.rs", "a/deep.rs") in arrows


def test_arrows_pass_through_globs_to_what_is_used(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; mod c; mod all;",
        "a.rs": A_TYPE,
        "b.rs": "pub struct Other;",
        "all.rs": "pub use crate::a::*; pub use crate::b::Other;",
        "c.rs": "use crate::all::*; fn f(thing: Thing) {}",
    }
    arrows = rust_arrows(crate(tmp_path, files))
    assert {target for source, target in arrows if source == "c.rs"} == {"a.rs"}
    assert ("all.rs", "a.rs") in arrows


def test_child_that_uses_a_name_of_its_parent_is_an_arrow(tmp_path):
    files = {
        "lib.rs": "mod table;",
        "table/mod.rs": "mod draw; pub use draw::Drawn; use std::sync::Arc; pub struct Table; fn check() {}",
        "table/draw.rs": "use super::Table; pub struct Drawn;",
    }
    graph = rust_imports.graph_of(crate(tmp_path, files))
    (text,) = graph.cycles()
    assert "one::table::Table" in text
    assert "one::table::draw::Drawn" in text


def test_child_that_uses_what_its_parent_re_exports_is_no_arrow_to_the_parent(tmp_path):
    files = {
        "lib.rs": "mod table;",
        "table/mod.rs": "mod draw; mod item; pub use draw::Drawn; pub use item::Item;",
        "table/draw.rs": "use super::Item; use super::item::make; pub struct Drawn;",
        "table/item.rs": "pub struct Item; pub fn make() {}",
    }
    graph = rust_imports.graph_of(crate(tmp_path, files))
    assert graph.cycles() == []
    assert ("table/draw.rs", "table/item.rs") in rust_arrows(tmp_path)
    assert ("table/draw.rs", "table/mod.rs") not in rust_arrows(tmp_path)


def test_both_styles_of_folders_are_read(tmp_path):
    files = {
        "lib.rs": 'mod gather; mod a; #[path = "odd/place.rs"] mod elsewhere;',
        "a.rs": A_TYPE,
        "gather.rs": "mod rows; mod inline { mod below; }",
        "gather/rows.rs": "use crate::a::Thing;",
        "gather/inline/below.rs": "use crate::a::Thing;",
        "odd/place.rs": "use crate::a::Thing; mod under;",
        "odd/under.rs": "use crate::a::Thing;",
    }
    sources = ("gather/rows.rs", "gather/inline/below.rs", "odd/place.rs", "odd/under.rs")
    assert rust_arrows(crate(tmp_path, files)) == {(source, "a.rs") for source in sources}


def test_names_of_other_crates_lead_to_their_files(tmp_path):
    base = {"lib.rs": "pub mod a; mod b; pub use b::Hidden;", "a.rs": A_TYPE, "b.rs": "pub struct Hidden;"}
    crate(tmp_path, base, "my-base")
    files = {"lib.rs": "use my_base::Hidden; fn f() { ::my_base::a::make(); use bytes::Bytes; }"}
    arrows = rust_arrows(crate(tmp_path, files))
    assert {target for source, target in arrows if source == "lib.rs"} == {"my-base/a.rs", "my-base/b.rs"}
    assert rust_imports.graph_of(tmp_path).outside["crates/one/src/lib.rs"] == {"bytes::Bytes"}


def test_names_that_a_macro_or_a_build_script_makes_belong_to_the_module(tmp_path):
    files = {
        "lib.rs": "mod proto; mod kinds; mod b;",
        "proto.rs": 'pub mod v1 { include!(concat!(env!("OUT_DIR"), "/v1.rs")); } pub use self::v1 as current;',
        "kinds.rs": "macro_rules! kinds { () => {} } kinds! { Small, Large }",
        "b.rs": "use crate::proto::current::{Request, item::Kind}; fn f(x: crate::kinds::Kind) {}",
    }
    assert rust_arrows(crate(tmp_path, files)) == {("b.rs", "proto.rs"), ("b.rs", "kinds.rs")}


def test_macros_are_names_too(tmp_path):
    files = {
        "lib.rs": "#[macro_use] mod shown; macro_rules! early { () => {} } mod a; mod b; mod c; mod d;",
        "shown.rs": "macro_rules! shown { () => {} }",
        "a.rs": """
            #[macro_export] macro_rules! exported { () => {} }
            macro_rules! handed { () => {} }
            pub(crate) use handed;
        """,
        "b.rs": "fn f() { crate::exported!() }",
        "c.rs": "use crate::a::handed; fn f() { vec![handed!()] }",
        "d.rs": "fn f() { shown!(); early!(); println!() }",
    }
    expected = {("b.rs", "a.rs"), ("c.rs", "a.rs"), ("d.rs", "shown.rs"), ("d.rs", "lib.rs")}
    assert rust_arrows(crate(tmp_path, files)) == expected


def test_local_names_of_a_function_lead_on(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; mod c;",
        "a/mod.rs": "pub mod deep;",
        "a/deep.rs": A_TYPE,
        "b.rs": "fn f() { use crate::a as other; other::deep::make() }",
        "c.rs": "use crate::a::deep::Kind; fn f() { Kind::Small } struct Thing; fn g() { Thing::new() }",
    }
    assert rust_arrows(crate(tmp_path, files)) == {("b.rs", "a/deep.rs"), ("c.rs", "a/deep.rs")}


def test_cycle_is_found_through_a_re_export(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; pub use b::Front;",
        "a.rs": "use crate::Front; pub struct Thing;",
        "b.rs": "pub struct Front(crate::a::Thing);",
    }
    (text,) = rust_imports.graph_of(crate(tmp_path, files)).cycles()
    assert "crates/one/src/a.rs -> crates/one/src/b.rs: one::b::Front" in text
    assert "crates/one/src/b.rs -> crates/one/src/a.rs: one::a::Thing" in text


def test_shortest_cycle_of_a_larger_set_is_shown(tmp_path):
    files = {
        "lib.rs": "mod a; mod b; mod c; mod d;",
        "a.rs": "pub struct A(crate::b::B);",
        "b.rs": "pub struct B(crate::c::C);",
        "c.rs": "pub struct C(crate::a::A, crate::d::D);",
        "d.rs": "pub struct D(crate::c::C);",
    }
    (text,) = rust_imports.graph_of(crate(tmp_path, files)).cycles()
    assert text.startswith("a cycle of 4 files: ")
    assert text.count(" -> ") == 2
    assert "one::d::D" in text


def test_tree_without_cycles_has_none(tmp_path):
    files = {"lib.rs": "mod a; mod b; pub use b::B;", "a.rs": "pub struct A;", "b.rs": "use crate::a::A; pub struct B;"}
    assert rust_imports.graph_of(crate(tmp_path, files)).cycles() == []
