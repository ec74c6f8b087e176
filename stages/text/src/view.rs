//! One view of a text for matching: tokens that do not depend on layout, case, width or punctuation.
//!
//! The report normalises text before matching n-grams (case folded, punctuation and symbols removed;
//! VibeThinker-3B, quality control of SFT data). Numbers are kept, since two word problems that differ in
//! their numbers are two problems. Scripts without spaces between words give one token a character, so a
//! Chinese question has n-grams at all. LaTeX spellings of one formula (`\dfrac`, `\left(`, `\,`) fold
//! together. The view only points into the original text; nothing stored is ever replaced by it.

use std::num::NonZeroUsize;

use crate::ngram::{NgramHashes, ngram_hashes};
use crate::scan::{Scanner, Sink};

/// What becomes of punctuation and symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Symbols {
    /// None is a token: overlap with evaluation sets.
    #[default]
    Dropped,
    /// Arithmetic operators and relations between two operands are tokens, so that `12 + 7` and `12 - 7`
    /// differ: near-duplicates and short exact matches.
    Operators,
    /// Every symbol is a token, runs of one symbol in pieces of at most eight: loops, which may consist of
    /// symbols only.
    Kept,
}

/// What a token is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Letters of a script that separates words.
    Word,
    /// The name of a LaTeX command that is no layout, such as `sqrt`.
    Command,
    /// A number in decimal digits, thousands separators removed.
    Number,
    /// One character of a script without spaces between words.
    Single,
    /// A symbol (only with [`Symbols::Operators`] or [`Symbols::Kept`]).
    Symbol,
}

/// Hash that stands for any number in a masked view.
pub const MASKED_NUMBER: u64 = 0x6E75_6D62_6572_2121;

/// The tokens of one text: 17 bytes for each. Of a text above 4 GiB only the first 4 GiB are seen.
#[derive(Debug, Clone, Default)]
pub struct View {
    hashes: Vec<u64>,
    spans: Vec<(u32, u32)>,
    kinds: Vec<TokenKind>,
}

impl View {
    /// View of `text` without symbols; [`ViewBuilder`] reuses memory over many texts.
    pub fn new(text: &str) -> Self {
        Self::with_symbols(text, Symbols::Dropped)
    }

    /// View of `text` with symbols treated as `symbols` says.
    pub fn with_symbols(text: &str, symbols: Symbols) -> Self {
        let mut view = Self::default();
        Scanner::new(text, symbols, &mut view, &mut String::new()).scan();
        view
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the text has no token at all.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// 64-bit hash of each token.
    pub fn tokens(&self) -> &[u64] {
        &self.hashes
    }

    /// Byte span (start, end) of each token in the original text, on character boundaries.
    pub fn spans(&self) -> &[(u32, u32)] {
        &self.spans
    }

    /// Kind of each token.
    pub fn kinds(&self) -> &[TokenKind] {
        &self.kinds
    }

    /// Hash of each run of `n` tokens, in order.
    pub fn ngram_hashes(&self, n: NonZeroUsize) -> NgramHashes<'_> {
        ngram_hashes(&self.hashes, n)
    }

    /// Writes the token hashes with every number replaced by [`MASKED_NUMBER`] into `out`.
    pub fn number_masked(&self, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self.hashes.iter().zip(&self.kinds).map(|(hash, kind)| match kind {
            TokenKind::Number => MASKED_NUMBER,
            _ => *hash,
        }));
    }

    /// Hashes of the number tokens, in the order of the text.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.hashes.iter().zip(&self.kinds).filter(|(_, kind)| **kind == TokenKind::Number).map(|(hash, _)| *hash)
    }

    /// Byte span from the start of token `first` to the end of token `last`, or (0, 0) without tokens there.
    pub fn span(&self, first: usize, last: usize) -> (usize, usize) {
        match (self.spans.get(first), self.spans.get(last)) {
            (Some(first), Some(last)) => (first.0 as usize, last.1 as usize),
            _ => (0, 0),
        }
    }

    fn clear(&mut self) {
        self.hashes.clear();
        self.spans.clear();
        self.kinds.clear();
    }
}

/// Byte positions of a text of at most 4 GiB.
#[expect(clippy::cast_possible_truncation, reason = "a scanner stops at 4 GiB")]
fn narrow((start, end): (usize, usize)) -> (u32, u32) {
    (start as u32, end as u32)
}

impl Sink for View {
    #[inline]
    fn push(&mut self, hash: u64, _folded: &[u8], span: (usize, usize), kind: TokenKind) {
        self.hashes.push(hash);
        self.spans.push(narrow(span));
        self.kinds.push(kind);
    }

    fn extend_last(&mut self, end: usize) {
        if let Some(last) = self.spans.last_mut() {
            last.1 = narrow((0, end)).1;
        }
    }
}

/// A view that keeps the folded tokens as text besides: for shingles of characters, and to see what was matched.
#[derive(Debug, Clone, Default)]
pub struct FoldedView {
    view: View,
    text: String,
    bounds: Vec<(usize, usize)>,
}

