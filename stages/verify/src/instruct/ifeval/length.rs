//! Kinds that count words, sentences and paragraphs.

use crate::instruct::{
    Check, InstructError, Rule,
    characters::{is_space, strip},
    parameters::Parameters,
};

/// `num_words`, `relation`.
pub(super) fn number_words(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (asked, relation) = (parameters.count("num_words")?, parameters.relation("relation")?);
    Ok(Box::new(move |response| {
        let found = response.words().len();
        Check::new(relation.holds(found, asked), format!("{found} words, {} {asked} asked", relation.as_str()))
    }))
}

/// `num_sentences`, `relation`.
pub(super) fn number_sentences(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (asked, relation) = (parameters.count("num_sentences")?, parameters.relation("relation")?);
    Ok(Box::new(move |response| {
        let found = response.sentences().len();
        Check::new(relation.holds(found, asked), format!("{found} sentences, {} {asked} asked", relation.as_str()))
    }))
}

/// `num_paragraphs`. A blank paragraph at either end is none; a blank one inside fails.
pub(super) fn number_paragraphs(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("num_paragraphs")?;
    Ok(Box::new(move |response| {
        let last = response.text().matches("***").count();
        let mut found = 0;
        for (index, paragraph) in response.text().split("***").enumerate() {
            if !strip(paragraph).is_empty() {
                found += 1;
            } else if index != 0 && index != last {
                return Check::new(false, "an empty paragraph between two `***`");
            }
        }
        Check::new(found == asked, format!("{found} paragraphs separated by `***`, {asked} asked"))
    }))
}

/// `num_paragraphs`, `nth_paragraph`, `first_word`. Blank paragraphs are not counted but keep their place:
/// the n-th is the n-th of all, as in the original.
pub(super) fn nth_paragraph_first_word(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (asked, nth) = (parameters.count("num_paragraphs")?, parameters.count("nth_paragraph")?);
    if nth > asked {
        return Err(
            parameters.out_of_range("nth_paragraph", format!("there are {asked} paragraphs (`num_paragraphs`)"))
        );
    }
    let word = parameters.text("first_word")?.to_lowercase();
    Ok(Box::new(move |response| {
        let found = response.paragraphs().filter(|paragraph| !strip(paragraph).is_empty()).count();
        if found != asked {
            return Check::new(false, format!("{found} paragraphs separated by blank lines, {asked} asked"));
        }
        let paragraph = strip(response.paragraphs().nth(nth - 1).unwrap_or_default());
        let first = first_word(paragraph);
        Check::new(first == word, format!("paragraph {nth} begins with `{first}`, `{word}` asked"))
    }))
}

/// The first piece of a paragraph up to a punctuation mark, in lower case, without opening quotes.
fn first_word(paragraph: &str) -> String {
    let piece = paragraph.split(is_space).next().unwrap_or_default();
    let piece = piece.trim_start_matches('\'').trim_start_matches('"');
    piece
        .split(['.', ',', '?', '!', '\'', '"'])
        .next()
        .unwrap_or_default()
        .chars()
        .flat_map(char::to_lowercase)
        .collect()
}
