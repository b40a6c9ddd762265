"""Writes the types of the documents of a server for the scripts of its page: `make document-types`."""

import pathlib
import re

import rust_syntax
import table_figures

SCHEMA = "crates/reverb-observe/src/documents/schema.rs"
TYPES = "crates/reverb-observe/web/documents.d.ts"
HEAD = """// @generated from `crates/reverb-observe/src/documents/schema.rs` by `make document-types`.
"""
SIMPLE = {"String": "string", "&'static str": "string", "bool": "boolean"}
NUMBER = re.compile(r"[iu](8|16|32|64|size)|f(32|64)")


def interfaces(top):
    """The text of the file: an interface for each struct of the schema."""
    parts = [HEAD]
    docs = []
    for node in rust_syntax.parse((top / SCHEMA).read_text()).named_children:
        if node.type == "line_comment":
            docs.append(node)
        elif node.type == "struct_item":
            name, fields = (node.child_by_field_name(field) for field in ("name", "body"))
            parts.append(f"{comment(docs)}interface {name.text.decode()} {{\n{''.join(members(top, fields))}}}\n")
        if node.type not in ("line_comment", "attribute_item"):
            docs = []
    return "\n".join(parts)


def members(top, fields):
    docs = []
    for node in fields.named_children:
        if node.type == "line_comment":
            docs.append(node)
        elif node.text == b"#[serde(flatten)]" and node.next_named_sibling.text == b"pub figures: Value":
            yield from figures(top)
        elif node.text == b"pub figures: Value":
            docs = []
        elif node.type == "field_declaration":
            name, type_ = (node.child_by_field_name(field).text.decode() for field in ("name", "type"))
            yield f"{comment(docs, '  ')}  {name}: {typescript(type_)};\n"
            docs = []
        else:
            raise ValueError(f"{SCHEMA}: cannot read {node.text.decode()}")


def figures(top):
    """The figures of a table: those of waiting requests and histograms have documents of their own."""
    for figure in table_figures.figures_of(top):
        if figure.type is not None and ".of(" not in figure.metric:
            type_ = {"dict[str, int]": "Record<string, number>"}.get(figure.type, "number")
            absent = "" if figure.group == "reference" else " | null"
            yield f"  /** {figure.help} */\n  {figure.name}: {type_}{absent};\n"


def typescript(rust):
    """The type in JSON of a type in Rust."""
    if generic := re.fullmatch(r"(Option|Vec)<(.*)>", rust):
        inner = typescript(generic[2])
        if generic[1] == "Option":
            return f"{inner} | null"
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if NUMBER.fullmatch(rust):
        return "number"
    if not (rust in SIMPLE or re.fullmatch(r"\w+Document", rust)):
        raise ValueError(f"{SCHEMA}: no type of JSON is known for {rust}")
    return SIMPLE.get(rust, rust)


def comment(docs, margin=""):
    texts = [node.text.decode().strip().removeprefix("///") for node in docs if node.text.startswith(b"///")]
    text = re.sub(r"\[`(.*?)`\]", r"`\1`", "".join(texts).strip()).replace("::", ".")
    return f"{margin}/** {text} */\n" if text else ""


if __name__ == "__main__":
    top = pathlib.Path(__file__).resolve().parents[2]
    (top / TYPES).write_text(interfaces(top))
