//! Reads tokens into a [`Node`]: a Pratt parser over lists, relations, ratios, sums, products and powers.
//!
//! Depth and tokens are bounded, nothing backtracks, so parsing is linear and never overflows the
//! stack. The atoms stand in `atoms.rs`.

use super::{
    introduction::{only_words, renamed, without_introduction},
    lexer::{Doubts, LexError, Reading, Token, lex},
    value::{Joint, Node, Relation},
};
use dashu::rational::RBig;

/// Why an answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Nothing but layout.
    #[error("empty")]
    Empty,
    /// A token that cannot stand where it does.
    #[error("unexpected: {0}")]
    Unexpected(String),
    /// The text ends where an operand or a closing bracket is due.
    #[error("unbalanced: the text ends too early")]
    Ended,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("budget: nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// The text could not be split.
    #[error("{0}")]
    Lex(#[from] LexError),
}

/// Deepest nesting that is read.
pub const MAX_DEPTH: usize = 120;

/// A parsed answer.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The tree.
    pub node: Node,
    /// What could be read otherwise.
    pub doubts: Doubts,
}

impl Parsed {
    /// A tree that leaves nothing open.
    pub fn plain(node: Node) -> Self {
        Self { node, doubts: Doubts::default() }
    }
}

/// Reads `text` as one answer.
///
/// # Errors
/// [`ParseError`]: empty, malformed, or beyond the budgets.
pub fn parse(text: &str, reading: Reading) -> Result<Parsed, ParseError> {
    let found = lex(text, reading)?;
    let mut tokens = without_introduction(found.list);
    if tokens.is_empty() {
        return Err(ParseError::Empty);
    }
    let parsed = |node: Node| Parsed { node, doubts: found.doubts };
    if let Some(words) = only_words(&tokens) {
        return Ok(parsed(words));
    }
    renamed(&mut tokens);
    let mut parser = Parser { tokens, at: 0, depth: 0, bars: 0 };
    let node = parser.list()?;
    if let Some(token) = parser.tokens.get(parser.at) {
        return Err(ParseError::Unexpected(describe(token)));
    }
    Ok(parsed(node))
}

fn describe(token: &Token) -> String {
    match token {
        Token::Number(text) | Token::Symbol(text) | Token::Word(text) | Token::Function(text) => {
            text.chars().take(40).collect()
        }
        Token::Sign(sign) => sign.to_string(),
    }
}

pub(super) struct Parser {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    depth: usize,
    /// Open `|`: inside, a bar closes.
    pub(super) bars: usize,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn peek_sign(&self) -> Option<char> {
        match self.peek() {
            Some(Token::Sign(sign)) => Some(*sign),
            _ => None,
        }
    }

