//! Splits LaTeX, Unicode and plain-text mathematics into one small alphabet of tokens.
//!
//! Layout commands disappear here, and the three spellings of a sign (`\le`, `≤`, `<=`) become one,
//! so that the parser knows one language. Linear in the text.

use super::{
    tables::{FUNCTIONS, LAYOUT, SIGNS, SYMBOLS, TEXT_COMMANDS},
    word::{is_sign_like, number_set, superscript, vulgar_fraction},
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

pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) tokens: Vec<Token>,
    pub(super) brackets: usize,
    environments: usize,
    pub(super) commas: Commas,
    pub(super) ambiguous: bool,
}

/// Splits `text`; `commas` says how `1,080` outside brackets is read.
///
/// # Errors
/// [`LexError`] for a text that is too long or has an open text group.
pub fn lex(text: &str, commas: Commas) -> Result<Tokens, LexError> {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new(), brackets: 0, environments: 0, commas, ambiguous: false };
    lexer.run(false, 0)?;
    Ok(Tokens { tokens: lexer.tokens, ambiguous_commas: lexer.ambiguous })
}

impl<'a> Lexer<'a> {
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
                self.letters(in_text);
            } else {
                self.at += letter.len_utf8();
                self.sign(letter);
            }
        }
        Ok(())
    }

    pub(super) fn sign(&mut self, letter: char) {
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

    pub(super) fn command(&mut self, depth: usize) -> Result<(), LexError> {
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

    pub(super) fn named(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
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
                        inner.split('}').next().is_some_and(|spec| spec.chars().all(|mark| "lcr|@ ".contains(mark)))
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

    pub(super) fn text_group(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
        let Some(content) = self.group() else {
            return if self.rest().trim_start().starts_with('{') { Err(LexError::Unbalanced) } else { Ok(()) };
        };
        let content = content.trim();
        let doubled = matches!(name, "mathbb" | "mathbf" | "Bbb");
        if let Some(symbol) =
            Some(content).filter(|_| doubled).and_then(number_set).filter(|_| name != "mathbf" || content != "C")
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
        inner.run(!matches!(name, "boxed" | "fbox" | "ensuremath" | "underline"), depth + 1)?;
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
    pub(super) fn group(&mut self) -> Option<&'a str> {
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
    let end = text.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
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
