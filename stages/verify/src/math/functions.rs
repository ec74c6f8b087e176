//! Functions and LaTeX constructs with arguments.

use super::{
    atoms::number,
    lexer::Token,
    parser::{ParseError, Parser},
    value::{Node, Relation},
};
use dashu::rational::RBig;

impl Parser {
    /// One argument of a LaTeX construct: a group, or a single digit, letter or command.
    pub(super) fn argument(&mut self) -> Result<Node, ParseError> {
        match self.peek().cloned() {
            Some(Token::Number(digits)) if digits.len() > 1 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
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

    pub(super) fn fraction(&mut self) -> Result<Node, ParseError> {
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
            self.take_plain().and_then(|digits| number(&digits)).map(Node::Number).ok_or(ParseError::Ended)?
        } else {
            self.argument()?
        };
        Ok(above.times(below.inverted()))
    }

    pub(super) fn function(&mut self, name: &str) -> Result<Node, ParseError> {
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
                Ok(Node::Power(Box::new(Node::Symbol("e".into())), Box::new(inner)))
            }
            "sum" | "product" => self.series(name),
            "log" | "lg" => {
                let mut arguments = Vec::new();
                if self.take_sign('_') {
                    arguments.push(if self.peek_sign() == Some('{') { self.atom()? } else { self.argument()? });
                } else if name == "lg" {
                    arguments.push(Node::integer(10));
                }
                let inner = self.operand()?;
                arguments.insert(0, inner);
                Ok(Node::Call("log".into(), arguments))
            }
            "gcd" | "lcm" | "min" | "max" => {
                if self.take_sign('(') || self.take_sign('⦃') {
                    let close = if self.tokens.get(self.at - 1) == Some(&Token::Sign('(')) { ')' } else { '⦄' };
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

    pub(super) fn named_function(&mut self, name: &str) -> Result<Node, ParseError> {
        let mut power = None;
        if self.take_sign('^') {
            power = Some(if self.peek_sign() == Some('{') { self.atom()? } else { self.argument()? });
        }
        let inner = self.operand()?;
        Ok(match power {
            Some(Node::Number(value)) if value == -RBig::ONE => Node::Call(format!("arc{name}"), vec![inner]),
            Some(power) => Node::Power(Box::new(Node::Call(name.into(), vec![inner])), Box::new(power)),
            None => Node::Call(name.into(), vec![inner]),
        })
    }

    /// What a function applies to: a bracket, or the factors up to the next function or sign.
    pub(super) fn operand(&mut self) -> Result<Node, ParseError> {
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
                    && matches!(self.tokens.get(self.at + 1), Some(Token::Number(_) | Token::Symbol(_)))
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

    pub(super) fn root(&mut self) -> Result<Node, ParseError> {
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

    pub(super) fn series(&mut self, name: &str) -> Result<Node, ParseError> {
        let mut index = Node::Symbol(String::new());
        let mut low = Node::Text(String::new());
        let mut high = Node::Text(String::new());
        for _ in 0..2 {
            if self.take_sign('_') {
                let start = self.peek_sign() == Some('{');
                let bound = if start { self.atom()? } else { self.argument()? };
                if let Node::Chain(variable, rest) = bound
                    && let (Node::Symbol(_), [(Relation::Equal, from)]) = (&*variable, &rest[..])
                {
                    low = from.clone();
                    index = *variable;
                }
            } else if self.take_sign('^') {
                high = if self.peek_sign() == Some('{') { self.atom()? } else { self.argument()? };
            }
        }
        let body = self.product()?;
        Ok(Node::Call(name.into(), vec![body, index, low, high]))
    }
}
