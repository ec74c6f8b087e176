//! Character classes as Python has them, for the original checkers count with Python's.
//!
//! Python's classes and those of the standard library differ at few but common characters: combining
//! vowel signs are letters to Rust and not to Python, so that a Hindi word is several words to the
//! original checkers.

use unicode_normalization::char::is_combining_mark;

/// `str.isspace` and the pattern class `\s`.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str.strip`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The pattern class `\w`: letters, numbers and the underscore, but no combining marks.
pub(crate) fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    character.is_alphanumeric() && !is_combining_mark(character) && !is_letter_symbol(character)
}

/// Zeros of the decimal systems, each followed by its digits one to nine (general category `Nd`).
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0,
    0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60,
    0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// The pattern class `\d`: a decimal digit of any script.
pub(crate) fn is_digit(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_digit();
    }
    let code = u32::from(character);
    let index = ZEROS.partition_point(|zero| *zero <= code);
    index.checked_sub(1).and_then(|index| ZEROS.get(index)).is_some_and(|zero| code - zero < 10)
}

/// Letters in circles, squares and brackets, which are symbols with the property of letters.
fn is_letter_symbol(character: char) -> bool {
    matches!(character, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}')
}

/// Letters that are half upper, half lower case.
fn is_title(character: char) -> bool {
    matches!(
        character,
        '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}'
            | '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}'
    )
}

/// `str.isupper`: at least one letter with case, and none that is not upper case.
pub(crate) fn is_upper(text: &str) -> bool {
    let mut has_upper = false;
    for character in text.chars() {
        if character.is_lowercase() || is_title(character) {
            return false;
        }
        has_upper |= character.is_uppercase();
    }
    has_upper
}

/// `str.islower`: at least one letter with case, and none that is not lower case.
pub(crate) fn is_lower(text: &str) -> bool {
    let mut has_lower = false;
    for character in text.chars() {
        if character.is_uppercase() || is_title(character) {
            return false;
        }
        has_lower |= character.is_lowercase();
    }
    has_lower
}
