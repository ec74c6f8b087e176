//! Cuts a text into folded tokens in one pass; the rules are those of [`crate::view`].
//!
//! Words and numbers of ASCII are hashed where they stand. Only tokens that hold or touch a wider character are put
//! together in a buffer first.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

use crate::character::{Class, classify, fold, is_letter, is_raised_or_lowered, is_vulgar_fraction, operator};
use crate::latex::{Command, command};
use crate::token::{ascii_word_hash, folded_hash, leading_letters, short_word_hash, step_at, step_hash, token_hash};
use crate::view::{Symbols, TokenKind};

/// Longest run of one symbol that is one token under [`Symbols::Kept`].
const SYMBOL_RUN: usize = 8;

/// Characters in which the operand of an operator is looked for.
const OPERAND_WITHIN: usize = 16;

/// Takes the tokens of a text in order.
pub(crate) trait Sink {
    /// A token whose folded text is `folded`, apart from the case of ASCII letters.
    fn push(&mut self, hash: u64, folded: &[u8], span: (usize, usize), kind: TokenKind);
    /// The last token reaches to `end`.
    fn extend_last(&mut self, end: usize);
}

/// What a byte begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    Letter,
    Digit,
    Space,
    Backslash,
    Symbol,
    Wide,
}

static BEGINS: [Begin; 256] = begins();

const fn begins() -> [Begin; 256] {
    let mut table = [Begin::Symbol; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Begin::Letter,
            b'0'..=b'9' => Begin::Digit,
            b'\\' => Begin::Backslash,
            // white space of ASCII, with the vertical tab and the separators that Unicode counts in
            b' ' | 9..=13 | 28..=31 => Begin::Space,
            128..=255 => Begin::Wide,
            _ => Begin::Symbol,
        };
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Token under construction in the buffer.
struct Open {
    kind: TokenKind,
    start: usize,
    raised: bool,
    marks: usize,
}

/// One pass over one text.
pub(crate) struct Scanner<'a, S> {
    text: &'a str,
    bytes: &'a [u8],
    symbols: Symbols,
    sink: &'a mut S,
    /// Folded text of the open token.
    buffer: &'a mut String,
    open: Option<Open>,
    /// Byte position behind the last character that went into the open token.
    end: usize,
    /// The symbol of the last token and its span, where that was one.
    last_symbol: Option<(char, usize, usize)>,
}

impl<'a, S: Sink> Scanner<'a, S> {
    /// A scanner of at most the first 4 GiB of `text`.
    pub(crate) fn new(text: &'a str, symbols: Symbols, sink: &'a mut S, buffer: &'a mut String) -> Self {
        let text = &text[..text.floor_char_boundary(u32::MAX as usize)];
        buffer.clear();
        Self { text, bytes: text.as_bytes(), symbols, sink, buffer, open: None, end: 0, last_symbol: None }
    }

    pub(crate) fn scan(mut self) {
        let mut at = 0;
        while let Some(byte) = self.bytes.get(at).copied() {
            // most of a text is words: as long as one follows the other, nothing has to be told apart
            if let Some(next) = self.short_word(at) {
                at = next;
                continue;
            }
            at = match BEGINS[usize::from(byte)] {
                Begin::Letter => self.word(at),
                Begin::Digit => self.number(at),
                Begin::Space => {
                    self.close();
                    at + 1
                }
                Begin::Backslash => self.command(at),
                Begin::Symbol => {
                    self.symbol(char::from(byte), (at, at + 1));
                    at + 1
                }
                Begin::Wide => self.wide(at),
            };
        }
        self.close();
    }

    fn begins(&self, at: usize, begin: Begin) -> bool {
        self.bytes.get(at).is_some_and(|byte| BEGINS[usize::from(*byte)] == begin)
    }

    /// First position from `at` on that does not begin what `begin` says.
    fn run_end(&self, at: usize, begin: Begin) -> usize {
        let rest = self.bytes.get(at..).unwrap_or_default();
        at + rest.iter().position(|byte| BEGINS[usize::from(*byte)] != begin).unwrap_or(rest.len())
    }

    /// First position from `at` on that holds no ASCII letter.
    fn letters_end(&self, mut at: usize) -> usize {
        while let Some(step) = step_at(self.bytes, at) {
            let letters = leading_letters(step);
            at += letters;
            if letters < 8 {
                return at;
            }
        }
        self.run_end(at, Begin::Letter)
    }

    /// A word of up to seven letters between ASCII characters, which most words are, with the space behind it.
    #[inline]
    fn short_word(&mut self, at: usize) -> Option<usize> {
        let step = step_at(self.bytes, at).filter(|_| self.open.is_none())?;
        let letters = Some(leading_letters(step)).filter(|letters| (1..8).contains(letters))?;
        let [next, ..] = (step >> (8 * letters)).to_le_bytes();
        if !next.is_ascii() || next == b'_' {
            return None;
        }
        let end = at + letters;
        self.sink.push(short_word_hash(step, letters), &self.bytes[at..end], (at, end), TokenKind::Word);
        Some(end + usize::from(next == b' '))
    }

