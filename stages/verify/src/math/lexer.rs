//! Splits LaTeX, Unicode and plain-text mathematics into one small alphabet of tokens.
//!
//! Layout commands disappear here, and the three spellings of a sign (`\le`, `≤`, `<=`) become one,
//! so that the parser knows one language. Linear in the text.

use super::tables::{CJK_STOP, FUNCTIONS, LAYOUT, SIGNS, SYMBOLS, TEXT_COMMANDS, UNITS};

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Digits with an optional decimal point or exponent, thousands separators removed.
    Number(String),
    /// A variable, Greek letter or constant.
    Symbol(String),
    /// A word: prose, a unit, a name.
    Word(String),
    /// A named function or construct: `sin`, `frac`, `binom`, `sum`.
    Function(String),
    /// A sign or bracket, in its Unicode form.
    Sign(char),
}

/// How digits, a comma and three more digits are read outside brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commas {
    /// `1,080` is one number.
    Thousands,
    /// `1,080` is a list of two.
    List,
}

/// What the lexer found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens in order.
    pub tokens: Vec<Token>,
    /// A comma was read as a thousands separator although a list was possible.
    pub ambiguous_commas: bool,
}

/// Why a text cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LexError {
    /// More than [`MAX_TOKENS`] tokens.
    #[error("budget: more than {MAX_TOKENS} tokens")]
    TooLong,
    /// A brace of a text command is not closed.
    #[error("unbalanced: text group not closed")]
    Unbalanced,
}

/// Longest answer that is parsed.
pub const MAX_TOKENS: usize = 4096;
const MAX_NESTED_TEXT: usize = 8;

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
    brackets: usize,
    environments: usize,
    commas: Commas,
    ambiguous: bool,
}

