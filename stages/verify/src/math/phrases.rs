//! Answers in words that mean a number, a set or a truth value, in a few languages.

use super::{atoms::number, lexer::Reading, parser::parse, value::Node};
use dashu::rational::RBig;

/// Longest answer that is looked at, in bytes.
const LONGEST: usize = 120;

const NO_SOLUTION: &[&str] = &[
    "no solution",
    "no solutions",
    "no real solution",
    "no real solutions",
    "no such solution",
    "none",
    "no answer",
    "no roots",
    "no real roots",
    "empty set",
    "empty",
    "null set",
    "no such number exists",
    "no such numbers",
    "no such integers",
    "无解",
    "无实数解",
    "空集",
    "不存在解",
    "keine lösung",
    "keine",
    "leere menge",
    "pas de solution",
    "aucune solution",
    "aucune",
    "ensemble vide",
    "sin solución",
    "ninguna",
];
const ABSENT: &[&str] =
    &["dne", "does not exist", "doesnt exist", "do not exist", "no limit", "limit does not exist", "不存在"];
const YES: &[&str] =
    &["yes", "true", "是", "对", "正确", "是的", "ja", "wahr", "richtig", "oui", "vrai", "sí", "verdadero"];
const NO: &[&str] = &["no", "false", "否", "不是", "错", "错误", "不对", "nein", "falsch", "non", "faux", "falso"];
const REALS: &[&str] = &[
    "all real numbers",
    "all reals",
    "all real",
    "real numbers",
    "any real number",
    "all real x",
    "all real values",
    "all x",
    "every real number",
    "全体实数",
    "所有实数",
    "任意实数",
    "实数集",
    "alle reellen zahlen",
    "tous les réels",
    "tous les nombres réels",
    "todos los números reales",
];
const INTEGERS: &[&str] =
    &["all integers", "any integer", "every integer", "the integers", "所有整数", "全体整数", "任意整数"];

/// The node an answer in words stands for.
pub fn meant(text: &str) -> Option<Node> {
    if text.len() > LONGEST || !text.chars().any(char::is_alphabetic) || text.contains(['=', '^', '+', '|']) {
        return None;
    }
    let phrase = plain(text)?;
    let named = |words: &[&str]| words.contains(&phrase.as_str());
    if named(NO_SOLUTION) {
        return Some(Node::Text("no solution".into()));
    }
    if named(ABSENT) {
        return Some(Node::Text("does not exist".into()));
    }
    if named(YES) {
        return Some(Node::Text("yes".into()));
    }
    if named(NO) {
        return Some(Node::Text("no".into()));
    }
    if named(REALS) {
        return Some(Node::Symbol("ℝ".into()));
    }
    if named(INTEGERS) {
        return Some(Node::Symbol("ℤ".into()));
    }
    for start in ["all real numbers", "all reals", "all real x", "all real numbers x"] {
        if let Some(rest) = phrase.strip_prefix(start) {
            let rest = rest.trim_start();
            let points = ["except for", "except", "other than", "excluding", "besides", "not equal to"]
                .iter()
                .find_map(|word| rest.strip_prefix(word))?;
            let points = parse(points.trim(), Reading::USUAL).ok()?.node;
            let points = match points {
                Node::List(items, _) | Node::Set(items) => items,
                Node::Chain(_, mut rest) if rest.len() == 1 => vec![rest.remove(0).1],
                single => vec![single],
            };
            return Some(Node::Call("difference".into(), vec![Node::Symbol("ℝ".into()), Node::Set(points)]));
        }
    }
    spelled_number(&phrase).map(Node::Number)
}

/// Lower case, without layout, final marks and what only introduces it.
fn plain(text: &str) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if let Some(command) =
            ["\\textbf", "\\textit", "\\text", "\\mathrm", "\\mbox"].iter().find(|command| rest.starts_with(**command))
        {
            rest = &rest[command.len()..];
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' if rest.starts_with([' ', ',', ';', '!']) => {
                kept.push(' ');
                rest = &rest[1..];
            }
            '\\' if !kept.contains("real") => return None,
            '{' | '}' | '$' | '*' | '\'' | '’' if !kept.contains("except") => {}
            '~' => kept.push(' '),
            _ => kept.extend(letter.to_lowercase()),
        }
    }
    let mut phrase =
        kept.trim_matches(|mark: char| mark.is_whitespace() || matches!(mark, '.' | '!' | '。' | ',')).to_string();
    if phrase.contains("  ") {
        phrase = phrase.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    for start in [
        "there is ",
        "there are ",
        "there exist ",
        "there exists ",
        "it has ",
        "the set of ",
        "the ",
        "a ",
        "an ",
        "on ",
        "x is ",
        "it is ",
    ] {
        if let Some(rest) = phrase.strip_prefix(start) {
            phrase = rest.to_string();
        }
    }
    Some(phrase)
}

const SMALL: &[&str] = &[
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: &[&str] = &["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const PARTS: &[(&str, u32)] = &[
    ("half", 2),
    ("halves", 2),
    ("third", 3),
    ("thirds", 3),
    ("quarter", 4),
    ("quarters", 4),
    ("fourth", 4),
    ("fourths", 4),
    ("fifth", 5),
    ("fifths", 5),
    ("sixth", 6),
    ("sixths", 6),
    ("eighth", 8),
    ("eighths", 8),
    ("tenth", 10),
    ("tenths", 10),
];

/// `forty-two`, `two thirds`, `one hundred and five`.
fn spelled_number(phrase: &str) -> Option<RBig> {
    if !phrase.is_ascii() || phrase.len() > 60 {
        return None;
    }
    let (mut total, mut current, mut seen) = (0u64, 0u64, false);
    let words: Vec<&str> = phrase.split([' ', '-']).filter(|word| !word.is_empty()).collect();
    for (index, word) in words.iter().enumerate() {
        let place = |names: &[&str]| names.iter().position(|name| name == word).and_then(|at| u64::try_from(at).ok());
        if let Some(value) = place(SMALL) {
            current += value;
        } else if let Some(value) = place(TENS) {
            current += 20 + 10 * value;
        } else if *word == "hundred" && seen {
            current *= 100;
        } else if let Some((_, power)) = [("thousand", 3), ("million", 6)].iter().find(|(name, _)| name == word)
            && seen
        {
            total += current * 10u64.pow(*power);
            current = 0;
        } else if let Some((_, part)) = PARTS.iter().find(|(name, _)| name == word)
            && seen
            && index + 1 == words.len()
        {
            return number(&(total + current).to_string()).map(|value| value / RBig::from(*part));
        } else if !(*word == "and" && seen) {
            return None;
        }
        seen = true;
        if current > 1_000_000_000 || total > 1_000_000_000_000 {
            return None;
        }
    }
    seen.then(|| RBig::from(total + current))
}
