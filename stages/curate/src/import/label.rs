//! Labels and options as users' files have them: behind `####`, in the last box, as a 0-based position, with letters
//! in front of options.

use std::borrow::Cow;

/// The text after the last `marker`, without white space around it; `None` where there is no marker.
pub fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.rfind(marker).and_then(|at| text.get(at + marker.len()..)).map(str::trim)
}

/// The content of the last `\boxed{...}` whose braces balance. Escaped braces do not count; boxes may nest, the outer
/// one is meant.
pub fn last_box(text: &str) -> Option<&str> {
    const BOX: &str = "\\boxed";
    let mut found: Option<(usize, usize)> = None;
    for (at, _) in text.match_indices(BOX) {
        if found.is_some_and(|(_, end)| at < end) {
            continue;
        }
        let after = at + BOX.len();
        let Some(rest) = text.get(after..) else {
            continue;
        };
        let inner = rest.trim_start();
        if !inner.starts_with('{') {
            continue;
        }
        let start = after + (rest.len() - inner.len()) + 1;
        if let Some(length) = text.get(start..).and_then(balanced) {
            found = Some((start, start + length));
        }
    }
    found.and_then(|(start, end)| text.get(start..end))
}

/// Bytes before the brace that closes one opened just before `text`.
fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The letter of a 0-based position among `options` (26 where their number is not known); a single letter stays as it
/// is. `None` for anything else.
pub fn letter(label: &str, options: Option<usize>) -> Option<Cow<'_, str>> {
    let trimmed = label.trim();
    if let [letter] = trimmed.as_bytes()
        && letter.is_ascii_alphabetic()
    {
        return Some(Cow::Borrowed(trimmed));
    }
    let whole = trimmed.strip_suffix(".0").unwrap_or(trimmed);
    let index: u8 = whole.parse().ok()?;
    let is_there = usize::from(index) < options.unwrap_or(26).min(26);
    is_there.then(|| Cow::Owned(char::from(b'A' + index).to_string()))
}

/// Takes `A)`, `(A)`, `A.` or `A:` off the options when each has its own letter; else leaves them. Says whether it
/// took any.
pub fn strip_letters(options: &mut [Cow<'_, str>]) -> bool {
    let stripped: Option<Vec<String>> =
        (b'A'..=b'Z').zip(options.iter()).map(|(letter, option)| without_letter(option, letter)).collect();
    match stripped {
        Some(stripped) if stripped.len() == options.len() && !options.is_empty() => {
            for (option, text) in options.iter_mut().zip(stripped) {
                *option = Cow::Owned(text);
            }
            true
        }
        _ => false,
    }
}

fn without_letter(option: &str, letter: u8) -> Option<String> {
    let letter = char::from(letter);
    let option = option.trim_start();
    let is_ours = |found: char| found.eq_ignore_ascii_case(&letter);
    let rest = match option.strip_prefix('(') {
        Some(inner) => inner.strip_prefix(is_ours)?.strip_prefix(')')?,
        None => option.strip_prefix(is_ours)?.strip_prefix([')', '.', ':'])?,
    };
    Some(rest.trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_stands_behind_the_last_marker() {
        assert_eq!(after("a #### 1\n#### 1,080 \n", "####"), Some("1,080"));
        assert_eq!(after("no marker", "####"), None);
        assert_eq!(after("####", "####"), Some(""));
    }

    #[test]
    fn the_last_balanced_box_counts() {
        let cases = [
            (r"\boxed{1} and \boxed{\frac{1}{2}}", Some(r"\frac{1}{2}")),
            (r"\boxed{a \boxed{b} c}.", Some(r"a \boxed{b} c")),
            (r"\boxed{\left\{1, 2\right\}}", Some(r"\left\{1, 2\right\}")),
            (r"\boxed{3} then \boxed{4", Some("3")),
            (r"\boxed {x}", Some("x")),
            (r"\boxed 5", None),
            ("三\\boxed{四}五", Some("四")),
            ("", None),
        ];
        for (text, label) in cases {
            assert_eq!(last_box(text), label, "{text}");
        }
    }

    #[test]
    fn a_position_becomes_a_letter_and_a_letter_stays() {
        assert_eq!(letter("0", Some(4)).as_deref(), Some("A"));
        assert_eq!(letter("3.0", Some(4)).as_deref(), Some("D"));
        assert_eq!(letter("C", Some(4)).as_deref(), Some("C"));
        assert_eq!(letter("4", Some(4)), None);
        assert_eq!(letter("25", None).as_deref(), Some("Z"));
        assert_eq!(letter("-1", None), None);
        assert_eq!(letter("blue", None), None);
    }

    #[test]
    fn letters_leave_options_only_together() {
        let mut all: Vec<Cow<'_, str>> = vec!["A)(1,1)".into(), "(B) 2".into(), "c. x".into(), "D: y".into()];
        assert!(strip_letters(&mut all));
        assert_eq!(all, ["(1,1)", "2", "x", "y"]);
        let mut some: Vec<Cow<'_, str>> = vec!["wheat".into(), "B. subtilis".into()];
        assert!(!strip_letters(&mut some));
        assert_eq!(some, ["wheat", "B. subtilis"]);
        assert!(!strip_letters(&mut []));
    }
}
