//! Equality of mathematical answers: a typed parser and a comparison in tiers.
//!
//! The policy (units, percent, order of lists, intervals, `x = 5`) is fixed in the shared cases and
//! stated in the crate's documentation. Report section 2.2.1.

mod atoms;
mod ball;
mod brackets;
mod call;
mod compare;
mod evaluate;
mod exact;
mod functions;
mod lexer;
mod modular;
mod numeral;
mod parser;
mod product;
mod region;
mod relations;
mod scalar;
mod shape;
mod tables;
mod value;
mod word;

pub(crate) use lexer::closing_brace;

use crate::{
    extract::{Extraction, extract},
    stem,
    verdict::{Judgement, Label, Verdict, Verifier},
};
use dashu::{base::Signed, integer::IBig, rational::RBig};
use evaluate::{Budget, Evaluator};
use lexer::{Commas, LexError};
use parser::{ParseError, Parsed, parse};
use scalar::Outcome;
use value::Node;

/// The verifier of open mathematical answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Math {
    /// How hard to look for the answer.
    pub extraction: Extraction,
}

impl Verifier for Math {
    const NAME: &'static str = "math";
    const VERSION: u32 = 1;

    fn verify(&self, label: &Label<'_>, trace: &str) -> Judgement {
        verify(label.text, trace, self.extraction)
    }
}

/// Judges a whole trace: finds its final answer and compares it with `label`.
pub fn verify(label: &str, trace: &str, extraction: Extraction) -> Judgement {
    if let Some(fault) = label_fault(label) {
        return fault;
    }
    let found = match extract(trace, extraction) {
        Ok(found) => found,
        Err(missing) => return Judgement::new(Verdict::NoAnswer, missing.as_str(), ""),
    };
    let mut judgement = equivalent(label, &found.text);
    if let Some(statement) = found.statement.filter(|_| !judgement.is_correct() && has_parts(label)) {
        let wide = equivalent(label, &statement);
        if wide.is_correct() {
            judgement = wide;
        }
    }
    judgement.with_answer(found.text, found.weak)
}

fn has_parts(label: &str) -> bool {
    parse(&bare(label), Commas::Thousands)
        .is_ok_and(|parsed| matches!(parsed.node, Node::List(..) | Node::Set(_) | Node::Tuple(_)))
}

/// Compares two bare answers (boxes, delimiters and "the answer is" around them are taken off).
///
/// ```
/// use stage_verify::{Verdict, math};
/// assert_eq!(math::equivalent("\\frac{1}{2}", "0.5").verdict, Verdict::Correct);
/// assert_eq!(math::equivalent("2^{99}", "2^{98}").verdict, Verdict::Incorrect);
/// ```
pub fn equivalent(label: &str, answer: &str) -> Judgement {
    if let Some(fault) = label_fault(label) {
        return fault;
    }
    let (label, answer) = (bare(label), bare(answer));
    if answer.trim().is_empty() {
        return Judgement::new(Verdict::NoAnswer, "empty", "");
    }
    if let Some(judgement) = option_letters(&label, &answer) {
        return judgement;
    }
    judged(compare(&label, &answer))
}

fn judged(outcome: Outcome) -> Judgement {
    match outcome {
        Outcome::Equal(tier) => Judgement::new(Verdict::Correct, "equal", tier),
        Outcome::Different(tier) => Judgement::new(Verdict::Incorrect, "different", tier),
        Outcome::Unknown(reason) => Judgement::new(Verdict::Undecided, reason, ""),
    }
}

fn label_fault(label: &str) -> Option<Judgement> {
    let label = bare(label);
    match parse(&label, Commas::Thousands) {
        Ok(_) | Err(ParseError::TooDeep | ParseError::Lex(LexError::TooLong)) => None,
        Err(_) if matches!(stem::leading_letter(&label, stem::letters(10)), stem::Choice::One(_)) => None,
        Err(error) => Some(Judgement::new(Verdict::LabelUnparsable, format!("label_unparsable: {error}"), "")),
    }
}

