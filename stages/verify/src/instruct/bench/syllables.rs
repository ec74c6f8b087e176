//! Syllables of English words, by rule and by a list of exceptions.

use crate::instruct::characters::is_digit;
use std::{collections::HashMap, sync::LazyLock};

/// Words that the rule miscounts: lines of words under `= number`.
static EXCEPTIONS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    let mut count = 0;
    let mut exceptions = HashMap::new();
    for line in include_str!("../data/syllables.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("= ").and_then(|number| number.parse().ok()) {
            Some(number) => count = number,
            None => exceptions.extend(line.split_whitespace().map(|word| (word, count))),
        }
    }
    exceptions
});

/// How many syllables a word in lower case has. A word with a digit has none.
///
/// Each group of vowels (`y` is one) is a syllable, but for an `e` at the end; an `le` after a consonant at
/// the end is one; a word has at least one.
pub(super) fn count(word: &str) -> usize {
    if word.chars().any(is_digit) {
        return 0;
    }
    if let Some(count) = EXCEPTIONS.get(word) {
        return *count;
    }
    let letters: Vec<char> = word.chars().collect();
    let is_vowel = |letter: char| "aeiouy".contains(letter);
    let mut groups = 0_usize;
    let mut before = false;
    for letter in &letters {
        let vowel = is_vowel(*letter);
        groups += usize::from(vowel && !before);
        before = vowel;
    }
    if let [.., third, 'l', 'e'] = letters[..]
        && !is_vowel(third)
    {
        return groups.max(1);
    }
    if letters.last() == Some(&'e') {
        groups = groups.saturating_sub(1);
    }
    groups.max(1)
}
