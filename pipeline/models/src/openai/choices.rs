//! Several samples in one reply, taken apart: each becomes the body of a reply with one choice.
//!
//! Servers differ in what `usage` counts then: all choices, or one of them. So tokens are counted choice by choice: by the
//! ids or log-probabilities where they are given, else by sharing out the server's count where it can be that of all
//! choices, else by estimate. Whether the tokens listed for a choice are all of its tokens shows in the sum; where the
//! server counts one choice, in the choice itself: see [`may_lack_tokens`].

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::keep::estimated_completion;
use crate::answer::{Answer, parse_answer};

/// Estimates are by bytes and overrate English up to so many times: a count below is that of one choice.
const OVERRATED: u64 = 3;

/// The bodies of the first `most` choices that can be read, with what they say.
pub(super) fn split(body: &str, most: usize) -> Vec<(String, Answer)> {
    let Ok(mut head) = serde_json::from_str::<BTreeMap<String, &RawValue>>(body) else {
        return Vec::new();
    };
    let choices = head.remove("choices").and_then(|choices| serde_json::from_str::<Vec<&RawValue>>(choices.get()).ok());
    let choices = choices.map(|mut choices| {
        choices.sort_by_cached_key(|choice| index_of(choice));
        choices
    });
    let usage = head.remove("usage").and_then(|usage| serde_json::from_str::<Value>(usage.get()).ok());
    let found: Vec<(&RawValue, Answer)> = choices
        .unwrap_or_default()
        .into_iter()
        .filter_map(|choice| Some((choice, parse_answer(&one_choice(&head, choice, None)).ok()?)))
        .take(most)
        .collect();
    let total = usage.as_ref().and_then(|usage| usage.get("completion_tokens")?.as_u64());
    let counts = counts(&found, total);
    let alone = |((choice, mut answer), count): ((&RawValue, Answer), u64)| {
        let usage = usage.as_ref().map(|usage| usage_of_one(usage, count));
        answer.completion_tokens = Some(count);
        answer.tokens_incomplete = answer.token_ids.as_ref().is_some_and(|ids| ids.len() as u64 != count);
        if answer.tokens_incomplete {
            (answer.token_ids, answer.token_logprobs) = (None, None);
        }
        let read = |name: &str| usage.as_ref()?.get(name)?.as_u64();
        answer.prompt_tokens = read("prompt_tokens");
        let details =
            usage.as_ref().and_then(|usage| usage.get("prompt_tokens_details")?.get("cached_tokens")?.as_u64());
        answer.cached_tokens = details.or_else(|| read("prompt_cache_hit_tokens"));
        (one_choice(&head, choice, usage.as_ref()), answer)
    };
    found.into_iter().zip(counts).map(alone).collect()
}

/// The place that a choice says it has; those that do not say come last, in their order.
fn index_of(choice: &RawValue) -> u64 {
    #[derive(serde::Deserialize)]
    struct Place {
        index: Option<u64>,
    }
    serde_json::from_str::<Place>(choice.get()).ok().and_then(|place| place.index).unwrap_or(u64::MAX)
}

/// A body with one choice.
fn one_choice(head: &BTreeMap<String, &RawValue>, choice: &RawValue, usage: Option<&Value>) -> String {
    let mut text = String::from("{");
    for (name, value) in head {
        text.push_str(&Value::from(name.as_str()).to_string());
        text.extend([":", value.get(), ","]);
    }
    text.extend(["\"choices\":[", choice.get(), "]"]);
    if let Some(usage) = usage {
        text.extend([",\"usage\":", &usage.to_string()]);
    }
    text.push('}');
    text
}

/// The counts of a reply with the tokens of one choice.
fn usage_of_one(usage: &Value, count: u64) -> Value {
    let mut usage = usage.clone();
    if let Some(fields) = usage.as_object_mut() {
        let prompt = fields.get("prompt_tokens").and_then(Value::as_u64).unwrap_or(0);
        fields.insert("completion_tokens".to_owned(), count.into());
        fields.insert("total_tokens".to_owned(), (prompt + count).into());
        // It counts the reasoning of all choices.
        fields.remove("completion_tokens_details");
    }
    usage
}

/// Tokens of each choice.
fn counts(found: &[(&RawValue, Answer)], total: Option<u64>) -> Vec<u64> {
    let listed = |answer: &Answer| {
        let ids = answer.token_ids.as_ref().map(Vec::len);
        ids.or_else(|| answer.token_logprobs.as_ref().map(Vec::len)).map(|count| count as u64)
    };
    if let Some(mut counts) = found.iter().map(|(_, answer)| listed(answer)).collect::<Option<Vec<u64>>>() {
        if total.is_some_and(|total| total != counts.iter().sum::<u64>()) {
            for (count, (choice, answer)) in counts.iter_mut().zip(found) {
                // one more is the least it can be, and tells the reader of the body that the list is not whole
                *count += u64::from(answer.token_ids.is_some() && may_lack_tokens(choice, answer));
            }
        }
        return counts;
    }
    let estimates: Vec<u64> = found.iter().map(|(_, answer)| estimated_completion(answer)).collect();
    let sum: u64 = estimates.iter().sum();
    match total.filter(|total| total * OVERRATED >= sum && sum > 0) {
        Some(total) => {
            // Shares of a running sum, so that they add up to the whole.
            let mut before = 0;
            let share = |until: u64| total * until / sum;
            estimates
                .iter()
                .map(|estimate| {
                    before += estimate;
                    share(before) - share(before - estimate)
                })
                .collect()
        }
        None => estimates,
    }
}

