//! Runs of letters: functions, symbols, units, prose.

use super::{
    lexer::{Lexer, Token},
    tables::{CJK_STOP, FUNCTIONS, SYMBOLS, UNIT_LETTERS, UNITS},
};

impl Lexer<'_> {
    pub(super) fn letters(&mut self, in_text: bool) {
        let start = self.at;
        let rest = self.rest();
        for suffix in ["a.m.", "p.m.", "A.M.", "P.M.", "a.m", "p.m"] {
            if rest.starts_with(suffix) {
                self.at += suffix.len();
                self.push(Token::Word(if suffix.starts_with(['a', 'A']) { "am".into() } else { "pm".into() }));
                return;
            }
        }
        let is_latin = |letter: char| {
            letter.is_ascii_alphabetic() || ('\u{c0}'..='\u{24f}').contains(&letter) && letter.is_alphabetic()
        };
        let first = rest.chars().next().unwrap_or(' ');
        for letter in rest.chars() {
            let same = if is_latin(first) {
                is_latin(letter)
            } else {
                letter.is_alphabetic() && !is_latin(letter) && !is_greek(letter) && !is_sign_like(letter)
            };
            if !(same || (self.at == start)) {
                break;
            }
            self.at += letter.len_utf8();
            if is_greek(first) || (letter == '是' || letter == '为') {
                break;
            }
        }
        let run = &self.text[start..self.at];
        self.word(run, in_text);
    }

    pub(super) fn word(&mut self, run: &str, in_text: bool) {
        let lower = run.to_ascii_lowercase();
        if self.in_units || self.opens_unit(run) {
            self.in_units = true;
            self.push(Token::Word(run.into()));
        } else if let Some(sign) = self.spelled_sign(run, &lower) {
            self.push(Token::Sign(sign));
        } else if self.after_number() && matches!(lower.as_str(), "am" | "pm" | "to" | "zu") {
            self.push(Token::Word(if lower == "zu" { "to".into() } else { lower }));
        } else if let Some((_, symbol)) = SYMBOLS.iter().find(|(name, _)| *name == run && run.len() > 1) {
            self.push(Token::Symbol((*symbol).into()));
        } else if self.after_number() && matches!(run, "min" | "bar") && !self.rest().starts_with(['(', '_', '{']) {
            self.push(Token::Word(run.into()));
        } else if FUNCTIONS.iter().any(|(name, _)| *name == run)
            && !matches!(run, "mod" | "bar" | "hat" | "vec" | "dot" | "tilde")
        {
            let name = FUNCTIONS.iter().find(|(name, _)| *name == run).map_or(run, |(_, canonical)| canonical);
            self.push(Token::Function(name.into()));
        } else if run == "mod" {
            self.push(Token::Sign('ⓜ'));
        } else if !run.is_ascii() {
            if is_greek(run.chars().next().unwrap_or(' ')) {
                self.push(Token::Symbol(run.into()));
            } else if !CJK_STOP.contains(&run) {
                self.push(Token::Word(run.into()));
            }
        } else if in_text || self.reads_as_word(run, &lower) {
            self.push(Token::Word(run.into()));
        } else {
            for letter in run.chars() {
                self.push(Token::Symbol(letter.to_string()));
            }
        }
    }

    /// Words that stand for a sign, here.
    fn spelled_sign(&self, run: &str, lower: &str) -> Option<char> {
        if let Some((_, sign)) = WORD_SIGNS.iter().find(|(word, _)| *word == lower) {
            return Some(*sign);
        }
        let spaced = self.text[..self.at - run.len()].ends_with(char::is_whitespace);
        if let Some((_, sign)) = SPACED_SIGNS.iter().find(|(word, _)| *word == lower)
            && (spaced || !run.is_ascii())
        {
            return Some(*sign);
        }
        let next = self.rest().trim_start();
        if matches!(run, "x" | "X") && self.after_number() && next.starts_with(|next: char| next.is_ascii_digit()) {
            let power = ["10^", "10*", "10⁻"].iter().any(|start| next.starts_with(start))
                || next
                    .strip_prefix("10")
                    .and_then(|rest| rest.chars().next())
                    .is_some_and(|next| superscript(next).is_some());
            return (power || spaced && next.len() < self.rest().len()).then_some('*');
        }
        (run == "U"
            && matches!(self.tokens.last(), Some(Token::Sign(')' | ']' | '⦄')))
            && next.starts_with(['(', '[', '\\']))
        .then_some('∪')
    }

    fn after_number(&self) -> bool {
        matches!(self.tokens.last(), Some(Token::Number(_)))
    }

    /// A unit of one letter, set apart from its number, with nothing but units behind it.
    fn opens_unit(&mut self, run: &str) -> bool {
        if run.len() != 1 || !UNIT_LETTERS.contains(run) || !self.after_number() {
            return false;
        }
        let before = &self.text[..self.at - 1];
        if !(before.ends_with(char::is_whitespace) || before.ends_with("\\,") || before.ends_with('~'))
            || !is_unit_tail(self.rest())
        {
            return false;
        }
        self.doubts.units = true;
        self.reading.units
    }

    pub(super) fn reads_as_word(&self, run: &str, lower: &str) -> bool {
        if run.len() == 1 {
            return false;
        }
        let after_number = match self.tokens.last() {
            Some(Token::Number(_) | Token::Word(_)) => true,
            Some(Token::Sign('.' | '/' | '*')) => {
                self.tokens.len() > 1 && matches!(self.tokens[self.tokens.len() - 2], Token::Word(_))
            }
            _ => false,
        };
        if UNITS.contains(&lower) && (after_number || run.len() > 2) {
            return true;
        }
        if run.len() == 2 {
            return matches!(lower, "is" | "of" | "in" | "no" | "by" | "if" | "at")
                && matches!(self.tokens.last(), None | Some(Token::Word(_) | Token::Symbol(_)))
                && run != "IN";
        }
        let vowels = lower.chars().any(|letter| "aeiouy".contains(letter));
        let few_letters = run.len() <= 4
            && (lower.chars().all(|letter| "abcd".contains(letter))
                || lower.chars().all(|letter| "wxyz".contains(letter)));
        let capitals = run.len() <= 4 && run.chars().all(|letter| letter.is_ascii_uppercase());
        vowels && !few_letters && !capitals
    }
}
/// Whether only units, their powers and quotients follow.
fn is_unit_tail(text: &str) -> bool {
    if text.len() > 40 {
        return false;
    }
    let mut raised = false;
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let run = text[at..].bytes().take_while(u8::is_ascii_alphabetic).count();
        if run > 0 {
            let name = &text[at..at + run];
            let known = run == 1 && "mgsLJNWVKAhT".contains(name)
                || UNITS.contains(&name.to_ascii_lowercase().as_str())
                || matches!(name, "cdot" | "text" | "mathrm");
            if !known {
                return false;
            }
            raised = false;
            at += run;
            continue;
        }
        match letter {
            '^' => raised = true,
            '0'..='9' if !raised => return false,
            '0'..='9' | '/' | '·' | '⋅' | '*' | '{' | '}' | '-' | '−' | ' ' | '\\' | ',' | '~' | '.' | '$' | ')' =>
                {}
            other if superscript(other).is_some() || other == '⁻' => {}
            _ => return false,
        }
        at += letter.len_utf8();
    }
    true
}

