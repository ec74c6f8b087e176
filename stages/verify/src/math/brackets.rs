//! Brackets: groups, tuples, intervals, sets, matrices.

use super::{
    lexer::Token,
    parser::{ParseError, Parser},
    value::{Joint, Node},
};

impl Parser {
    pub(super) fn bracketed(&mut self, sign: char) -> Result<Node, ParseError> {
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
            '⦗' => self.rows(),
            '+' => self.product(),
            '-' => Ok(self.product()?.negated()),
            '±' => Ok(Node::PlusMinus(Box::new(self.product()?), false)),
            _ => {
                self.at -= 1;
                Err(self.unexpected())
            }
        }
    }

    pub(super) fn enclosed(&mut self, close: char, name: &str) -> Result<Node, ParseError> {
        let inner = self.sum()?;
        self.expect_sign(close)?;
        Ok(Node::Call(name.into(), vec![inner]))
    }

    pub(super) fn round_or_square(&mut self, square: bool) -> Result<Node, ParseError> {
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
            // `[a, b[` of some countries
            Some('[') if self.closes_open_interval() && square => false,
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
            return Ok(Node::Interval(Box::new(items.remove(0)), Box::new(high), square, closed));
        }
        if square == closed {
            return Ok(if joint == Joint::Comma { Node::Tuple(items) } else { Node::List(items, joint) });
        }
        Err(ParseError::Unexpected("brackets that do not match".into()))
    }

    /// `]a, b[` is the open interval of some countries.
    pub(super) fn reversed_interval(&mut self) -> Result<Node, ParseError> {
        let (groups, _) = self.groups()?;
        let items: Vec<Node> = groups.into_iter().flatten().collect();
        let closed = match self.peek_sign() {
            Some('[') => false,
            Some(']') => true,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let [low, high] = <[Node; 2]>::try_from(items).map_err(|_| ParseError::Unexpected("]".into()))?;
        Ok(Node::Interval(Box::new(low), Box::new(high), false, closed))
    }

    pub(super) fn braces(&mut self) -> Result<Node, ParseError> {
        let bars = std::mem::take(&mut self.bars);
        if self.take_sign('}') {
            self.bars = bars;
            // `{}` before a fraction or an index is empty layout
            return if self.peek().is_some() { self.deeper(Self::power) } else { Err(ParseError::Empty) };
        }
        let (groups, joint) = self.groups()?;
        let mut items: Vec<Node> = groups.into_iter().flatten().collect();
        let mut node = if items.len() == 1 { items.remove(0) } else { Node::List(items, joint) };
        if self.take_sign('⧸') {
            let below = self.sum()?;
            node = node.times(below.inverted());
        } else if self.take_sign('⑂') {
            let below = self.sum()?;
            node = Node::Call("binom".into(), vec![node, below]);
        }
        self.bars = bars;
        self.expect_sign('}')?;
        Ok(node)
    }

    /// A set, or a condition written as `{x | condition}`, which stands for the condition.
    pub(super) fn set(&mut self) -> Result<Node, ParseError> {
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
        Ok(condition(&items).unwrap_or(Node::Set(items)))
    }

    /// Systems of equations are lists, definitions by cases are sets of value and condition.
    pub(super) fn rows(&mut self) -> Result<Node, ParseError> {
        let mut rows: Vec<Vec<Node>> = vec![Vec::new()];
        loop {
            match self.peek() {
                Some(Token::Sign('⟧')) => {
                    self.at += 1;
                    break;
                }
                Some(Token::Sign('⏎')) => {
                    self.at += 1;
                    rows.push(Vec::new());
                }
                Some(Token::Sign('&' | ',' | ';' | '.')) => self.at += 1,
                Some(Token::Word(word)) if matches!(word.as_str(), "if" | "for" | "when" | "where" | "and") => {
                    self.at += 1;
                }
                None => return Err(ParseError::Ended),
                _ => {
                    let cell = self.deeper(Self::cell)?;
                    if let Some(row) = rows.last_mut() {
                        row.push(cell);
                    }
                }
            }
        }
        rows.retain(|row| !row.is_empty());
        if rows.len() == 1 && rows[0].len() == 1 {
            return Ok(rows.remove(0).remove(0));
        }
        if rows.iter().all(|row| row.len() == 1) {
            return Ok(Node::List(rows.into_iter().flatten().collect(), Joint::And));
        }
        Ok(Node::Set(rows.into_iter().map(Node::Tuple).collect()))
    }

    pub(super) fn matrix(&mut self) -> Result<Node, ParseError> {
        let mut rows = vec![Vec::new()];
        loop {
            match self.peek_sign() {
                Some('⟧') => {
                    self.at += 1;
                    break;
                }
                Some('⏎') => {
                    self.at += 1;
                    rows.push(Vec::new());
                }
                Some('&' | ',' | ';') => self.at += 1,
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

    pub(super) fn cell(&mut self) -> Result<Node, ParseError> {
        self.relation()
    }
}

/// `{x : condition}`, which reads as a set of a ratio in a relation.
fn condition(items: &[Node]) -> Option<Node> {
    let [Node::Chain(first, rest), more @ ..] = items else {
        return None;
    };
    let Node::Ratio(parts) = &**first else { return None };
    let [Node::Symbol(_) | Node::Chain(..), subject] = &parts[..] else { return None };
    let mut conditions = vec![Node::Chain(Box::new(subject.clone()), rest.clone())];
    conditions.extend(more.iter().cloned());
    Some(if conditions.len() == 1 { conditions.remove(0) } else { Node::List(conditions, Joint::And) })
}
