//! Cuts a text into folded tokens in one pass; the rules are those of [`crate::view`].

use unicode_normalization::UnicodeNormalization;

use crate::character::{Class, classify, fold, is_raised_or_lowered, is_vulgar_fraction, operator};
use crate::latex::{command_symbol, is_layout, lower};
use crate::view::{Symbols, TokenKind, View};

/// Longest run of one symbol that is one token under [`Symbols::Kept`].
const SYMBOL_RUN: usize = 8;

/// Token under construction.
struct Open {
    kind: TokenKind,
    start: usize,
    folded_start: usize,
    raised: bool,
    marks: usize,
}

/// One pass over one text.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    symbols: Symbols,
    view: &'a mut View,
    open: Option<Open>,
    /// Byte position behind the last character that went into the open token.
    end: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str, symbols: Symbols, view: &'a mut View) -> Self {
        Self { text, bytes: text.as_bytes(), symbols, view, open: None, end: 0 }
    }

    pub(crate) fn scan(mut self) {
        let mut at = 0;
        while let Some(byte) = self.bytes.get(at).copied() {
            at = match byte {
                b'a'..=b'z' | b'A'..=b'Z' => {
                    self.add(char::from(byte.to_ascii_lowercase()), TokenKind::Word, (at, at + 1), false);
                    at + 1
                }
                b'0'..=b'9' => {
                    self.add(char::from(byte), TokenKind::Number, (at, at + 1), false);
                    at + 1
                }
                b'\\' => self.command(at),
                byte if byte.is_ascii_whitespace() => {
                    self.close();
                    at + 1
                }
                byte if byte.is_ascii() => self.ascii_symbol(char::from(byte), at),
                _ => self.wide(at),
            };
        }
        self.close();
    }

    fn wide(&mut self, at: usize) -> usize {
        let Some(character) = self.text[at..].chars().next() else {
            return self.bytes.len();
        };
        let next = at + character.len_utf8();
        if is_vulgar_fraction(character) {
            self.close();
        }
        let raised = is_raised_or_lowered(character);
        fold(character, |part| match classify(part) {
            Class::Letter => self.add(part, TokenKind::Word, (at, next), raised),
            Class::Digit => self.add(part, TokenKind::Number, (at, next), raised),
            Class::Single => self.add(part, TokenKind::Single, (at, next), raised),
            Class::Mark => self.add_mark(part, next),
            Class::Ignored => {}
            Class::Space => self.close(),
            Class::Symbol => self.symbol(part, (at, next)),
        });
        next
    }

    /// Adds a folded character to the open token, or opens the next one.
    fn add(&mut self, folded: char, kind: TokenKind, span: (usize, usize), raised: bool) {
        let continues = self
            .open
            .as_ref()
            .is_some_and(|open| open.kind == kind && open.raised == raised && kind != TokenKind::Single);
        if !continues {
            self.open(kind, span.0, raised);
        }
        self.view.folded.push(folded);
        self.end = span.1;
    }

    fn open(&mut self, kind: TokenKind, start: usize, raised: bool) {
        self.close();
        let is_spaced = |kind: TokenKind| kind != TokenKind::Single;
        let needs_space = match self.view.kinds.last().copied() {
            Some(TokenKind::Number) if kind == TokenKind::Number => true,
            Some(last) => is_spaced(last) && is_spaced(kind),
            None => false,
        };
        if needs_space {
            self.view.folded.push(' ');
        }
        self.open = Some(Open { kind, start, folded_start: self.view.folded.len(), raised, marks: 0 });
    }

    fn add_mark(&mut self, mark: char, end: usize) {
        if let Some(open) = &mut self.open {
            open.marks += 1;
            self.view.folded.push(mark);
            self.end = end;
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.marks > 1 {
            // several marks on one letter have one canonical order
            let ordered: String = self.view.folded[open.folded_start..].nfd().collect();
            self.view.folded.truncate(open.folded_start);
            self.view.folded.push_str(&ordered);
        }
        self.view.push(open.folded_start, (open.start, self.end), open.kind);
    }

    fn ascii_symbol(&mut self, symbol: char, at: usize) -> usize {
        let is_number = self.open.as_ref().is_some_and(|open| open.kind == TokenKind::Number && !open.raised);
        if is_number {
            if symbol == '.' && self.is_decimal_point(at) {
                self.view.folded.push('.');
                self.end = at + 1;
                return at + 1;
            }
            if let Some(next) = self.thousands(at) {
                return next;
            }
        }
        self.symbol(symbol, (at, at + 1));
        at + 1
    }

    fn is_decimal_point(&self, at: usize) -> bool {
        let has_point = self.open.as_ref().is_some_and(|open| self.view.folded[open.folded_start..].contains('.'));
        !has_point && at == self.end && self.is_digit(at + 1)
    }

    /// Position of the digits behind a thousands separator at `at`, spelt `,` `,\!` `{,}` or `\,`.
    fn thousands(&self, at: usize) -> Option<usize> {
        let open = self.open.as_ref()?;
        let digits = &self.view.folded[open.folded_start..];
        let is_head = at == self.end && !digits.contains('.') && {
            let run = self.bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=3).contains(&run)
        };
        if !is_head {
            return None;
        }
        let rest = &self.bytes[at..];
        let separator = [&b",\\!"[..], b"{,}", b"\\,", b","].into_iter().find(|mark| rest.starts_with(mark))?;
        let next = at + separator.len();
        let group = (next..next + 3).all(|at| self.is_digit(at)) && !self.is_digit(next + 3);
        group.then_some(next)
    }

    fn is_digit(&self, at: usize) -> bool {
        self.bytes.get(at).is_some_and(u8::is_ascii_digit)
    }

    /// Reads what a backslash begins and gives the position behind it.
    fn command(&mut self, at: usize) -> usize {
        let is_number = self.open.as_ref().is_some_and(|open| open.kind == TokenKind::Number && !open.raised);
        if is_number && let Some(next) = self.thousands(at) {
            return next;
        }
        let length = self.bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        if length == 0 {
            self.close();
            // `\,` `\!` `\\` and the like are layout; `\{` `\%` are the symbol behind the backslash
            let is_spacing = matches!(self.bytes.get(at + 1), Some(b',' | b';' | b':' | b'!' | b'>' | b'\\'));
            return at + 1 + usize::from(is_spacing);
        }
        let end = at + 1 + length;
        let mut buffer = [0_u8; 16];
        let name = lower(&self.bytes[at + 1..end], &mut buffer);
        if let Some(symbol) = name.and_then(command_symbol) {
            self.symbol(symbol, (at, end));
        } else if name.is_some_and(is_layout) {
            self.close();
        } else if matches!(name, Some("frac" | "dfrac" | "tfrac" | "cfrac")) {
            return self.fraction(at, end);
        } else {
            self.close();
            for index in at + 1..end {
                let letter = char::from(self.bytes[index].to_ascii_lowercase());
                self.add(letter, TokenKind::Word, (index, index + 1), false);
            }
            self.close();
        }
        end
    }

    /// `\frac12` is `\frac{1}{2}`: without braces an argument is one digit.
    fn fraction(&mut self, at: usize, end: usize) -> usize {
        self.open(TokenKind::Word, at, false);
        self.view.folded.push_str("frac");
        self.end = end;
        self.close();
        let digits = (end..end + 2).take_while(|at| self.is_digit(*at)).count();
        for index in end..end + digits {
            self.add(char::from(self.bytes[index]), TokenKind::Number, (index, index + 1), false);
            self.close();
        }
        end + digits
    }

    fn symbol(&mut self, symbol: char, span: (usize, usize)) {
        self.close();
        match self.symbols {
            Symbols::Dropped => {}
            Symbols::Operators => {
                if let Some(operator) = operator(symbol)
                    && self.is_between_operands(operator, span)
                {
                    self.push_symbol(operator, span);
                }
            }
            Symbols::Kept => {
                if !self.extends_run(symbol, span) {
                    self.push_symbol(symbol, span);
                }
            }
        }
    }

    fn push_symbol(&mut self, symbol: char, span: (usize, usize)) {
        self.open(TokenKind::Symbol, span.0, false);
        self.view.folded.push(symbol);
        self.end = span.1;
        self.close();
    }

    /// Whether `symbol` only lengthens a run of itself that the last token already stands for.
    fn extends_run(&mut self, symbol: char, span: (usize, usize)) -> bool {
        let (Some(TokenKind::Symbol), Some(last)) = (self.view.kinds.last(), self.view.spans.last_mut()) else {
            return false;
        };
        let fits = last.1 == span.0 && span.1 - last.0 <= SYMBOL_RUN * (span.1 - span.0);
        if fits && self.view.folded.ends_with(symbol) {
            last.1 = span.1;
            return true;
        }
        false
    }

    /// Whether an operator has an operand on either side in its line; bullets, emphasis and hyphens have not.
    fn is_between_operands(&self, operator: char, (start, end): (usize, usize)) -> bool {
        let (before, after) = (&self.text[..start], &self.text[end..]);
        if operator == '*' && (before.ends_with('*') || after.starts_with('*')) {
            return false;
        }
        if operator == '-' && is_hyphen(before, after) {
            return false;
        }
        let skipped = |character: &char| !matches!(character, ' ' | '\t' | '$' | '\\');
        let left = before.chars().rev().find(skipped);
        let right = after.chars().find(|character| skipped(character) && !matches!(character, '(' | '[' | '{' | '-'));
        let closes = |character: char| character.is_alphanumeric() || matches!(character, ')' | ']' | '}' | '!');
        left.is_some_and(closes) && right.is_some_and(char::is_alphanumeric)
    }
}

/// A hyphen joins letters, at least two of them on one side: `well-known`, `x-axis`, but not `x-y`.
fn is_hyphen(before: &str, after: &str) -> bool {
    let letters_before = before.chars().rev().take(2).take_while(|letter| letter.is_alphabetic()).count();
    let letters_after = after.chars().take(2).take_while(|letter| letter.is_alphabetic()).count();
    letters_before >= 1 && letters_after >= 1 && letters_before + letters_after >= 3
}