/// The answer without what marks it: boxes, bold, "the answer is".
fn bare(text: &str) -> String {
    let mut text = text.trim();
    let found;
    if (text.contains("\\boxed")
        || text.contains("\\fbox")
        || text.to_ascii_lowercase().contains("answer")
        || text.contains("答案"))
        && let Ok(inner) = extract(text, Extraction::Strict)
    {
        found = inner.text;
        text = found.trim();
    }
    let stripped: String =
        if text.chars().any(is_full_width) { text.chars().map(half_width).collect() } else { text.to_string() };
    let text = stripped.trim();
    let stripped =
        if text.starts_with("**") || text.ends_with("**") { text.replace("**", "") } else { text.to_string() };
    stripped.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '`' | '"' | '“' | '”')).to_string()
}

/// Full-width forms of ASCII, as Chinese text has them.
fn is_full_width(letter: char) -> bool {
    ('\u{ff01}'..='\u{ff5e}').contains(&letter)
}

fn half_width(letter: char) -> char {
    if is_full_width(letter) { char::from_u32(u32::from(letter) - 0xfee0).unwrap_or(letter) } else { letter }
}

/// A label that is one option letter is held against an option, not against a formula.
fn option_letters(label: &str, answer: &str) -> Option<Judgement> {
    let letters = stem::letters(10);
    let (wanted, other) = match (stem::only_letter(label, letters), stem::only_letter(answer, letters)) {
        (Some(letter), _) => (letter, answer),
        (None, Some(letter)) => (letter, label),
        (None, None) => return None,
    };
    match stem::leading_letter(other, letters) {
        stem::Choice::One(found) if found == wanted => Some(Judgement::new(Verdict::Correct, "equal", "option")),
        stem::Choice::One(_) => Some(Judgement::new(Verdict::Incorrect, "different", "option")),
        stem::Choice::Several => Some(Judgement::new(Verdict::Incorrect, "several_letters", "option")),
        stem::Choice::None => None,
    }
}

fn compare(label: &str, answer: &str) -> Outcome {
    if label == answer {
        return Outcome::Equal("literal");
    }
    if let (Some(a), Some(b)) = (words(label), words(answer))
        && a == b
    {
        return Outcome::Equal("text");
    }
    let (a, b) = match (parse(label, Commas::Thousands), parse(answer, Commas::Thousands)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => {
            return if squeezed(label) == squeezed(answer) {
                Outcome::Equal("literal")
            } else {
                Outcome::Unknown(match error {
                    ParseError::TooDeep | ParseError::Lex(LexError::TooLong) => "budget",
                    _ => "unparsable",
                })
            };
        }
    };
    let budget = Budget::default();
    let outcome = compare::compare(&a.node, &b.node, &budget);
    if outcome.is_equal() {
        return outcome;
    }
    if let Some(outcome) = other_commas(label, answer, (&a, &b), &budget) {
        return outcome;
    }
    if matches!(outcome, Outcome::Different(_))
        && (rounded(&a.node, answer, &budget) || rounded(&b.node, label, &budget))
    {
        return Outcome::Equal("rounded");
    }
    outcome
}

/// `100,101` may be two numbers after all, if one side shows it.
fn other_commas(label: &str, answer: &str, (a, b): (&Parsed, &Parsed), budget: &Budget) -> Option<Outcome> {
    let again = |parsed: &Parsed, text: &str| parsed.ambiguous_commas.then(|| parse(text, Commas::List).ok()).flatten();
    let (x, y) = (again(a, label), again(b, answer));
    let pairs = [
        (x.as_ref().map(|parsed| &parsed.node), Some(&b.node)),
        (Some(&a.node), y.as_ref().map(|parsed| &parsed.node)),
    ];
    pairs
        .into_iter()
        .filter_map(|(left, right)| Some(compare::compare(left?, right?, budget)))
        .find(|outcome| outcome.is_equal())
}