    pub(super) fn take_sign(&mut self, sign: char) -> bool {
        let found = self.peek_sign() == Some(sign);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn expect_sign(&mut self, sign: char) -> Result<(), ParseError> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn unexpected(&self) -> ParseError {
        self.peek().map_or(ParseError::Ended, |token| ParseError::Unexpected(describe(token)))
    }

    /// Runs `read` one level deeper.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// A list with its separators; a single item stays bare.
    pub(super) fn list(&mut self) -> Result<Node, ParseError> {
        let (groups, joint) = self.groups()?;
        let mut items: Vec<Node> = groups.into_iter().map(|group| bare(group, joint)).collect();
        if items.len() == 1 {
            return Ok(items.remove(0));
        }
        Ok(Node::List(items, joint))
    }

    /// Items between commas, grouped by semicolons and new lines where both occur.
    pub(super) fn groups(&mut self) -> Result<(Vec<Vec<Node>>, Joint), ParseError> {
        let mut groups: Vec<Vec<Node>> = vec![Vec::new()];
        let mut joint = Joint::Comma;
        loop {
            let item = self.deeper(Self::relation)?;
            if let Some(group) = groups.last_mut() {
                group.push(item);
            }
            let mut separated = false;
            let mut strong = false;
            while let Some(sign) = self.peek_sign().filter(|sign| matches!(sign, ',' | ';' | '⏎' | '∧' | '∨')) {
                separated = true;
                strong |= matches!(sign, ';' | '⏎');
                match sign {
                    '∨' => joint = Joint::Or,
                    '∧' if joint == Joint::Comma => joint = Joint::And,
                    _ => {}
                }
                self.at += 1;
            }
            let ends = match self.peek() {
                None => true,
                Some(Token::Sign(sign)) => matches!(sign, ')' | ']' | '}' | '⦄' | '⟩' | '⟧'),
                _ => false,
            };
            if !separated || ends {
                break;
            }
            if strong {
                groups.push(Vec::new());
            }
        }
        if groups.iter().all(|group| group.len() == 1) || groups.len() == 1 {
            groups = groups.into_iter().flatten().map(|item| vec![item]).collect();
        }
        Ok((groups, joint))
    }

    pub(super) fn relation(&mut self) -> Result<Node, ParseError> {
        let first = self.ratio()?;
        let mut rest = Vec::new();
        while let Some(sign) = self.peek_relation() {
            self.at += 1;
            rest.push((sign, self.ratio()?));
        }
        Ok(if rest.is_empty() { first } else { Node::Chain(Box::new(first), rest) })
    }

    pub(super) fn peek_relation(&self) -> Option<Relation> {
        Some(match self.peek_sign()? {
            '=' => Relation::Equal,
            '≠' => Relation::NotEqual,
            '<' => Relation::Less,
            '≤' => Relation::LessEqual,
            '>' => Relation::Greater,
            '≥' => Relation::GreaterEqual,
            '≈' => Relation::About,
            '∈' => Relation::In,
            '→' | '≡' | '⊂' | '∉' => Relation::Other,
            _ => return None,
        })
    }

    pub(super) fn ratio(&mut self) -> Result<Node, ParseError> {
        let first = self.union()?;
        let mut parts = vec![first];
        loop {
            let word_to = matches!(self.peek(), Some(Token::Word(word)) if word == "to" || word == "比");
            if self.peek_sign() != Some(':') && !word_to {
                break;
            }
            self.at += 1;
            parts.push(self.union()?);
        }
        if parts.len() == 1 {
            let only = parts.remove(0);
            return Ok(match (self.half_day(), only) {
                (Some(late), Node::Number(hour)) => {
                    self.at += 1;
                    Node::Time(hour, RBig::ZERO, late)
                }
                (_, only) => only,
            });
        }
        if let (Some(late), [Node::Number(hour), Node::Number(minute)]) = (self.half_day(), &parts[..]) {
            self.at += 1;
            while matches!(self.peek_sign(), Some('.')) {
                self.at += 1;
            }
            return Ok(Node::Time(hour.clone(), minute.clone(), late));
        }
        Ok(Node::Ratio(parts))
    }

    pub(super) fn half_day(&self) -> Option<bool> {
        match self.peek() {
            Some(Token::Word(word)) => match word.to_ascii_lowercase().as_str() {
                "pm" => Some(true),
                "am" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn union(&mut self) -> Result<Node, ParseError> {
        let first = self.sum()?;
        let mut node = first;
        let mut nested = 0;
        while let Some(sign) = self.peek_sign().filter(|sign| matches!(sign, '∪' | '∩' | '∖')) {
            self.at += 1;
            nested += 1;
            if nested > MAX_DEPTH {
                return Err(ParseError::TooDeep);
            }
            let next = self.sum()?;
            node = match (sign, node) {
                ('∪', Node::Union(mut parts)) => {
                    parts.push(next);
                    Node::Union(parts)
                }
                ('∪', node) => Node::Union(vec![node, next]),
                ('∩', node) => Node::Call("intersection".into(), vec![node, next]),
                (_, node) => Node::Call("difference".into(), vec![node, next]),
            };
        }
        Ok(node)
    }
}

fn bare(mut group: Vec<Node>, joint: Joint) -> Node {
    if group.len() == 1 { group.remove(0) } else { Node::List(group, joint) }
}
