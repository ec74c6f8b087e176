//! The two things that weights do, write and score, and how each outcome is stored.
//!
//! A written text is stored in the shape of a chat completion, so that one parser reads every engine's answers. Its
//! log-probabilities are written as double precision, in which single precision survives exactly.

use serde::Serialize;

use crate::known::Question;
use crate::request::{ModelId, Request, ScoreRequest};
use crate::store::Reply;
use crate::weights::{Desk, Generation, Refusal, Score, Weights, WeightsError};

/// A request that weights work on.
pub(super) trait Work: Question + Send {
    /// What they tell of it.
    type Told;

    /// Has the weights work on all of the desk.
    fn work(weights: &dyn Weights, desk: &dyn Desk<Self, Self::Told>) -> Result<(), WeightsError>;

    /// What is stored of it; a refusal where it is no sound outcome.
    fn told(told: Self::Told, model: &ModelId) -> Result<Told, Refusal>;
}

/// An outcome as it is stored and counted.
pub(super) struct Told {
    pub(super) reply: Reply,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl Work for Request {
    type Told = Generation;

    fn work(weights: &dyn Weights, desk: &dyn Desk<Self, Generation>) -> Result<(), WeightsError> {
        weights.generate(desk)
    }

    fn told(told: Generation, model: &ModelId) -> Result<Told, Refusal> {
        if told.token_logprobs.iter().flatten().any(|value| !value.is_finite()) {
            return Err(not_finite("a log-probability of the answer"));
        }
        let prompt_tokens = u64::from(told.prompt_tokens);
        let completion_tokens = told.token_ids.len() as u64;
        let body = Body::of(&told, model, prompt_tokens, completion_tokens);
        let body = serde_json::to_string(&body)
            .map_err(|error| Refusal { code: "answer_unstorable".to_owned(), message: error.to_string() })?;
        Ok(Told { reply: Reply::Answer(body), prompt_tokens, completion_tokens })
    }
}

impl Work for ScoreRequest {
    type Told = Score;

    fn work(weights: &dyn Weights, desk: &dyn Desk<Self, Score>) -> Result<(), WeightsError> {
        weights.score(desk)
    }

    fn told(told: Score, _model: &ModelId) -> Result<Told, Refusal> {
        if !told.log_prob.is_finite() {
            return Err(not_finite("the log-probability of the text"));
        }
        if told.tokens == 0 {
            let message = "the text has no token that could be scored".to_owned();
            return Err(Refusal { code: "nothing_to_score".to_owned(), message });
        }
        Ok(Told { reply: Reply::Score(told), prompt_tokens: u64::from(told.tokens), completion_tokens: 0 })
    }
}

fn not_finite(what: &str) -> Refusal {
    Refusal { code: "not_finite".to_owned(), message: format!("{what} is no finite number") }
}

#[derive(Serialize)]
struct Body<'a> {
    object: &'static str,
    model: String,
    choices: [Choice<'a>; 1],
    usage: Counts,
    tokenizer: &'a str,
    template: &'a str,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    finish_reason: &'static str,
    message: Turn<'a>,
    token_ids: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<LogProbs>,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct LogProbs {
    token_logprobs: Vec<f64>,
}

#[derive(Serialize)]
struct Counts {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl<'a> Body<'a> {
    fn of(told: &'a Generation, model: &ModelId, prompt_tokens: u64, completion_tokens: u64) -> Self {
        let double = |values: &Vec<f32>| values.iter().copied().map(f64::from).collect();
        let choice = Choice {
            index: 0,
            finish_reason: if told.is_complete { "stop" } else { "length" },
            message: Turn { role: "assistant", content: &told.text },
            token_ids: &told.token_ids,
            logprobs: told.token_logprobs.as_ref().map(|values| LogProbs { token_logprobs: double(values) }),
        };
        Self {
            object: "chat.completion",
            model: model.to_string(),
            choices: [choice],
            usage: Counts { prompt_tokens, completion_tokens },
            tokenizer: &told.tokenizer,
            template: &told.template,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Recorded;

    fn generation(text: &str, values: Option<Vec<f32>>) -> Generation {
        Generation {
            text: text.to_owned(),
            is_complete: true,
            prompt_tokens: 7,
            token_ids: vec![5, u32::MAX],
            token_logprobs: values,
            tokenizer: "sha256:t".to_owned(),
            template: "sha256:c".to_owned(),
        }
    }

    fn stored(generation: Generation) -> Recorded {
        let told = Request::told(generation, &ModelId::weights("sha256:w", "f32"));
        Request::read(told.map(|told| told.reply).unwrap())
    }

    #[test]
    fn what_is_stored_of_a_text_is_read_like_a_servers_answer() {
        let Recorded::Answer(answer) = stored(generation("<think>七</think>\n12", None)) else { panic!() };
        assert_eq!((answer.reasoning.as_deref(), answer.answer_text.as_str()), (Some("七"), "12"));
        assert_eq!(answer.finish_reason.as_deref(), Some("stop"));
        assert_eq!((answer.prompt_tokens, answer.completion_tokens), (Some(7), Some(2)));
        assert_eq!((answer.token_ids, answer.token_logprobs), (Some(vec![5, u32::MAX]), None));
        assert_eq!((answer.tokenizer.as_deref(), answer.template.as_deref()), (Some("sha256:t"), Some("sha256:c")));
        assert_eq!(answer.model.as_deref(), Some("sha256:w@f32"));
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let model = ModelId::weights("sha256:w", "f32");
        assert!(Request::told(generation("x", Some(vec![f32::NAN, -1.0])), &model).is_err());
        for score in [Score { log_prob: f64::NEG_INFINITY, tokens: 3 }, Score { log_prob: 0.0, tokens: 0 }] {
            assert!(ScoreRequest::told(score, &model).is_err());
        }
    }

    proptest! {
        #[test]
        fn log_probabilities_survive_bit_for_bit(bits in prop::collection::vec(any::<u32>(), 1..40)) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).filter(|value| value.is_finite()).collect();
            let Recorded::Answer(answer) = stored(generation("x", Some(values.clone()))) else { panic!() };
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&answer.token_logprobs.unwrap()), bits(&values));
        }
    }
}
