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
}
