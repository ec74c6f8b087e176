//! STEM answers: option letters and texts, and numbers with units.
//!
//! A letter counts only where it is offered as the choice: in a box, after "the answer is", in
//! brackets, after "option", or at the start of a line before a full stop. An article or a pronoun is
//! never taken. Without options, a number is compared in its unit with a relative tolerance. Report
//! section 2.2.3 (the STEM stage).

use crate::{
    extract::{Extraction, Missing, answer_start, boxes, extract},
    letter::chosen,
    math::{self, Tolerance},
    quantity::{Quantity, quantity},
    verdict::{Judgement, Label, Verdict, Verifier},
};
use dashu::{base::Signed, rational::RBig};

pub use crate::letter::{Choice, leading_letter, letter_set, letters, only_letter};

/// Share by which an open numeric answer may differ where nothing else is asked: rounding in the last of
/// three digits. `SciBench` (Wang et al. 2024) allows 0.05.
pub const USUAL_TOLERANCE: f64 = 0.01;

/// The verifier of questions with options and of open questions of science.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stem {
    /// How hard to look for the answer.
    pub extraction: Extraction,
    /// Largest difference of an open number from the label, as a share of the label. By default
    /// [`USUAL_TOLERANCE`] where the label has decimals or a unit, and none for a bare whole number.
    pub tolerance: Option<f64>,
}

impl Verifier for Stem {
    const NAME: &'static str = "stem";
    const VERSION: u32 = 2;

    fn verify(&self, label: &Label<'_>, trace: &str) -> Judgement {
        judge(label.text, label.options, trace, *self)
    }
}

/// Judges a trace. `label` is a letter, several letters (`AC`), `(D) text`, or the text of an option;
/// without options an open answer is compared as a quantity or as mathematics.
///
/// ```
/// use stage_verify::{Extraction, Verdict, stem};
/// let judgement = stem::verify("B", &["12", "15"], "The answer is B. A is not possible.", Extraction::Strict);
/// assert_eq!(judgement.verdict, Verdict::Correct);
/// let judgement = stem::verify("9.81 m/s^2", &[], "So \\boxed{9.8\\ \\mathrm{m/s^2}}", Extraction::Strict);
/// assert_eq!(judgement.verdict, Verdict::Correct);
/// ```
pub fn verify(label: &str, options: &[&str], trace: &str, extraction: Extraction) -> Judgement {
    judge(label, options, trace, Stem { extraction, tolerance: None })
}

fn judge(label: &str, options: &[&str], trace: &str, settings: Stem) -> Judgement {
    let set = letters(options.len());
    let wanted = match resolved(label, options, set) {
        Some(letter) => letter,
        None if options.is_empty() && letter_set(label, set).is_none() && !label.trim().is_empty() => {
            return open(label, trace, settings);
        }
        None => {
            return match letter_set(label, set) {
                Some(wanted) => several(&wanted, set, trace, settings.extraction),
                None => Judgement::new(Verdict::LabelUnparsable, "label_unparsable: no option of this set", ""),
            };
        }
    };
    let extraction = settings.extraction;
    let section = match section(trace) {
        Ok(section) => section,
        Err(missing) => return Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
    };
    match chosen(section, set, extraction) {
        Some((Choice::Several, place, weak)) => {
            Judgement::new(Verdict::Incorrect, "several_letters", "option").with_answer(place, weak)
        }
        Some((Choice::One(letter), place, weak)) => {
            if let Some(other) = conflicting(letter, place, options) {
                let reason = format!("conflict: letter {letter}, text of {other}");
                return Judgement::new(Verdict::Incorrect, reason, "option").with_answer(place, weak);
            }
            let verdict = if letter == wanted { Verdict::Correct } else { Verdict::Incorrect };
            Judgement::new(verdict, if letter == wanted { "equal" } else { "different" }, "option")
                .with_answer(letter.to_string(), weak)
        }
        Some((Choice::None, ..)) | None => by_text(wanted, options, section, extraction),
    }
}

/// The part of a trace that counts, if nothing in it was cut.
fn section(trace: &str) -> Result<&str, Missing> {
    let section = &trace[answer_start(trace)?..];
    boxes(section).map(|_| section)
}

/// A question with several right options: the letters must be the same set.
fn several(wanted: &[char], set: &str, trace: &str, extraction: Extraction) -> Judgement {
    let found = match section(trace).and_then(|section| extract(section, extraction)) {
        Ok(found) => found,
        Err(missing) => return Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
    };
    let chosen = letter_set(&found.text, set).or_else(|| only_letter(&found.text, set).map(|letter| vec![letter]));
    match chosen {
        Some(chosen) if chosen == wanted => Judgement::new(Verdict::Correct, "equal", "options"),
        Some(_) => Judgement::new(Verdict::Incorrect, "different", "options"),
        None => Judgement::new(Verdict::NoAnswer, "no_option: no letters", "options"),
    }
    .with_answer(found.text, found.weak)
}

/// An open question: a number with its unit, else mathematics.
fn open(label: &str, trace: &str, settings: Stem) -> Judgement {
    let wanted = quantity(label);
    let rough = wanted
        .as_ref()
        .is_some_and(|wanted| wanted.unit.is_some() || !wanted.number.denominator().is_one() || label.contains('.'));
    let relative = settings.tolerance.unwrap_or(if rough { USUAL_TOLERANCE } else { 0.0 });
    let tolerance = Tolerance { absolute: 0.0, relative };
    if let Some(wanted) = &wanted
        && let Ok(found) = extract(trace, settings.extraction)
        && let Some(given) = quantity(&found.text)
        && (wanted.unit.is_some() || given.unit.is_some())
    {
        return measured(wanted, &given, tolerance).with_answer(found.text, found.weak);
    }
    math::verify_within(label, trace, settings.extraction, tolerance)
}

/// Two quantities. A side without unit is taken in the unit of the other.
fn measured(wanted: &Quantity, given: &Quantity, tolerance: Tolerance) -> Judgement {
    let (a, b) = match (&wanted.unit, &given.unit) {
        (Some(x), Some(y)) => {
            if x.powers != y.powers {
                return Judgement::new(Verdict::Incorrect, "different_dimension", "quantity");
            }
            (&wanted.number * &x.scale, &given.number * &y.scale)
        }
        _ => (wanted.number.clone(), given.number.clone()),
    };
    if a == b || near(&a, &b, tolerance) {
        Judgement::new(Verdict::Correct, "equal", "quantity")
    } else {
        Judgement::new(Verdict::Incorrect, "different", "quantity")
    }
}

fn near(a: &RBig, b: &RBig, tolerance: Tolerance) -> bool {
    let Ok(share) = RBig::try_from(tolerance.relative) else { return false };
    let size = |value: &RBig| if value.is_negative() { -value.clone() } else { value.clone() };
    size(&(a - b)) <= size(a) * share
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
    let places = |test: &dyn Fn(&str) -> bool| -> Vec<usize> {
        options.iter().enumerate().filter(|(_, option)| test(option)).map(|(index, _)| index).collect()
    };
    let mut found = places(&|option| option.trim().eq_ignore_ascii_case(text.trim()));
    if found.is_empty() {
        let given = quantity(text).filter(|given| given.unit.is_some());
        found =
            places(&|option| match (&given, quantity(option_text(option)).filter(|listed| listed.unit.is_some())) {
                (Some(given), Some(listed)) => measured(&listed, given, Tolerance::EXACT).is_correct(),
                _ => math::equivalent(option_text(option), text).is_correct(),
            });
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
