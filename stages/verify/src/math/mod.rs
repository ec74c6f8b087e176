//! Equality of mathematical answers: a typed parser and a comparison in tiers.
//!
//! The policy (units, percent, order of lists, intervals, `x = 5`) is fixed in the shared cases and
//! stated in the crate's documentation. Report section 2.2.1.

mod atoms;
mod ball;
mod brackets;
mod call;
mod command;
mod compare;
mod evaluate;
mod exact;
mod functions;
mod introduction;
mod key;
mod lexer;
mod modular;
mod numeral;
mod parser;
mod phrases;
mod pieces;
mod product;
mod reading;
mod region;
mod relations;
mod scalar;
mod series;
mod shape;
mod tables;
mod value;
mod word;

pub(crate) use atoms::decimal;
pub use evaluate::Tolerance;
pub(crate) use key::Keyed;
pub(crate) use lexer::closing_brace;

use crate::{
    extract::{Extraction, extract},
    stem,
    verdict::{Judgement, Label, Verdict, Verifier},
};
use dashu::{base::Signed, integer::IBig, rational::RBig};
use evaluate::{Budget, Evaluator};
use lexer::{Commas, LexError, Reading};
use parser::{ParseError, Parsed, parse};
use reading::{LONGEST, Side, squeezed, words};
use scalar::Outcome;
use value::Node;

/// The verifier of open mathematical answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Math {
    /// How hard to look for the answer.
    pub extraction: Extraction,
    /// How near a number must come.
    pub tolerance: Tolerance,
}

impl Verifier for Math {
    const NAME: &'static str = "math";
    const VERSION: u32 = 2;

    fn verify(&self, label: &Label<'_>, trace: &str) -> Judgement {
        verify_within(label.text, trace, self.extraction, self.tolerance)
    }
}

/// Judges a whole trace: finds its final answer and compares it with `label`, exactly.
pub fn verify(label: &str, trace: &str, extraction: Extraction) -> Judgement {
    verify_within(label, trace, extraction, Tolerance::EXACT)
}

/// [`verify`] with numbers that need only come near.
pub fn verify_within(label: &str, trace: &str, extraction: Extraction, tolerance: Tolerance) -> Judgement {
    let label = Side::read(label);
    if let Some(fault) = label_fault(&label) {
        return fault;
    }
    let found = match extract(trace, extraction) {
        Ok(found) => found,
        Err(missing) => return Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
    };
    let mut judgement = sides(&label, &Side::read(&found.text), tolerance);
    if let Some(statement) = found.statement.filter(|_| !judgement.is_correct() && has_parts(&label)) {
        let wide = sides(&label, &Side::read(&statement), tolerance);
        if wide.is_correct() {
            judgement = wide;
        }
    }
    judgement.with_answer(found.text, found.weak)
}

/// Compares two texts that both hold their answer somewhere, as the cases of other verifiers do: a last
/// formula or number counts on either side.
pub fn texts(label: &str, answer: &str, tolerance: Tolerance) -> Judgement {
    let found = extract(label, Extraction::Lenient);
    let label = found.map_or_else(|_| label.to_string(), |found| found.statement.unwrap_or(found.text));
    let first = verify_within(&label, answer, Extraction::Lenient, tolerance);
    if !first.is_correct() && answer.len() <= 160 && !answer.contains("boxed") && !answer.contains(". ") {
        // a short text is the answer itself
        return equivalent_within(&label, answer, tolerance);
    }
    first
}

fn has_parts(label: &Side) -> bool {
    label.parsed.as_ref().is_ok_and(|parsed| matches!(parsed.node, Node::List(..) | Node::Set(_) | Node::Tuple(_)))
}

/// Compares two bare answers (boxes, delimiters and "the answer is" around them are taken off).
///
/// ```
/// use stage_verify::{Verdict, math};
/// assert_eq!(math::equivalent("\\frac{1}{2}", "0.5").verdict, Verdict::Correct);
/// assert_eq!(math::equivalent("2^{99}", "2^{98}").verdict, Verdict::Incorrect);
/// ```
pub fn equivalent(label: &str, answer: &str) -> Judgement {
    equivalent_within(label, answer, Tolerance::EXACT)
}

