//! Kinds that count words, names, numbers and marks.

use super::{
    asked, fixed, kind,
    text::{has_whole, is_outer, pieces, quoted, without_punctuation},
};
use crate::instruct::{
    Check, InstructError, KindInfo, Resource, Rule, Shape, characters::is_digit, parameters::Parameters, views::Views,
};
use std::{
    collections::{BTreeSet, HashSet},
    sync::LazyLock,
};

const CONJUNCTIONS: [&str; 7] = ["and", "but", "for", "nor", "or", "so", "yet"];

/// How often each of the five keywords is asked.
const TIMES: [(&str, usize); 5] = [("keyword1", 1), ("keyword2", 2), ("keyword3", 3), ("keyword4", 5), ("keyword5", 7)];

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| super::list(include_str!("../data/person_names.txt")));
static PRONOUNS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| super::list(include_str!("../data/pronouns.txt")).into_iter().collect());

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "count:conjunctions",
        &[asked("small_n", Shape::NUMBER)],
        &[],
        "at least so many different coordinating conjunctions; as in the benchmark, the same conjunction \
         written in another case or with a mark attached counts once more",
        conjunctions,
    ),
    kind(
        "count:keywords_multiple",
        &[
            asked("keyword1", Shape::Text),
            asked("keyword2", Shape::Text),
            asked("keyword3", Shape::Text),
            asked("keyword4", Shape::Text),
            asked("keyword5", Shape::Text),
        ],
        &[],
        "the five keywords exactly 1, 2, 3, 5 and 7 times, in any case, be it inside words",
        keywords_multiple,
    ),
    kind(
        "count:numbers",
        &[asked("N", Shape::NUMBER)],
        &[],
        "exactly so many numbers; marks are taken out first, so that `3.14` and `1,000` are one each",
        numbers,
    ),
    kind(
        "count:person_names",
        &[asked("N", Shape::NUMBER)],
        &[Resource::WordList("the 50 first names that the prompt lists")],
        "at least so many different names of the list, as whole words",
        person_names,
    ),
    kind(
        "count:pronouns",
        &[asked("N", Shape::NUMBER)],
        &[Resource::TreebankTokens, Resource::WordList("English pronouns, seven classes")],
        "at least so many pronouns, repeated ones included; a slash separates words",
        pronouns,
    ),
    kind("count:punctuation", &[], &[], "all of . , ! ? ; : and an interrobang (?!, !? or ‽) besides", |_| {
        fixed(punctuation)
    }),
    kind(
        "count:unique_word_count",
        &[asked("N", Shape::NUMBER)],
        &[],
        "at least so many different words in lower case; as in the benchmark, all pieces of marks alone are \
         one word together",
        unique_word_count,
    ),
    kind(
        "count:word_count_range",
        &[asked("min_words", Shape::NUMBER), asked("max_words", Shape::NUMBER)],
        &[],
        "between so many and so many words, both included",
        word_count_range,
    ),
    kind(
        "count:words_japanese",
        &[asked("N", Shape::POSITIVE)],
        &[],
        "every n-th piece between spaces has a kana or a Han character; numbers and marks alone are let pass",
        words_japanese,
    ),
];

fn conjunctions(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("small_n")?;
    Ok(Box::new(move |response| {
        let is_conjunction = |piece: &&str| {
            let word = piece.trim_matches(is_outer);
            CONJUNCTIONS.iter().any(|conjunction| word.eq_ignore_ascii_case(conjunction))
        };
        let found: BTreeSet<&str> = pieces(response.text()).filter(is_conjunction).collect();
        Check::new(found.len() >= asked, format!("{} conjunctions, at least {asked} asked", found.len()))
    }))
}

fn keywords_multiple(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let mut keywords = Vec::with_capacity(TIMES.len());
    for (name, times) in TIMES {
        let written = crate::instruct::characters::strip(parameters.text(name)?);
        keywords.push((written.to_lowercase(), times));
    }
    Ok(Box::new(move |response| {
        for (keyword, times) in &keywords {
            let found = response.lower().matches(keyword.as_str()).count();
            if found != *times {
                return Check::new(false, format!("{} {found} times, {times} asked", quoted(keyword)));
            }
        }
        Check::new(true, "all five keywords as often as asked")
    }))
}

fn numbers(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("N")?;
    Ok(Box::new(move |response| {
        let bare = without_punctuation(response.text());
        let found = bare.split(|character| !is_digit(character)).filter(|run| !run.is_empty()).count();
        Check::new(found == asked, format!("{found} numbers, exactly {asked} asked"))
    }))
}

fn person_names(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("N")?;
    Ok(Box::new(move |response| {
        let found = NAMES.iter().filter(|name| has_whole(response.text(), name)).count();
        Check::new(found >= asked, format!("{found} names of the list, at least {asked} asked"))
    }))
}

fn pronouns(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("N")?;
    Ok(Box::new(move |response| {
        let text = response.text().replace('/', " ").to_lowercase();
        let found = Views::new(text).tokens().filter(|token| PRONOUNS.contains(token)).count();
        Check::new(found >= asked, format!("{found} pronouns, at least {asked} asked"))
    }))
}

fn punctuation(response: &Views<'_>) -> Check {
    let text = response.text();
    let interrobang = ["?!", "!?", "‽"].into_iter().find(|mark| text.contains(mark));
    let Some(interrobang) = interrobang else {
        return Check::new(false, "no interrobang");
    };
    // The marks of the interrobang do not count for themselves.
    let rest = if interrobang == "‽" { text.to_owned() } else { text.replacen(interrobang, "", 1) };
    match ['.', ',', '!', '?', ';', ':'].into_iter().find(|mark| !rest.contains(*mark)) {
        Some(mark) => Check::new(false, format!("no `{mark}` besides the interrobang")),
        None => Check::new(true, "all marks are there"),
    }
}

fn unique_word_count(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("N")?;
    Ok(Box::new(move |response| {
        let found: HashSet<&str> = pieces(response.lower()).map(|piece| piece.trim_matches(is_outer)).collect();
        Check::new(found.len() >= asked, format!("{} different words, at least {asked} asked", found.len()))
    }))
}

fn word_count_range(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (least, most) = (parameters.count("min_words")?, parameters.count("max_words")?);
    Ok(Box::new(move |response| {
        let found = response.words().len();
        Check::new((least..=most).contains(&found), format!("{found} words, {least} to {most} asked"))
    }))
}

fn words_japanese(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let nth = parameters.count("N")?;
    Ok(Box::new(move |response| {
        let is_japanese = |character: char| matches!(character, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}');
        for (index, piece) in pieces(response.text()).enumerate().skip(nth - 1).step_by(nth) {
            let word = piece.trim_matches(is_outer);
            let is_number = word.chars().all(super::text::is_numeral);
            if !is_number && !word.chars().any(is_japanese) {
                return Check::new(false, format!("word {} is {}, not Japanese", index + 1, quoted(word)));
            }
        }
        Check::new(true, format!("every {nth}. word is Japanese or a number"))
    }))
}