impl FoldedView {
    /// View of `text` without symbols.
    ///
    /// ```
    /// use stage_text::FoldedView;
    /// let view = FoldedView::new("What is $\\dfrac{1}{2}$ of 1,080?");
    /// assert_eq!(view.text(), "what is frac 1 2 of 1080");
    /// ```
    pub fn new(text: &str) -> Self {
        Self::with_symbols(text, Symbols::Dropped)
    }

    /// View of `text` with symbols treated as `symbols` says.
    pub fn with_symbols(text: &str, symbols: Symbols) -> Self {
        let mut view = Self::default();
        Scanner::new(text, symbols, &mut view, &mut String::new()).scan();
        view
    }

    /// The tokens.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The folded tokens as text: one space between words, none around single characters.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Folded text of token `index`; empty when there is no such token.
    pub fn token_text(&self, index: usize) -> &str {
        self.bounds.get(index).and_then(|(start, end)| self.text.get(*start..*end)).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.view.clear();
        self.text.clear();
        self.bounds.clear();
    }
}

impl Sink for FoldedView {
    fn push(&mut self, hash: u64, folded: &[u8], span: (usize, usize), kind: TokenKind) {
        let needs_space = match self.view.kinds.last() {
            Some(TokenKind::Number) if kind == TokenKind::Number => true,
            Some(last) => *last != TokenKind::Single && kind != TokenKind::Single,
            None => false,
        };
        if needs_space {
            self.text.push(' ');
        }
        let start = self.text.len();
        self.text.push_str(&String::from_utf8_lossy(folded));
        self.text[start..].make_ascii_lowercase();
        self.bounds.push((start, self.text.len()));
        self.view.push(hash, folded, span, kind);
    }

    fn extend_last(&mut self, end: usize) {
        self.view.extend_last(end);
    }
}

/// Makes one view after another in the same memory.
#[derive(Debug, Clone, Default)]
pub struct ViewBuilder {
    symbols: Symbols,
    view: View,
    folded: FoldedView,
    buffer: String,
}

impl ViewBuilder {
    /// A builder that treats symbols as `symbols` says.
    pub fn new(symbols: Symbols) -> Self {
        Self { symbols, ..Self::default() }
    }

    /// The view of `text`; the one before is gone.
    pub fn build(&mut self, text: &str) -> &View {
        self.view.clear();
        Scanner::new(text, self.symbols, &mut self.view, &mut self.buffer).scan();
        &self.view
    }

    /// The view that [`ViewBuilder::build`] made last.
    pub fn last(&self) -> &View {
        &self.view
    }

