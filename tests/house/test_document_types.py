"""The page's scripts know the documents of the server as its structs define them."""

import pathlib

import document_types
import pytest
import table_figures
from house_support import write

TOP = pathlib.Path(__file__).parents[2]
STRUCTS = """
//! The documents.

use serde::Serialize;

/// `/api/v1/a`: see
/// [`BDocument::list`].
#[derive(Debug, Serialize)]
pub struct ADocument {
    /// Its name.
    pub name: String,
    pub kind: &'static str,
    /// Its size.
    pub size: Option<u64>,
    pub is_old: bool,
}

/// B.
pub struct BDocument {
    pub list: Vec<ADocument>,
    pub shape: Option<Vec<Option<f64>>>,
}
"""
TYPES = """
/** `/api/v1/a`: see `BDocument.list`. */
interface ADocument {
  /** Its name. */
  name: string;
  kind: string;
  /** Its size. */
  size: number | null;
  is_old: boolean;
}

/** B. */
interface BDocument {
  list: ADocument[];
  shape: (number | null)[] | null;
}
"""


def test_types_of_the_page_are_those_of_the_documents():
    assert (TOP / document_types.TYPES).read_text() == document_types.interfaces(TOP), "run `make document-types`"


def test_structs_become_interfaces(tmp_path):
    write(tmp_path, {document_types.SCHEMA: STRUCTS})
    assert document_types.interfaces(tmp_path) == document_types.HEAD + TYPES


@pytest.mark.parametrize("field", ["pub map: HashMap<String, u64>,", "#[serde(flatten)]\n pub more: BDocument,"])
def test_what_has_no_type_is_refused(tmp_path, field):
    write(tmp_path, {document_types.SCHEMA: STRUCTS.replace("pub is_old: bool,", field)})
    with pytest.raises(ValueError, match="no type of JSON is known|cannot read"):
        document_types.interfaces(tmp_path)


def test_figures_of_a_table_have_the_types_of_their_declaration(tmp_path):
    fields = "pub is_old: bool,\n    #[serde(flatten)]\n    pub figures: Value,"
    declaration = """
            reference {
                /// Items in the table.
                current_size ("items"): u64, GAUGE, Total;
            }
            later {
                /// Items that left, by reason.
                removed ("removals"): Option<RemovalCounts>, COUNTER, Total;
                /// Inserts that wait.
                waiting_inserts: Option<u64>, WAITING.of("insert"), Total;
                /// Time that inserts waited.
                insert_wait: Option<WaitHistogram>, WAITS, Total;
            }
"""
    write(tmp_path, {document_types.SCHEMA: STRUCTS.replace("pub is_old: bool,", fields)})
    (tmp_path / table_figures.DECLARATION).parent.mkdir(parents=True)
    (tmp_path / table_figures.DECLARATION).write_text(declaration)
    assert (
        "  is_old: boolean;\n"
        "  /** Items in the table. */\n  items: number;\n"
        "  /** Items that left, by reason. */\n  removals: Record<string, number> | null;\n"
        "}\n"
    ) in document_types.interfaces(tmp_path)