    fn word(&mut self, at: usize) -> usize {
        self.close_unless(TokenKind::Word);
        let mut end = self.letters_end(at);
        let first_end = end;
        while self.joins_identifier(end) {
            end = self.letters_end(end + 1);
        }
        if self.open.is_none() && end == first_end && !self.begins(end, Begin::Wide) {
            let hash = ascii_word_hash(self.bytes, at, end);
            self.sink.push(hash, &self.bytes[at..end], (at, end), TokenKind::Word);
        } else {
            self.add_ascii(at, end, TokenKind::Word);
        }
        end
    }

    /// An underscore between two letters on either side is inside an identifier; one next to a single letter sets a
    /// subscript, and others are emphasis.
    fn joins_identifier(&self, at: usize) -> bool {
        self.bytes.get(at) == Some(&b'_')
            && at >= 2
            && [at - 2, at - 1, at + 1, at + 2].into_iter().all(|at| self.begins(at, Begin::Letter))
    }

    fn number(&mut self, at: usize) -> usize {
        self.close_unless(TokenKind::Number);
        let mut end = self.run_end(at, Begin::Digit);
        let is_plain = match self.bytes.get(end) {
            None => true,
            Some(next) => next.is_ascii() && !matches!(next, b'.' | b',' | b'{' | b'\\'),
        };
        if is_plain && self.open.is_none() {
            let hash = folded_hash(self.bytes, at, end);
            self.sink.push(hash, &self.bytes[at..end], (at, end), TokenKind::Number);
            return end;
        }
        self.add_ascii(at, end, TokenKind::Number);
        while !self.buffer.contains('.') {
            if let Some(group) = self.thousands(end) {
                end = group + 3;
                self.add_ascii(group, end, TokenKind::Number);
            } else if self.bytes.get(end) == Some(&b'.') && self.begins(end + 1, Begin::Digit) {
                let decimals = end;
                end = self.run_end(end + 1, Begin::Digit);
                self.add_ascii(decimals, end, TokenKind::Number);
            } else {
                break;
            }
        }
        end
    }

    /// Position of the three digits behind a thousands separator at `at`, spelt `,` `,\!` `{,}` or `\,`, where one to
    /// three digits stand before it.
    fn thousands(&self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        let separator = [&b",\\!"[..], b"{,}", b"\\,", b","].into_iter().find(|mark| rest.starts_with(mark))?;
        let head = self.bytes[..at].iter().rev().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        let group = at + separator.len();
        let is_group = (group..group + 3).all(|at| self.begins(at, Begin::Digit));
        let is_separator = (1..=3).contains(&head) && is_group && !self.begins(group + 3, Begin::Digit);
        is_separator.then_some(group)
    }

    /// Han characters that nothing can change stand for themselves; every other character is folded first.
    fn wide(&mut self, at: usize) -> usize {
        if is_plain_han(self.bytes.get(at..).unwrap_or_default()) {
            self.close();
            let next = at + 3;
            let hash = folded_hash(self.bytes, at, next);
            self.sink.push(hash, &self.bytes[at..next], (at, next), TokenKind::Single);
            return next;
        }
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
        self.open(kind, span.0, raised);
        self.buffer.push(folded);
        self.end = span.1;
    }

    /// Adds ASCII letters or digits to the open token, or opens the next one.
    fn add_ascii(&mut self, start: usize, end: usize, kind: TokenKind) {
        self.open(kind, start, false);
        let from = self.buffer.len();
        self.buffer.push_str(&self.text[start..end]);
        self.buffer[from..].make_ascii_lowercase();
        self.end = end;
    }

    fn add_mark(&mut self, mark: char, end: usize) {
        if let Some(open) = &mut self.open {
            open.marks += 1;
            self.buffer.push(mark);
            self.end = end;
        }
    }

    /// Opens a token, unless the open one goes on.
    fn open(&mut self, kind: TokenKind, start: usize, raised: bool) {
        let goes_on = kind != TokenKind::Single
            && self.open.as_ref().is_some_and(|open| open.kind == kind && open.raised == raised);
        if !goes_on {
            self.close();
            self.open = Some(Open { kind, start, raised, marks: 0 });
        }
    }

    #[inline]
    fn close_unless(&mut self, kind: TokenKind) {
        if self.open.as_ref().is_some_and(|open| open.kind != kind || open.raised) {
            self.close();
        }
    }

