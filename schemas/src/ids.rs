//! Ids that depend on content alone, so that they agree between machines, runs and orders of rows.

/// One chat message, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'a str,
    /// Text, byte-exact.
    pub content: &'a str,
    /// Tool calls as JSON text.
    pub tool_calls: Option<&'a str>,
}

/// Hashes length-prefixed fields, so that moving text from one field to the next changes the id.
#[derive(Debug)]
pub struct IdHasher(blake3::Hasher);

impl IdHasher {
    /// Starts an id of one kind; ids of two kinds never agree by accident.
    pub fn new(kind: &str) -> Self {
        let mut hasher = Self(blake3::Hasher::new());
        hasher.text(kind);
        hasher
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
        self
    }

    /// Adds a text that may be missing; a missing one differs from an empty one.
    pub fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.number(1).text(text),
            None => self.number(0),
        }
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// The id: 24 lowercase hexadecimal digits (96 bits).
    pub fn finish(&self) -> String {
        self.0.finalize().to_hex()[..24].to_owned()
    }
}

/// Id of a query: hash of domain, messages and options. The label is not in it: one id with two labels is a conflict
/// that `dedup` reports.
pub fn query_id<'a>(
    domain: Option<&str>,
    messages: impl ExactSizeIterator<Item = MessageRef<'a>>,
    options: Option<&[&str]>,
) -> String {
    let mut hasher = IdHasher::new("query");
    hasher.optional(domain).number(messages.len() as u64);
    for message in messages {
        hasher.text(message.role).text(message.content).optional(message.tool_calls);
    }
    let options = options.unwrap_or_default();
    hasher.number(options.len() as u64);
    for option in options {
        hasher.text(option);
    }
    hasher.finish()
}

/// Id of a trace: hash of the query's id, the model's identity, the sampling parameters as canonical JSON, salt and
/// sample index.
pub fn trace_id(query_id: &str, model: &str, sampling: &str, salt: &str, sample: u32) -> String {
    IdHasher::new("trace").text(query_id).text(model).text(sampling).text(salt).number(u64::from(sample)).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(content: &str) -> MessageRef<'_> {
        MessageRef { role: "user", content, tool_calls: None }
    }

    #[test]
    fn an_id_depends_on_domain_messages_and_options_only() {
        let id = query_id(Some("math"), [user("1+1")].into_iter(), None);
        assert_eq!(id.len(), 24);
        assert_eq!(id, query_id(Some("math"), [user("1+1")].into_iter(), Some(&[])));
        assert_ne!(id, query_id(Some("stem"), [user("1+1")].into_iter(), None));
        assert_ne!(id, query_id(Some("math"), [user("1+2")].into_iter(), None));
        assert_ne!(id, query_id(Some("math"), [user("1+1")].into_iter(), Some(&["2"])));
    }

    #[test]
    fn text_cannot_move_between_fields_unnoticed() {
        let joined = query_id(None, [user("ab"), user("c")].into_iter(), None);
        let moved = query_id(None, [user("a"), user("bc")].into_iter(), None);
        assert_ne!(joined, moved);
    }
}
