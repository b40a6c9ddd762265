"""The rows of `docs/limits.md` are read from comments, and their numbers from the code."""

import limits
import pytest
from house_support import crate, package, write

CODE = """
use std::time::Duration;

// limit (Tables): waiting requests of one kind at a
// table | {}, {PAUSES.1} apart | `ResourceExhaustedError` after {wait.rs:LONGEST}
// limit (Tables): size of each | {MAX_BYTES} |
/// Maximum number.
#[allow(dead_code)]
pub(crate) const MAX_WAITING: usize = 25 * 4_000;
/// Maximum size.
const MAX_BYTES: u64 = u32::MAX as u64;
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(SECONDS));
const SECONDS: u64 = 2;
"""


@pytest.fixture
def top(tmp_path):
    crate(tmp_path, {"queue.rs": CODE, "deep/wait.rs": "const LONGEST: Duration = Duration::from_secs(3600);"})
    package(
        tmp_path,
        {
            "a.py": """
                # Tries.
                # limit (Draws): tries | {:time} | none
                _TRIES_S = 300.0
            """,
            "b.py": """
                def f(
                    # limit (Draws): data | {:bytes} | none | `f(size=)`
                    size: int = 3 << 20,
                ): ...
            """,
        },
    )
    return write(tmp_path, {limits.DOCUMENT: f"# Limits\n\n{limits.BEGIN}\nold\n{limits.END}\n\nNo more.\n"})


def test_rows_have_the_values_of_constants(top):
    queue = "`one/src/queue.rs`"
    assert limits.rows_of(top) == [
        limits.Row(
            "Tables",
            "waiting requests of one kind at a table",
            "100 000, 2 s apart",
            f"{queue}, `one/src/deep/wait.rs`",
            "`ResourceExhaustedError` after 1 h",
        ),
        limits.Row("Tables", "size of each", "4 GiB", queue, ""),
        limits.Row("Draws", "tries", "300 s", "`python/reverb/a.py`", "none"),
        limits.Row("Draws", "data", "3 MiB", "`f(size=)`", "none"),
    ]


def test_document_keeps_the_text_around_its_tables(top):
    text = limits.document(top)
    assert text.startswith("# Limits\n\n<!-- Made")
    assert text.endswith("-->\n\nNo more.\n")
    assert "\nold\n" not in text
    assert "| size of each | 4 GiB | `one/src/queue.rs` | |\n" in text


@pytest.mark.parametrize(
    ("comment", "fault"),
    [
        ("limit (Nothing): items | {} | none", "expected a section"),
        ("limit (Tables): items | {}", "expected a section"),
        ("limit (Tables): items | 100 | none", "a number that is not taken from a constant"),
        ("limit (Tables): items | {MOST} | none", "{MOST} is not defined"),
        ("limit (Tables): items | {other.rs:MOST} | none", "no file other.rs"),
    ],
)
def test_comments_that_make_no_row_are_refused(top, comment, fault):
    crate(top, {"more.rs": f"// {comment}\nconst MAX: usize = 1;\n"})
    with pytest.raises(limits.LimitError, match=fault):
        limits.rows_of(top)


def test_own_value_of_what_is_no_constant_is_refused(top):
    crate(top, {"more.rs": "// limit (Tables): items | {} | none\nfn f() {}\n"})
    with pytest.raises(limits.LimitError, match="{} is not defined"):
        limits.rows_of(top)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (9999, None, "9999"),
        (1_048_576, None, "1 048 576"),
        (1_048_576, "bytes", "1 MiB"),
        (1000, "bytes", "1000 B"),
        (2**31 - 1, "bytes", "2 GiB"),
        (limits.Seconds(0.0002), None, "200 µs"),
        (limits.Seconds(0.5), None, "500 ms"),
        (1.5, "time", "1.5 s"),
    ],
)
def test_values_are_written_for_people(value, unit, text):
    assert limits.written(value, unit) == text