/// Splits `text`; `commas` says how `1,080` outside brackets is read.
///
/// # Errors
/// [`LexError`] for a text that is too long or has an open text group.
pub fn lex(text: &str, commas: Commas) -> Result<Tokens, LexError> {
    let mut lexer = Lexer {
        text,
        at: 0,
        tokens: Vec::new(),
        brackets: 0,
        environments: 0,
        commas,
        ambiguous: false,
    };
    lexer.run(false, 0)?;
    Ok(Tokens {
        tokens: lexer.tokens,
        ambiguous_commas: lexer.ambiguous,
    })
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn push(&mut self, token: Token) {
        match token {
            Token::Sign('(' | '[' | '⦃' | '⟨') => self.brackets += 1,
            Token::Sign(')' | ']' | '⦄' | '⟩') => {
                self.brackets = self.brackets.saturating_sub(1)
            }
            _ => {}
        }
        self.tokens.push(token);
    }

    fn run(&mut self, in_text: bool, depth: usize) -> Result<(), LexError> {
        while let Some(letter) = self.peek() {
            if self.tokens.len() > MAX_TOKENS {
                return Err(LexError::TooLong);
            }
            let next_is_digit = self
                .rest()
                .chars()
                .nth(1)
                .is_some_and(|next| next.is_ascii_digit());
            if letter == '\\' {
                self.command(depth)?;
            } else if letter.is_ascii_digit() || (letter == '.' && next_is_digit) {
                self.number();
            } else if letter.is_alphabetic() && !is_sign_like(letter) {
                self.letters(in_text);
            } else {
                self.at += letter.len_utf8();
                self.sign(letter);
            }
        }
        Ok(())
    }

    fn sign(&mut self, letter: char) {
        if let Some(digit) = superscript(letter) {
            self.push(Token::Sign('^'));
            self.push(Token::Number(digit.to_string()));
            return;
        }
        if let Some((above, below)) = vulgar_fraction(letter) {
            self.push(Token::Function("vulgar".into()));
            self.push(Token::Number(above.into()));
            self.push(Token::Number(below.into()));
            return;
        }
        let sign = match letter {
            '$' | '\u{feff}' | '\u{200b}' | '~' | '`' | '"' | '#' => return,
            _ if letter.is_whitespace() => {
                if letter == '\n' && self.rest().starts_with('\n') {
                    self.push(Token::Sign('⏎'));
                }
                return;
            }
            '−' | '–' | '﹣' | '－' | '—' => '-',
            '＋' => '+',
            '×' | '·' | '⋅' | '∗' | '•' | '＊' => '*',
            '÷' | '∕' | '⁄' | '／' => '/',
            '（' => '(',
            '）' => ')',
            '［' | '【' => '[',
            '］' | '】' => ']',
            '，' | '、' => ',',
            '；' => ';',
            '：' | '∶' => ':',
            '＝' => '=',
            '＜' => '<',
            '＞' => '>',
            '⩽' | '≦' => '≤',
            '⩾' | '≧' => '≥',
            '％' => '%',
            '€' | '£' | '¥' | '￥' | '₹' => return,
            'º' | '˚' => '°',
            '′' | '’' => '\'',
            '∣' => '|',
            other => other,
        };
        let pair = match (sign, self.peek()) {
            ('<', Some('=')) => Some('≤'),
            ('>', Some('=')) => Some('≥'),
            ('!', Some('=')) => Some('≠'),
            ('=', Some('=')) => Some('='),
            ('*', Some('*')) => Some('^'),
            _ => None,
        };
        if let Some(joined) = pair {
            self.at += 1;
            self.push(Token::Sign(joined));
        } else if sign == '.' && self.rest().starts_with("..") {
            self.at += 2;
            self.push(Token::Sign('…'));
        } else {
            self.push(Token::Sign(sign));
        }
    }

    fn number(&mut self) {
        let bytes = self.text.as_bytes();
        let mut digits = String::new();
        self.digits(&mut digits);
        if self.commas_allowed() {
            self.thousands(&mut digits);
        }
        if self.rest().starts_with("{.}") && bytes.get(self.at + 3).is_some_and(u8::is_ascii_digit)
        {
            digits.push('.');
            self.at += 3;
            self.digits(&mut digits);
        } else if bytes.get(self.at) == Some(&b'.')
            && bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit)
        {
            digits.push('.');
            self.at += 1;
            self.digits(&mut digits);
        } else if bytes.get(self.at) == Some(&b'.')
            && !bytes.get(self.at + 1).is_some_and(|next| *next == b'.')
            && digits.chars().any(|digit| digit.is_ascii_digit())
        {
            if self.rest().starts_with(".\\overline") {
                digits.push('.');
            }
            self.at += 1;
        }
        let exponent = bytes
            .get(self.at)
            .is_some_and(|mark| matches!(mark, b'e' | b'E'));
        let signed = bytes
            .get(self.at + 1)
            .is_some_and(|mark| matches!(mark, b'+' | b'-'));
        let first = self.at + 1 + usize::from(signed);
        if exponent && bytes.get(first).is_some_and(u8::is_ascii_digit) {
            digits.push('e');
            if bytes.get(self.at + 1) == Some(&b'-') {
                digits.push('-');
            }
            self.at = first;
            self.digits(&mut digits);
        }
        self.push(Token::Number(digits));
    }

    fn digits(&mut self, into: &mut String) {
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            into.push(digit);
            self.at += 1;
        }
    }

    /// Bare subscripts and superscripts take their digits without grouping.
    fn commas_allowed(&self) -> bool {
        !matches!(self.tokens.last(), Some(Token::Sign('_')))
    }

    fn thousands(&mut self, digits: &mut String) {
        if digits.len() > 3 || digits.is_empty() {
            return;
        }
        loop {
            let (skip, forced, spaced) = separator(self.rest());
            if skip == 0 {
                return;
            }
            let group: &str = self.text.get(self.at + skip..).unwrap_or("");
            let bytes = group.as_bytes();
            let three = bytes.len() >= 3
                && bytes[..3].iter().all(u8::is_ascii_digit)
                && !bytes.get(3).is_some_and(u8::is_ascii_digit);
            if !three || (!forced && !spaced && self.brackets > 0) {
                return;
            }
            if spaced && (self.brackets > 0 || digits.starts_with('0') || self.after_fraction()) {
                return;
            }
            if !forced && !spaced {
                if self.commas == Commas::List && !digits.starts_with('0') && bytes[0] != b'0' {
                    return;
                }
                self.ambiguous |= bytes[0] != b'0';
            }
            digits.push_str(&group[..3]);
            self.at += skip + 3;
        }
    }

    fn after_fraction(&self) -> bool {
        matches!(self.tokens.last(), Some(Token::Function(name)) if name == "frac" || name == "binom")
    }

    fn letters(&mut self, in_text: bool) {
        let start = self.at;
        let rest = self.rest();
        for suffix in ["a.m.", "p.m.", "A.M.", "P.M.", "a.m", "p.m"] {
            if rest.starts_with(suffix) {
                self.at += suffix.len();
                self.push(Token::Word(if suffix.starts_with(['a', 'A']) {
                    "am".into()
                } else {
                    "pm".into()
                }));
                return;
            }
        }
        let is_latin = |letter: char| letter.is_ascii_alphabetic();
        let first = rest.chars().next().unwrap_or(' ');
        for letter in rest.chars() {
            let same = if is_latin(first) {
                is_latin(letter)
            } else {
                letter.is_alphabetic()
                    && !is_latin(letter)
                    && !is_greek(letter)
                    && !is_sign_like(letter)
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

    fn word(&mut self, run: &str, in_text: bool) {
        let lower = run.to_ascii_lowercase();
        if let Some((_, sign)) = WORD_SIGNS.iter().find(|(word, _)| *word == lower) {
            self.push(Token::Sign(*sign));
        } else if let Some((_, symbol)) = SYMBOLS
            .iter()
            .find(|(name, _)| *name == run && run.len() > 1)
        {
            self.push(Token::Symbol((*symbol).into()));
        } else if FUNCTIONS.iter().any(|(name, _)| *name == run) && run != "mod" {
            let name = FUNCTIONS
                .iter()
                .find(|(name, _)| *name == run)
                .map_or(run, |(_, canonical)| canonical);
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

    fn reads_as_word(&self, run: &str, lower: &str) -> bool {
        if run.len() == 1 {
            return false;
        }
        let after_number = matches!(self.tokens.last(), Some(Token::Number(_) | Token::Word(_)));
        if UNITS.contains(&lower) && (after_number || run.len() > 2) {
            return true;
        }
        if run.len() == 2 {
            return matches!(lower, "is" | "of" | "in" | "no" | "by" | "if" | "at")
                && matches!(
                    self.tokens.last(),
                    None | Some(Token::Word(_) | Token::Symbol(_))
                )
                && run != "IN";
        }
        let vowels = lower.chars().any(|letter| "aeiouy".contains(letter));
        let few_letters = run.len() <= 4
            && (lower.chars().all(|letter| "abcd".contains(letter))
                || lower.chars().all(|letter| "wxyz".contains(letter)));
        let capitals = run.len() <= 4 && run.chars().all(|letter| letter.is_ascii_uppercase());
        vowels && !few_letters && !capitals
    }

    fn command(&mut self, depth: usize) -> Result<(), LexError> {
        self.at += 1;
        let Some(letter) = self.peek() else {
            return Ok(());
        };
        if letter == '\\' {
            // `\\frac` is `\frac` that was escaped once too often, unless rows are being separated
            let after = self.text.get(self.at + 1..).unwrap_or("");
            let name = command_name(after);
            let brace = self.environments == 0 && after.starts_with(['{', '}']);
            if self.environments == 0 && (is_known(name) || brace) {
                return Ok(());
            }
            self.at += 1;
            if !(self.environments == 0 && after.starts_with([',', ';', '!', ' '])) {
                self.push(Token::Sign('⏎'));
            }
            return Ok(());
        }
        if !letter.is_ascii_alphabetic() {
            self.at += letter.len_utf8();
            match letter {
                '{' => self.push(Token::Sign('⦃')),
                '}' => self.push(Token::Sign('⦄')),
                '%' => self.push(Token::Sign('%')),
                '|' => self.push(Token::Sign('|')),
                '_' | '&' => self.push(Token::Sign(letter)),
                _ => {}
            }
            return Ok(());
        }
        let name = command_name(self.rest());
        self.at += name.len();
        self.named(name, depth)
    }

    fn named(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
        if TEXT_COMMANDS.contains(&name) {
            return self.text_group(name, depth);
        }
        if name == "begin" || name == "end" {
            self.group();
            if name == "begin" {
                self.environments += 1;
                let columns = self.rest().trim_start();
                if columns.starts_with('{')
                    && columns.get(1..).is_some_and(|inner| {
                        inner
                            .split('}')
                            .next()
                            .is_some_and(|spec| spec.chars().all(|mark| "lcr|@ ".contains(mark)))
                    })
                {
                    self.group();
                }
                self.push(Token::Sign('⟦'));
            } else {
                self.environments = self.environments.saturating_sub(1);
                self.push(Token::Sign('⟧'));
            }
        } else if LAYOUT.contains(&name) {
            if matches!(name, "hspace" | "vspace" | "phantom" | "hphantom" | "color") {
                self.group();
            }
            if matches!(name, "left" | "right") && self.rest().trim_start().starts_with('.') {
                self.at = self.text.len() - self.rest().trim_start().len() + 1;
            }
        } else if let Some((_, sign)) = SIGNS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Sign(*sign));
        } else if let Some((_, symbol)) = SYMBOLS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Symbol((*symbol).into()));
        } else if let Some((_, function)) = FUNCTIONS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Function((*function).into()));
        } else {
            self.push(Token::Symbol(format!("\\{name}")));
        }
        Ok(())
    }

    fn text_group(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
        let Some(content) = self.group() else {
            return if self.rest().trim_start().starts_with('{') {
                Err(LexError::Unbalanced)
            } else {
                Ok(())
            };
        };
        let content = content.trim();
        let doubled = matches!(name, "mathbb" | "mathbf" | "Bbb");
        if let Some(symbol) = Some(content)
            .filter(|_| doubled)
            .and_then(number_set)
            .filter(|_| name != "mathbf" || content != "C")
        {
            self.push(Token::Symbol(symbol.into()));
            return Ok(());
        }
        if depth >= MAX_NESTED_TEXT {
            return Err(LexError::Unbalanced);
        }
        let mut single = content.chars();
        if let (Some(letter), None) = (single.next(), single.next())
            && letter.is_alphabetic()
            && !matches!(self.tokens.last(), Some(Token::Number(_)))
        {
            self.push(Token::Symbol(letter.to_string()));
            return Ok(());
        }
        let mut inner = Lexer {
            text: content,
            at: 0,
            tokens: Vec::new(),
            brackets: 0,
            environments: self.environments,
            commas: self.commas,
            ambiguous: false,
        };
        inner.run(
            !matches!(name, "boxed" | "fbox" | "ensuremath" | "underline"),
            depth + 1,
        )?;
        if matches!(name, "mathrm" | "mathit") {
            // upright `i` and `e` are the constants wherever they stand
            for token in &mut inner.tokens {
                if let Token::Word(word) = token
                    && matches!(word.as_str(), "i" | "e" | "d")
                {
                    *token = Token::Symbol(word.clone());
                }
            }
        }
        self.ambiguous |= inner.ambiguous;
        for token in inner.tokens {
            self.push(token);
        }
        Ok(())
    }

    /// Takes a `{…}` group that starts here and gives its content.
    fn group(&mut self) -> Option<&'a str> {
        let trimmed = self.rest().trim_start();
        let start = self.text.len() - trimmed.len();
        let end = closing_brace(self.text, start)?;
        self.at = end + 1;
        self.text.get(start + 1..end)
    }
}

