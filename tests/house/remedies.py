"""Writes the table of remedies in `docs/operate.md` from the sentences that servers say: `make sentences`.

`tests/data/sentences/remedies.txt` has a block for each row. Its line that begins with `>` is what is said, as a Rust
test checks; `# means:` and `# do:` fill the other columns, and `# after:` follows the sentence.
"""

import pathlib
import re

DOCUMENT = "docs/operate.md"
SENTENCES = "tests/data/sentences/remedies.txt"
BEGIN, END = "<!-- Made by `make sentences`. -->", "<!-- The end of what it makes. -->"
COMMENT = re.compile(r"# (?P<name>\w+): (?P<text>.+)")


class RemedyError(ValueError):
    """A block that cannot be made a row."""


def rows_of(text):
    """The rows of all blocks, as lines of a table."""
    return [_row(block.splitlines()) for block in text.strip().split("\n\n")]


def _row(lines):
    said = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    told = dict(found.group("name", "text") for line in lines if (found := COMMENT.fullmatch(line)))
    if len(said) != 1 or not {"means", "do"} <= set(told) <= {"means", "do", "after"}:
        raise RemedyError(f"expected one sentence, `# means:` and `# do:` in the block\n{chr(10).join(lines)}")
    after = f", {told['after']}" if "after" in told else ""
    return f"| `{said[0]}`{after} | {told['means']} | {told['do']} |"


def document(top):
    """The text of the document, with a new table."""
    before, begin, rest = (top / DOCUMENT).read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RemedyError(f"{DOCUMENT}: expected the lines {BEGIN} and {END}")
    head = ["| it says | what it means | what to do |", "|---|---|---|"]
    table = "\n".join([*head, *rows_of((top / SENTENCES).read_text())])
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    top = pathlib.Path(__file__).resolve().parents[2]
    (top / DOCUMENT).write_text(document(top))