/// [`equivalent`] with numbers that need only come near.
///
/// ```
/// use stage_verify::{Verdict, math};
/// let near = math::Tolerance { absolute: 1e-4, relative: 0.0 };
/// assert_eq!(math::equivalent_within("\\pi", "3.1416", near).verdict, Verdict::Correct);
/// assert_eq!(math::equivalent("\\pi", "3.1416").verdict, Verdict::Incorrect);
/// ```
pub fn equivalent_within(label: &str, answer: &str, tolerance: Tolerance) -> Judgement {
    let label = Side::read(label);
    label_fault(&label).unwrap_or_else(|| sides(&label, &Side::read(answer), tolerance))
}

fn sides(label: &Side, answer: &Side, tolerance: Tolerance) -> Judgement {
    if answer.text.is_empty() {
        return Judgement::new(Verdict::NoAnswer, "empty", "");
    }
    if let Some(judgement) = option_letters(&label.text, &answer.text) {
        return judgement;
    }
    judged(compare(label, answer, tolerance))
}

fn judged(outcome: Outcome) -> Judgement {
    match outcome {
        Outcome::Equal(tier) => Judgement::new(Verdict::Correct, "equal", tier),
        Outcome::Different(tier) => Judgement::new(Verdict::Incorrect, "different", tier),
        Outcome::Unknown(reason) => Judgement::new(Verdict::Undecided, reason, ""),
    }
}

fn label_fault(label: &Side) -> Option<Judgement> {
    if label.text.ends_with("..") && !label.text.ends_with("...") {
        return Some(Judgement::new(Verdict::LabelUnparsable, "label_unparsable: unexpected: ..", ""));
    }
    match &label.parsed {
        Ok(_) | Err(ParseError::TooDeep | ParseError::Lex(LexError::TooLong)) => None,
        Err(_) if matches!(stem::leading_letter(&label.text, stem::letters(10)), stem::Choice::One(_)) => None,
        Err(error) => Some(Judgement::new(Verdict::LabelUnparsable, format!("label_unparsable: {error}"), "")),
    }
}

/// A label that is one option letter is held against an option, not against a formula; several letters are a set.
fn option_letters(label: &str, answer: &str) -> Option<Judgement> {
    let letters = stem::letters(10);
    let (wanted, other) = match (stem::only_letter(label, letters), stem::only_letter(answer, letters)) {
        (Some(letter), _) => (letter, answer),
        (None, Some(letter)) => (letter, label),
        (None, None) => {
            let (a, b) = (stem::letter_set(label, letters)?, stem::letter_set(answer, letters)?);
            return (a == b).then(|| Judgement::new(Verdict::Correct, "equal", "option"));
        }
    };
    match stem::leading_letter(other, letters) {
        stem::Choice::One(found) if found == wanted => Some(Judgement::new(Verdict::Correct, "equal", "option")),
        stem::Choice::One(_) => Some(Judgement::new(Verdict::Incorrect, "different", "option")),
        stem::Choice::Several => Some(Judgement::new(Verdict::Incorrect, "several_letters", "option")),
        stem::Choice::None => None,
    }
}

fn compare(label: &Side, answer: &Side, tolerance: Tolerance) -> Outcome {
    if label.text == answer.text {
        return Outcome::Equal("literal");
    }
    if label.text.len().max(answer.text.len()) > LONGEST {
        return Outcome::Unknown("budget");
    }
    if let Some(a) = words(&label.text)
        && Some(a) == words(&answer.text)
    {
        return Outcome::Equal("text");
    }
    let (a, b) = match (&label.parsed, &answer.parsed) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => {
            return if squeezed(&label.text) == squeezed(&answer.text) {
                Outcome::Equal("literal")
            } else {
                Outcome::Unknown(match error {
                    ParseError::TooDeep | ParseError::Lex(LexError::TooLong) => "budget",
                    _ => "unparsable",
                })
            };
        }
    };
    let budget = Budget::new(tolerance);
    let outcome = compare::compare(&a.node, &b.node, &budget);
    if outcome.is_equal() {
        return outcome;
    }
    if let Some(outcome) = other_reading((label, a), (answer, b), &budget) {
        return outcome;
    }
    if matches!(outcome, Outcome::Different(_))
        && (rounded(&a.node, &answer.text, &budget) || rounded(&b.node, &label.text, &budget))
    {
        return Outcome::Equal("rounded");
    }
    outcome
}