/// Whether `decimal` writes the value of `node` rounded at its last of twelve or more digits.
fn rounded(node: &Node, decimal: &str, budget: &Budget) -> bool {
    let digits = decimal.trim_matches([' ', '$']).trim_start_matches(['-', '+', '$']);
    let Some((whole, places)) = digits.split_once('.') else {
        return false;
    };
    let plain = whole.bytes().chain(places.bytes()).all(|byte| byte.is_ascii_digit());
    let significant = format!("{whole}{places}").trim_start_matches('0').len();
    if !plain || significant < 12 || places.len() > 200 || node.any(&|part| matches!(part, Node::Number(value) if value.denominator().is_one() && value.numerator() > &IBig::from(u64::MAX))) {
        return false;
    }
    let Ok(Parsed { node: Node::Number(written), .. }) = parse(decimal, Commas::Thousands) else {
        return false;
    };
    let mut evaluator = Evaluator {
        arithmetic: ball::Arithmetic { precision: 1024 },
        point: Vec::new(),
        complex: false,
        decimal_log: false,
        budget,
    };
    let Some(exact) = evaluator.value(node).ok().and_then(|number| number.rational().cloned()) else {
        return false;
    };
    let unit = RBig::from_parts(IBig::ONE, dashu::integer::UBig::from(10u8).pow(places.len()));
    let gap = exact - written;
    let gap = if gap.is_negative() { -gap } else { gap };
    gap <= unit
}

/// Two or more letters and nothing else but layout, in lower case.
fn words(text: &str) -> Option<String> {
    let mut plain = text.to_string();
    for command in ["\\text", "\\mathrm", "\\textbf", "\\mathbf", "\\mbox", "\\textit", "bf{", "it{", "rm{"] {
        plain = plain.replace(command, "");
    }
    let kept: String =
        plain.chars().filter(|letter| !letter.is_whitespace() && !"{}$.\\~*".contains(*letter)).collect();
    (kept.chars().count() > 1 && kept.chars().all(char::is_alphabetic)).then(|| kept.to_lowercase())
}

fn squeezed(text: &str) -> String {
    let mut plain =
        text.replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac");
    plain.retain(|letter| !letter.is_whitespace() && letter != '$');
    plain
}

/// A key that equal answers share; `None` where only a comparison can tell.
pub(crate) fn class_key(answer: &str) -> Option<String> {
    let parsed = parse(&bare(answer), Commas::Thousands).ok().filter(|parsed| !parsed.ambiguous_commas)?;
    key(&shape::normalise(&parsed.node), 0)
}

fn key(node: &Node, depth: usize) -> Option<String> {
    if depth > 8 {
        return None;
    }
    let keys = |items: &[Node]| items.iter().map(|item| key(item, depth + 1)).collect::<Option<Vec<_>>>();
    match node {
        Node::Number(value) => Some(format!("n{value}")),
        Node::Text(words) if words.split_whitespace().count() <= 2 => Some(format!("t{}", words.to_lowercase())),
        Node::List(items, _) | Node::Set(items)
            if !items.iter().any(|item| matches!(item, Node::Ellipsis | Node::Chain(..))) =>
        {
            let mut parts = keys(items)?;
            parts.sort_unstable();
            if parts.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
            Some(format!("l{}", parts.join(";")))
        }
        Node::Chain(..) => {
            let (_, value) = shape::assigned(node)?;
            key(value, depth + 1).filter(|key| key.starts_with('n'))
        }
        Node::Add(_) | Node::Multiply(_) | Node::Power(..) | Node::Symbol(_) | Node::Call(..)
            if !shape::is_infinite(node) =>
        {
            if node.symbols().is_empty() {
                let budget = Budget::default();
                let mut evaluator = Evaluator {
                    arithmetic: ball::Arithmetic { precision: 96 },
                    point: Vec::new(),
                    complex: true,
                    decimal_log: false,
                    budget: &budget,
                };
                return evaluator.value(node).ok()?.rational().map(|value| format!("n{value}"));
            }
            modular::fingerprint(node).map(|residues| format!("f{residues:?}"))
        }
        _ => None,
    }
}
