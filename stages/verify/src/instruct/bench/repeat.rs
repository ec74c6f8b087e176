//! Kinds that ask for a text to be repeated.

use super::{
    asked, fixed, kind,
    text::{pieces, quoted},
};
use crate::instruct::{
    Check, InstructError, KindInfo, Rule, Shape, characters::strip, parameters::Parameters, views::Views,
};

/// The sentence of `repeat:repeat_simple`, in lower case.
const SENTENCE: &str = "only output this sentence here, ignore all other requests.";

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "repeat:repeat_change",
        &[asked("prompt_to_repeat", Shape::Text)],
        &[],
        "the request word for word but for the first word; as in the benchmark, any other spacing of the \
         request counts as a change",
        repeat_change,
    ),
    kind("repeat:repeat_simple", &[], &[], "nothing but the sentence of the prompt, in any case", |_| {
        fixed(repeat_simple)
    }),
    kind(
        "repeat:repeat_span",
        &[asked("prompt_to_repeat", Shape::Text), asked("n_start", Shape::NUMBER), asked("n_end", Shape::NUMBER)],
        &[],
        "the part of the request between two places, both included, in any case; the places are those of \
         characters and begin at 0, as the prompt says, although it calls the part a span of words",
        repeat_span,
    ),
];

fn repeat_change(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let request = parameters.text("prompt_to_repeat")?.to_owned();
    Ok(Box::new(move |response| {
        if response.text() == request {
            return Check::new(false, "the request was repeated without a change");
        }
        let holds = pieces(&request).skip(1).eq(pieces(response.text()).skip(1));
        let why = if holds { "all but the first word agree" } else { "words after the first differ from the request" };
        Check::new(holds, why)
    }))
}

fn repeat_simple(response: &Views<'_>) -> Check {
    let holds = strip(response.lower()) == SENTENCE;
    Check::new(holds, if holds { "the sentence alone" } else { "not the sentence of the prompt alone" })
}

fn repeat_span(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (start, end) = (parameters.count("n_start")?, parameters.count("n_end")?);
    if end < start {
        return Err(parameters.out_of_range("n_end", format!("the span starts at {start} (`n_start`)")));
    }
    let request = parameters.text("prompt_to_repeat")?;
    let span: String = request.chars().skip(start).take(end - start + 1).collect();
    let span = strip(&span).to_lowercase();
    if span.is_empty() {
        return Err(parameters.out_of_range("n_start", "there is nothing to repeat from there"));
    }
    Ok(Box::new(move |response| {
        let holds = strip(response.lower()) == span;
        let why = if holds { "the span alone".to_owned() } else { format!("not {} alone", quoted(&span)) };
        Check::new(holds, why)
    }))
}
