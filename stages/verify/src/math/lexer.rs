//! Splits LaTeX, Unicode and plain-text mathematics into one small alphabet of tokens.
//!
//! Layout commands disappear here, and the three spellings of a sign (`\le`, `≤`, `<=`) become one,
//! so that the parser knows one language. Linear in the text.

use super::{
    numeral::based_length,
    word::{is_sign_like, subscript, superscript, vulgar_fraction},
};

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
    /// `2,74` is a decimal.
    Decimal,
}

/// How what can be read in two ways is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Commas between digits.
    pub commas: Commas,
    /// A letter that stands apart from the number before it is a unit.
    pub units: bool,
}

impl Reading {
    /// The usual one.
    pub const USUAL: Self = Self { commas: Commas::Thousands, units: false };
}

/// What the lexer found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens in order.
    pub list: Vec<Token>,
    /// What could be read otherwise.
    pub doubts: Doubts,
}

/// What was met that can be read in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubts {
    /// A comma was read as a thousands separator although a list was possible.
    pub commas: bool,
    /// A comma between digits could be a decimal point.
    pub decimal: bool,
    /// A letter behind a number could be its unit.
    pub units: bool,
}

/// Why a text cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LexError {
    /// More than [`MAX_TOKENS`] tokens.
    #[error("budget: too long, more than {MAX_TOKENS} tokens")]
    TooLong,
    /// A brace of a text command is not closed.
    #[error("unbalanced: text group not closed")]
    Unbalanced,
}

/// Longest answer that is parsed.
pub const MAX_TOKENS: usize = 4096;

pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) tokens: Vec<Token>,
    pub(super) brackets: usize,
    pub(super) environments: usize,
    pub(super) reading: Reading,
    pub(super) doubts: Doubts,
    pub(super) in_units: bool,
}

/// Splits `text`.
///
/// # Errors
/// [`LexError`] for a text that is too long or has an open text group.
pub fn lex(text: &str, reading: Reading) -> Result<Tokens, LexError> {
    let mut lexer = Lexer::new(text, reading, 0);
    lexer.run(false, 0)?;
    Ok(Tokens { list: lexer.tokens, doubts: lexer.doubts })
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, reading: Reading, environments: usize) -> Self {
        Self {
            text,
            at: 0,
            tokens: Vec::new(),
            brackets: 0,
            environments,
            reading,
            doubts: Doubts::default(),
            in_units: false,
        }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn push(&mut self, token: Token) {
        match token {
            Token::Sign('(' | '[' | '⦃' | '⟨') => self.brackets += 1,
            Token::Sign(')' | ']' | '⦄' | '⟩') => {
                self.brackets = self.brackets.saturating_sub(1);
            }
            _ => {}
        }
        self.tokens.push(token);
    }

    pub(super) fn run(&mut self, in_text: bool, depth: usize) -> Result<(), LexError> {
        while let Some(letter) = self.peek() {
            if self.tokens.len() > MAX_TOKENS {
                return Err(LexError::TooLong);
            }
            let next_is_digit = self.rest().chars().nth(1).is_some_and(|next| next.is_ascii_digit());
            if letter == '\\' {
                self.command(depth)?;
            } else if letter.is_ascii_digit() || (letter == '.' && next_is_digit) {
                self.number();
            } else if letter.is_alphabetic() && !is_sign_like(letter) {
                if letter.is_ascii() && based_length(self.rest()).is_some() {
                    self.number();
                } else {
                    self.letters(in_text);
                }
            } else {
                self.at += letter.len_utf8();
                self.sign(letter);
            }
        }
        Ok(())
    }

    /// Raised or lowered letters of Unicode, as many as there are.
    fn shifted(&mut self, first: char) {
        let low = subscript(first).is_some();
        self.push(Token::Sign(if low { '_' } else { '^' }));
        self.push(Token::Sign('{'));
        let mut digits = String::new();
        let mut next = Some(first);
        while let Some(letter) = next {
            match if low { subscript(letter) } else { superscript(letter) } {
                Some(digit) => digits.push(digit),
                None if !low && letter == '⁻' => self.push(Token::Sign('-')),
                None if !low && letter == 'ⁿ' => self.push(Token::Symbol("n".into())),
                None => break,
            }
            next = self.peek();
            let more = next.is_some_and(|letter| {
                if low {
                    subscript(letter).is_some()
                } else {
                    superscript(letter).is_some() || matches!(letter, '⁻' | 'ⁿ')
                }
            });
            if !more {
                break;
            }
            self.at += next.map_or(0, char::len_utf8);
        }
        if !digits.is_empty() {
            self.push(if low && digits.bytes().any(|byte| !byte.is_ascii_digit()) {
                Token::Symbol(digits)
            } else {
                Token::Number(digits)
            });
        }
        self.push(Token::Sign('}'));
    }

    pub(super) fn sign(&mut self, letter: char) {
        if superscript(letter).is_some() || matches!(letter, '⁻' | 'ⁿ') || subscript(letter).is_some() {
            self.shifted(letter);
            return;
        }
        if letter == '∛' {
            self.push(Token::Function("cbrt".into()));
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
        if sign == '+' && self.rest().starts_with("/-") {
            self.at += 2;
            self.push(Token::Sign('±'));
            return;
        }
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