    #[inline]
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.hand_on(&open);
        }
    }

    fn hand_on(&mut self, open: &Open) {
        if open.marks > 1 && !is_in_canonical_order(self.buffer) {
            let ordered: String = self.buffer.nfd().collect();
            ordered.clone_into(self.buffer);
        }
        let folded = self.buffer.as_bytes();
        self.sink.push(token_hash(folded), folded, (open.start, self.end), open.kind);
        self.buffer.clear();
    }

    /// Reads what a backslash begins and gives the position behind it.
    fn command(&mut self, at: usize) -> usize {
        let end = self.letters_end(at + 1);
        self.close();
        if end == at + 1 {
            // `\,` `\!` `\\` and the like are layout; `\{` `\%` are the symbol behind the backslash
            let is_spacing = matches!(self.bytes.get(end), Some(b',' | b';' | b':' | b'!' | b'>' | b'\\'));
            return end + usize::from(is_spacing);
        }
        match command(&self.bytes[at + 1..end]) {
            Command::Symbol(symbol) => self.symbol(symbol, (at, end)),
            Command::Layout => {}
            Command::Fraction => return self.fraction(at, end),
            Command::Word => {
                let hash = ascii_word_hash(self.bytes, at + 1, end);
                self.sink.push(hash, &self.bytes[at + 1..end], (at + 1, end), TokenKind::Command);
            }
        }
        end
    }

    /// `\frac12` is `\frac{1}{2}`: without braces an argument is one digit.
    fn fraction(&mut self, at: usize, end: usize) -> usize {
        self.sink.push(token_hash(b"frac"), b"frac", (at, end), TokenKind::Command);
        let digits = (end..end + 2).take_while(|at| self.begins(*at, Begin::Digit)).count();
        for at in end..end + digits {
            let hash = folded_hash(self.bytes, at, at + 1);
            self.sink.push(hash, &self.bytes[at..=at], (at, at + 1), TokenKind::Number);
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
        let mut step = [0; 8];
        let length = symbol.encode_utf8(&mut step).len();
        let hash = step_hash(u64::from_le_bytes(step), length);
        self.sink.push(hash, &step[..length], span, TokenKind::Symbol);
        self.last_symbol = Some((symbol, span.0, span.1));
    }

    /// Whether `symbol` only lengthens a run of itself that the last token already stands for.
    fn extends_run(&mut self, symbol: char, span: (usize, usize)) -> bool {
        let Some((last, start, end)) = &mut self.last_symbol else {
            return false;
        };
        let fits = *last == symbol && *end == span.0 && span.1 - *start <= SYMBOL_RUN * (span.1 - span.0);
        if fits {
            *end = span.1;
            self.sink.extend_last(span.1);
        }
        fits
    }

    /// Whether an operator has an operand on either side; bullets, emphasis and hyphens have not. What may be a bullet has
    /// its operands in its line, any other operator also beyond a line break: a text may be wrapped anew.
    fn is_between_operands(&self, operator: char, (start, end): (usize, usize)) -> bool {
        let (before, after) = (&self.text[..start], &self.text[end..]);
        if operator == '*' && (before.ends_with('*') || after.starts_with('*')) {
            return false;
        }
        if operator == '-' && is_hyphen(before, after) {
            return false;
        }
        let is_bullet = matches!(&self.text[start..end], "-" | "*");
        let skipped = |character: &char| match character {
            ' ' | '\t' | '$' | '\\' => false,
            '\n' | '\r' => is_bullet,
            _ => true,
        };
        let left = before.chars().rev().take(OPERAND_WITHIN).find(skipped);
        let right = after
            .chars()
            .take(OPERAND_WITHIN)
            .find(|character| skipped(character) && !matches!(character, '(' | '[' | '{' | '-'));
        let closes = |character: char| character.is_alphanumeric() || matches!(character, ')' | ']' | '}' | '!');
        left.is_some_and(closes) && right.is_some_and(char::is_alphanumeric)
    }
}

/// Whether a text begins with a Han character that folding leaves alone and that nothing behind it belongs to.
fn is_plain_han(bytes: &[u8]) -> bool {
    // U+4000..U+9FFF but for the hexagrams of U+4DC0..U+4DFF, which are symbols
    let [lead @ 0xE4..=0xE9, second, _, rest @ ..] = bytes else {
        return false;
    };
    let is_followed_plainly = match rest {
        // ASCII, Han and full-width forms, among which no mark is
        [] | [0..=0x7F | 0xE4..=0xE9, ..] | [0xEF, 0xBC | 0xBD, ..] => true,
        // CJK punctuation in front of its marks
        [0xE3, 0x80, third, ..] => *third < 0xA0,
        _ => false,
    };
    is_followed_plainly && (*lead, *second) != (0xE4, 0xB7)
}

/// Several marks on one letter have one canonical order.
fn is_in_canonical_order(folded: &str) -> bool {
    let mut last = 0;
    folded.chars().all(|character| {
        let class = canonical_combining_class(character);
        let is_ordered = class == 0 || class >= last;
        last = class;
        is_ordered
    })
}

/// A hyphen joins letters, at least two of them on one side: `well-known`, `x-axis`, but not `x-y`. A character of an
/// unspaced script is a word by itself and none of these letters, or the sense of `的x-y` would change with a line break.
fn is_hyphen(before: &str, after: &str) -> bool {
    let letters_before = before.chars().rev().take(2).take_while(|letter| is_letter(*letter)).count();
    let letters_after = after.chars().take(2).take_while(|letter| is_letter(*letter)).count();
    letters_before >= 1 && letters_after >= 1 && letters_before + letters_after >= 3
}