/// `100,101` may be two numbers after all, `2,74` a decimal, and `5 m` a length, if the other side shows it.
fn other_reading((label, a): (&Side, &Parsed), (answer, b): (&Side, &Parsed), budget: &Budget) -> Option<Outcome> {
    let again = |text: &str, commas: Commas, units: bool| parse(text, Reading { commas, units }).ok();
    for (here, parsed, there, other) in [(label, a, answer, b), (answer, b, label, a)] {
        if parsed.doubts.commas
            && let Some(list) = again(&here.text, Commas::List, false)
        {
            let outcome = compare::compare(&list.node, &other.node, budget);
            if outcome.is_equal() {
                return Some(outcome);
            }
        }
        if parsed.doubts.decimal
            && has_decimals(&here.text)
            && there.text.contains('.')
            && let (Some(Parsed { node: Node::Number(decimal), .. }), Node::Number(number)) =
                (again(&here.text, Commas::Decimal, false), &other.node)
            && decimal == *number
        {
            return Some(Outcome::Equal("decimal_comma"));
        }
        if parsed.doubts.units
            && let Some(bare) = again(&here.text, Commas::Thousands, true)
        {
            let measured = other.doubts.units.then(|| again(&there.text, Commas::Thousands, true)).flatten();
            let outcome =
                compare::compare(&bare.node, measured.as_ref().map_or(&other.node, |parsed| &parsed.node), budget);
            if outcome.is_equal() {
                return Some(outcome);
            }
        }
    }
    None
}

/// Whether two digits or more stand behind the comma, or a zero before it: `3,4` is a list of two numbers in every
/// country.
fn has_decimals(text: &str) -> bool {
    text.rsplit_once(',').is_some_and(|(whole, places)| {
        let whole = whole.trim_matches([' ', '$', '-', '+']);
        whole == "0" || places.bytes().take_while(u8::is_ascii_digit).count() > 1
    })
}

/// Whether `decimal` writes the value of `node`, whose decimals never end, rounded at its last of twelve or more digits.
fn rounded(node: &Node, decimal: &str, budget: &Budget) -> bool {
    let digits = decimal.trim_matches([' ', '$']).trim_start_matches(['-', '+', '$']);
    let Some((whole, places)) = digits.split_once('.') else {
        return false;
    };
    let plain = whole.bytes().chain(places.bytes()).all(|byte| byte.is_ascii_digit());
    let significant = whole.trim_start_matches('0').len() + places.len()
        - if whole.trim_start_matches('0').is_empty() {
            places.len() - places.trim_start_matches('0').len()
        } else {
            0
        };
    if !plain || significant < 12 || places.len() > 200 || node.any(&|part| matches!(part, Node::Number(value) if value.denominator().is_one() && value.numerator() > &IBig::from(u64::MAX))) {
        return false;
    }
    let Ok(Parsed { node: Node::Number(written), .. }) = parse(decimal, Reading::USUAL) else {
        return false;
    };
    let mut evaluator = Evaluator::exact(budget);
    let Some(exact) = evaluator.value(node).ok().and_then(|number| number.rational().cloned()) else {
        return false;
    };
    if ends(exact.denominator()) {
        return false;
    }
    let unit = RBig::from_parts(IBig::ONE, dashu::integer::UBig::from(10u8).pow(places.len()));
    let gap = exact - written;
    let gap = if gap.is_negative() { -gap } else { gap };
    gap <= unit
}

/// Whether a fraction with this denominator has finitely many decimals.
fn ends(denominator: &dashu::integer::UBig) -> bool {
    let mut rest = denominator.clone();
    for factor in [2u8, 5] {
        let factor = dashu::integer::UBig::from(factor);
        for _ in 0..256 {
            if (&rest % &factor).is_zero() {
                rest /= &factor;
            } else {
                break;
            }
        }
    }
    rest.is_one()
}
