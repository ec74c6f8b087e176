//! The atoms of the parser: numbers, names with indices, functions, brackets, matrices.

use super::{
    lexer::Token,
    parser::{ParseError, Parser},
    value::Node,
};
use dashu::{
    integer::{IBig, UBig},
    rational::RBig,
};

/// Longest numeral, in digits, and largest written exponent.
const MAX_DIGITS: usize = 20_000;

impl Parser {
    pub(super) fn atom(&mut self) -> Result<Node, ParseError> {
        let Some(token) = self.peek().cloned() else {
            return Err(ParseError::Ended);
        };
        self.at += 1;
        match token {
            Token::Number(digits) => self.numeral(&digits),
            Token::Symbol(name) => self.symbol(name),
            Token::Word(word) if word == "百分之" && matches!(self.peek(), Some(Token::Number(_))) => {
                Ok(Node::Percent(Box::new(self.atom()?)))
            }
            Token::Word(word) => Ok(self.words(word)),
            Token::Function(name) => self.deeper(|parser| parser.function(&name)),
            Token::Sign(sign) => self.deeper(|parser| parser.bracketed(sign)),
        }
    }

    pub(super) fn words(&mut self, first: String) -> Node {
        let mut words = first;
        while let Some(Token::Word(next)) = self.peek() {
            words.push(' ');
            words.push_str(next);
            self.at += 1;
        }
        Node::Text(words)
    }

    pub(super) fn numeral(&mut self, digits: &str) -> Result<Node, ParseError> {
        let raised = self.at >= 2 && self.tokens.get(self.at - 2) == Some(&Token::Sign('^'));
        if self.peek_sign() == Some('_')
            && !raised
            && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        {
            self.at += 1;
            let base = self.base()?;
            return Ok(Node::Based(digits.trim_start_matches('0').into(), base));
        }
        let mut value = number(digits).ok_or_else(|| ParseError::Unexpected("numeral beyond the budget".into()))?;
        if matches!(self.peek(), Some(Token::Function(name)) if name == "overline") && digits.contains('.') {
            self.at += 1;
            let repeated = self.plain_group().ok_or(ParseError::Ended)?;
            let places = digits.len() - digits.find('.').unwrap_or(0) - 1;
            value += repeating(&repeated, places).ok_or_else(|| ParseError::Unexpected("repeating digits".into()))?;
            return Ok(Node::Number(value));
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit())
            && let Some((fraction, taken)) = self.proper_fraction()
        {
            self.at += taken;
            value += fraction;
        }
        Ok(Node::Number(value))
    }

