//! Runs of letters: functions, symbols, units, prose.

use super::{
    lexer::{Lexer, Token},
    tables::{CJK_STOP, FUNCTIONS, SYMBOLS, UNITS},
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
        let is_latin = |letter: char| letter.is_ascii_alphabetic();
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
        if let Some((_, sign)) = WORD_SIGNS.iter().find(|(word, _)| *word == lower) {
            self.push(Token::Sign(*sign));
        } else if let Some((_, symbol)) = SYMBOLS.iter().find(|(name, _)| *name == run && run.len() > 1) {
            self.push(Token::Symbol((*symbol).into()));
        } else if FUNCTIONS.iter().any(|(name, _)| *name == run) && run != "mod" {
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

    pub(super) fn reads_as_word(&self, run: &str, lower: &str) -> bool {
        if run.len() == 1 {
            return false;
        }
        let after_number = matches!(self.tokens.last(), Some(Token::Number(_) | Token::Word(_)));
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
const WORD_SIGNS: &[(&str, char)] = &[
    ("and", '∧'),
    ("or", '∨'),
    ("percent", '%'),
    ("pct", '%'),
    ("degrees", '°'),
    ("degree", '°'),
    ("infinity", '∞'),
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
        '⅛' => ("1", "8"),
        _ => return None,
    })
}
