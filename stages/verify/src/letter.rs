//! Finds the letter a text chooses.

use crate::extract::{Extraction, boxes};

/// What a piece of text chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// One option.
    One(char),
    /// More than one.
    Several,
    /// No option.
    None,
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The letters of a set of `count` options; ten when the count is not known.
pub fn letters(count: usize) -> &'static str {
    &LETTERS[..if count == 0 { 10 } else { count.min(LETTERS.len()) }]
}

/// A text that is a letter and nothing more: `D`, `(D)`, `\text{D}`, `**D**`.
pub fn only_letter(text: &str, set: &str) -> Option<char> {
    let (at, letter) = opened(text, set)?;
    let rest = &text[at..];
    rest.chars().all(|mark| mark.is_whitespace() || ".)]}*$\"'。）".contains(mark)).then_some(letter)
}

/// A text that is two or more letters and nothing more: `AC`, `A, C`, `A and C`; the letters sorted.
pub fn letter_set(text: &str, set: &str) -> Option<Vec<char>> {
    if text.len() > 60 {
        return None;
    }
    let plain = ["\\text", "\\mathrm", "\\textbf", "and", "&", "和"]
        .iter()
        .fold(text.to_string(), |text, word| text.replace(word, " "));
    let mut found = Vec::new();
    for letter in plain.chars() {
        if set.contains(letter) {
            if found.contains(&letter) {
                return None;
            }
            found.push(letter);
        } else if !(letter.is_whitespace() || ",;、，()[]{}$.*\\".contains(letter)) {
            return None;
        }
    }
    found.sort_unstable();
    (found.len() > 1).then_some(found)
}

/// Skips decoration and reads a letter; gives the byte after it.
fn opened(text: &str, set: &str) -> Option<(usize, char)> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let skipped = [
            "\\textbf{",
            "\\text{",
            "\\mathrm{",
            "\\mathbf{",
            "\\textrm{",
            "\\boxed{",
            "\\fbox{",
            "option",
            "Option",
            "Choice",
            "choice",
            "选项",
            "故选",
            "应选",
            "选",
            "I choose",
            "\\left",
            "\\(",
        ]
        .into_iter()
        .find(|word| rest.starts_with(word));
        if let Some(word) = skipped {
            at += word.len();
            continue;
        }
        let letter = rest.chars().next()?;
        if letter.is_whitespace() || "*$([{\"'（【:：".contains(letter) {
            at += letter.len_utf8();
            continue;
        }
        if !set.contains(letter) {
            return None;
        }
        at += letter.len_utf8();
        let next = text[at..].chars().next();
        return (!next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_' || next == '\'' || next == '’'))
            .then_some((at, letter));
    }
}

/// The option that `text` begins with, as in a box or after "the answer is".
pub fn leading_letter(text: &str, set: &str) -> Choice {
    let run: String = text.trim().trim_matches(|mark: char| "*$().{}".contains(mark)).to_string();
    if run.len() > 1 && run.len() <= set.len() && run.chars().all(|letter| set.contains(letter)) && run.len() <= 4 {
        return Choice::Several;
    }
    let Some((at, letter)) = opened(text, set) else {
        return Choice::None;
    };
    let decorated = at > letter.len_utf8();
    let rest = &text[at..];
    let tail = rest.trim_start_matches([' ', '}', '$']);
    if tail.starts_with(|next| "=+-*^/_<>≤≥≠".contains(next)) && !tail.starts_with("**") {
        return Choice::None;
    }
    // an article or the pronoun: a lower-case word follows
    let word = rest.strip_prefix(' ').and_then(|rest| rest.chars().next());
    if word.is_some_and(char::is_lowercase) && !decorated && matches!(letter, 'A' | 'I') && joined(rest, set).is_none()
    {
        return Choice::None;
    }
    match joined(rest, set) {
        Some(other) if other != letter => Choice::Several,
        _ => Choice::One(letter),
    }
}

/// A second letter joined to the first by a comma, "and" or "or".
fn joined(rest: &str, set: &str) -> Option<char> {
    let trimmed = rest.trim_start_matches(|mark: char| mark.is_whitespace() || ")}]*$".contains(mark));
    let after = [",", ";", "and ", "or ", "/", "&", "和", "或", "、", "，"]
        .into_iter()
        .find_map(|word| trimmed.strip_prefix(word))?;
    let after = after.trim_start().trim_start_matches("and ").trim_start_matches("or ");
    let (at, letter) = opened(after, set)?;
    let next = after[at..].trim_start().chars().next();
    next.is_none_or(|next| !next.is_lowercase()).then_some(letter)
}

/// The last choice of a text, where it stands, and whether it is only a guess.
pub fn chosen<'a>(section: &'a str, set: &str, extraction: Extraction) -> Option<(Choice, &'a str, bool)> {
    let anchored = last_anchor(section, set);
    let boxed = boxes(section).ok()?.into_iter().rev().find_map(|found| {
        let content = &section[found.content.clone()];
        let choice = leading_letter(content, set);
        (choice != Choice::None).then_some((found.whole.start, choice, content))
    });
    match (anchored, boxed) {
        (Some((at, choice, place)), Some((box_at, ..))) if at >= box_at => {
            return Some((choice, place, false));
        }
        (_, Some((_, choice, place))) | (Some((_, choice, place)), None) => {
            return Some((choice, place, false));
        }
        (None, None) => {}
    }
    if let Some((choice, place)) = marked_line(section, set) {
        return Some((choice, place, false));
    }
    if extraction == Extraction::Lenient {
        return last_letter(section, set).map(|(letter, place)| (Choice::One(letter), place, true));
    }
    None
}

