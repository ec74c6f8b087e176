//! Folds single characters for matching and says what kind of token each one builds.
//!
//! Folding is compatibility decomposition (NFKD) followed by lower-casing. Decomposed and composed
//! spellings of a letter fold to the same characters, so no composition step is needed to compare texts.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// What one folded character does to the token under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Part of a word in a script that separates words.
    Letter,
    /// Decimal digit, already folded to ASCII.
    Digit,
    /// A token by itself: scripts written without spaces between words.
    Single,
    /// Belongs to the character before it.
    Mark,
    /// White space.
    Space,
    /// Has no bearing on matching, and does not end a token either (joiners, soft hyphen, tatweel).
    Ignored,
    /// Punctuation and symbols.
    Symbol,
}

/// Class of a character that [`fold`] has produced.
pub(crate) fn classify(character: char) -> Class {
    match character {
        'a'..='z' => Class::Letter,
        '0'..='9' => Class::Digit,
        _ if character.is_whitespace() => Class::Space,
        _ if character.is_ascii() => Class::Symbol,
        _ if is_ignored(character) => Class::Ignored,
        _ if is_combining_mark(character) => Class::Mark,
        _ if character.is_alphanumeric() => {
            if is_unspaced(character) {
                Class::Single
            } else {
                Class::Letter
            }
        }
        _ => Class::Symbol,
    }
}

/// Whether a character as it stands in a text folds to a letter of a word.
pub(crate) fn is_letter(character: char) -> bool {
    let mut first = None;
    fold(character, |part| {
        first.get_or_insert(part);
    });
    first.is_some_and(|part| classify(part) == Class::Letter)
}

/// Calls `emit` with each folded character of `character`: width and compatibility forms decomposed,
/// case folded, decimal digits of all scripts as ASCII.
pub(crate) fn fold(character: char, mut emit: impl FnMut(char)) {
    if let Some(digit) = decimal_digit(character) {
        emit(digit);
        return;
    }
    decompose_compatible(character, |part| {
        for lower in part.to_lowercase() {
            match lower {
                'ß' => {
                    emit('s');
                    emit('s');
                }
                'ς' => emit('σ'),
                other => emit(other),
            }
        }
    });
}

/// Raised and lowered digits: `10²` is ten and two, not a hundred and two.
pub(crate) fn is_raised_or_lowered(character: char) -> bool {
    matches!(character, '²' | '³' | '¹' | '\u{2070}'..='\u{2089}')
}

/// One-character fractions: `1½` is one and a half, not eleven halves.
pub(crate) fn is_vulgar_fraction(character: char) -> bool {
    matches!(character, '\u{BC}'..='\u{BE}' | '\u{2150}'..='\u{215F}' | '\u{2189}')
}

/// The arithmetic operator or relation that a symbol stands for, in one spelling for all.
pub(crate) fn operator(symbol: char) -> Option<char> {
    Some(match symbol {
        '+' | '±' | '^' | '<' | '>' | '=' | '≠' | '≤' | '≥' => symbol,
        '-' | '−' | '–' => '-',
        '*' | '×' | '·' | '⋅' | '∙' | '∗' => '*',
        '/' | '÷' | '∕' | '⁄' => '/',
        _ => return None,
    })
}

fn is_ignored(character: char) -> bool {
    matches!(
        character,
        '\u{AD}' | '\u{640}' | '\u{61C}' | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{E0100}'..='\u{E01EF}'
    )
}

fn is_unspaced(character: char) -> bool {
    matches!(
        character,
        '\u{E00}'..='\u{FFF}'            // Thai, Lao, Tibetan
            | '\u{1000}'..='\u{109F}'    // Burmese
            | '\u{1780}'..='\u{17FF}'    // Khmer
            | '\u{3005}'..='\u{3007}'    // ideographic iteration mark, closing mark, zero
            | '\u{3021}'..='\u{3029}'
            | '\u{3040}'..='\u{312F}'    // Hiragana, Katakana, Bopomofo
            | '\u{31A0}'..='\u{31BF}'
            | '\u{31F0}'..='\u{31FF}'
            | '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'    // Han
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{3FFFF}'
    )
}

/// Zeros of the decimal digit runs of scripts in everyday use; the nine digits follow each.
const ZEROS: [u32; 20] = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040,
    0x17E0, 0x1810, 0x1946, 0xFF10,
];

fn decimal_digit(character: char) -> Option<char> {
    let code = u32::from(character);
    if code < ZEROS[0] {
        return None;
    }
    let zero = ZEROS.iter().rev().find(|zero| **zero <= code)?;
    let value = code - zero;
    if value < 10 { char::from_digit(value, 10) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut out = String::new();
        for character in text.chars() {
            fold(character, |part| out.push(part));
        }
        out
    }

    #[test]
    fn composed_and_decomposed_letters_fold_alike() {
        assert_eq!(folded("É"), folded("e\u{301}"));
        assert_eq!(folded("が"), folded("か\u{3099}"));
    }

    #[test]
    fn width_case_and_digit_forms_fold_to_one() {
        assert_eq!(folded("ＡＢ１２"), "ab12");
        assert_eq!(folded("STRASSE"), folded("straße"));
        assert_eq!(folded("ΟΔΟΣ"), folded("οδος"));
        assert_eq!(folded("٣५"), "35");
        assert_eq!(folded("ﬁ"), "fi");
    }

    #[test]
    fn scripts_have_the_class_of_their_spacing() {
        assert_eq!(classify('數'), Class::Single);
        assert_eq!(classify('ก'), Class::Single);
        assert_eq!(classify('я'), Class::Letter);
        assert_eq!(classify('ع'), Class::Letter);
        assert_eq!(classify('न'), Class::Letter);
        assert_eq!(classify('\u{94D}'), Class::Mark);
        assert_eq!(classify('。'), Class::Symbol);
    }
}
