//! An API key that cannot be printed by accident.

use std::fmt;

/// A secret. `Debug` shows nothing of it, there is no `Display` and no `Serialize`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret; white space at its ends (the line end of a file) is dropped.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// Whether this text is the secret. Takes the same time wherever the two differ, so that nobody finds the secret
    /// letter by letter.
    pub fn is_equal_to(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut difference = u8::from(own.len() != other.len());
        for (index, byte) in other.iter().enumerate() {
            let own = own.get(index).copied().unwrap_or_default();
            difference = std::hint::black_box(difference | (own ^ byte));
        }
        difference == 0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text with every occurrence of the secret blanked: servers echo keys in their errors.
    pub(crate) fn redact(&self, text: &str) -> String {
        if self.0.len() < 4 {
            return text.to_owned();
        }
        text.replace(&self.0, "[key]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::new("sk-abcdef\n");
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_eq!(secret.expose(), "sk-abcdef");
        assert_eq!(secret.redact("bad key sk-abcdef!"), "bad key [key]!");
    }

    #[test]
    fn only_the_secret_itself_is_equal_to_it() {
        let secret = Secret::new("sk-abcdef");
        assert!(secret.is_equal_to(b"sk-abcdef"));
        for other in ["", "sk-abcde", "sk-abcdeg", "sk-abcdef\0", "sk-abcdefg", "tk-abcdef"] {
            assert!(!secret.is_equal_to(other.as_bytes()), "{other}");
        }
    }
}
