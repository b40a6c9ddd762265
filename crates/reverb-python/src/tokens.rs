//! `reverb._rust.tokens_of_text`.

use crate::errors::PyReverbResult;
use pyo3::prelude::*;
use reverb_secure::TokenEntry;

/// Returns the names and roles of the tokens in the text of a file of tokens.
#[pyfunction]
pub fn tokens_of_text(text: &str, name: &str) -> PyReverbResult<Vec<(String, &'static str)>> {
    let entries = reverb_secure::tokens_of_text(text, name)?;
    Ok(entries.into_iter().map(|TokenEntry { name, role, .. }| (name, role.name())).collect())
}
