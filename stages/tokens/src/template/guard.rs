//! Keeps what messages say apart from what the template makes.
//!
//! A template puts text together, and in the text nobody can tell a control token that the template wrote from one that a
//! user spelled. So a mark is set into every control token that a message spells, before the template sees it: a
//! character that occurs nowhere in the conversation. The template's own tests (`in`, `split`, `trim`, slices) still see the
//! message. The result is cut at the control tokens that are left, which are the template's; the marks are taken out of
//! what is between, and that is encoded as ordinary text.

use std::collections::BTreeSet;

use crate::error::TokensError;
use crate::tokenizer::{Special, Tokenizer};

/// Marks one conversation for one tokenizer.
pub(super) struct Guard<'t> {
    tokenizer: &'t Tokenizer,
    mark: char,
}

/// Characters that Unicode keeps free for such uses, then private ones.
fn candidates() -> impl Iterator<Item = char> {
    ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{ffffd}')
}

impl<'t> Guard<'t> {
    /// `texts` are all that is said, and the template.
    pub(super) fn new(tokenizer: &'t Tokenizer, texts: impl Iterator<Item = String>) -> Result<Self, TokensError> {
        let is_candidate = |character: &char| *character >= '\u{fdd0}';
        let mut used: BTreeSet<char> = BTreeSet::new();
        for text in texts {
            used.extend(text.chars().filter(is_candidate));
        }
        for special in tokenizer.specials() {
            used.extend(special.text.chars().filter(is_candidate));
        }
        match candidates().find(|mark| !used.contains(mark)) {
            Some(mark) => Ok(Self { tokenizer, mark }),
            None => Err(TokensError::Template {
                line: None,
                message: "the conversation uses every private character: no mark is left".to_owned(),
            }),
        }
    }

    /// The text with a mark in every control token that it spells, and where its ends could complete one together with
    /// what the template puts beside it.
    pub(super) fn protect(&self, text: &str) -> String {
        let mut marks = BTreeSet::new();
        let specials = self.tokenizer.special_matcher();
        for found in specials.iter().flat_map(|specials| specials.anywhere.find_overlapping_iter(text)) {
            marks.insert(breaking(text, found.start()));
        }
        let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
        for special in self.tokenizer.specials() {
            for (cut, _) in special.text.char_indices().skip(1) {
                let (head, tail) = special.text.split_at(cut);
                for begin in [0, start] {
                    if text[begin..].starts_with(tail) {
                        marks.insert(begin);
                    }
                }
                for stop in [text.len(), end] {
                    if stop >= start && text[..stop].ends_with(head) {
                        marks.insert(breaking(text, stop - head.len()));
                    }
                }
            }
        }
        let mut marked = String::with_capacity(text.len() + marks.len() * self.mark.len_utf8());
        let mut from = 0;
        for at in marks {
            marked.push_str(&text[from..at]);
            marked.push(self.mark);
            from = at;
        }
        marked.push_str(&text[from..]);
        marked
    }

    /// The ids of a filled-in template.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut start = 0;
        let specials = self.tokenizer.special_matcher();
        for found in specials.iter().flat_map(|specials| specials.longest.find_iter(text)) {
            let Some(special) = self.tokenizer.specials().get(found.pattern().as_usize()) else { continue };
            // a control token of a single character cannot be broken: a mark behind it says that a message spelled it
            if special.text.chars().nth(1).is_none() && text[found.end()..].starts_with(self.mark) {
                continue;
            }
            let (from, to) = with_spaces(text, special, found.start(), found.end());
            self.ordinary(&text[start..from.max(start)], &mut ids);
            ids.push(special.id);
            start = to;
        }
        self.ordinary(&text[start..], &mut ids);
        ids
    }

    fn ordinary(&self, text: &str, ids: &mut Vec<u32>) {
        if text.contains(self.mark) {
            ids.extend(self.tokenizer.encode(&text.replace(self.mark, "")));
        } else if !text.is_empty() {
            ids.extend(self.tokenizer.encode(text));
        }
    }
}

/// Where a mark breaks the control token that begins at `start`: after its first character.
fn breaking(text: &str, start: usize) -> usize {
    start + text[start..].chars().next().map_or(0, char::len_utf8)
}

/// Some control tokens take in the white space before or after them.
fn with_spaces(text: &str, special: &Special, start: usize, end: usize) -> (usize, usize) {
    let from = if special.takes_left { text[..start].trim_end().len() } else { start };
    let rest = &text[end..];
    let to = if special.takes_right { end + rest.len() - rest.trim_start().len() } else { end };
    (from, to)
}
