//! Every sentence about limiters and verdicts, in tables that people have read: `tests/data/sentences/`.
//!
//! A file has blocks. The lines of a block describe a state, and those that begin with `>` are what is said of it.
//! `make sentences` writes the latter again. Read what it changes.

mod limiters;
mod remedies;
mod states;
mod verdicts;

use std::path::PathBuf;

/// Compares what is said of each block of a file with its lines, or writes them.
fn check(file: &str, says: impl Fn(&[&str]) -> Vec<String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/sentences").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let block = |block: &str| {
        let state: Vec<&str> = block.lines().filter(|line| !line.starts_with('>')).collect();
        let described: Vec<&str> = state.iter().filter(|line| !line.starts_with('#')).copied().collect();
        let said = says(&described).into_iter().map(|line| format!("> {line}"));
        state.iter().map(|line| (*line).to_owned()).chain(said).collect::<Vec<_>>().join("\n")
    };
    let blocks: Vec<String> = text.trim().split("\n\n").map(block).collect();
    let said = format!("{}\n", blocks.join("\n\n"));
    if std::env::var_os("WRITE_SENTENCES").is_some() {
        std::fs::write(&path, said).unwrap();
        return;
    }
    for (said, expected) in blocks.iter().zip(text.trim().split("\n\n")) {
        assert_eq!(said, expected, "`make sentences` writes {file} again");
    }
}