/// Words that are a sign only where they stand apart.
const SPACED_SIGNS: &[(&str, char)] = &[
    ("et", '∧'),
    ("und", '∧'),
    ("ou", '∨'),
    ("oder", '∨'),
    ("deg", '°'),
    ("degs", '°'),
    ("degrés", '°'),
    ("degré", '°'),
    ("grad", '°'),
    ("和", '∧'),
    ("与", '∧'),
    ("及", '∧'),
    ("或", '∨'),
];

const WORD_SIGNS: &[(&str, char)] = &[
    ("and", '∧'),
    ("or", '∨'),
    ("percent", '%'),
    ("pct", '%'),
    ("degrees", '°'),
    ("degree", '°'),
    ("infinity", '∞'),
    ("infty", '∞'),
    ("inf", '∞'),
    ("prozent", '%'),
    ("union", '∪'),
];

pub(super) fn is_sign_like(letter: char) -> bool {
    matches!(letter, 'º' | 'ª' | '²' | '³' | '¹')
}

pub(super) fn is_greek(letter: char) -> bool {
    ('\u{370}'..='\u{3ff}').contains(&letter) || matches!(letter, 'ℝ' | 'ℚ' | 'ℤ' | 'ℕ' | 'ℂ' | 'ℏ')
}

pub(super) fn number_set(name: &str) -> Option<&'static str> {
    Some(match name {
        "R" => "ℝ",
        "Q" => "ℚ",
        "Z" => "ℤ",
        "N" => "ℕ",
        "C" => "ℂ",
        _ => return None,
    })
}

pub(super) fn superscript(letter: char) -> Option<char> {
    "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().zip('0'..='9').find(|(raised, _)| *raised == letter).map(|(_, digit)| digit)
}

pub(super) fn vulgar_fraction(letter: char) -> Option<(&'static str, &'static str)> {
    Some(match letter {
        '½' => ("1", "2"),
        '⅓' => ("1", "3"),
        '⅔' => ("2", "3"),
        '¼' => ("1", "4"),
        '¾' => ("3", "4"),
        '⅕' => ("1", "5"),
        '⅖' => ("2", "5"),
        '⅗' => ("3", "5"),
        '⅘' => ("4", "5"),
        '⅙' => ("1", "6"),
        '⅚' => ("5", "6"),
        '⅛' => ("1", "8"),
        '⅜' => ("3", "8"),
        '⅝' => ("5", "8"),
        '⅞' => ("7", "8"),
        _ => return None,
    })
}

pub(super) fn subscript(letter: char) -> Option<char> {
    "₀₁₂₃₄₅₆₇₈₉ₙᵢⱼₖ".chars().zip("0123456789nijk".chars()).find(|(low, _)| *low == letter).map(|(_, plain)| plain)
}
