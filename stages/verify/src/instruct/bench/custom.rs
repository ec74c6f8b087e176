//! Kinds that belong to one prompt each: a list, a table or a sentence with a known answer.

use super::{
    csv, fixed, kind,
    text::{ascii_only, is_outer, pieces, quoted, without_punctuation},
};
use crate::instruct::{
    Check, KindInfo, Resource,
    characters::{is_digit, is_space, is_word, strip},
    views::Views,
};
use std::sync::LazyLock;

/// Countries of Africa, less two that lists may leave out.
const COUNTRIES: usize = 52;
/// The years of Napoleon's life.
const YEARS: std::ops::RangeInclusive<u32> = 1769..=1821;

static CAPITALS: LazyLock<Vec<&str>> = LazyLock::new(|| super::list(include_str!("../data/european_capitals.txt")));

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "custom:character_reverse",
        &[],
        &[],
        "`bald eagle` written backwards letter by letter stands in the response, in any case",
        |_| fixed(character_reverse),
    ),
    kind(
        "custom:csv_city",
        &[],
        &[],
        "a comma-separated table of ID, Country, City, Year, Count and seven rows of five fields",
        |_| fixed(csv::city),
    ),
    kind(
        "custom:csv_quotes",
        &[],
        &[],
        "a tab-separated table of StudentID, Subject, Grade, Semester, Score and three rows, each field in \
         double quotes",
        |_| fixed(csv::quotes),
    ),
    kind(
        "custom:csv_special_character",
        &[],
        &[],
        "a comma-separated table of ProductID, Category, Brand, Price, Stock and fourteen rows, one field of \
         which has a special character and stands in double quotes",
        |_| fixed(csv::special_character),
    ),
    kind(
        "custom:date_format_list",
        &[],
        &[],
        "dates of Napoleon's lifetime as YYYY-MM-DD, separated by commas, and nothing else",
        |_| fixed(date_format_list),
    ),
    kind(
        "custom:european_capitals_sort",
        &[],
        &[Resource::WordList("27 European capitals north of 45 degrees, from north to south")],
        "the capitals of the list in its order, separated by commas; accents do not matter",
        |_| fixed(european_capitals_sort),
    ),
    kind(
        "custom:mcq_count_length",
        &[],
        &[],
        "four questions, each headed `Question` and its number, with five options A to E, each question \
         longer than the one before, and nothing before the first",
        |_| fixed(mcq_count_length),
    ),
    kind("custom:multiples", &[], &[], "the multiples of 7 from 14 to 49 in order are the only numbers", |_| {
        fixed(multiples)
    }),
    kind(
        "custom:reverse_newline",
        &[],
        &[],
        "at least 52 lines from the one with Zimbabwe on, in reverse alphabetical order; accents do not matter",
        |_| fixed(reverse_newline),
    ),
    kind(
        "custom:sentence_alphabet",
        &[],
        &[],
        "26 sentences that begin with the letters of the alphabet in order",
        |_| fixed(sentence_alphabet),
    ),
    kind(
        "custom:word_reverse",
        &[],
        &[],
        "`bald eagle` written backwards word by word stands in the response, in any case",
        |_| fixed(word_reverse),
    ),
];

fn character_reverse(response: &Views<'_>) -> Check {
    let holds = response.lower().contains("elgae dlab");
    Check::new(holds, if holds { "`elgae dlab` is there" } else { "no `elgae dlab`" })
}

fn word_reverse(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.lower());
    let backwards: Vec<&str> = pieces(&bare).rev().collect();
    // The animal may be part of longer words, as `bald eagles`.
    let holds = backwards.join(" ").contains("bald eagle");
    Check::new(holds, if holds { "`eagle bald` is there" } else { "no `eagle bald`" })
}

fn date_format_list(response: &Views<'_>) -> Check {
    match response.stripped().split(',').map(strip).find(|date| !is_date(date)) {
        Some(date) => Check::new(false, format!("{} is no date from 1769 to 1821 as YYYY-MM-DD", quoted(date))),
        None => Check::new(true, "dates alone, as YYYY-MM-DD"),
    }
}

/// As in the benchmark, a month or a day may be 00, and any February may have 29 days.
fn is_date(text: &str) -> bool {
    let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if !(is_number(year, 4) && is_number(month, 2) && is_number(day, 2)) {
        return false;
    }
    let number = |part: &str| part.parse::<u32>().unwrap_or(u32::MAX);
    let longest = match number(month) {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        0 => 99,
        _ => return false,
    };
    YEARS.contains(&number(year)) && number(day) <= longest
}

