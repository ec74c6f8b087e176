//! Splits English text into sentences as NLTK does, for the original checkers count with it.
//!
//! The algorithm is that of Kiss and Strunk, "Unsupervised Multilingual Sentence Boundary Detection"
//! (Computational Linguistics 32, 2006), section 4, with the English model that NLTK ships and the
//! candidate places of NLTK 3.10: a full stop, question or exclamation mark before white space or before
//! a mark that ends words. Curly quotes and guillemets are such marks since 3.10 and were not before.

mod model;
mod words;

use super::characters::is_space;
use model::{Letters, Model};
use std::ops::Range;
use words::{Word, words};

/// The spans of the sentences, in bytes, without the white space between them.
pub(super) fn sentences(text: &str) -> Vec<Range<usize>> {
    realigned(text, &cut(text))
}

/// A mark that may end a sentence, with its surroundings.
#[derive(Clone)]
struct Candidate {
    /// Where the word before it begins.
    word: usize,
    /// The mark itself.
    mark: usize,
    /// Where the next sentence would begin.
    next: usize,
    /// Where the piece after it ends.
    end: usize,
}

/// Marks that end a word wherever they stand, besides the full stop.
fn ends_word(character: char) -> bool {
    matches!(
        character,
        ')' | '"'
            | ';'
            | '}'
            | ']'
            | '*'
            | ':'
            | '@'
            | '\''
            | '('
            | '{'
            | '['
            | '?'
            | '!'
            | '\u{2018}'
            | '\u{2019}'
            | '\u{201c}'
            | '\u{201d}'
            | '\u{ab}'
            | '\u{bb}'
    )
}

/// Whether a mark at `at` has something after it that can begin a sentence.
fn candidate(text: &str, at: usize) -> Option<Candidate> {
    let after = &text[at + 1..];
    let follower = after.chars().next()?;
    if ends_word(follower) {
        return Some(Candidate { word: 0, mark: at, next: at + 1, end: at + 1 + follower.len_utf8() });
    }
    let next = after.trim_start_matches(is_space);
    if next.len() == after.len() || next.is_empty() {
        return None;
    }
    let start = text.len() - next.len();
    Some(Candidate { word: 0, mark: at, next: start, end: start + next.find(is_space).unwrap_or(next.len()) })
}

/// The candidates with the words before them. Of candidates within one word the last remains.
fn candidates(text: &str) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for (at, _) in text.match_indices(['.', '?', '!']) {
        let Some(mut now) = candidate(text, at) else {
            continue;
        };
        let (previous_word, previous_mark) = found.last().map_or((0, 0), |last| (last.word, last.mark));
        let between = &text.as_bytes()[previous_mark..at];
        // white space at the very start does not count, as in the original
        let space = between.iter().rposition(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).filter(|space| *space > 0);
        now.word = space.map_or(previous_word, |space| previous_mark + space + 1);
        if found.last().is_some_and(|last| last.mark > now.word) {
            found.pop();
        }
        found.push(now);
    }
    found
}

/// Cuts at the candidates that end a sentence.
fn cut(text: &str) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for candidate in candidates(text) {
        if has_break(&text[candidate.word..candidate.end]) {
            sentences.push(start..candidate.mark + 1);
            start = candidate.next;
        }
    }
    let end = text.trim_end_matches(is_space).len();
    sentences.push(start..end.max(start));
    sentences
}

/// Moves closing quotes and brackets at the start of a sentence to the end of the one before it.
fn realigned(text: &str, cuts: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut sentences = Vec::with_capacity(cuts.len());
    let mut taken = 0;
    for (index, cut) in cuts.iter().enumerate() {
        let start = cut.start + taken;
        let closers =
            cuts.get(index + 1).and_then(|next| closers(&text[next.clone()]).map(|found| (next.start, found)));
        if let Some((at, (marks, step))) = closers {
            sentences.push(start..at + marks);
            taken = step;
        } else {
            taken = 0;
            if start < cut.end {
                sentences.push(start..cut.end);
            }
        }
    }
    sentences
}

/// The length of the closing marks that `sentence` begins with, and of these with the white space after
/// them; none when something else than white space or a dash touches them.
fn closers(sentence: &str) -> Option<(usize, usize)> {
    let rest = sentence.trim_start_matches([
        '"', '\'', ')', ']', '}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{ab}', '\u{bb}',
    ]);
    let marks = sentence.len() - rest.len();
    let next = rest.trim_start_matches(is_space);
    let ends = rest.is_empty() || next.len() < rest.len() || rest.starts_with("--");
    (marks > 0 && ends).then(|| (marks, sentence.len() - next.len()))
}

/// Whether a sentence ends within a piece of text and something follows it.
fn has_break(piece: &str) -> bool {
    let model = Model::english();
    let mut words = piece.split('\n').flat_map(words);
    let Some(mut word) = words.next() else {
        return false;
    };
    words.any(|next| {
        let ends = ends_sentence(model, &word, &next);
        word = next;
        ends
    })
}

/// Whether a sentence ends between two neighbouring words: first by the word alone, then by what is known
/// of the pair.
fn ends_sentence(model: &Model, word: &Word<'_>, next: &Word<'_>) -> bool {
    let (is_break, is_abbreviation) = first_sight(model, word);
    if !word.text.ends_with('.') {
        return is_break;
    }
    let kind = word.kind();
    let kind = if kind.chars().count() > 1 { kind.strip_suffix('.').unwrap_or(&kind) } else { &kind };
    let next_kind = next.kind();
    let next_kind = if first_sight(model, next).0 && next_kind.chars().count() > 1 {
        next_kind.strip_suffix('.').unwrap_or(&next_kind)
    } else {
        &next_kind
    };
    if model.is_collocation(kind, next_kind) {
        return false;
    }
    let is_initial = word.is_initial();
    let starts = || starts_sentence(model, next, next_kind);
    let mut ends = is_break;
    if (is_abbreviation || word.is_ellipsis()) && !is_initial {
        let is_frequent = || next.is_capital() && model.is_starter(next_kind);
        ends |= starts() == Some(true) || is_frequent();
        if ends {
            return true;
        }
    }
    if is_initial || kind == words::NUMBER {
        let starts = starts();
        let is_name = || is_initial && next.is_capital() && model.letters(next_kind).is_none();
        if starts == Some(false) || starts.is_none() && is_name() {
            return false;
        }
    }
    ends
}

/// Whether a word ends a sentence, and whether it is an abbreviation, as far as the word itself tells.
fn first_sight(model: &Model, word: &Word<'_>) -> (bool, bool) {
    if matches!(word.text, "." | "?" | "!") {
        return (true, false);
    }
    let Some(stem) = word.text.strip_suffix('.').filter(|stem| !stem.ends_with('.') && !word.is_ellipsis()) else {
        return (false, false);
    };
    let stem = stem.to_lowercase();
    let last = stem.rsplit('-').next().unwrap_or_default();
    let is_abbreviation = model.is_abbreviation(&stem) || model.is_abbreviation(last);
    (!is_abbreviation, is_abbreviation)
}

/// Whether the case of its first letter tells that a word starts a sentence; `None` when it tells nothing.
fn starts_sentence(model: &Model, word: &Word<'_>, kind: &str) -> Option<bool> {
    if matches!(word.text, ";" | ":" | "," | "." | "!" | "?") {
        return Some(false);
    }
    let letters = model.letters(kind);
    if word.is_capital() && letters.is_some_and(Letters::is_starter) {
        return Some(true);
    }
    if word.is_small() && !letters.is_some_and(Letters::is_opener) {
        return Some(false);
    }
    None
}
