//! Splits what a model wrote into its reasoning and its answer, one way for every server.
//!
//! Depending on the server's parser the chain of thought stands in a field of its own, or in the text
//! between tags, or in the text with the closing tag only (the chat template wrote the opening one). All
//! give the same split here, so that traces of different servers can be mixed (report, section 2.1).
//!
//! Nothing is lost: apart from the two tags and the white space beside them, reasoning and answer together
//! are the whole text.

/// Opening and closing tags in use.
const TAGS: [(&str, &str); 3] = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")];

/// Reasoning and answer of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The chain of thought without tags and outer white space; `None` where there is none.
    pub reasoning: Option<String>,
    /// What stands after it; empty where the thought was never finished. Without reasoning: the text as it is.
    pub answer: String,
}

/// Splits `text`; `separate` is the server's own reasoning field, if it has one and filled it.
pub fn split_reasoning(text: &str, separate: Option<&str>) -> Split {
    let inline = if may_hold_tags(text) { TAGS.iter().find_map(|tags| split_tags(text, *tags)) } else { None };
    let Some(separate) = separate.filter(|reasoning| !trim(reasoning).is_empty()) else {
        return inline.unwrap_or_else(|| Split { reasoning: None, answer: text.to_owned() });
    };
    // Some servers fill the field and leave the same thought in the text as well.
    let answer = match inline {
        Some(split) if split.reasoning.as_deref() == Some(trim(separate)) => split.answer,
        _ => trim_start(text).to_owned(),
    };
    Split { reasoning: Some(trim(separate).to_owned()), answer }
}

/// Whether a search for tags is worth its time: most answers hold neither of the letters that a tag begins with.
fn may_hold_tags(text: &str) -> bool {
    memchr::memchr2(b'<', b'[', text.as_bytes()).is_some()
}

fn split_tags(text: &str, (open, close): (&str, &str)) -> Option<Split> {
    let opened = text.find(open);
    let closed = text.find(close);
    let (before, thought, after) = match (opened, closed) {
        (Some(start), _) if closed.is_none_or(|end| start < end) => {
            if !begins_a_line(text, start) {
                // Prose that speaks about the tag.
                return None;
            }
            let inner = &text[start + open.len()..];
            let (thought, after) = inner.split_once(close).unwrap_or((inner, ""));
            (&text[..start], thought, after)
        }
        (_, Some(end)) => ("", &text[..end], &text[end + close.len()..]),
        _ => return None,
    };
    let reasoning = trim(thought);
    let mut answer = trim(before).to_owned();
    let after = trim_start(after);
    if !answer.is_empty() && !after.is_empty() {
        answer.push('\n');
    }
    answer.push_str(after);
    Some(Split { reasoning: (!reasoning.is_empty()).then(|| reasoning.to_owned()), answer })
}

fn begins_a_line(text: &str, at: usize) -> bool {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    trim(&text[line..at]).is_empty()
}

fn trim(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_ascii_whitespace())
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|character: char| character.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_way_a_server_marks_reasoning_gives_the_same_split() {
        let cases: [(&str, Option<&str>, Option<&str>, &str); 19] = [
            ("So 12.", Some("7+5"), Some("7+5"), "So 12."),
            ("\n\nSo 12.", Some("\n7+5\n"), Some("7+5"), "So 12."),
            ("<think>7+5</think>So 12.", None, Some("7+5"), "So 12."),
            ("<think>\n7+5\n</think>\n\nSo 12.", None, Some("7+5"), "So 12."),
            ("7+5\n</think>\n\nSo 12.", None, Some("7+5"), "So 12."),
            ("So 12.", None, None, "So 12."),
            ("  So 12.\n", None, None, "  So 12.\n"),
            ("<think>7+", None, Some("7+"), ""),
            ("<think>7+", Some(""), Some("7+"), ""),
            ("", Some("7+"), Some("7+"), ""),
            ("<think>\n\n</think>\n\nSo 12.", None, None, "So 12."),
            ("<think>7+5</think>So 12.", Some("7+5"), Some("7+5"), "So 12."),
            ("[THINK]七加五[/THINK]十二", None, Some("七加五"), "十二"),
            ("<thinking>a</thinking>b", None, Some("a"), "b"),
            ("Sure.\n<think>a</think>\nb", None, Some("a"), "Sure.\nb"),
            ("The tag `<think>` opens, `</think>` closes.", None, None, "The tag `<think>` opens, `</think>` closes."),
            ("<think>a</think>b</think>c", None, Some("a"), "b</think>c"),
            ("", None, None, ""),
            ("So 12.", Some(" \n"), None, "So 12."),
        ];
        for (text, separate, reasoning, answer) in cases {
            let split = split_reasoning(text, separate);
            assert_eq!(split.reasoning.as_deref(), reasoning, "{text:?} {separate:?}");
            assert_eq!(split.answer, answer, "{text:?} {separate:?}");
        }
    }

    fn letters(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    proptest! {
        #[test]
        fn no_text_is_lost_or_written_twice(text in "(<think>|</think>|\\[THINK\\]|[a七\n .]|</){0,12}") {
            let split = split_reasoning(&text, None);
            let whole = letters(&text).len();
            let parts = letters(split.reasoning.as_deref().unwrap_or("")).len() + letters(&split.answer).len();
            prop_assert!(parts <= whole);
            prop_assert!(whole - parts <= "<think></think>".len());
        }

        #[test]
        fn any_text_can_be_split(text in any::<String>(), separate in any::<Option<String>>()) {
            let _ = split_reasoning(&text, separate.as_deref());
        }
    }
}
