//! What is answered: sums are worked out, all else gets a text made of the question and the seed.

use std::borrow::Cow;

use crate::draw::{mix, share_of};
use crate::options::{Answers, ReasoningShape};
use crate::schema::words;

/// Letters of a token, as far as this server is concerned.
const TOKEN_LETTERS: usize = 4;

/// An answer before it is put into a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text; `None` is content `null`.
    pub text: Option<String>,
    /// The chain of thought; where it stands is decided by [`Answers::reasoning`], or `reasoning_content` where that
    /// is none.
    pub reasoning: Option<String>,
    /// `finish_reason`; `None` is `stop`, or `length` where the answer is cut.
    pub finish_reason: Option<String>,
}

impl Answer {
    /// A text that ends as it should.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
}

/// One choice as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) content: Option<String>,
    /// Name and text of the field with the chain of thought.
    pub(crate) reasoning: Option<(&'static str, String)>,
    pub(crate) finish_reason: Cow<'static, str>,
    pub(crate) tokens: u64,
}

impl Choice {
    /// Whether it came to its own end.
    pub(crate) fn is_whole(&self) -> bool {
        self.finish_reason == "stop"
    }
}

/// The answer to a question, the same for the same number.
pub(crate) fn derive(options: &Answers, question: &str, number: u64) -> Answer {
    let mut text = if let Some((expression, result)) = find_sum(question) {
        let is_wrong = options.wrong_share > 0.0 && share_of(mix(number, 3)) < options.wrong_share;
        let result = if is_wrong { result.saturating_add(1) } else { result };
        match number % 4 {
            0 => format!("Working it out, {expression} = {result}. The answer is \\boxed{{{result}}}."),
            1 => format!("{expression} gives {result}.\n\nThe answer is \\boxed{{{result}}}."),
            2 => format!("First I look at {expression}.\nThat makes {result}, so the answer is \\boxed{{{result}}}."),
            _ => format!("We need {expression}. It equals {result}: \\boxed{{{result}}}."),
        }
    } else {
        let start: String = question.chars().take(60).collect();
        format!("You ask: {start}\nHere is what I can say: {}.", words(number, 8))
    };
    let count = text.split_whitespace().count();
    let wanted = usize::try_from(options.words).unwrap_or(usize::MAX).min(1 << 20);
    if count < wanted {
        text = format!("{}\n\n{text}", words(mix(number, 4), wanted - count));
    }
    let shape = actual_shape(options.reasoning, number);
    let reasoning =
        (shape != ReasoningShape::None).then(|| format!("Let me think about it: {}.", words(mix(number, 5), 12)));
    Answer { text: Some(text), reasoning, finish_reason: None }
}

/// The answer cut at `most` tokens, with its chain of thought at its place.
pub(crate) fn choice(answer: Answer, shape: ReasoningShape, number: u64, most: u64) -> Choice {
    let Answer { text, reasoning, finish_reason } = answer;
    let mut field = None;
    let mut is_cut = false;
    let content = match (reasoning, actual_shape(shape, number)) {
        (None, _) => text,
        (Some(thought), ReasoningShape::Tags) => {
            Some(format!("<think>\n{thought}\n</think>\n\n{}", text.unwrap_or_default()))
        }
        (Some(thought), ReasoningShape::ClosingTag) => {
            Some(format!("{thought}\n</think>\n\n{}", text.unwrap_or_default()))
        }
        (Some(thought), ReasoningShape::Unfinished) => {
            is_cut = true;
            Some(format!("<think>\n{thought}"))
        }
        (Some(thought), shape) => {
            field = Some((if shape == ReasoningShape::Reasoning { "reasoning" } else { "reasoning_content" }, thought));
            text
        }
    };
    let mut left = most;
    if let Some((_, thought)) = &mut field {
        let (spent, was_cut) = cut(thought, left);
        left -= spent;
        is_cut |= was_cut;
    }
    let mut content = content;
    if let Some(text) = &mut content {
        let (spent, was_cut) = cut(text, left);
        left -= spent;
        is_cut |= was_cut;
    }
    let finish_reason = match finish_reason {
        _ if is_cut => Cow::Borrowed("length"),
        None => Cow::Borrowed("stop"),
        Some(reason) => Cow::Owned(reason),
    };
    Choice { content, reasoning: field, finish_reason, tokens: most - left }
}

fn actual_shape(shape: ReasoningShape, number: u64) -> ReasoningShape {
    const SHAPES: [ReasoningShape; 6] = [
        ReasoningShape::None,
        ReasoningShape::ReasoningContent,
        ReasoningShape::Reasoning,
        ReasoningShape::Tags,
        ReasoningShape::ClosingTag,
        ReasoningShape::Unfinished,
    ];
    if shape == ReasoningShape::Mixed { SHAPES[crate::draw::place_of(mix(number, 6), SHAPES.len())] } else { shape }
}

/// Tokens of a text: pieces of four letters.
pub(crate) fn tokens_of(text: &str) -> u64 {
    let letters = if text.is_ascii() { text.len() } else { text.chars().count() };
    letters.div_ceil(TOKEN_LETTERS) as u64
}