fn european_capitals_sort(response: &Views<'_>) -> Check {
    let text = ascii_only(response.text());
    let found: Vec<&str> = text.split(',').map(strip).filter(|capital| !capital.is_empty()).collect();
    if found.len() != CAPITALS.len() {
        return Check::new(false, format!("{} capitals, {} asked", found.len(), CAPITALS.len()));
    }
    match found.iter().zip(CAPITALS.iter()).find(|(found, asked)| found != asked) {
        Some((found, asked)) => Check::new(false, format!("{} stands where {asked} is asked", quoted(found))),
        None => Check::new(true, "all capitals in order"),
    }
}

fn multiples(response: &Views<'_>) -> Check {
    let numbers = || response.text().split(|character| !is_digit(character)).filter(|run| !run.is_empty());
    let holds = numbers().eq(["14", "21", "28", "35", "42", "49"]);
    let found: Vec<&str> = numbers().take(8).collect();
    Check::new(holds, format!("numbers {}, 14 21 28 35 42 49 asked", quoted(&found.join(" "))))
}

fn reverse_newline(response: &Views<'_>) -> Check {
    let mut lines = response.lines().map(|line| line.trim_matches(is_outer)).filter(|line| !line.is_empty());
    let Some(start) = lines.by_ref().find(|line| line.contains("Zimbabwe")) else {
        return Check::new(false, "no line with Zimbabwe");
    };
    let mut before = ascii_only(start);
    let mut count = 1;
    for line in lines {
        let line = ascii_only(line);
        if line > before {
            let why = format!("{} after {} is not in reverse order", quoted(&line), quoted(&before));
            return Check::new(false, why);
        }
        before = line;
        count += 1;
    }
    Check::new(count >= COUNTRIES, format!("{count} lines in reverse order, at least {COUNTRIES} asked"))
}

fn sentence_alphabet(response: &Views<'_>) -> Check {
    let sentences = response.marked_sentences();
    if sentences.len() != 26 {
        return Check::new(false, format!("{} sentences, 26 asked", sentences.len()));
    }
    for (sentence, letter) in sentences.iter().zip('a'..='z') {
        let initial = pieces(sentence).next().and_then(|word| word.chars().next());
        if initial.is_none_or(|initial| initial.to_lowercase().next() != Some(letter)) {
            return Check::new(false, format!("{} should begin with `{letter}`", quoted(sentence)));
        }
    }
    Check::new(true, "26 sentences from a to z")
}

fn mcq_count_length(response: &Views<'_>) -> Check {
    if !response.text().starts_with("Question") {
        return Check::new(false, "the response does not begin with `Question`");
    }
    let questions = questions(response.text());
    if questions.len() != 4 {
        return Check::new(false, format!("{} questions headed `Question` and a number, 4 asked", questions.len()));
    }
    let mut before = 0;
    for (index, question) in questions.iter().enumerate() {
        let number = index + 1;
        let options = question.split('\n').filter(|line| is_option(strip(line))).count();
        if options != 5 {
            return Check::new(false, format!("question {number} has {options} options, 5 asked"));
        }
        let lines: Vec<&str> = question.split('\n').map(strip).take_while(|line| !is_option(line)).collect();
        let length = strip(&lines.join(" ")).chars().count();
        if index > 0 && length <= before {
            return Check::new(false, format!("question {number} has {length} characters after {before}"));
        }
        before = length;
    }
    Check::new(true, "four questions of five options, each longer than the one before")
}

/// What stands between heads `Question 1.`, without blank parts.
fn questions(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(head) = text[at..].find("Question ").map(|head| head + at) {
        let after = &text[head + "Question ".len()..];
        let rest = after.trim_start_matches(is_digit);
        at = head + "Question ".len();
        if rest.len() < after.len() {
            found.push(&text[from..head]);
            let rest = rest.strip_prefix(['.', '|', ')', ':', ';']).unwrap_or(rest).trim_start_matches(is_space);
            from = text.len() - rest.len();
            at = from;
        }
    }
    found.push(&text[from..]);
    found.into_iter().map(strip).filter(|question| !question.is_empty()).collect()
}

/// A letter from A to E, a mark, and a word.
fn is_option(line: &str) -> bool {
    let rest = line.strip_prefix(|letter: char| matches!(letter, 'A'..='E' | 'a'..='e'));
    let rest = rest.and_then(|rest| rest.strip_prefix(['.', '|', ')']));
    rest.is_some_and(|rest| rest.trim_start_matches(is_space).starts_with(is_word))
}
