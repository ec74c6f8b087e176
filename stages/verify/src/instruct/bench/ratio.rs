//! Kinds that ask for shares and balances.

use super::{asked, fixed, kind, text::quoted};
use crate::instruct::{
    Check, InstructError, KindInfo, Resource, Rule, Shape, characters::strip, parameters::Parameters, views::Views,
};
use std::{collections::HashSet, sync::LazyLock};

/// How far the share of `ratio:overlap` may be off, in percent.
const SLACK: f64 = 2.0;

const PERCENT: Shape = Shape::Count { least: 0, most: 100 };

static STOP_WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| super::list(include_str!("../data/stop_words.txt")).into_iter().collect());

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "ratio:overlap",
        &[asked("reference_text", Shape::Text), asked("percentage", PERCENT)],
        &[],
        "so many percent (two more or less) of the different trigrams are in the reference text; as in the \
         benchmark, a trigram is three characters",
        overlap,
    ),
    kind(
        "ratio:sentence_balance",
        &[],
        &[],
        "as many sentences end with a full stop as with a question mark as with an exclamation mark",
        |_| fixed(sentence_balance),
    ),
    kind(
        "ratio:sentence_type",
        &[],
        &[],
        "twice as many sentences end with a full stop as with a question mark",
        |_| fixed(sentence_type),
    ),
    kind(
        "ratio:sentence_words",
        &[],
        &[],
        "three sentences of the same number of characters; as in the benchmark, words may recur",
        |_| fixed(sentence_words),
    ),
    kind(
        "ratio:stop_words",
        &[asked("percentage", PERCENT)],
        &[Resource::WordList("English stop words (NLTK)")],
        "at most so many percent of the words are stop words; a response without words fails",
        stop_words,
    ),
];

#[expect(clippy::cast_precision_loss, reason = "counts of words and characters are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}

/// Rounded as the benchmark rounds, which decides shares that are exactly as asked.
fn percent(part: usize, whole: usize) -> f64 {
    float(part) / float(whole) * 100.0
}

fn trigrams(text: &str) -> HashSet<[char; 3]> {
    let characters: Vec<char> = text.chars().collect();
    characters.array_windows().copied().collect()
}

fn overlap(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("percentage")?;
    let reference = trigrams(parameters.text("reference_text")?);
    Ok(Box::new(move |response| {
        let found = trigrams(response.text());
        if found.is_empty() {
            return Check::new(false, "fewer than three characters, so no trigrams");
        }
        let share = percent(found.intersection(&reference).count(), found.len());
        let (least, most) = (float(asked) - SLACK, float(asked) + SLACK);
        let why = format!("{share:.1} % of the trigrams are in the reference, {asked} % asked");
        Check::new(least <= share && share <= most, why)
    }))
}

fn stop_words(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let most = parameters.count("percentage")?;
    Ok(Box::new(move |response| {
        let words = response.words();
        let count = words.len();
        if count == 0 {
            return Check::new(false, "no words");
        }
        let found = words.filter(|word| STOP_WORDS.contains(word.to_lowercase().as_str())).count();
        let why = format!("{found} of {count} words are stop words, at most {most} % asked");
        Check::new(percent(found, count) <= float(most), why)
    }))
}

/// How many sentences end with each of `.`, `?`, `!`.
fn endings(response: &Views<'_>) -> [usize; 3] {
    let sentences = response.marked_sentences();
    ['.', '?', '!'].map(|mark| sentences.iter().filter(|sentence| sentence.ends_with(mark)).count())
}

fn sentence_type(response: &Views<'_>) -> Check {
    let [statements, questions, _] = endings(response);
    Check::new(statements == 2 * questions, format!("{statements} statements and {questions} questions, 2 to 1 asked"))
}

fn sentence_balance(response: &Views<'_>) -> Check {
    let [statements, questions, exclamations] = endings(response);
    Check::new(
        statements == questions && questions == exclamations,
        format!("{statements} statements, {questions} questions, {exclamations} exclamations, as many of each asked"),
    )
}

fn sentence_words(response: &Views<'_>) -> Check {
    let sentences = response.marked_sentences();
    let [first, rest @ ..] = sentences else {
        return Check::new(false, "no sentences, 3 asked");
    };
    if rest.len() != 2 {
        return Check::new(false, format!("{} sentences, 3 asked", sentences.len()));
    }
    let length = |sentence: &str| strip(sentence).chars().count();
    match rest.iter().find(|sentence| length(sentence) != length(first)) {
        Some(other) => Check::new(
            false,
            format!("{} and {} have {} and {} characters", quoted(first), quoted(other), length(first), length(other)),
        ),
        None => Check::new(true, format!("three sentences of {} characters", length(first))),
    }
}