/// The last "answer is X", "答案选 X", "option X" that names a letter.
fn last_anchor<'a>(section: &'a str, set: &str) -> Option<(usize, Choice, &'a str)> {
    let lower = section.to_ascii_lowercase();
    let words = ["answer", "correct option", "correct choice", "答案", "应选", "故选", "选择", "选"];
    let mut spots: Vec<(usize, usize)> =
        words.iter().flat_map(|word| lower.match_indices(word).map(|(at, found)| (at, at + found.len()))).collect();
    spots.sort_unstable();
    for (at, end) in spots.into_iter().rev().take(12) {
        let line_end = section[end..].find(['\n', '。']).map_or(section.len(), |found| end + found);
        let mut line = &section[end..line_end];
        if line.trim_matches([':', '*', ' ', '：']).is_empty() || line.trim() == "is" || line.trim() == "is:" {
            let next = section[line_end..].trim_start_matches(['\n', ' ', '*']);
            let from = section.len() - next.len();
            line = &section[from..section[from..].find('\n').map_or(section.len(), |found| from + found)];
        }
        let clause = line.split(['.', ';']).next().unwrap_or(line);
        let clause = if clause.len() + 1 < line.len() && clause.trim_matches([' ', ':', '*', '(']).len() <= 4 {
            line
        } else {
            clause
        };
        if let Some((choice, place)) = after_verb(clause, set) {
            return Some((at, choice, place));
        }
    }
    None
}

/// The letter that follows the verb of an anchor, or the first letter of its clause.
fn after_verb<'a>(clause: &'a str, set: &str) -> Option<(Choice, &'a str)> {
    let mut rest = clause.trim_start_matches([' ', '*', '_', ':', '：', 's']);
    for verb in ["is:", "is ", "are ", "would be ", "should be ", "must be ", "seems to be ", "是", "为", "选"] {
        if let Some(after) = rest.strip_prefix(verb) {
            rest = after.trim_start_matches([' ', '*', ':', '：']);
        }
    }
    let choice = leading_letter(rest, set);
    if choice != Choice::None {
        return Some((choice, rest));
    }
    let clause = rest.split(',').next().unwrap_or(rest);
    if clause.contains(" not ") || clause.starts_with("not ") || clause.contains('不') {
        return None;
    }
    let (letter, place) = last_letter(clause, set)?;
    Some((Choice::One(letter), place))
}

/// A line that is a letter with its mark: `D.`, `(D)`, `D) text`, `B。不是 A`.
fn marked_line<'a>(section: &'a str, set: &str) -> Option<(Choice, &'a str)> {
    let lines: Vec<&str> = section.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let offered = |line: &str| {
        let plain = line.trim_start_matches(['*', ' ']);
        let bracket = plain.starts_with('(')
            || plain.starts_with("\\boxed")
            || plain.to_ascii_lowercase().starts_with("option")
            || plain.starts_with("选项");
        let (at, _) = opened(plain, set)?;
        let next = plain[at..].chars().next();
        (bracket || next.is_none_or(|next| ".):：。*）".contains(next) || !next.is_ascii() && next.is_alphabetic()))
            .then(|| leading_letter(plain, set))
    };
    let marked: Vec<(Choice, &str)> = lines
        .iter()
        .filter_map(|line| offered(line).filter(|choice| *choice != Choice::None).map(|choice| (choice, *line)))
        .collect();
    match marked[..] {
        [one] => Some(one),
        // a list of all options is the question said again; a last line of its own is the choice
        [.., last] if lines.last() == Some(&last.1) && last.1.chars().count() <= 24 && !is_listing(&marked) => {
            Some(last)
        }
        _ => None,
    }
}

fn is_listing(marked: &[(Choice, &str)]) -> bool {
    marked.windows(2).all(
        |pair| matches!((pair[0].0, pair[1].0), (Choice::One(a), Choice::One(b)) if u32::from(b) == u32::from(a) + 1),
    )
}

/// The last capital that stands alone and is no article.
fn last_letter<'a>(text: &'a str, set: &str) -> Option<(char, &'a str)> {
    let mut found = None;
    let mut previous = ' ';
    for (at, letter) in text.char_indices() {
        let after = &text[at + letter.len_utf8()..];
        let next = after.chars().next().unwrap_or(' ');
        let alone = !previous.is_alphanumeric()
            && previous != '\\'
            && !next.is_ascii_alphanumeric()
            && next != '\''
            && next != '’'
            && next != '_';
        let article = matches!(letter, 'A' | 'I')
            && after.strip_prefix(' ').is_some_and(|word| word.starts_with(char::is_lowercase));
        if set.contains(letter) && alone && !article {
            found = Some((letter, &text[at..at + letter.len_utf8()]));
        }
        previous = letter;
    }
    found
}
