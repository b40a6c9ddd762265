//! The part of an address after `?`. All values are numbers or words, so nothing is decoded.

use super::answer::Failure;
use axum::http::StatusCode;

/// Maximum number of characters of a value in a failure.
const SHOWN: usize = 40;

/// The part of an address after `?`.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Wraps the text after `?`.
    pub fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// Returns the value of a field; the last one if there are several.
    pub fn text(self, field: &str) -> Option<&'a str> {
        let fields = self.0.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
        fields.rev().find(|(name, _)| *name == field).map(|(_, value)| value)
    }

    /// Returns the value of a field that is a number.
    pub fn number(self, field: &str) -> Result<Option<u64>, Failure> {
        self.text(field).map(|text| number(field, text)).transpose()
    }
}

/// Reads a number of an address. `what` names it in the failure.
pub fn number(what: &str, text: &str) -> Result<u64, Failure> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain).ok_or_else(|| expected(what, "a number", text))
}

/// Makes the failure of a value that is not what was expected.
pub fn expected(what: &str, expected: &str, got: &str) -> Failure {
    let got: String = got.chars().take(SHOWN).collect();
    Failure::new(StatusCode::BAD_REQUEST, format!("{what}: expected {expected}, got `{got}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_numbers_are_plain() {
        let query = Query::new(Some("raw&count=20&order=newest&count=30"));
        assert_eq!((query.text("raw"), query.text("order"), query.text("other")), (Some(""), Some("newest"), None));
        assert_eq!(query.number("count").unwrap(), Some(30));
        assert_eq!(Query::new(None).number("count").unwrap(), None);
        for wrong in ["", "-1", "+1", "1.5", "18446744073709551616", "%31", " 1", "१"] {
            assert!(number("count", wrong).is_err(), "{wrong}");
        }
    }
}