    /// The view of `text` with its folded text, which costs about as much again; the one before is gone.
    pub fn build_folded(&mut self, text: &str) -> &FoldedView {
        self.folded.clear();
        Scanner::new(text, self.symbols, &mut self.folded, &mut self.buffer).scan();
        &self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::token_hash;
    use proptest::prelude::*;

    fn folded(text: &str) -> String {
        FoldedView::new(text).text().to_owned()
    }

    #[test]
    fn case_width_punctuation_and_layout_do_not_matter() {
        let plain = folded("how many apples does tom have");
        assert_eq!(folded("How many\n\n apples,  does TOM have?!"), plain);
        assert_eq!(folded("Ｈｏｗ　ｍａｎｙ — **apples** does “Tom” have…"), plain);
    }

    #[test]
    fn latex_spellings_of_a_formula_fold_together() {
        let plain = folded(r"\frac{1}{2}(x+y)");
        assert_eq!(folded(r"\dfrac{1}{2}\left( x+y \right)"), plain);
        assert_eq!(folded(r"\tfrac12\,\big(x\,+\!y\big)"), plain);
        assert_eq!(folded(r"3 \cdot 4 \text{ cm}"), folded("3 × 4 cm"));
    }

    #[test]
    fn operators_stay_when_lines_are_wrapped_anew() {
        let mut builder = ViewBuilder::new(Symbols::Operators);
        let mut tokens = |text: &str| builder.build(text).tokens().to_vec();
        for formula in ["a + b = c", "x ^ 2 / 3 < y", r"2 \cdot 3 \times 4"] {
            assert_eq!(tokens(formula), tokens(&formula.replace(' ', "\n")), "{formula}");
            assert_eq!(tokens(formula), tokens(&formula.replace(' ', "  ")), "{formula}");
        }
        assert_eq!(tokens("- a\n- b"), tokens("a\nb"), "bullets are no operators");
    }

    #[test]
    fn numbers_are_kept_whole() {
        assert_eq!(folded("1,080 and 10,\\!080 and 10{,}080 and 3.14"), "1080 and 10080 and 10080 and 3.14");
        assert_eq!(folded("(1,2) 12,34 1,0800"), "1 2 12 34 1 0800");
        assert_eq!(folded("x² + 10² = 1½"), "x 2 10 2 1 1 2");
        assert_eq!(folded("f(x)=3x"), "f x 3 x");
    }

    #[test]
    fn unspaced_scripts_give_a_token_a_character() {
        let view = FoldedView::new("小明有30元，苹果x个");
        assert_eq!(view.view().len(), 9);
        assert_eq!(view.text(), "小明有30元苹果x个");
        assert_eq!(View::new("ในตลาด").len(), 6);
    }

    #[test]
    fn scripts_with_spaces_give_words() {
        assert_eq!(View::new("كم عدد التفاح؟").len(), 3);
        assert_eq!(View::new("राम के पास कितने सेब हैं?").len(), 6);
        assert_eq!(View::new("사과가 몇 개 있습니까").len(), 4);
        assert_eq!(View::new("où est l’élève").len(), 4);
        assert_eq!(folded("cafe\u{301}"), folded("CAFÉ"));
    }

    #[test]
    fn operators_between_operands_are_tokens_on_request() {
        let view = |text| FoldedView::with_symbols(text, Symbols::Operators).text().to_owned();
        assert_ne!(view("What is 12 + 7?"), view("What is 12 - 7?"));
        assert_eq!(view("What is $12 \\times 7$?"), view("what is 12*7"));
        assert_eq!(view("**12** apples"), "12 apples");
        assert_eq!(view("a well-known 3-digit"), "a well known 3 - digit");
        assert_eq!(view("- 5 apples\n- 6 pears"), "5 apples 6 pears");
        assert_eq!(view("x-y"), "x - y");
        assert_eq!((view("求x-y").as_str(), view("求 x-y").as_str()), ("求x - y", "求x - y"));
    }

    #[test]
    fn identifiers_of_code_stay_whole_and_subscripts_do_not_join() {
        assert_eq!(folded("max_value = get_Next_item(x_1, a_n, T_max)"), "max_value get_next_item x 1 a n t max");
        assert_eq!(folded("_really_ __init__ \\sum_ij"), "really init sum ij");
    }

    #[test]
    fn characters_that_touch_others_fold_as_they_would_alone() {
        assert_eq!(folded("数\u{3099}学，题。1２3"), folded("数\u{3099} 学 题 123"));
        assert_eq!(folded("naïve x̂y NAÏVE"), folded("nai\u{308}ve x\u{302}y nai\u{308}ve"));
        assert_eq!(folded("a\u{323}\u{302}b"), folded("a\u{302}\u{323}b"));
    }

    #[test]
    fn a_masked_view_hides_numbers_only() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        View::new("Tom has 5 pens").number_masked(&mut first);
        View::new("Tom has 17.5 pens").number_masked(&mut second);
        assert_eq!(first, second);
        View::new("Tim has 5 pens").number_masked(&mut second);
        assert_ne!(first, second);
    }

    proptest! {
        #[test]
        fn any_text_gives_spans_on_character_boundaries(text in "\\PC{0,80}|(\\\\?[a-z0-9,.{}\\\\$ ½²数ก\u{301}\u{200b}-]){0,60}") {
            for symbols in [Symbols::Dropped, Symbols::Operators, Symbols::Kept] {
                let view = FoldedView::with_symbols(&text, symbols);
                let plain = View::with_symbols(&text, symbols);
                prop_assert_eq!((plain.tokens(), plain.spans()), (view.view().tokens(), view.view().spans()));
                let mut last = 0;
                for (index, (start, end)) in plain.spans().iter().enumerate() {
                    prop_assert!(start < end && *start >= last);
                    prop_assert!(text.get(*start as usize..*end as usize).is_some());
                    prop_assert!(!view.token_text(index).is_empty());
                    prop_assert_eq!(token_hash(view.token_text(index).as_bytes()), plain.tokens()[index]);
                    last = *start;
                }
            }
        }

        #[test]
        fn a_view_of_a_folded_text_is_the_same_view(text in "\\PC{0,80}|(\\\\?[a-zA-Z0-9,.{}\\\\$ ½²数ก\u{301}\u{200b}-]){0,60}") {
            let view = FoldedView::new(&text);
            let again = View::new(view.text());
            prop_assert_eq!(view.view().tokens(), again.tokens());
        }

        #[test]
        fn words_survive_any_punctuation_case_and_layout(
            words in prop::collection::vec("[a-zа-яά-ώ]{1,8}|[0-9]{1,5}|[数学题]", 0..20),
            gaps in prop::collection::vec("[ \\n\\t]{1,3}[!?;:()\"'«»。，、…]{0,3}[ \\n]{1,2}", 20),
        ) {
            let plain = words.join(" ");
            let mut dressed = String::new();
            for (word, gap) in words.iter().zip(&gaps) {
                dressed.push_str(gap);
                dressed.push_str(&word.to_uppercase());
            }
            let (plain, dressed) = (View::new(&plain), View::new(&dressed));
            prop_assert_eq!(plain.tokens(), dressed.tokens());
        }
    }
}