/// The pieces that count as tokens.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::with_capacity(text.len() / TOKEN_LETTERS + 1);
    let (mut begin, mut letters) = (0, 0);
    for (place, _) in text.char_indices() {
        if letters == TOKEN_LETTERS {
            pieces.push(&text[begin..place]);
            (begin, letters) = (place, 0);
        }
        letters += 1;
    }
    if begin < text.len() {
        pieces.push(&text[begin..]);
    }
    pieces
}

/// Cuts a text at a number of tokens; returns the tokens that are left of it, and whether some fell off.
fn cut(text: &mut String, most: u64) -> (u64, bool) {
    let tokens = tokens_of(text);
    if tokens <= most {
        return (tokens, false);
    }
    let letters = usize::try_from(most).unwrap_or(usize::MAX).saturating_mul(TOKEN_LETTERS);
    let end = text.char_indices().nth(letters).map_or(text.len(), |(place, _)| place);
    text.truncate(end);
    (most, true)
}

/// The last sum of a text, such as `17 + 25` or `3 * 4 - 2`, with its result.
pub(crate) fn find_sum(text: &str) -> Option<(String, i128)> {
    let mut found = None;
    let mut numbers: Vec<i128> = Vec::new();
    let mut signs: Vec<char> = Vec::new();
    let mut rest = text.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: Option<i128> = rest[..end].parse().ok().filter(|_| end <= 18);
        rest = &rest[end..];
        if let Some(number) = number {
            numbers.push(number);
        }
        let (sign, after) = next_sign(rest);
        if let (Some(sign), Some(_)) = (sign, number) {
            signs.push(sign);
            rest = after;
        } else {
            found = worked_out(&numbers, &signs).or(found);
            numbers.clear();
            signs.clear();
            rest = rest.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        }
    }
    found
}

/// The sign between this place and a digit.
fn next_sign(text: &str) -> (Option<char>, &str) {
    const SIGNS: [(&str, char); 8] = [
        ("+", '+'),
        ("plus", '+'),
        ("-", '-'),
        ("\u{2212}", '-'),
        ("minus", '-'),
        ("*", '*'),
        ("\u{d7}", '*'),
        ("times", '*'),
    ];
    let begin = text.trim_start_matches(' ');
    for (written, sign) in SIGNS {
        if let Some(after) = begin.strip_prefix(written) {
            let after = after.trim_start_matches(' ');
            if after.starts_with(|letter: char| letter.is_ascii_digit()) {
                return (Some(sign), after);
            }
        }
    }
    (None, text)
}

fn worked_out(numbers: &[i128], signs: &[char]) -> Option<(String, i128)> {
    if signs.is_empty() || numbers.len() != signs.len() + 1 {
        return None;
    }
    let mut written = numbers[0].to_string();
    let (mut sum, mut product) = (0_i128, numbers[0]);
    for (sign, number) in signs.iter().zip(&numbers[1..]) {
        written.push_str(&format!(" {sign} {number}"));
        match sign {
            '*' => product = product.checked_mul(*number)?,
            sign => {
                sum = sum.checked_add(product)?;
                product = if *sign == '-' { -number } else { *number };
            }
        }
    }
    Some((written, sum.checked_add(product)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_found_and_worked_out() {
        let result = |text: &str| find_sum(text).map(|(_, result)| result);
        assert_eq!(result("What is 12 + 30?"), Some(42));
        assert_eq!(result("What is 3 * 4 + 5?"), Some(17));
        assert_eq!(result("Compute 5 - 3 × 4."), Some(-7));
        assert_eq!(result("What is 2 plus 3 times 4?"), Some(14));
        assert_eq!(result("What is 1 + 1? 2. What is 2 + 2?"), Some(4));
        assert_eq!(result("Row 7 holds 8 apples"), None);
        assert_eq!(result("9999999999999999999999999 + 1"), None);
        assert_eq!(result("七加三"), None);
        assert_eq!(result("3 +"), None);
    }

    #[test]
    fn answers_depend_on_the_question_and_the_number_alone() {
        let options = Answers { words: 40, ..Answers::default() };
        let answer = derive(&options, "What is 12 + 30?", 5);
        assert_eq!(answer, derive(&options, "What is 12 + 30?", 5));
        assert_ne!(answer, derive(&options, "What is 12 + 30?", 6));
        let text = answer.text.unwrap();
        assert!(text.ends_with("\\boxed{42}.") && text.split_whitespace().count() >= 40, "{text}");
    }

    #[test]
    fn a_cut_answer_says_so_whatever_its_letters() {
        for text in ["七加三等于十，所以答案是十", "plain words here", "é"] {
            let whole = tokens_of(text);
            let made = choice(Answer::text(text), ReasoningShape::None, 0, whole);
            assert_eq!((made.finish_reason.as_ref(), made.content.as_deref()), ("stop", Some(text)));
            let made = choice(Answer::text(text), ReasoningShape::None, 0, whole - 1);
            assert_eq!((made.finish_reason.as_ref(), made.tokens), ("length", whole - 1));
            assert_eq!(pieces(text).concat(), text);
            assert_eq!(pieces(text).len() as u64, whole);
        }
    }
}
