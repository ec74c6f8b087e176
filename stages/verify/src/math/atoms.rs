//! The atoms of the parser: numbers, names with indices, functions, brackets, matrices.

use super::{
    lexer::Token,
    parser::{ParseError, Parser},
    value::{Joint, Node},
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
            Token::Word(word) => Ok(self.words(word)),
            Token::Function(name) => self.deeper(|parser| parser.function(&name)),
            Token::Sign(sign) => self.deeper(|parser| parser.bracketed(sign)),
        }
    }

    fn words(&mut self, first: String) -> Node {
        let mut words = first;
        while let Some(Token::Word(next)) = self.peek() {
            words.push(' ');
            words.push_str(next);
            self.at += 1;
        }
        Node::Text(words)
    }

    fn numeral(&mut self, digits: &str) -> Result<Node, ParseError> {
        let raised = self.at >= 2 && self.tokens.get(self.at - 2) == Some(&Token::Sign('^'));
        if self.peek_sign() == Some('_')
            && !raised
            && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            self.at += 1;
            let base = self.base()?;
            return Ok(Node::Based(digits.trim_start_matches('0').into(), base));
        }
        let mut value = number(digits)
            .ok_or_else(|| ParseError::Unexpected("numeral beyond the budget".into()))?;
        if matches!(self.peek(), Some(Token::Function(name)) if name == "overline")
            && digits.contains('.')
        {
            self.at += 1;
            let repeated = self.plain_group().ok_or(ParseError::Ended)?;
            let places = digits.len() - digits.find('.').unwrap_or(0) - 1;
            value += repeating(&repeated, places)
                .ok_or_else(|| ParseError::Unexpected("repeating digits".into()))?;
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
    fn proper_fraction(&self) -> Option<(RBig, usize)> {
        let number_at = |at: usize| match self.tokens.get(at) {
            Some(Token::Number(digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.clone())
            }
            _ => None,
        };
        let sign_at = |at: usize, sign: char| self.tokens.get(at) == Some(&Token::Sign(sign));
        let at = self.at;
        let (above, below, taken) = match self.tokens.get(at)? {
            Token::Function(name) if name == "vulgar" => {
                (number_at(at + 1)?, number_at(at + 2)?, 3)
            }
            Token::Function(name) if name == "frac" => {
                if sign_at(at + 1, '{')
                    && sign_at(at + 3, '}')
                    && sign_at(at + 4, '{')
                    && sign_at(at + 6, '}')
                {
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
            Node::Power(base, exponent) => match *base {
                Node::Symbol(name) => {
                    let index = self.plain_group().ok_or_else(|| self.unexpected())?;
                    Ok(Node::Power(
                        Box::new(Node::Symbol(format!("{name}_{index}"))),
                        exponent,
                    ))
                }
                _ => Err(self.unexpected()),
            },
            _ => Err(self.unexpected()),
        }
    }

    fn base(&mut self) -> Result<u32, ParseError> {
        let text = if self.peek_sign() == Some('{') {
            self.plain_group()
        } else {
            self.take_plain()
        }
        .ok_or_else(|| self.unexpected())?;
        let named = [
            "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
            "twelve",
        ];
        let word = text.to_ascii_lowercase();
        let base = named
            .iter()
            .position(|name| *name == word)
            .and_then(|index| u32::try_from(index + 2).ok())
            .or_else(|| text.parse().ok());
        base.filter(|base| (2..=36).contains(base))
            .ok_or(ParseError::Unexpected(text))
    }

    fn take_plain(&mut self) -> Option<String> {
        let text = match self.peek()? {
            Token::Number(text) | Token::Symbol(text) | Token::Word(text) => text.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(text)
    }

    /// The text of a `{…}` group or of one token.
    fn plain_group(&mut self) -> Option<String> {
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
                Token::Number(part)
                | Token::Symbol(part)
                | Token::Word(part)
                | Token::Function(part) => text.push_str(&part),
            }
        }
        None
    }

    fn symbol(&mut self, mut name: String) -> Result<Node, ParseError> {
        while self.peek_sign() == Some('\'') {
            self.at += 1;
            name.push('\'');
        }
        if self.take_sign('_') {
            let index = self.plain_group().ok_or_else(|| self.unexpected())?;
            name = format!("{name}_{index}");
        }
        let usual = matches!(
            name.as_str(),
            "f" | "g" | "h" | "F" | "G" | "φ" | "Φ" | "ψ" | "Re" | "Im"
        );
        if self.peek_sign() == Some('(') && (usual || (self.at == 1 && self.defines())) {
            self.at += 1;
            let arguments = self.arguments(')')?;
            return Ok(Node::Call(format!("{name}·"), arguments));
        }
        Ok(Node::Symbol(name))
    }

    /// Whether the bracket that opens here closes right before an equals sign.
    fn defines(&self) -> bool {
        let close = self.tokens[self.at..]
            .iter()
            .position(|token| *token == Token::Sign(')'));
        close.is_some_and(|close| self.tokens.get(self.at + close + 1) == Some(&Token::Sign('=')))
    }

    fn arguments(&mut self, close: char) -> Result<Vec<Node>, ParseError> {
        let bars = std::mem::take(&mut self.bars);
        let (groups, _) = self.groups()?;
        self.bars = bars;
        self.expect_sign(close)?;
        Ok(groups.into_iter().flatten().collect())
    }

    /// One argument of a LaTeX construct: a group, or a single digit, letter or command.
    fn argument(&mut self) -> Result<Node, ParseError> {
        match self.peek().cloned() {
            Some(Token::Number(digits))
                if digits.len() > 1 && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                let (first, rest) = digits.split_at(1);
                self.tokens[self.at] = Token::Number(rest.to_string());
                number(first).map(Node::Number).ok_or(ParseError::Ended)
            }
            Some(Token::Number(digits)) => {
                self.at += 1;
                number(&digits).map(Node::Number).ok_or(ParseError::Ended)
            }
            Some(Token::Symbol(name)) => {
                self.at += 1;
                Ok(Node::Symbol(name))
            }
            Some(Token::Sign('-')) => {
                self.at += 1;
                Ok(self.deeper(Self::argument)?.negated())
            }
            Some(_) => self.deeper(Self::atom),
            None => Err(ParseError::Ended),
        }
    }

    fn fraction(&mut self) -> Result<Node, ParseError> {
        let glued = matches!(self.peek(), Some(Token::Number(digits)) if digits.len() == 2);
        let braced = self.peek_sign() == Some('{');
        // `\frac 43 48`: two numerals that stand apart are two arguments
        if let (Some(Token::Number(above)), Some(Token::Number(below))) =
            (self.peek().cloned(), self.tokens.get(self.at + 1).cloned())
        {
            self.at += 2;
            let (above, below) = (number(&above), number(&below));
            let (Some(above), Some(below)) = (above, below) else {
                return Err(ParseError::Ended);
            };
            return Ok(Node::Number(above).times(Node::Number(below).inverted()));
        }
        let above = self.argument()?;
        let below = if !glued
            && (braced || matches!(self.peek(), Some(Token::Number(_))))
            && matches!(self.peek(), Some(Token::Number(_)))
        {
            self.take_plain()
                .and_then(|digits| number(&digits))
                .map(Node::Number)
                .ok_or(ParseError::Ended)?
        } else {
            self.argument()?
        };
        Ok(above.times(below.inverted()))
    }

    fn function(&mut self, name: &str) -> Result<Node, ParseError> {
        match name {
            "frac" | "vulgar" => self.fraction(),
            "binom" => {
                if self.take_sign('(') {
                    return Ok(Node::Call("binom".into(), self.arguments(')')?));
                }
                let above = self.argument()?;
                let below = self.argument()?;
                Ok(Node::Call("binom".into(), vec![above, below]))
            }
            "sqrt" => self.root(),
            "cbrt" => {
                let inner = self.atom()?;
                Ok(Node::Call("root".into(), vec![inner, Node::integer(3)]))
            }
            "exp" => {
                let inner = self.operand()?;
                Ok(Node::Power(
                    Box::new(Node::Symbol("e".into())),
                    Box::new(inner),
                ))
            }
            "sum" | "product" => self.series(name),
            "log" | "lg" => {
                let mut arguments = Vec::new();
                if self.take_sign('_') {
                    arguments.push(if self.peek_sign() == Some('{') {
                        self.atom()?
                    } else {
                        self.argument()?
                    });
                } else if name == "lg" {
                    arguments.push(Node::integer(10));
                }
                let inner = self.operand()?;
                arguments.insert(0, inner);
                Ok(Node::Call("log".into(), arguments))
            }
            "gcd" | "lcm" | "min" | "max" => {
                if self.take_sign('(') || self.take_sign('⦃') {
                    let close = if self.tokens.get(self.at - 1) == Some(&Token::Sign('(')) {
                        ')'
                    } else {
                        '⦄'
                    };
                    return Ok(Node::Call(name.into(), self.arguments(close)?));
                }
                Ok(Node::Call(name.into(), vec![self.operand()?]))
            }
            "pmod" => {
                let modulus = self.atom()?;
                Ok(Node::Call("pmod".into(), vec![modulus]))
            }
            "overline" | "vec" | "hat" | "tilde" | "dot" | "opaque" => {
                let inner = self.plain_group().ok_or_else(|| self.unexpected())?;
                Ok(Node::Symbol(format!("{name}({inner})")))
            }
            _ => self.named_function(name),
        }
    }

    fn named_function(&mut self, name: &str) -> Result<Node, ParseError> {
        let mut power = None;
        if self.take_sign('^') {
            power = Some(if self.peek_sign() == Some('{') {
                self.atom()?
            } else {
                self.argument()?
            });
        }
        let inner = self.operand()?;
        Ok(match power {
            Some(Node::Number(value)) if value == -RBig::ONE => {
                Node::Call(format!("arc{name}"), vec![inner])
            }
            Some(power) => Node::Power(
                Box::new(Node::Call(name.into(), vec![inner])),
                Box::new(power),
            ),
            None => Node::Call(name.into(), vec![inner]),
        })
    }

    /// What a function applies to: a bracket, or the factors up to the next function or sign.
    fn operand(&mut self) -> Result<Node, ParseError> {
        if self.peek_sign() == Some('(') {
            return self.atom();
        }
        let negative = self.take_sign('-');
        let mut node = self.power()?;
        loop {
            let joined = match self.peek() {
                Some(Token::Number(_) | Token::Symbol(_)) => true,
                Some(Token::Function(name)) => matches!(name.as_str(), "frac" | "sqrt"),
                _ => false,
            };
            if !joined {
                if self.peek_sign() == Some('/')
                    && matches!(
                        self.tokens.get(self.at + 1),
                        Some(Token::Number(_) | Token::Symbol(_))
                    )
                {
                    self.at += 1;
                    let below = self.power()?;
                    node = node.times(below.inverted());
                    continue;
                }
                break;
            }
            let next = self.power()?;
            node = node.times(next);
        }
        Ok(if negative { node.negated() } else { node })
    }

    fn root(&mut self) -> Result<Node, ParseError> {
        let mut index = Node::integer(2);
        if self.take_sign('[') {
            index = self.sum()?;
            self.expect_sign(']')?;
        }
        let inner = match self.peek().cloned() {
            Some(Token::Number(digits)) => {
                self.at += 1;
                Node::Number(number(&digits).ok_or(ParseError::Ended)?)
            }
            _ => self.argument()?,
        };
        Ok(Node::Call("root".into(), vec![inner, index]))
    }

    fn series(&mut self, name: &str) -> Result<Node, ParseError> {
        let mut index = Node::Symbol(String::new());
        let mut low = Node::Text(String::new());
        let mut high = Node::Text(String::new());
        for _ in 0..2 {
            if self.take_sign('_') {
                let start = self.peek_sign() == Some('{');
                let bound = if start {
                    self.atom()?
                } else {
                    self.argument()?
                };
                if let Node::Chain(variable, rest) = bound
                    && let (Node::Symbol(_), [(super::value::Relation::Equal, from)]) =
                        (&*variable, &rest[..])
                {
                    low = from.clone();
                    index = *variable;
                }
            } else if self.take_sign('^') {
                high = if self.peek_sign() == Some('{') {
                    self.atom()?
                } else {
                    self.argument()?
                };
            }
        }
        let body = self.product()?;
        Ok(Node::Call(name.into(), vec![body, index, low, high]))
    }

    fn bracketed(&mut self, sign: char) -> Result<Node, ParseError> {
        match sign {
            '(' | '[' => self.round_or_square(sign == '['),
            ']' => self.reversed_interval(),
            '{' => self.braces(),
            '⦃' => self.set(),
            '⟨' => Ok(Node::Tuple(self.arguments('⟩')?)),
            '⌊' => self.enclosed('⌋', "floor"),
            '⌈' => self.enclosed('⌉', "ceil"),
            '|' => {
                self.bars += 1;
                let inner = self.sum()?;
                self.bars -= 1;
                self.expect_sign('|')?;
                Ok(Node::Call("abs".into(), vec![inner]))
            }
            '‖' => self.enclosed('‖', "norm"),
            '√' => {
                let inner = self.deeper(Self::atom)?;
                Ok(Node::Call("root".into(), vec![inner, Node::integer(2)]))
            }
            '∞' => Ok(Node::Symbol("∞".into())),
            '∅' => Ok(Node::Set(Vec::new())),
            '…' => Ok(Node::Ellipsis),
            '⟦' => self.matrix(),
            '+' => self.product(),
            '-' => Ok(self.product()?.negated()),
            '±' => Ok(Node::PlusMinus(Box::new(self.product()?), false)),
            _ => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    fn enclosed(&mut self, close: char, name: &str) -> Result<Node, ParseError> {
        let inner = self.sum()?;
        self.expect_sign(close)?;
        Ok(Node::Call(name.into(), vec![inner]))
    }

    fn round_or_square(&mut self, square: bool) -> Result<Node, ParseError> {
        if self.take_sign(if square { ']' } else { ')' }) {
            return Ok(Node::Tuple(Vec::new()));
        }
        let bars = std::mem::take(&mut self.bars);
        let (groups, joint) = self.groups()?;
        self.bars = bars;
        let close = self.peek_sign();
        let closed = match close {
            Some(')') => false,
            Some(']') => true,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let mut items: Vec<Node> = groups.into_iter().flatten().collect();
        if items.len() == 1 && square == closed {
            let item = items.remove(0);
            // a matrix may be written in brackets of its own
            return Ok(item);
        }
        if items.len() == 2 && joint == Joint::Comma && (square || closed) {
            let high = items.remove(1);
            return Ok(Node::Interval(
                Box::new(items.remove(0)),
                Box::new(high),
                square,
                closed,
            ));
        }
        if square == closed {
            return Ok(if joint == Joint::Comma {
                Node::Tuple(items)
            } else {
                Node::List(items, joint)
            });
        }
        Err(ParseError::Unexpected("brackets that do not match".into()))
    }

    /// `]a, b[` is the open interval of some countries.
    fn reversed_interval(&mut self) -> Result<Node, ParseError> {
        let (groups, _) = self.groups()?;
        let items: Vec<Node> = groups.into_iter().flatten().collect();
        let closed = match self.peek_sign() {
            Some('[') => false,
            Some(']') => true,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let [low, high] =
            <[Node; 2]>::try_from(items).map_err(|_| ParseError::Unexpected("]".into()))?;
        Ok(Node::Interval(Box::new(low), Box::new(high), false, closed))
    }

    fn braces(&mut self) -> Result<Node, ParseError> {
        let bars = std::mem::take(&mut self.bars);
        if self.take_sign('}') {
            self.bars = bars;
            // `{}` before a fraction or an index is empty layout
            return if self.peek().is_some() {
                self.deeper(Self::power)
            } else {
                Err(ParseError::Empty)
            };
        }
        let (groups, joint) = self.groups()?;
        let mut items: Vec<Node> = groups.into_iter().flatten().collect();
        let mut node = if items.len() == 1 {
            items.remove(0)
        } else {
            Node::List(items, joint)
        };
        if self.take_sign('⧸') {
            let below = self.sum()?;
            node = node.times(below.inverted());
        }
        self.bars = bars;
        self.expect_sign('}')?;
        Ok(node)
    }

    /// A set, or a condition written as `{x | condition}`, which stands for the condition.
    fn set(&mut self) -> Result<Node, ParseError> {
        if self.take_sign('⦄') || (self.take_sign('}')) {
            return Ok(Node::Set(Vec::new()));
        }
        self.bars += 1;
        let (groups, _) = self.groups()?;
        self.bars -= 1;
        let items: Vec<Node> = groups.into_iter().flatten().collect();
        if self.take_sign('|') {
            let condition = self.list()?;
            self.expect_sign('⦄')?;
            return Ok(condition);
        }
        self.expect_sign('⦄')?;
        Ok(Node::Set(items))
    }

    fn matrix(&mut self) -> Result<Node, ParseError> {
        let mut rows = vec![Vec::new()];
        loop {
            match self.peek_sign() {
                Some('⟧') => {
                    self.at += 1;
                    break;
                }
                Some('&') => self.at += 1,
                Some('⏎') => {
                    self.at += 1;
                    rows.push(Vec::new());
                }
                Some(',' | ';') => self.at += 1,
                None if self.peek().is_none() => return Err(ParseError::Ended),
                _ => {
                    let cell = self.deeper(Self::cell)?;
                    if let Some(row) = rows.last_mut() {
                        row.push(cell);
                    }
                }
            }
        }
        rows.retain(|row| !row.is_empty());
        Ok(Node::Matrix(rows))
    }

    fn cell(&mut self) -> Result<Node, ParseError> {
        self.relation()
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
            Err(_) => UBig::from_str_radix(if whole.is_empty() { "0" } else { whole }, 10)
                .ok()
                .map(RBig::from),
        };
    }
    let digits = format!("{whole}{places}");
    let digits =
        IBig::from(UBig::from_str_radix(if digits.is_empty() { "0" } else { &digits }, 10).ok()?);
    let shift = exponent - i64::try_from(places.len()).ok()?;
    let scale = UBig::from(10u8).pow(usize::try_from(shift.unsigned_abs()).ok()?);
    Some(if shift >= 0 {
        RBig::from(digits * IBig::from(scale))
    } else {
        RBig::from_parts(digits, scale)
    })
}

fn repeating(digits: &str, places: usize) -> Option<RBig> {
    if digits.is_empty()
        || digits.len() + places > MAX_DIGITS
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let value = UBig::from_str_radix(digits, 10).ok()?;
    let nines = UBig::from(10u8).pow(digits.len()) - UBig::ONE;
    Some(RBig::from_parts(
        IBig::from(value),
        nines * UBig::from(10u8).pow(places),
    ))
}
