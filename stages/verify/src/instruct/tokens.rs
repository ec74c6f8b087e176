//! Word tokens after the conventions of the Penn Treebank, as NLTK 3.10 makes them (`word_tokenize`).
//!
//! The conventions part marks from words by putting spaces around them, one convention after the other;
//! their order is part of them, for a mark that was parted early is seen by the later ones. Here they
//! run over one buffer, and those whose mark does not occur are skipped.

use super::characters::{is_digit, is_space, is_word};
use std::ops::Range;

/// The tokens of a text: spans of a text of its own, since quotes are rewritten.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    text: String,
    spans: Vec<Range<usize>>,
}

impl Tokens {
    /// Makes the tokens of the sentences of a text.
    pub fn new<'t>(sentences: impl Iterator<Item = &'t str>) -> Self {
        let mut tokens = Self::default();
        let mut passes = Passes::default();
        for sentence in sentences {
            let start = tokens.text.len();
            tokens.text.push_str(passes.run(sentence));
            tokens.text.push(' ');
            let mut from = start;
            for (length, character) in tokens.text[start..].char_indices() {
                if is_space(character) {
                    let at = start + length;
                    if at > from {
                        tokens.spans.push(from..at);
                    }
                    from = at + character.len_utf8();
                }
            }
        }
        tokens
    }

    /// The tokens in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.spans.iter().map(|span| &self.text[span.clone()])
    }
}

/// The text on its way through the conventions.
#[derive(Default)]
struct Passes {
    text: String,
    next: String,
}

impl Passes {
    fn run(&mut self, sentence: &str) -> &str {
        self.text.clear();
        self.text.push_str(sentence);
        self.opening_quotes();
        self.punctuation();
        self.pad(|mark| matches!(mark, '[' | ']' | '(' | ')' | '{' | '}' | '<' | '>'));
        self.replace("--", " -- ");
        self.text.insert(0, ' ');
        self.text.push(' ');
        self.closing_quotes();
        self.contractions();
        &self.text
    }

    fn opening_quotes(&mut self) {
        self.pad(|mark| matches!(mark, '«' | '“' | '‘' | '„'));
        self.pad_runs('`', 1);
        if self.text.starts_with('"') {
            self.text.replace_range(..1, "``");
        }
        self.replace("``", " `` ");
        if self.text.contains(['"', '\'']) {
            self.rewrite(|rest, out, _| {
                let opener = rest.chars().next().filter(|opener| " ([{<".contains(*opener))?;
                let quote = ["\"", "''"].into_iter().find(|quote| rest[1..].starts_with(*quote))?;
                out.push(opener);
                out.push_str(" `` ");
                Some(1 + quote.len())
            });
        }
        if self.text.contains('\'') {
            self.rewrite(|rest, out, before| {
                let after = rest.strip_prefix('\'')?;
                let parts = !before.is_some_and(is_word) && after.starts_with(is_word) && !is_clitic(after);
                out.push_str(if parts { "' " } else { "'" });
                Some(1)
            });
        }
    }

    fn punctuation(&mut self) {
        self.final_stop();
        if self.text.contains([':', ',']) {
            self.rewrite(|rest, out, _| {
                let mut characters = rest.chars();
                let mark = characters.next().filter(|mark| matches!(mark, ':' | ','))?;
                let follower = characters.next().filter(|follower| !is_digit(*follower))?;
                out.extend([' ', mark, ' ', follower]);
                Some(1 + follower.len_utf8())
            });
        }
        if let Some(mark) = self.text.chars().next_back().filter(|mark| matches!(mark, ':' | ',')) {
            self.text.pop();
            self.text.extend([' ', mark, ' ']);
        }
        self.pad_runs('.', 2);
        self.pad(|mark| matches!(mark, ';' | '@' | '#' | '$' | '%' | '&' | '\u{2012}'..='\u{2015}'));
        self.pad(|mark| matches!(mark, '?' | '!'));
        if self.text.contains("' ") {
            self.rewrite(|rest, out, _| {
                let first = rest.chars().next().filter(|first| *first != '\'')?;
                rest[first.len_utf8()..].strip_prefix("' ")?;
                out.push(first);
                out.push_str(" ' ");
                Some(first.len_utf8() + 2)
            });
        }
        self.pad(|mark| mark == '*');
    }

    /// Parts the full stop that ends the sentence, perhaps before closing quotes and brackets.
    fn final_stop(&mut self) {
        let text = self.text.trim_end_matches(is_space);
        let stem = text.trim_end_matches([']', ')', '}', '>', '"', '\'', '»', '”', '’', ' ']);
        let closers = &self.text[stem.len()..];
        let closers = &closers[..closers.trim_end_matches(|mark| is_space(mark) && mark != ' ').len()];
        if let Some(before) = stem.strip_suffix('.').filter(|before| !before.is_empty() && !before.ends_with('.')) {
            self.next.clear();
            for piece in [before, " . ", closers, " "] {
                self.next.push_str(piece);
            }
            std::mem::swap(&mut self.text, &mut self.next);
        }
    }