    /// `\frac{1}{2}` or `1/2` right after a whole number: a mixed number.
    pub(super) fn proper_fraction(&self) -> Option<(RBig, usize)> {
        let number_at = |at: usize| match self.tokens.get(at) {
            Some(Token::Number(digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.clone()),
            _ => None,
        };
        let sign_at = |at: usize, sign: char| self.tokens.get(at) == Some(&Token::Sign(sign));
        let at = self.at;
        let (above, below, taken) = match self.tokens.get(at)? {
            Token::Function(name) if name == "vulgar" => (number_at(at + 1)?, number_at(at + 2)?, 3),
            Token::Function(name) if name == "frac" => {
                if sign_at(at + 1, '{') && sign_at(at + 3, '}') && sign_at(at + 4, '{') && sign_at(at + 6, '}') {
                    (number_at(at + 2)?, number_at(at + 5)?, 7)
                } else {
                    let pair = number_at(at + 1)?;
                    if pair.len() != 2 {
                        return None;
                    }
                    (pair[..1].to_string(), pair[1..].to_string(), 2)
                }
            }
            Token::Number(_) if sign_at(at + 1, '/') => (number_at(at)?, number_at(at + 2)?, 3),
            _ => return None,
        };
        let (above, below) = (number(&above)?, number(&below)?);
        (above < below && above > RBig::ZERO).then(|| (above / below, taken))
    }

    /// An index behind a bracketed numeral (its base) or behind a power (`v^2_0`).
    pub(super) fn indexed(&mut self, node: Node) -> Result<Node, ParseError> {
        match node {
            Node::Number(value) if value.denominator().is_one() => {
                Ok(Node::Based(value.numerator().to_string(), self.base()?))
            }
            Node::Symbol(name) if name.starts_with("overline(") => {
                let digits = name["overline(".len()..].trim_end_matches(')').to_string();
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                    return Err(self.unexpected());
                }
                Ok(Node::Based(digits, self.base()?))
            }
            Node::Power(base, exponent) => match *base {
                Node::Symbol(name) => {
                    let index = self.plain_group().ok_or_else(|| self.unexpected())?;
                    Ok(Node::Power(Box::new(Node::Symbol(format!("{name}_{index}"))), exponent))
                }
                _ => Err(self.unexpected()),
            },
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn base(&mut self) -> Result<u32, ParseError> {
        let text = if self.peek_sign() == Some('{') { self.plain_group() } else { self.take_plain() }
            .ok_or_else(|| self.unexpected())?;
        let word = text.to_ascii_lowercase();
        let named = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
        let text = text.trim_matches(['(', ')']).to_string();
        let base = named
            .iter()
            .position(|name| *name == word)
            .and_then(|index| u32::try_from(index + 2).ok())
            .or_else(|| text.parse().ok());
        base.filter(|base| (2..=36).contains(base)).ok_or(ParseError::Unexpected(text))
    }

    pub(super) fn take_plain(&mut self) -> Option<String> {
        let text = match self.peek()? {
            Token::Number(text) | Token::Symbol(text) | Token::Word(text) => text.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(text)
    }

    /// The text of a `{…}` group or of one token.
    pub(super) fn plain_group(&mut self) -> Option<String> {
        if !self.take_sign('{') {
            return self.take_plain();
        }
        let mut text = String::new();
        let mut depth = 1usize;
        while let Some(token) = self.peek().cloned() {
            self.at += 1;
            match token {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(text);
                    }
                }
                Token::Sign(sign) => text.push(sign),
                Token::Number(part) | Token::Symbol(part) | Token::Word(part) | Token::Function(part) => {
                    text.push_str(&part);
                }
            }
        }
        None
    }

    /// `ℝ⁺`, `ℝ_{>0}` and their like.
    fn half_line(&mut self) -> Option<Node> {
        let start = self.at;
        if matches!(self.peek_sign(), Some('^' | '_')) {
            self.at += 1;
            let sign = self.plain_group_of_signs();
            let (positive, closed) = match sign.as_deref() {
                Some("+" | ">0") => (true, false),
                Some("-" | "<0") => (false, false),
                Some("≥0") => (true, true),
                Some("≤0") => (false, true),
                _ => {
                    self.at = start;
                    return None;
                }
            };
            let zero = Box::new(Node::integer(0));
            let far = Box::new(super::shape::infinity(positive));
            return Some(if positive {
                Node::Interval(zero, far, closed, false)
            } else {
                Node::Interval(far, zero, false, closed)
            });
        }
        None
    }

    fn plain_group_of_signs(&mut self) -> Option<String> {
        if let Some(sign @ ('+' | '-')) = self.peek_sign() {
            self.at += 1;
            return Some(sign.to_string());
        }
        (self.peek_sign() == Some('{')).then(|| self.plain_group()).flatten()
    }

    pub(super) fn symbol(&mut self, mut name: String) -> Result<Node, ParseError> {
        if name == "ℝ"
            && let Some(half) = self.half_line()
        {
            return Ok(half);
        }
        while self.peek_sign() == Some('\'') {
            self.at += 1;
            name.push('\'');
        }
        if self.take_sign('_') {
            let index = self.plain_group().ok_or_else(|| self.unexpected())?;
            name = format!("{name}_{index}");
        }
        let usual = matches!(name.as_str(), "f" | "g" | "h" | "F" | "G" | "φ" | "Φ" | "ψ" | "Re" | "Im");
        if self.peek_sign() == Some('(') && (usual || (self.at == 1 && self.defines())) {
            self.at += 1;
            let arguments = self.arguments(')')?;
            return Ok(Node::Call(format!("{name}·"), arguments));
        }
        Ok(Node::Symbol(name))
    }

    /// Whether the bracket that opens here closes right before an equals sign.
    pub(super) fn defines(&self) -> bool {
        let close = self.tokens[self.at..].iter().position(|token| *token == Token::Sign(')'));
        close.is_some_and(|close| self.tokens.get(self.at + close + 1) == Some(&Token::Sign('=')))
    }

    pub(super) fn arguments(&mut self, close: char) -> Result<Vec<Node>, ParseError> {
        let bars = std::mem::take(&mut self.bars);
        let (groups, _) = self.groups()?;
        self.bars = bars;
        self.expect_sign(close)?;
        Ok(groups.into_iter().flatten().collect())
    }
}

/// The exact value of a numeral: digits, one point, one exponent.
pub fn number(text: &str) -> Option<RBig> {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + places.len() > MAX_DIGITS || exponent.unsigned_abs() > MAX_DIGITS as u64 {
        return None;
    }
    if places.is_empty() && exponent == 0 {
        return match whole.parse::<u64>() {
            Ok(small) => Some(RBig::from(UBig::from(small))),
            Err(_) => UBig::from_str_radix(if whole.is_empty() { "0" } else { whole }, 10).ok().map(RBig::from),
        };
    }
    let digits = format!("{whole}{places}");
    let digits = IBig::from(UBig::from_str_radix(if digits.is_empty() { "0" } else { &digits }, 10).ok()?);
    let shift = exponent - i64::try_from(places.len()).ok()?;
    let scale = UBig::from(10u8).pow(usize::try_from(shift.unsigned_abs()).ok()?);
    Some(if shift >= 0 { RBig::from(digits * IBig::from(scale)) } else { RBig::from_parts(digits, scale) })
}

/// The exact value of a signed decimal.
pub fn decimal(text: &str) -> Option<RBig> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.bytes().any(|byte| byte.is_ascii_digit());
    let value = number(digits).filter(|_| plain)?;
    Some(if digits.len() < text.len() { -value } else { value })
}

fn repeating(digits: &str, places: usize) -> Option<RBig> {
    if digits.is_empty() || digits.len() + places > MAX_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = UBig::from_str_radix(digits, 10).ok()?;
    let nines = UBig::from(10u8).pow(digits.len()) - UBig::ONE;
    Some(RBig::from_parts(IBig::from(value), nines * UBig::from(10u8).pow(places)))
}
