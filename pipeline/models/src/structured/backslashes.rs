//! Backslashes of LaTeX that a model forgot to write twice inside JSON text.
//!
//! `"\sqrt"` is no JSON at all, and `"\frac"` is worse: it reads as a form feed and `rac`. So a backslash that begins no
//! JSON escape stands for itself, and so does one whose escape nobody means before these letters. `\n` and `\t` are left
//! alone unless a word of LaTeX follows that no text goes on with.

use std::borrow::Cow;

/// What follows `\n` in LaTeX.
const AFTER_N: [&str; 4] = ["eq", "abla", "otin", "ewline"];
/// What follows `\t` in LaTeX.
const AFTER_T: [&str; 9] = ["imes", "ext", "heta", "frac", "riangle", "ilde", "anh", "herefore", "extbf"];

/// The text with such backslashes written twice. Outside of JSON texts there are none that matter, so prose needs no
/// telling apart.
pub(super) fn mend(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let (mut copied, mut position) = (0, 0);
    while let Some(at) = text[position..].find('\\').map(|offset| position + offset) {
        if is_escape(&text[at + 1..]) {
            // all that can follow is one byte long
            position = at + 2;
        } else {
            mended.push_str(&text[copied..at]);
            mended.push_str("\\\\");
            copied = at + 1;
            position = copied;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

/// Whether what follows a backslash makes an escape that is meant.
fn is_escape(rest: &str) -> bool {
    let goes_on = |words: &[&str]| {
        let after = rest.get(1..).unwrap_or_default();
        words.iter().filter_map(|word| after.strip_prefix(word)).any(|end| !end.starts_with(char::is_alphabetic))
    };
    let is_letter = |at: usize| rest.as_bytes().get(at).is_some_and(u8::is_ascii_alphabetic);
    match rest.as_bytes().first() {
        Some(b'"' | b'\\' | b'/') => true,
        Some(b'n') => !goes_on(&AFTER_N),
        Some(b't') => !goes_on(&AFTER_T),
        Some(b'b' | b'f' | b'r') => !is_letter(1),
        Some(b'u') => rest.as_bytes().get(1..5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::mend;

    #[test]
    fn latex_with_single_backslashes_is_read_as_it_was_meant() {
        for (written, meant) in [
            (r#""\frac{1}{2}""#, r"\frac{1}{2}"),
            (r#""\\frac{1}{2}""#, r"\frac{1}{2}"),
            (r#""\sqrt{2} \cdot \(x\) \% \{1\}""#, r"\sqrt{2} \cdot \(x\) \% \{1\}"),
            (r#""a \times b \neq \theta""#, r"a \times b \neq \theta"),
            (r#""\beta \rho \right) \underline{x} \u2264""#, "\\beta \\rho \\right) \\underline{x} ≤"),
            (r#""\text{求}x\nabla f""#, r"\text{求}x\nabla f"),
            (r#""one\ntwo\tthree\nequal\r\n\textile""#, "one\ntwo\tthree\nequal\r\n\textile"),
            (r#""say \"x\" \/ \\""#, "say \"x\" / \\"),
        ] {
            let read: String = serde_json::from_str(&mend(written)).unwrap();
            assert_eq!(read, meant, "{written}");
        }
    }
}