/// Byte index of the `}` that closes the `{` at `start`, if both are there.
pub fn closing_brace(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(start) != Some(&b'{') {
        return None;
    }
    let mut depth = 0usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn command_name(text: &str) -> &str {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let run = &text[..end];
    // `\quadx` and `\cdotx`: a known command glued to a letter
    if !is_known(run) {
        for known in ["quad", "qquad", "cdot", "times", "pi", "in", "le", "ge"] {
            if run.len() == known.len() + 1 && run.starts_with(known) {
                return &text[..known.len()];
            }
        }
    }
    run
}

fn is_known(name: &str) -> bool {
    TEXT_COMMANDS.contains(&name)
        || LAYOUT.contains(&name)
        || matches!(name, "begin" | "end")
        || SIGNS.iter().any(|(known, _)| *known == name)
        || SYMBOLS.iter().any(|(known, _)| *known == name)
        || FUNCTIONS.iter().any(|(known, _)| *known == name)
}

/// Bytes of a thousands separator at the start, whether it can be nothing else, whether it is a space.
fn separator(rest: &str) -> (usize, bool, bool) {
    for mark in ["{,}", ",\\! ", ",\\!", "\\!,\\!", "{,\\!}", ",\\,"] {
        if rest.starts_with(mark) {
            return (mark.len(), true, false);
        }
    }
    if rest.starts_with(',') || rest.starts_with('，') {
        return (
            if rest.starts_with(',') {
                1
            } else {
                '，'.len_utf8()
            },
            false,
            false,
        );
    }
    for mark in [" ", "\\ ", "\\,", "\u{a0}", "\u{202f}", "\u{2009}"] {
        if rest.starts_with(mark) {
            return (mark.len(), false, true);
        }
    }
    (0, false, false)
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

fn is_sign_like(letter: char) -> bool {
    matches!(letter, 'º' | 'ª' | '²' | '³' | '¹')
}

fn is_greek(letter: char) -> bool {
    ('\u{370}'..='\u{3ff}').contains(&letter) || matches!(letter, 'ℝ' | 'ℚ' | 'ℤ' | 'ℕ' | 'ℂ' | 'ℏ')
}

fn number_set(name: &str) -> Option<&'static str> {
    Some(match name {
        "R" => "ℝ",
        "Q" => "ℚ",
        "Z" => "ℤ",
        "N" => "ℕ",
        "C" => "ℂ",
        _ => return None,
    })
}

fn superscript(letter: char) -> Option<char> {
    "⁰¹²³⁴⁵⁶⁷⁸⁹"
        .chars()
        .zip('0'..='9')
        .find(|(raised, _)| *raised == letter)
        .map(|(_, digit)| digit)
}

fn vulgar_fraction(letter: char) -> Option<(&'static str, &'static str)> {
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
