"""The remedies in docs/operate.md begin with sentences that servers say."""

import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| `(.+?)`[^|]*\|")


def test_remedies_are_for_sentences_that_exist():
    chapter = (TOP / "docs/operate.md").read_text().partition("## Why is it blocked?")[2].partition("\n## ")[0]
    remedies = [found[1] for line in chapter.splitlines() if (found := ROW.match(line))]
    files = (TOP / "tests/data/sentences").glob("*.txt")
    said = "\n".join(line for file in files for line in file.read_text().splitlines() if line.startswith("> "))
    assert len(remedies) >= 10
    assert [remedy for remedy in remedies if remedy not in said] == []


def test_the_examples_of_verdicts_are_said():
    chapter = (TOP / "docs/operate.md").read_text().partition("## The verdict")[2].partition("\n## ")[0]
    examples = chapter.partition("```text\n")[2].partition("```")[0].splitlines()
    lines = (TOP / "tests/data/sentences/verdicts.txt").read_text().splitlines()
    assert len(examples) == 4
    # How long a server has been idle may be any time.
    assert [line for line in examples if not line.startswith("Idle") and f"> {line}" not in lines] == []