    fn closing_quotes(&mut self) {
        self.pad(|mark| matches!(mark, '»' | '”' | '’'));
        self.replace("''", " '' ");
        self.replace("\"", " '' ");
        self.plain_spaces();
        if !self.text.contains('\'') {
            return;
        }
        for endings in [&["'s ", "'S ", "'m ", "'M ", "'d ", "'D ", "' "][..], &CLITICS] {
            self.rewrite(|rest, out, _| {
                let first = rest.chars().next().filter(|first| !matches!(first, '\'' | ' '))?;
                let after = &rest[first.len_utf8()..];
                let ending = endings.iter().find(|ending| after.starts_with(**ending))?;
                out.extend([first, ' ']);
                out.push_str(ending);
                Some(first.len_utf8() + ending.len())
            });
        }
    }

    /// Parts words that are two: `cannot`, `gimme`, `more'n`.
    fn contractions(&mut self) {
        let mut before = None;
        let has_one = self.text.char_indices().any(|(at, character)| {
            let found = contraction(&self.text[at..], before);
            before = Some(character);
            found.is_some()
        });
        if has_one {
            self.rewrite(|rest, out, before| {
                let (head, length) = contraction(rest, before)?;
                for piece in [" ", &rest[..head], " ", &rest[head..length], " "] {
                    out.push_str(piece);
                }
                Some(length)
            });
        }
    }

    /// Puts spaces around each character of a class.
    fn pad(&mut self, is_mark: impl Fn(char) -> bool) {
        if self.text.contains(&is_mark) {
            self.rewrite(|rest, out, _| {
                let mark = rest.chars().next().filter(|mark| is_mark(*mark))?;
                out.extend([' ', mark, ' ']);
                Some(mark.len_utf8())
            });
        }
    }

    /// Puts spaces around the runs of an ASCII character that have a least length.
    fn pad_runs(&mut self, mark: char, least: usize) {
        if self.text.contains(mark) {
            self.rewrite(|rest, out, _| {
                let run = rest.len() - rest.trim_start_matches(mark).len();
                if run == 0 {
                    return None;
                }
                let space = if run < least { "" } else { " " };
                for piece in [space, &rest[..run], space] {
                    out.push_str(piece);
                }
                Some(run)
            });
        }
    }

    fn replace(&mut self, mark: &str, by: &str) {
        if self.text.contains(mark) {
            self.text = self.text.replace(mark, by);
        }
    }

    /// Makes all white space spaces.
    fn plain_spaces(&mut self) {
        if self.text.contains(|character| character != ' ' && is_space(character)) {
            self.text = self.text.replace(is_space, " ");
        }
    }

    /// Goes through the text once. `step` sees what is left and the character before it; it writes what it
    /// replaces and says how many bytes that was, or leaves the next character as it is.
    fn rewrite(&mut self, mut step: impl FnMut(&str, &mut String, Option<char>) -> Option<usize>) {
        self.next.clear();
        let (mut at, mut before) = (0, None);
        while let Some(character) = self.text[at..].chars().next() {
            let length = step(&self.text[at..], &mut self.next, before).unwrap_or_else(|| {
                self.next.push(character);
                character.len_utf8()
            });
            before = self.text[at..at + length].chars().next_back();
            at += length;
        }
        std::mem::swap(&mut self.text, &mut self.next);
    }
}

/// Endings that are words of their own.
const CLITICS: [&str; 8] = ["'ll ", "'LL ", "'re ", "'RE ", "'ve ", "'VE ", "n't ", "N'T "];

/// Whether a text begins with an ending that stays with its apostrophe.
fn is_clitic(text: &str) -> bool {
    ["re", "ve", "ll", "m", "t", "s", "d", "n"].iter().any(|clitic| {
        text.get(..clitic.len()).is_some_and(|head| head.eq_ignore_ascii_case(clitic))
            && !text[clitic.len()..].starts_with(is_word)
    })
}

/// The contraction that a text begins with: the length of its first word, and of both.
fn contraction(text: &str, before: Option<char>) -> Option<(usize, usize)> {
    const PAIRS: [(&str, &str); 8] = [
        ("can", "not"),
        ("d", "'ye"),
        ("gim", "me"),
        ("gon", "na"),
        ("got", "ta"),
        ("lem", "me"),
        ("more", "'n"),
        ("wan", "na"),
    ];
    let first = text.as_bytes().first()?.to_ascii_lowercase();
    if !matches!(first, b'c' | b'd' | b'g' | b'l' | b'm' | b'w') || before.is_some_and(is_word) {
        return None;
    }
    PAIRS.iter().find_map(|(head, tail)| {
        let length = head.len() + tail.len();
        let is_pair = text.get(..head.len())?.eq_ignore_ascii_case(head)
            && text.get(head.len()..length)?.eq_ignore_ascii_case(tail);
        let after = text.get(length..)?.chars().next();
        let is_whole = if *head == "wan" { after.is_some_and(is_space) } else { !after.is_some_and(is_word) };
        (is_pair && is_whole).then_some((head.len(), length))
    })
}
