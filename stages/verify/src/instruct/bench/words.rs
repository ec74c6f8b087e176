//! The registry of the group `words`, and the kinds that look at the places of words.

use super::{
    asked, fixed, kind, letters,
    text::{PUNCTUATION, is_alphanumeric, is_outer, pieces, quoted},
    verbs,
};
use crate::instruct::{
    Check, InstructError, KindInfo, Resource, Rule, Shape, characters::strip, parameters::Parameters, views::Views,
};

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "words:alphabet",
        &[],
        &[],
        "each word begins with the next letter of the alphabet, `a` after `z`; marks are taken out first",
        |_| fixed(letters::alphabet),
    ),
    kind(
        "words:consonants",
        &[],
        &[],
        "each piece between spaces has two consonants in a row; `y` is one, and a piece of marks alone fails",
        |_| fixed(letters::consonants),
    ),
    kind(
        "words:keywords_specific_position",
        &[asked("keyword", Shape::Text), asked("n", Shape::POSITIVE), asked("m", Shape::POSITIVE)],
        &[Resource::TreebankTokens],
        "the keyword is the m-th word of the n-th sentence, in any case; marks are no words",
        keywords_specific_position,
    ),
    kind("words:last_first", &[], &[], "the last word of each sentence is the first of the next, in any case", |_| {
        fixed(last_first)
    }),
    kind(
        "words:no_consecutive",
        &[],
        &[],
        "no two words in a row begin with the same character; marks are taken out first",
        |_| fixed(letters::no_consecutive),
    ),
    kind(
        "words:odd_even_syllables",
        &[],
        &[Resource::WordList("825 English words whose syllables the rule of vowel groups miscounts")],
        "words of odd and even numbers of syllables take turns; syllables are groups of vowels, but for a \
         silent `e` and for the words of the list, and a word with a digit has none",
        |_| fixed(letters::odd_even_syllables),
    ),
    kind(
        "words:palindrome",
        &[],
        &[],
        "at least ten palindromes of five characters or more, repeated ones included; they need not be words",
        |_| fixed(letters::palindrome),
    ),
    kind("words:paragraph_last_first", &[], &[], "each line ends with the word it begins with, in any case", |_| {
        fixed(letters::paragraph_last_first)
    }),
    kind(
        "words:prime_lengths",
        &[],
        &[],
        "the length of each word is a prime number below 100; marks do not count",
        |_| fixed(letters::prime_lengths),
    ),
    kind(
        "words:repeats",
        &[asked("small_n", Shape::NUMBER)],
        &[],
        "no word more than so many times, in any case; marks are taken out first",
        letters::repeats,
    ),
    kind(
        "words:start_verb",
        &[],
        &[Resource::TreebankTokens, Resource::WordList("English verbs, with forms by rule")],
        "the first word is a verb: of the list, or a form of one; a word that is a noun as well is told by \
         the word after it. The benchmark asks a statistical tagger, which differs on rare words",
        |_| fixed(start_verb),
    ),
    kind("words:vowel", &[], &[], "one paragraph with at most three different vowels in all", |_| {
        fixed(letters::vowel)
    }),
    kind(
        "words:words_position",
        &[asked("keyword", Shape::Text)],
        &[Resource::TreebankTokens],
        "the second and the second to last word are the keyword, in any case; one mark at the end is no word",
        words_position,
    ),
];

fn keywords_specific_position(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (nth, word) = (parameters.count("n")?, parameters.count("m")?);
    let keyword = strip(parameters.text("keyword")?).to_lowercase();
    Ok(Box::new(move |response| {
        let sentences = response.marked_sentences();
        let Some(sentence) = sentences.get(nth - 1) else {
            return Check::new(false, format!("{} sentences, none is number {nth}", sentences.len()));
        };
        let tokens = Views::new(sentence.as_str());
        let mut words = tokens.tokens().filter(|token| token.chars().any(is_alphanumeric));
        let Some(found) = words.nth(word - 1) else {
            return Check::new(false, format!("sentence {nth} has fewer than {word} words"));
        };
        let holds = found.to_lowercase() == keyword;
        Check::new(holds, format!("word {word} of sentence {nth} is {}, {} asked", quoted(found), quoted(&keyword)))
    }))
}

fn words_position(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let keyword = strip(parameters.text("keyword")?).to_lowercase();
    Ok(Box::new(move |response| {
        let tokens: Vec<&str> = response.tokens().collect();
        let ends_with_mark = tokens.last().is_some_and(|token| PUNCTUATION.contains(token));
        let from_end = if ends_with_mark { 3 } else { 2 };
        let (Some(second), Some(at)) = (tokens.get(1), tokens.len().checked_sub(from_end)) else {
            return Check::new(false, "fewer than two words");
        };
        let is_keyword = |token: &str| token.to_lowercase() == keyword;
        let late = tokens.get(at).copied().unwrap_or_default();
        Check::new(
            is_keyword(second) && is_keyword(late),
            format!("the second word is {}, the second to last {}", quoted(second), quoted(late)),
        )
    }))
}

fn last_first(response: &Views<'_>) -> Check {
    let sentences = response.marked_sentences();
    for (sentence, next) in sentences.iter().zip(sentences.iter().skip(1)) {
        let last = pieces(sentence.trim_end_matches(is_outer)).next_back();
        let first = pieces(next.trim_start_matches(is_outer)).next();
        let (Some(last), Some(first)) = (last, first) else {
            return Check::new(false, "a sentence without words");
        };
        if last.to_lowercase() != first.to_lowercase() {
            let (last, first) = (quoted(last), quoted(first));
            return Check::new(false, format!("a sentence ends with {last}, the next begins with {first}"));
        }
    }
    Check::new(true, "each sentence begins with the last word of the one before")
}

fn start_verb(response: &Views<'_>) -> Check {
    let mut tokens = response.tokens();
    let Some(first) = tokens.next() else {
        return Check::new(false, "no words");
    };
    let next = tokens.next().unwrap_or_default();
    let holds = verbs::begins(first, next);
    let found = if holds { "a verb" } else { "no verb" };
    Check::new(holds, format!("the first word {} is {found}", quoted(first)))
}
