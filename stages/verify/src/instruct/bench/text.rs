//! What IFBench's checkers do to a text before they look at it.

use crate::instruct::characters::{is_digit, is_space, is_word};

/// The ASCII punctuation marks, in the order of Python's `string.punctuation`.
pub(super) const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// A text without its ASCII punctuation marks; what stood around them closes up.
pub(super) fn without_punctuation(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii_punctuation()).collect()
}

/// Whether a mark or a space, which the checkers strip from words.
pub(super) fn is_outer(character: char) -> bool {
    character.is_ascii_punctuation() || character == ' '
}

/// The pieces between white space.
pub(super) fn pieces(text: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    text.split(is_space).filter(|piece| !piece.is_empty())
}

/// The first character of a word.
pub(super) fn first(word: &str) -> Option<char> {
    word.chars().next()
}

/// `str.isalpha` for one character.
pub(super) fn is_letter(character: char) -> bool {
    character.is_alphabetic() && is_word(character)
}

/// `str.isalnum` for one character.
pub(super) fn is_alphanumeric(character: char) -> bool {
    character != '_' && is_word(character)
}

/// `str.isdigit` for one character: a decimal digit, or one raised, lowered, circled or bracketed.
pub(super) fn is_numeral(character: char) -> bool {
    is_digit(character)
        || matches!(
            character,
            '²' | '³' | '¹' | '\u{2070}' | '\u{2074}'..='\u{2079}' | '\u{2080}'..='\u{2089}' | '\u{2460}'..='\u{2468}'
                | '\u{2474}'..='\u{247c}' | '\u{2488}'..='\u{2490}' | '\u{24ea}' | '\u{24f5}'..='\u{24fd}' | '\u{24ff}'
                | '\u{2776}'..='\u{277e}' | '\u{2780}'..='\u{2788}' | '\u{278a}'..='\u{2792}'
        )
}

/// Whether `needle` stands in a text with an edge between word and other characters at both its ends.
pub(super) fn has_whole(text: &str, needle: &str) -> bool {
    let mut from = 0;
    while let Some(at) = text[from..].find(needle).map(|at| at + from) {
        if is_edge(text, at) && is_edge(text, at + needle.len()) {
            return true;
        }
        // The next occurrence may begin inside this one.
        from = at + first(&text[at..]).map_or(1, char::len_utf8);
    }
    false
}

/// The pattern assertion `\b`.
fn is_edge(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back().is_some_and(is_word);
    let after = text[at..].chars().next().is_some_and(is_word);
    before != after
}

/// Lower case character by character, as patterns that ignore case compare.
pub(super) fn folded(text: &str) -> String {
    text.chars().map(|character| character.to_lowercase().next().unwrap_or(character)).collect()
}

/// Without marks above and below letters: `São Tomé` becomes `Sao Tome`; other scripts vanish.
pub(super) fn ascii_only(text: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    text.nfkd().filter(char::is_ascii).collect()
}

/// A text as it stands in a reason: one line, at most 40 characters.
pub(super) fn quoted(text: &str) -> String {
    let mut line: String = text.chars().take(40).map(|one| if one.is_control() { ' ' } else { one }).collect();
    if text.chars().nth(40).is_some() {
        line.push('…');
    }
    format!("`{line}`")
}
