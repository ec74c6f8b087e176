//! What rules see of a response: its text, and parts of it that are computed once, when first asked for.

use super::{
    bench,
    characters::{is_word, strip},
    language,
    sentences::sentences,
    tokens::Tokens,
};
use std::{borrow::Cow, cell::OnceCell, ops::Range};

/// One reading of a response. Parts are slices of [`Views::text`], without copies.
pub(crate) struct Views<'a> {
    text: Cow<'a, str>,
    lower: OnceCell<String>,
    words: OnceCell<Vec<Range<usize>>>,
    sentences: OnceCell<Vec<Range<usize>>>,
    marked_sentences: OnceCell<Vec<String>>,
    tokens: OnceCell<Tokens>,
    language: OnceCell<Option<&'static str>>,
}

impl<'a> Views<'a> {
    /// Looks at a text; computes nothing yet.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            text: text.into(),
            lower: OnceCell::new(),
            words: OnceCell::new(),
            sentences: OnceCell::new(),
            marked_sentences: OnceCell::new(),
            tokens: OnceCell::new(),
            language: OnceCell::new(),
        }
    }

    /// The reading as it stands.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Without outer white space.
    pub fn stripped(&self) -> &str {
        strip(&self.text)
    }

    /// In lower case.
    pub fn lower(&self) -> &str {
        self.lower.get_or_init(|| self.text.to_lowercase())
    }

    /// Runs of word characters (`\w+`): letters, digits, underscores, in any script.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.word_spans().iter().map(|span| &self.text[span.clone()])
    }

    /// Where the words stand, in bytes.
    pub fn word_spans(&self) -> &[Range<usize>] {
        self.words.get_or_init(|| runs(&self.text, is_word))
    }

    /// Sentences, as NLTK's English model splits them, without the white space between them.
    pub fn sentences(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.sentences.get_or_init(|| sentences(&self.text)).iter().map(|span| &self.text[span.clone()])
    }

    /// Sentences as IFBench cuts them, by marks: other than those of the sentence model.
    pub fn marked_sentences(&self) -> &[String] {
        self.marked_sentences.get_or_init(|| bench::sentences(&self.text))
    }

    /// Word tokens of the Penn Treebank (`word_tokenize` of NLTK), sentence by sentence.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.tokens.get_or_init(|| Tokens::new(self.sentences())).iter()
    }

    /// The natural language, as an ISO 639-1 code; `None` when it cannot be told.
    pub fn language(&self) -> Option<&'static str> {
        *self.language.get_or_init(|| language::detect(&self.text))
    }

    /// Lines: what stands between line feeds, blank ones included.
    pub fn lines(&self) -> impl Iterator<Item = &str> + Clone {
        self.text.split('\n')
    }

    /// Paragraphs: what stands between two line feeds, blank ones included.
    pub fn paragraphs(&self) -> impl Iterator<Item = &str> + Clone {
        self.text.split("\n\n")
    }
}

/// The longest runs of characters of a class.
fn runs(text: &str, is_member: impl Fn(char) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::with_capacity(text.len() / 6);
    let mut start = None;
    for (at, character) in text.char_indices() {
        match (is_member(character), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                found.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    found.extend(start.map(|from| from..text.len()));
    found
}
