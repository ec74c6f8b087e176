//! Whether a text begins with a verb, by a list of English verbs and rules for their forms.
//!
//! The benchmark asks the averaged perceptron of NLTK, trained on newspaper text. A list needs no model
//! and can be read; it decides a word that is a noun as well (`book`, `water`) by the word after it.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

/// What a word in the list may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A base form that is hardly anything else.
    Verb,
    /// A base form that is mostly a verb at the begin of a text.
    Mostly,
    /// A base form that is as often a noun or an adjective.
    Both,
    /// Another form.
    Form,
}

static VERBS: LazyLock<HashMap<&str, Class>> = LazyLock::new(|| {
    let mut class = Class::Verb;
    let mut verbs = HashMap::new();
    for line in include_str!("../data/verbs.txt").lines() {
        match line.strip_prefix("= ") {
            Some("verb, also noun") => class = Class::Mostly,
            Some("verb or noun") => class = Class::Both,
            Some("form") => class = Class::Form,
            _ if line.starts_with(['#', '=']) => {}
            _ => verbs.extend(line.split_whitespace().map(|word| (word, class))),
        }
    }
    verbs
});

/// Words that begin an object: after one of them even a word that is mostly a noun is a verb.
static OBJECT_STARTS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let words = "a an the this that these those my your his her its our their me him it us them you yourself \
                 yourselves myself himself herself itself themselves ourselves all any both each every some no one \
                 two three four five several many more up down out off away back over around through against";
    words.split_whitespace().collect()
});

/// What follows a subject or a heading: before one of them a base form is a noun.
static PREDICATE_STARTS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let words = "is are was were has had 's can could will would may might must shall should does did ca wo :";
    words.split_whitespace().collect()
});

/// Words that look like forms of verbs.
const NO_VERBS: [&str; 6] = ["united", "thanks", "ages", "lies", "means", "nothing"];

/// Prefixes that make a verb of a verb.
const PREFIXES: [&str; 4] = ["re", "un", "mis", "dis"];
/// Endings of verbs, with the length from which they are trusted (`size`, `prize` are none).
const ENDINGS: [(&str, usize); 2] = [("ize", 7), ("ify", 5)];

/// Whether the first token of a text is a verb, given the token after it (empty when there is none).
pub(super) fn begins(first: &str, next: &str) -> bool {
    let (word, next) = (first.to_lowercase(), next.to_lowercase());
    if NO_VERBS.contains(&word.as_str()) {
        return false;
    }
    // In `let's` the word after the verb looks like a predicate.
    let is_subject = word != "let" && PREDICATE_STARTS.contains(next.as_str());
    match base(&word) {
        Some(Class::Verb) => !is_subject,
        // A past form after it, as in `Mark took`, makes it the subject.
        Some(Class::Mostly) => !is_subject && base(&next) != Some(Class::Form),
        Some(Class::Form) => true,
        Some(Class::Both) => OBJECT_STARTS.contains(next.as_str()),
        None => is_inflected(&word, &next),
    }
}

/// The class of a base form or an irregular form, prefixes and endings of verbs included.
fn base(word: &str) -> Option<Class> {
    let listed = |word: &str| VERBS.get(word).copied();
    // `unlike`, `disease`: of nouns a prefix makes anything.
    let prefixed = |prefix: &&str| listed(word.strip_prefix(*prefix)?).filter(|class| *class != Class::Both);
    let has_ending = |(ending, least): &(&str, usize)| word.len() >= *least && word.ends_with(ending);
    listed(word)
        .or_else(|| PREFIXES.iter().find_map(prefixed))
        .or_else(|| ENDINGS.iter().any(has_ending).then_some(Class::Verb))
}

/// Forms by rule: `-ing` and `-ed` of any verb; `-s` of a verb, and of a noun only before an object.
fn is_inflected(word: &str, next: &str) -> bool {
    if let Some(stem) = word.strip_suffix("ing").or_else(|| word.strip_suffix("ed")) {
        return stems(stem).iter().any(|stem| is_base(stem));
    }
    let Some(stem) = word.strip_suffix('s').filter(|stem| !stem.ends_with('s')) else {
        return false;
    };
    let mut candidates = vec![stem.to_owned()];
    candidates.extend(stem.strip_suffix("ie").map(|stem| format!("{stem}y")));
    candidates.extend(stem.strip_suffix('e').map(ToOwned::to_owned));
    let class = candidates.iter().find_map(|stem| base(stem).filter(|class| *class != Class::Form));
    match class {
        Some(Class::Verb) => true,
        Some(_) => OBJECT_STARTS.contains(next),
        None => false,
    }
}

/// What may stand before `-ing` and `-ed`: the stem, with its `e`, without a doubled letter, with `y` for `i`.
fn stems(stem: &str) -> Vec<String> {
    let mut found = vec![stem.to_owned(), format!("{stem}e")];
    let letters: Vec<char> = stem.chars().collect();
    if let [start @ .., one, other] = letters.as_slice()
        && one == other
    {
        found.push(start.iter().chain([one]).collect());
    }
    found.extend(stem.strip_suffix('i').map(|stem| format!("{stem}y")));
    found
}

fn is_base(word: &str) -> bool {
    word.chars().count() > 1 && base(word).is_some_and(|class| class != Class::Form)
}
