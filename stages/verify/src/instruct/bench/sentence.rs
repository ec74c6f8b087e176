//! Kinds that go from sentence to sentence.

use super::{
    asked, fixed, kind,
    text::{first, folded, has_whole, pieces, quoted, without_punctuation},
};
use crate::instruct::{Check, InstructError, KindInfo, Rule, Shape, parameters::Parameters, views::Views};

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "sentence:alliteration_increment",
        &[],
        &[],
        "each sentence has more words that begin like a neighbour than the one before",
        |_| fixed(alliteration_increment),
    ),
    kind(
        "sentence:increment",
        &[asked("small_n", Shape::NUMBER)],
        &[],
        "each sentence has exactly so many words more than the one before",
        increment,
    ),
    kind(
        "sentence:keyword",
        &[asked("word", Shape::Text), asked("N", Shape::POSITIVE)],
        &[],
        "the n-th sentence has the keyword as a whole word, in any case",
        keyword,
    ),
];

/// Words in runs of words that begin alike.
fn alliterative(sentence: &str) -> usize {
    let initials: Vec<char> =
        pieces(sentence).filter_map(|piece| first(piece.trim_start_matches(super::text::is_outer))).collect();
    initials.chunk_by(|one, next| one == next).map(<[char]>::len).filter(|length| *length > 1).sum()
}

fn alliteration_increment(response: &Views<'_>) -> Check {
    let mut before = None;
    for (index, sentence) in response.marked_sentences().iter().enumerate() {
        let found = alliterative(&sentence.to_lowercase());
        if let Some(before) = before.filter(|before| found <= *before) {
            let number = index + 1;
            return Check::new(false, format!("{found} alliterative words in sentence {number} after {before}"));
        }
        before = Some(found);
    }
    Check::new(true, "each sentence has more alliterative words than the one before")
}

fn increment(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("small_n")?;
    Ok(Box::new(move |response| {
        let mut before = None;
        for (index, sentence) in response.marked_sentences().iter().enumerate() {
            let found = pieces(&without_punctuation(sentence)).count();
            if let Some(before) = before.filter(|before| found != before + asked) {
                let number = index + 1;
                let why = format!("{found} words in sentence {number} after {before}, {asked} more asked");
                return Check::new(false, why);
            }
            before = Some(found);
        }
        let why = if before.is_some() { "each sentence grows as asked" } else { "no sentences" };
        Check::new(before.is_some(), why)
    }))
}

fn keyword(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (nth, keyword) = (parameters.count("N")?, folded(parameters.text("word")?));
    Ok(Box::new(move |response| {
        let sentences = response.marked_sentences();
        let Some(sentence) = sentences.get(nth - 1) else {
            return Check::new(false, format!("{} sentences, none is number {nth}", sentences.len()));
        };
        let holds = has_whole(&folded(sentence), &keyword);
        let verb = if holds { "has" } else { "lacks" };
        Check::new(holds, format!("sentence {nth} {verb} {}", quoted(&keyword)))
    }))
}
