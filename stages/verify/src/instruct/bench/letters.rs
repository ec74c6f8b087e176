//! Kinds that look at the letters and lengths of words.

use super::text::{first, is_outer, pieces, quoted, without_punctuation};
use crate::instruct::{Check, InstructError, Rule, characters::strip, parameters::Parameters, views::Views};
use std::collections::HashMap;

/// Shortest palindrome that counts, in characters.
const PALINDROME: usize = 5;
/// Palindromes asked.
const PALINDROMES: usize = 10;
/// Longest word whose length can be prime: the benchmark's list of primes ends here.
const LONGEST_PRIME: usize = 97;

/// Each word begins with the letter after that of the word before it, `a` after `z`.
pub(super) fn alphabet(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.lower());
    let mut words = pieces(&bare);
    let Some(start) = words.next() else {
        return Check::new(false, "no words");
    };
    let Some(mut letter) = first(start).filter(char::is_ascii_lowercase) else {
        return Check::new(false, format!("the first word {} begins with no letter", quoted(start)));
    };
    for word in words {
        letter = if letter == 'z' { 'a' } else { char::from((letter as u8).saturating_add(1)) };
        if first(word) != Some(letter) {
            return Check::new(false, format!("{} should begin with `{letter}`", quoted(word)));
        }
    }
    Check::new(true, "each word begins with the next letter")
}

/// Each word has two consonants in a row.
pub(super) fn consonants(response: &Views<'_>) -> Check {
    let is_consonant = |byte: &u8| byte.is_ascii_lowercase() && !b"aeiou".contains(byte);
    let has_cluster = |word: &&str| word.as_bytes().windows(2).any(|pair| pair.iter().all(is_consonant));
    match pieces(response.lower()).find(|word| !has_cluster(word)) {
        Some(word) => Check::new(false, format!("{} has no two consonants in a row", quoted(word))),
        None => Check::new(true, "each word has two consonants in a row"),
    }
}

/// One line, at most three different vowels.
pub(super) fn vowel(response: &Views<'_>) -> Check {
    if response.stripped().contains('\n') {
        return Check::new(false, "more than one paragraph");
    }
    let found: String = "aeiou".chars().filter(|vowel| response.lower().contains(*vowel)).collect();
    Check::new(found.len() <= 3, format!("{} different vowels ({found}), at most 3 asked", found.len()))
}

/// Ten palindromes of five characters or more.
pub(super) fn palindrome(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.lower());
    let is_palindrome = |word: &&str| word.chars().count() >= PALINDROME && word.chars().eq(word.chars().rev());
    let found = pieces(&bare).filter(is_palindrome).count();
    Check::new(found >= PALINDROMES, format!("{found} palindromes, at least {PALINDROMES} asked"))
}

/// The length of each word is prime.
pub(super) fn prime_lengths(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.text());
    for word in pieces(&bare) {
        let length = word.chars().count();
        let is_prime = (2..=LONGEST_PRIME).contains(&length) && (2..length).all(|divisor| length % divisor != 0);
        if !is_prime {
            return Check::new(false, format!("{} has {length} characters, no prime number", quoted(word)));
        }
    }
    Check::new(true, "all lengths are prime")
}

/// No two words in a row begin alike.
pub(super) fn no_consecutive(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.lower());
    let words = pieces(&bare);
    match words.clone().zip(words.skip(1)).find(|(word, next)| first(word) == first(next)) {
        Some((word, next)) => Check::new(false, format!("{} and {} begin alike", quoted(word), quoted(next))),
        None => Check::new(true, "no two words in a row begin alike"),
    }
}

/// `small_n`: no word more often than this.
pub(super) fn repeats(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let most = parameters.count("small_n")?;
    Ok(Box::new(move |response| {
        let bare = without_punctuation(response.lower());
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for word in pieces(&bare) {
            let count = counts.entry(word).or_default();
            *count += 1;
            if *count > most {
                return Check::new(false, format!("{} more than {most} times", quoted(word)));
            }
        }
        Check::new(true, format!("no word more than {most} times"))
    }))
}

/// Words of odd and of even numbers of syllables take turns.
pub(super) fn odd_even_syllables(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.text()).to_lowercase();
    let mut before: Option<(&str, usize)> = None;
    for word in pieces(&bare) {
        let count = super::syllables::count(word);
        if let Some((other, one)) = before.filter(|(_, other)| other % 2 == count % 2) {
            let (other, word) = (quoted(other), quoted(word));
            return Check::new(false, format!("{other} has {one} syllables and {word} has {count}"));
        }
        before = Some((word, count));
    }
    Check::new(true, "odd and even numbers of syllables take turns")
}

/// Each line begins and ends with the same word.
pub(super) fn paragraph_last_first(response: &Views<'_>) -> Check {
    for paragraph in response.lower().split('\n') {
        let mut words = pieces(strip(paragraph).trim_matches(is_outer));
        if let Some(start) = words.next() {
            let end = words.next_back().unwrap_or(start);
            if start != end {
                let (start, end) = (quoted(start), quoted(end));
                return Check::new(false, format!("a paragraph begins with {start} and ends with {end}"));
            }
        }
    }
    Check::new(true, "each paragraph ends with the word it begins with")
}