/// Whether tokens of a choice may be missing in its list, as llama.cpp's server has it: of the tokens of one character,
/// which only characters beyond ASCII can have several of, the last is listed; and a stream does not list the end token,
/// which is no part of the text.
fn may_lack_tokens(choice: &RawValue, answer: &Answer) -> bool {
    if !answer.text.is_ascii() || !answer.reasoning.as_deref().unwrap_or_default().is_ascii() {
        return true;
    }
    let is_whole = |choice: &Value| {
        let last = choice.get("logprobs")?.get("content")?.as_array()?.last()?.get("token")?.as_str()?;
        Some(last.is_empty() || !answer.text.ends_with(last))
    };
    let choice = serde_json::from_str::<Value>(choice.get());
    answer.finish_reason.as_deref() == Some("stop") && !choice.ok().as_ref().and_then(is_whole).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(texts: &[&str], completion_tokens: u64) -> String {
        let choices: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| serde_json::json!({"index": index, "message": {"content": text}, "finish_reason": "stop"}))
            .collect();
        let usage = serde_json::json!({"prompt_tokens": 9, "completion_tokens": completion_tokens, "total_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4}});
        serde_json::json!({"id": "x", "model": "m", "choices": choices, "usage": usage}).to_string()
    }

    #[test]
    fn each_choice_becomes_a_body_of_its_own() {
        let parts = split(&body(&["one two three", "four five six", "x"], 27), 2);
        assert_eq!(parts.len(), 2);
        for ((text, answer), expected) in parts.iter().zip(["one two three", "four five six"]) {
            assert_eq!(answer.text, expected);
            assert_eq!(parse_answer(text).unwrap(), *answer);
            assert_eq!((answer.prompt_tokens, answer.cached_tokens), (Some(9), Some(4)));
            assert_eq!(answer.model.as_deref(), Some("m"));
        }
    }

    #[test]
    fn tokens_that_are_not_all_listed_are_not_given() {
        let choice = |text: &str, finish: &str, tokens: &[&str]| {
            let listed: Vec<Value> =
                tokens.iter().map(|token| serde_json::json!({"id": 7, "token": token, "logprob": -0.5})).collect();
            serde_json::json!({"message": {"content": text}, "finish_reason": finish, "logprobs": {"content": listed}})
        };
        let choices = [
            (choice("4.", "stop", &["4", ".", ""]), true),
            (choice("4.", "stop", &["4", ".", "<|im_end|>"]), true),
            (choice("4.", "stop", &["4", "."]), false),
            (choice("4.", "length", &["4", "."]), true),
            (choice("👦.", "length", &["👦", "."]), false),
        ];
        let of_all: usize =
            choices.iter().map(|(choice, _)| choice["logprobs"]["content"].as_array().unwrap().len()).sum();
        for total in [3, of_all] {
            let body = serde_json::json!({
                "choices": choices.iter().map(|(choice, _)| choice).collect::<Vec<_>>(), "usage": {"completion_tokens": total}
            });
            for ((text, answer), (_, is_whole)) in split(&body.to_string(), 9).iter().zip(&choices) {
                let is_whole = *is_whole || total == of_all;
                let read = parse_answer(text).unwrap();
                assert_eq!(read.token_ids.is_some(), is_whole, "{text}");
                assert_eq!((&read.token_ids, &read.token_logprobs), (&answer.token_ids, &answer.token_logprobs));
                assert_eq!((read.completion_tokens, read.tokens_incomplete), (answer.completion_tokens, !is_whole));
            }
        }
    }

    #[test]
    fn a_count_of_all_choices_is_shared_out_and_a_count_of_one_is_not() {
        let long = "word ".repeat(60);
        let counts = |total| -> Vec<u64> {
            split(&body(&[&long, &long, "x"], total), 3)
                .iter()
                .map(|(_, answer)| answer.completion_tokens.unwrap())
                .collect()
        };
        assert_eq!(counts(121).iter().sum::<u64>(), 121);
        assert_eq!(counts(60), [100, 100, 1], "60 tokens are those of one: estimated");
    }

    #[test]
    fn listed_tokens_are_counted() {
        let choice = |count: usize| serde_json::json!({"message": {"content": "a"}, "token_ids": vec![1; count]});
        let body = serde_json::json!({"choices": [choice(3), choice(5)]}).to_string();
        let counts: Vec<_> = split(&body, 9).iter().map(|(_, answer)| answer.completion_tokens).collect();
        assert_eq!(counts, [Some(3), Some(5)]);
    }

    #[test]
    fn choices_that_cannot_be_read_are_left_to_be_asked_again() {
        assert_eq!(split(r#"{"choices":[{"message":{"content":"a"}},{}]}"#, 2).len(), 1);
        assert!(split("{", 2).is_empty() && split(r#"{"error":1}"#, 2).is_empty());
    }
}
