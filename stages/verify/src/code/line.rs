//! Text of unknown origin, cut to a piece of one readable line.

/// Letters of a piece.
const LETTERS: usize = 80;

/// `text` in backticks, on one line, without control characters, shortened in the middle.
pub(super) fn shortened(text: &str) -> String {
    format!("`{}`", cut(text, LETTERS))
}

/// `text` on one line of at most about `letters` letters.
pub(super) fn cut(text: &str, letters: usize) -> String {
    let count = text.chars().take(letters + 1).count();
    if count <= letters {
        return clean(text.chars());
    }
    let tail = letters / 4;
    let rest = text.char_indices().rev().nth(tail.saturating_sub(1)).map_or("", |(at, _)| &text[at..]);
    format!("{}...{}", clean(text.chars().take(letters - tail)), clean(rest.chars()))
}

fn clean(letters: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for letter in letters {
        // format characters may turn a line around or hide it
        let hides =
            matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if letter.is_control() || hides {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

/// The last line of `bytes` that says something, at most 200 letters; empty when there is none.
pub(super) fn last(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().find(|line| !line.trim().is_empty()).map_or_else(String::new, |line| cut(line.trim(), 200))
}

#[cfg(test)]
mod tests {
    use super::{cut, last, shortened};

    #[test]
    fn a_piece_is_one_line_without_control_characters() {
        assert_eq!(shortened("a\nb\u{1b}[31m\u{202e}"), "`a\\nb\\u{1b}[31m\\u{202e}`");
        assert_eq!(cut(&"数".repeat(100), 8), format!("{}...数数", "数".repeat(6)));
        assert_eq!(cut("abcdefgh", 8), "abcdefgh");
        assert_eq!(last(b"Traceback\n  x\nValueError: bad\n\n"), "ValueError: bad");
        assert_eq!(last(b"\n \n"), "");
    }
}
