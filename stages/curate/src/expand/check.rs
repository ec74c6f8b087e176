//! What a new query must hold before it counts, by rules: whether it is sound is for `judge_queries`.

use std::collections::BTreeMap;

use pipeline_core::Rejection;
use serde_json::{Value, json};
use stage_text::{Symbols, View};

/// Words of a text that speaks of the problem it was made from.
const MENTIONS: [&str; 12] = [
    "the original problem",
    "the problem above",
    "the above problem",
    "the previous problem",
    "the given problem above",
    "the seed problem",
    "原题",
    "上述题目",
    "上面的题目",
    "上面的问题",
    "前一题",
    "上一题",
];

/// Words behind which an answer stands if a number follows: "if the answer is $m/n$" is no telling.
const TELLS: [&str; 6] =
    ["the answer is", "the correct answer is", "the final answer is", "答案是", "答案为", "答案："];

/// Beginnings of lines in which a teacher goes on with the solution.
const GOES_ON: [&str; 6] = ["answer:", "solution:", "**answer", "**solution", "解：", "解答："];

/// Checks the new queries of one seed, one after the other.
pub struct Checker {
    seen: Vec<Vec<u64>>,
    seed_han: f64,
    seed: String,
    dropped: BTreeMap<&'static str, u64>,
}

impl Checker {
    /// A checker for the queries of this seed.
    pub fn new(seed: &str) -> Self {
        Self {
            seen: vec![normal(seed)],
            seed_han: share_of_han(seed),
            seed: seed.to_lowercase(),
            dropped: BTreeMap::new(),
        }
    }

    /// Takes a query, or says in a word why it does not count.
    pub fn take(&mut self, query: &Value) -> Result<(), &'static str> {
        let outcome = self.judge(query["prompt"].as_str().unwrap_or_default());
        match outcome {
            Ok(tokens) => {
                self.seen.push(tokens);
                Ok(())
            }
            Err(reason) => {
                *self.dropped.entry(reason).or_default() += 1;
                Err(reason)
            }
        }
    }

    fn judge(&self, prompt: &str) -> Result<Vec<u64>, &'static str> {
        if !prompt.chars().any(char::is_alphanumeric) || prompt.trim() == "..." {
            return Err("empty");
        }
        let tokens = normal(prompt);
        match self.seen.iter().position(|seen| *seen == tokens) {
            Some(0) => return Err("copy_of_seed"),
            Some(_) => return Err("copy"),
            None => {}
        }
        let han = share_of_han(prompt);
        if (self.seed_han > 0.5 && han < 0.05) || (self.seed_han < 0.05 && han > 0.5) {
            return Err("other_language");
        }
        // what the seed says itself is no slip of the teacher's
        let text = prompt.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word) && !self.seed.contains(word));
        if says(&MENTIONS) {
            return Err("speaks_of_the_seed");
        }
        if tells_its_answer(&text) {
            return Err("tells_its_answer");
        }
        Ok(tokens)
    }

    /// The reject of a seed none of whose queries counts.
    pub fn rejection(&self) -> Rejection {
        Rejection::new("no_usable_query", Some(json!({ "dropped": self.dropped })))
    }
}

/// Whether a text in small letters gives a number as its answer, or goes on with its solution.
fn tells_its_answer(text: &str) -> bool {
    let is_number = |rest: &str| {
        let rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || ":：$-".contains(letter));
        rest.trim_start_matches("\\boxed{").starts_with(|letter: char| letter.is_ascii_digit())
    };
    let tells = TELLS.iter().any(|words| text.match_indices(words).any(|(at, _)| is_number(&text[at + words.len()..])));
    tells || text.lines().skip(1).any(|line| GOES_ON.iter().any(|words| line.trim_start().starts_with(words)))
}

/// What is left of a text without case, spaces and punctuation; operators stay, since `2 + 3` is not `2 - 3`.
fn normal(text: &str) -> Vec<u64> {
    View::with_symbols(text, Symbols::Operators).tokens().to_vec()
}

/// Share of Chinese characters among the letters of a text; words of other scripts count by their letters.
fn share_of_han(text: &str) -> f64 {
    let (mut han, mut letters) = (0_u32, 0_u32);
    for letter in text.chars().filter(|letter| letter.is_alphabetic()) {
        letters += 1;
        han += u32::from(('\u{3400}'..='\u{9fff}').contains(&letter));
    }
    // a text without letters belongs to no script
    if letters == 0 { 0.25 } else { f64::from(han) / f64::from(letters) }
}

#[cfg(test)]
mod tests {
    use super::tells_its_answer;

    #[test]
    fn a_number_behind_the_answer_is_told_and_a_form_of_it_is_not() {
        for text in
            ["what is 1 + 1? the answer is 2.", "一加一？答案是：$2$", "x?\nsolution: add.", "the answer is \\boxed{3}"]
        {
            assert!(tells_its_answer(text), "{text}");
        }
        for text in [
            "if the answer is $\\frac{m}{n}$, find m + n.",
            "show that the answer is the same for all n",
            "答案为最简分数",
        ] {
            assert!(!tells_its_answer(text), "{text}");
        }
    }
}
