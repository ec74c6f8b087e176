//! Option letters: finds the chosen letter and holds it against the label.
//!
//! A letter counts only where it is offered as the choice: in a box, after "the answer is", in
//! brackets, after "option", or at the start of a line before a full stop. An article or a pronoun is
//! never taken. Report section 2.2.3 (the STEM stage).

use crate::{
    extract::{Extraction, Missing, answer_start, boxes, extract},
    letter::chosen,
    math,
    verdict::{Judgement, Label, Verdict, Verifier},
};

pub use crate::letter::{Choice, leading_letter, letter_set, letters, only_letter};

/// The verifier of questions with options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stem {
    /// How hard to look for the answer.
    pub extraction: Extraction,
}

impl Verifier for Stem {
    const NAME: &'static str = "stem";
    const VERSION: u32 = 1;

    fn verify(&self, label: &Label<'_>, trace: &str) -> Judgement {
        verify(label.text, label.options, trace, self.extraction)
    }
}

/// Judges a trace. `label` is a letter, `(D) text`, or the text of an option; without options an
/// open answer is compared as mathematics.
///
/// ```
/// use stage_verify::{Extraction, Verdict, stem};
/// let judgement = stem::verify("B", &["12", "15"], "The answer is B. A is not possible.", Extraction::Strict);
/// assert_eq!(judgement.verdict, Verdict::Correct);
/// ```
pub fn verify(label: &str, options: &[&str], trace: &str, extraction: Extraction) -> Judgement {
    let set = letters(options.len());
    let wanted = match resolved(label, options, set) {
        Some(letter) => letter,
        None if options.is_empty() && !label.trim().is_empty() => {
            return math::verify(label, trace, extraction);
        }
        None => {
            return Judgement::new(Verdict::LabelUnparsable, "label_unparsable: no option of this set", "");
        }
    };
    let start = match answer_start(trace) {
        Ok(start) => start,
        Err(missing) => return Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
    };
    let section = &trace[start..];
    let truncated = boxes(section) == Err(Missing::Truncated);
    match chosen(section, set, extraction) {
        _ if truncated => Judgement::new(Verdict::NoAnswer, Missing::Truncated.as_str(), ""),
        Some((Choice::Several, place, weak)) => {
            Judgement::new(Verdict::Incorrect, "several_letters", "option").with_answer(place, weak)
        }
        Some((Choice::One(letter), place, weak)) => {
            if let Some(other) = conflicting(letter, place, options) {
                return Judgement::new(
                    Verdict::Incorrect,
                    format!("conflict: letter {letter}, text of {other}"),
                    "option",
                )
                .with_answer(place, weak);
            }
            let verdict = if letter == wanted { Verdict::Correct } else { Verdict::Incorrect };
            Judgement::new(verdict, if letter == wanted { "equal" } else { "different" }, "option")
                .with_answer(letter.to_string(), weak)
        }
        Some((Choice::None, ..)) | None => by_text(wanted, options, section, extraction),
    }
}

/// The letter a label stands for.
fn resolved(label: &str, options: &[&str], set: &str) -> Option<char> {
    if let Some(letter) = only_letter(label, set) {
        return Some(letter);
    }
    if !options.is_empty()
        && let Some(letter) = matching(label, options, set)
    {
        return Some(letter);
    }
    match leading_letter(label, set) {
        Choice::One(letter) => Some(letter),
        _ => match chosen(label, set, Extraction::Strict) {
            Some((Choice::One(letter), ..)) => Some(letter),
            _ => None,
        },
    }
}

/// The one option whose text equals `text`.
fn matching(text: &str, options: &[&str], set: &str) -> Option<char> {
    let literal = |option: &&str| option.trim().eq_ignore_ascii_case(text.trim());
    let mut found: Vec<usize> =
        options.iter().enumerate().filter(|(_, option)| literal(option)).map(|(index, _)| index).collect();
    if found.is_empty() {
        found = options
            .iter()
            .enumerate()
            .filter(|(_, option)| math::equivalent(option_text(option), text).is_correct())
            .map(|(index, _)| index)
            .collect();
    }
    match found[..] {
        [index] => set.chars().nth(index),
        _ => None,
    }
}

/// An option without the letter some data sets write in front of it.
fn option_text(option: &str) -> &str {
    let trimmed = option.trim();
    let mut letters = trimmed.trim_start_matches('(').chars();
    match (letters.next(), letters.next()) {
        (Some(letter), Some(')' | '.' | ':')) if letter.is_ascii_uppercase() => letters.as_str().trim(),
        _ => trimmed,
    }
}

fn by_text(wanted: char, options: &[&str], section: &str, extraction: Extraction) -> Judgement {
    let Ok(found) = extract(section, extraction) else {
        return Judgement::new(Verdict::NoAnswer, Missing::Unmarked.as_str(), "");
    };
    match matching(&found.text, options, letters(options.len())) {
        Some(letter) if letter == wanted => Judgement::new(Verdict::Correct, "equal", "option_text"),
        Some(_) => Judgement::new(Verdict::Incorrect, "different", "option_text"),
        None => Judgement::new(Verdict::NoAnswer, "no_option: the answer is none of the options", "option_text"),
    }
    .with_answer(found.text, found.weak)
}

/// The option whose text stands behind another option's letter.
fn conflicting(letter: char, place: &str, options: &[&str]) -> Option<char> {
    let set = letters(options.len());
    let (_, rest) = place.split_once(letter)?;
    let text = rest
        .trim_start_matches(|mark: char| mark.is_whitespace() || ".):：,*]}".contains(mark))
        .trim_end_matches(|mark: char| mark.is_whitespace() || ".)}*$".contains(mark));
    if text.is_empty() || options.is_empty() {
        return None;
    }
    let other = matching(text, options, set)?;
    (other != letter).then_some(other)
}
