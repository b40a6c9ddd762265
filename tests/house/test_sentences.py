"""What `docs/operate.md` says of sentences is what servers say."""

import pathlib

import pytest
import remedies
from house_support import write

TOP = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = """
# after: and the number falls
# means: it fills
# do: wait
min_size 10
> 7 more items

# means: nobody inserts
# do: look
> empty
"""
ROWS = ["| `7 more items`, and the number falls | it fills | wait |", "| `empty` | nobody inserts | look |"]


def test_the_table_of_remedies_is_made_of_what_is_said():
    assert remedies.document(TOP) == (TOP / remedies.DOCUMENT).read_text(), "`make sentences` writes it again"


def test_a_block_is_a_row_and_the_text_around_the_table_stays(tmp_path):
    text = f"# Title\n\n{remedies.BEGIN}\nold\n{remedies.END}\n\nNo more.\n"
    write(tmp_path, {remedies.SENTENCES: BLOCKS, remedies.DOCUMENT: text})
    assert remedies.rows_of(BLOCKS) == ROWS
    made = remedies.document(tmp_path)
    assert made.startswith("# Title\n\n<!--")
    assert made.endswith("-->\n\nNo more.\n")
    assert "\n".join(ROWS) in made
    assert "old" not in made


@pytest.mark.parametrize(
    "block", ["# means: a\n> said", "# means: a\n# do: b", "# means: a\n# do: b\n# what: c\n> said"]
)
def test_blocks_that_make_no_row_are_refused(block):
    with pytest.raises(remedies.RemedyError, match="expected one sentence"):
        remedies.rows_of(block)


def test_a_document_without_a_place_for_the_table_is_refused(tmp_path):
    write(tmp_path, {remedies.SENTENCES: BLOCKS, remedies.DOCUMENT: "# Title\n"})
    with pytest.raises(remedies.RemedyError, match="expected the lines"):
        remedies.document(tmp_path)


def test_the_examples_of_verdicts_are_said():
    chapter = (TOP / "docs/operate.md").read_text().partition("## The verdict")[2].partition("\n## ")[0]
    examples = chapter.partition("```text\n")[2].partition("```")[0].splitlines()
    lines = (TOP / "tests/data/sentences/verdicts.txt").read_text().splitlines()
    assert len(examples) == 4
    # How long a server has been idle may be any time.
    assert [line for line in examples if not line.startswith("Idle") and f"> {line}" not in lines] == []
