//! Sums, products and powers, and the units and remarks that follow a value.

use super::{
    lexer::Token,
    parser::{MAX_DEPTH, ParseError, Parser},
    value::Node,
};

impl Parser {
    /// A sum; signs in front of a term belong to it.
    pub(super) fn sum(&mut self) -> Result<Node, ParseError> {
        let mut terms = Vec::new();
        loop {
            let mut negative = false;
            let mut doubled = None;
            while let Some(sign) = self.peek_sign().filter(|sign| matches!(sign, '+' | '-' | '±' | '∓')) {
                self.at += 1;
                match sign {
                    '-' => negative = !negative,
                    '±' => doubled = Some(false),
                    '∓' => doubled = Some(true),
                    _ => {}
                }
            }
            let term = self.product()?;
            let term = if negative { term.negated() } else { term };
            terms.push(match doubled {
                Some(minus_first) => Node::PlusMinus(Box::new(term), minus_first),
                None => term,
            });
            if !matches!(self.peek_sign(), Some('+' | '-' | '±' | '∓')) {
                break;
            }
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Node::Add(terms) })
    }

    pub(super) fn product(&mut self) -> Result<Node, ParseError> {
        let mut node = self.factor()?;
        let mut nested = 0;
        loop {
            match self.peek() {
                Some(Token::Sign('*')) => {
                    self.at += 1;
                    let next = self.factor()?;
                    node = node.times(next);
                }
                Some(Token::Sign('/')) => {
                    self.at += 1;
                    if matches!(self.peek(), Some(Token::Word(_))) {
                        self.unit();
                        continue;
                    }
                    let next = self.factor()?;
                    node = node.times(next.inverted());
                }
                Some(Token::Sign('ⓜ')) => {
                    self.at += 1;
                    nested += 1;
                    if nested > MAX_DEPTH {
                        return Err(ParseError::TooDeep);
                    }
                    let next = self.factor()?;
                    node = Node::Call("mod".into(), vec![node, next]);
                }
                Some(Token::Word(word)) if word == "to" || word == "比" => break,
                Some(Token::Word(_)) if self.half_day().is_some() => break,
                Some(Token::Word(word)) if is_numeric(&node) && scale(word).is_some() => {
                    let power = scale(word).unwrap_or(0);
                    self.at += 1;
                    node = node.times(Node::Power(Box::new(Node::integer(10)), Box::new(Node::integer(power))));
                }
                Some(Token::Word(word))
                    if word == "base"
                        && matches!(
                            (&node, self.tokens.get(self.at + 1)),
                            (Node::Number(_), Some(Token::Number(_) | Token::Word(_)))
                        ) =>
                {
                    self.at += 1;
                    node = self.indexed(node)?;
                }
                Some(Token::Word(word)) => {
                    let known = super::tables::UNITS.contains(&word.to_ascii_lowercase().as_str());
                    if known || is_numeric(&node) {
                        self.unit();
                    } else {
                        let word = word.clone();
                        self.at += 1;
                        node = node.times(Node::Text(word));
                    }
                }
                Some(Token::Sign('(')) if self.opens_remark() => self.skip_remark(),
                Some(Token::Sign('(')) if self.opens_modulus() => {
                    self.at += 2;
                    let modulus = self.sum()?;
                    self.expect_sign(')')?;
                    node = node.times(Node::Call("pmod".into(), vec![modulus]));
                }
                Some(Token::Sign('(')) if matches!(self.tokens.get(self.at + 1), Some(Token::Word(word)) if word == "base") =>
                {
                    self.at += 2;
                    node = self.indexed(node)?;
                    self.expect_sign(')')?;
                }
                Some(token) if self.starts_factor(token) => {
                    let next = self.power()?;
                    node = node.times(next);
                }
                _ => break,
            }
        }
        Ok(node)
    }

    /// A unit: words, their powers and quotients.
    pub(super) fn unit(&mut self) {
        loop {
            match (self.peek(), self.tokens.get(self.at + 1)) {
                (Some(Token::Word(word)), _) if word != "to" && word != "比" && self.half_day().is_none() => {
                    self.at += 1;
                }
                (Some(Token::Sign('/' | '*' | '.')), Some(Token::Word(_)))
                | (Some(Token::Sign('^')), Some(Token::Number(_))) => self.at += 2,
                (Some(Token::Sign('.')), _) => self.at += 1,
                (Some(Token::Sign('^')), Some(Token::Sign('{'))) => {
                    let end = self.tokens[self.at..].iter().position(|token| *token == Token::Sign('}'));
                    self.at += end.map_or(1, |end| end + 1);
                }
                _ => return,
            }
        }
    }

    /// `(about 18.9 cards)` after a value says nothing new.
    pub(super) fn opens_remark(&self) -> bool {
        matches!(self.tokens.get(self.at + 1), Some(Token::Word(word)) if matches!(word.to_ascii_lowercase().as_str(), "about" | "approximately" | "approx" | "roughly" | "mod"))
    }

    fn opens_modulus(&self) -> bool {
        self.tokens.get(self.at + 1) == Some(&Token::Sign('ⓜ'))
    }

    pub(super) fn skip_remark(&mut self) {
        let mut depth = 0usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
    }

    pub(super) fn starts_factor(&self, token: &Token) -> bool {
        match token {
            Token::Number(_) | Token::Symbol(_) | Token::Function(_) => true,
            Token::Word(_) => false,
            Token::Sign('[') if self.closes_open_interval() => false,
            Token::Sign(sign) => {
                matches!(sign, '⦗' | '(' | '[' | '{' | '⦃' | '⌊' | '⌈' | '⟨' | '√' | '⟦' | '∞')
                    || (*sign == '|' && self.bars == 0)
            }
        }
    }

    /// Whether the `[` here ends an interval as in `[1, 2[`.
    pub(super) fn closes_open_interval(&self) -> bool {
        match self.tokens.get(self.at + 1) {
            None => true,
            Some(Token::Sign(sign)) => matches!(sign, '∪' | '∩' | '∖' | ')' | ',' | ';' | '}' | '⦄' | '∨' | '∧'),
            _ => false,
        }
    }

    /// A factor with a sign of its own, as after `*` and `/`.
    pub(super) fn factor(&mut self) -> Result<Node, ParseError> {
        let mut negative = false;
        while let Some(sign) = self.peek_sign().filter(|sign| matches!(sign, '+' | '-')) {
            self.at += 1;
            negative ^= sign == '-';
        }
        let node = self.power()?;
        Ok(if negative { node.negated() } else { node })
    }

    /// An atom with its powers, factorials, percent and degree signs.
    pub(super) fn power(&mut self) -> Result<Node, ParseError> {
        let atom = self.deeper(Self::atom)?;
        self.postfix(atom)
    }

    pub(super) fn postfix(&mut self, mut node: Node) -> Result<Node, ParseError> {
        let mut levels = 0;
        loop {
            levels += 1;
            if levels > MAX_DEPTH {
                return Err(ParseError::TooDeep);
            }
            match self.peek_sign() {
                Some('^') => {
                    self.at += 1;
                    node = self.raised(node)?;
                }
                Some('!') => {
                    self.at += 1;
                    let double = self.take_sign('!');
                    node = Node::Call(if double { "double_factorial" } else { "factorial" }.into(), vec![node]);
                }
                Some('%') => {
                    self.at += 1;
                    node = Node::Percent(Box::new(node));
                }
                Some('°') => {
                    self.at += 1;
                    node = self.degrees(node);
                }
                Some('\'') => {
                    self.at += 1;
                    node = primed(node);
                }
                Some('_') => {
                    self.at += 1;
                    node = self.indexed(node)?;
                }
                _ => return Ok(node),
            }
        }
    }

    pub(super) fn raised(&mut self, base: Node) -> Result<Node, ParseError> {
        let braced = self.peek_sign() == Some('{');
        let inner = usize::from(braced);
        match self.tokens.get(self.at + inner) {
            Some(Token::Sign('°')) => {
                self.at += 1 + inner;
                if braced {
                    self.expect_sign('}')?;
                }
                return Ok(self.degrees(base));
            }
            // `30^o` is a spelling of the degree sign
            Some(Token::Symbol(name)) if name == "o" && matches!(base, Node::Number(_)) && !braced => {
                self.at += 1;
                return Ok(self.degrees(base));
            }
            Some(Token::Sign('\'')) => {
                self.at += 1 + inner;
                let mut node = primed(base);
                while self.take_sign('\'') {
                    node = primed(node);
                }
                if braced {
                    self.expect_sign('}')?;
                }
                return Ok(node);
            }
            _ => {}
        }
        let exponent = self.deeper(Self::exponent)?;
        Ok(Node::Power(Box::new(base), Box::new(exponent)))
    }

    /// An angle with its minutes and seconds; °C and °F are units.
    fn degrees(&mut self, base: Node) -> Node {
        if matches!(self.peek(), Some(Token::Symbol(scale) | Token::Word(scale)) if scale == "C" || scale == "F") {
            self.at += 1;
        }
        let mut total = base;
        for part in [60, 3600] {
            let Some(Token::Number(digits)) = self.peek().cloned() else { break };
            let braced = usize::from(self.tokens.get(self.at + 1) == Some(&Token::Sign('^')));
            let marks =
                self.tokens[self.at + 1 + braced..].iter().take_while(|token| **token == Token::Sign('\'')).count();
            let wanted = if part == 60 { 1 } else { 2 };
            let Some(value) = super::atoms::number(&digits).filter(|_| marks == wanted) else { break };
            self.at += 1 + braced + marks;
            let fraction = value / dashu::rational::RBig::from(u32::try_from(part).unwrap_or(1));
            total = Node::Add(vec![total, Node::Number(fraction)]);
        }
        Node::Degree(Box::new(total))
    }

    pub(super) fn exponent(&mut self) -> Result<Node, ParseError> {
        let mut negative = false;
        while let Some(sign) = self.peek_sign().filter(|sign| matches!(sign, '+' | '-')) {
            self.at += 1;
            negative ^= sign == '-';
        }
        let mut node = self.atom()?;
        if self.take_sign('^') {
            node = self.raised(node)?;
        }
        Ok(if negative { node.negated() } else { node })
    }
}
/// Whether a node holds no symbol, so that words after it are units.
fn is_numeric(node: &Node) -> bool {
    !node.any(&|part| {
        matches!(part, Node::Symbol(name) if name != "π")
            || matches!(part, Node::Text(_) | Node::Tuple(_) | Node::Set(_) | Node::Interval(..))
    })
}

fn scale(word: &str) -> Option<i64> {
    let lower = word.to_ascii_lowercase();
    super::tables::SCALES.iter().find(|(name, _)| *name == lower).map(|(_, power)| i64::from(*power))
}

fn primed(node: Node) -> Node {
    match node {
        Node::Symbol(name) => Node::Symbol(format!("{name}'")),
        other => Node::Call("prime".into(), vec![other]),
    }
}
