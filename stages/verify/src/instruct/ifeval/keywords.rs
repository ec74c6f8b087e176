//! Kinds that look for words and letters.
//!
//! The original takes a keyword for a regular expression, so that `C++` matches any `C`. The prompts ask
//! for the words as they are written, and so are they looked for here; for words without marks it is the
//! same.

use crate::instruct::{Check, InstructError, Rule, characters::is_word, parameters::Parameters, views::Views};
use std::borrow::Cow;

/// Words to be found in any case of their letters.
struct Phrase {
    written: String,
    folded: String,
}

impl Phrase {
    fn new(written: &str) -> Self {
        Self { written: written.to_owned(), folded: written.to_lowercase().replace('ς', "σ") }
    }

    /// The response in the case of the phrase. The two small sigmas are one letter.
    fn folded_text<'r>(&self, response: &'r Views<'_>) -> Cow<'r, str> {
        if self.folded.contains('σ') {
            Cow::Owned(response.lower().replace('ς', "σ"))
        } else {
            Cow::Borrowed(response.lower())
        }
    }

    fn count(&self, response: &Views<'_>) -> usize {
        self.folded_text(response).matches(&self.folded).count()
    }

    fn is_part(&self, response: &Views<'_>) -> bool {
        self.folded_text(response).contains(&self.folded)
    }

    /// Whether it stands there as a word of its own: no letter touches a letter of its ends.
    fn is_word(&self, response: &Views<'_>) -> bool {
        let text = self.folded_text(response);
        let touches =
            |inner: Option<char>, outer: Option<char>| inner.is_some_and(is_word) && outer.is_some_and(is_word);
        let (first, last) = (self.folded.chars().next(), self.folded.chars().next_back());
        let mut from = 0;
        while let Some(found) = text[from..].find(&self.folded) {
            let (start, end) = (from + found, from + found + self.folded.len());
            let before = text[..start].chars().next_back();
            let after = text[end..].chars().next();
            if !touches(first, before) && !touches(last, after) {
                return true;
            }
            from = start + first.map_or(1, char::len_utf8);
        }
        false
    }
}

fn phrases(parameters: &Parameters<'_>, name: &'static str) -> Result<Vec<Phrase>, InstructError> {
    Ok(parameters.texts(name)?.into_iter().map(Phrase::new).collect())
}

/// `keywords`: each is found, be it inside a word.
pub(super) fn existence(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = phrases(parameters, "keywords")?;
    Ok(Box::new(move |response| match asked.iter().find(|phrase| !phrase.is_part(response)) {
        Some(absent) => Check::new(false, format!("`{}` is not there", absent.written)),
        None => Check::new(true, "all keywords are there"),
    }))
}

/// `keyword`, `frequency`, `relation`: how often it is found, be it inside a word.
pub(super) fn frequency(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let phrase = Phrase::new(parameters.text("keyword")?.trim());
    let (asked, relation) = (parameters.count("frequency")?, parameters.relation("relation")?);
    Ok(Box::new(move |response| {
        let found = phrase.count(response);
        let why = format!("`{}` {found} times, {} {asked} asked", phrase.written, relation.as_str());
        Check::new(relation.holds(found, asked), why)
    }))
}

/// `forbidden_words`: none is found as a word of its own.
pub(super) fn forbidden_words(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let banned = phrases(parameters, "forbidden_words")?;
    Ok(Box::new(move |response| match banned.iter().find(|phrase| phrase.is_word(response)) {
        Some(found) => Check::new(false, format!("`{}` is forbidden and there", found.written)),
        None => Check::new(true, "no forbidden word is there"),
    }))
}

/// `letter`, `let_frequency`, `let_relation`. The original draws another letter at random where the one
/// asked for is not of the English alphabet (`#`, `!`); here it counts as it is.
pub(super) fn letter_frequency(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let letter = parameters.text("letter")?.trim().to_lowercase();
    let (asked, relation) = (parameters.count("let_frequency")?, parameters.relation("let_relation")?);
    Ok(Box::new(move |response| {
        let found = response.lower().matches(&letter).count();
        let why = format!("the letter `{letter}` {found} times, {} {asked} asked", relation.as_str());
        Check::new(relation.holds(found, asked), why)
    }))
}
