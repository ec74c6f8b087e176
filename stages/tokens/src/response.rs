//! A model's answer as ids: the one rule by which answers are scored and trained on.

use crate::ends::EndTokens;
use crate::tokenizer::Tokenizer;

/// What a model wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// The text, reasoning included, as it was written.
    pub text: &'a str,
    /// Whether it is complete: then the token that ends a turn stands behind it.
    pub is_complete: bool,
    /// Ids of the text as they were drawn, the end included where there was one.
    pub token_ids: Option<&'a [u32]>,
    /// Digest of the tokenizer behind `token_ids`.
    pub tokenizer: Option<&'a str>,
}

impl Response<'_> {
    /// Ids of the answer as it follows the prompt, with one end behind a complete one.
    ///
    /// Stored ids are taken where they are by this very tokenizer and say this very text: a text can be cut into tokens in
    /// many ways, and a model is best judged on the one that was drawn. Otherwise the text is encoded, and control tokens
    /// that it spells are text like any other. What follows the first end in stored ids was never drawn and is left out.
    pub fn ids(&self, tokenizer: &Tokenizer, ends: &EndTokens) -> Vec<u32> {
        let is_own = self.tokenizer == Some(tokenizer.digest());
        // ids may go on behind the text: a stop string ends a text, but not the token that completes it
        let are_the_text = |ids: &[u32]| String::from_utf8_lossy(&tokenizer.decode(ids)) == self.text;
        let mut ids = match self.token_ids.map(|ids| up_to_an_end(ids, ends)) {
            Some(given) if is_own && are_the_text(given) => given.to_vec(),
            _ => tokenizer.encode(self.text),
        };
        let has_end = ids.last().is_some_and(|id| ends.ends_at(*id));
        if self.is_complete && !has_end {
            ids.extend(ends.turn_end());
        }
        ids
    }
}

/// The ids up to the first end, with it.
fn up_to_an_end<'a>(ids: &'a [u32], ends: &EndTokens) -> &'a [u32] {
    let length = ids.iter().position(|id| ends.ends_at(*id)).map_or(ids.len(), |place| place + 1);
    &ids[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_tokenizer;

    #[test]
    fn an_answer_has_one_end_however_many_are_stored() {
        let tokenizer = Tokenizer::from_json(byte_tokenizer(&["<start>", "<end>"]).as_bytes()).unwrap();
        let ends = EndTokens::new(vec![257], &tokenizer, None);
        let own = Some(tokenizer.digest());
        let ids = |text, is_complete, token_ids, tokenizer_digest| {
            Response { text, is_complete, token_ids, tokenizer: tokenizer_digest }.ids(&tokenizer, &ends)
        };
        assert_eq!(ids("ab", true, Some(&[97, 98, 257, 257, 99][..]), own), [97, 98, 257]);
        assert_eq!(ids("ab", true, Some(&[97, 98][..]), own), [97, 98, 257]);
        assert_eq!(ids("ab", false, Some(&[97, 98][..]), own), [97, 98]);
        assert_eq!(ids("ab", false, None, None), [97, 98]);
        // another tokenizer's ids, and ids of another text
        assert_eq!(ids("ab", true, Some(&[1, 2, 3][..]), Some("sha256:other")), [97, 98, 257]);
        assert_eq!(ids("ab", true, Some(&[97, 99, 257][..]), own), [97, 98, 257]);
        // a control token that the text spells is text
        assert_eq!(ids("<end>", true, None, None), [60, 101, 110, 100, 62, 257]);
    }
}
