//! The sample model through the service: it answers, and how it is decoded does not show. Skipped where it is not fetched.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking and tell why they skip"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};

use stage_candle::LocalModel;
use stage_candle::decode::{Draw, Drawn, End, Job, Listener, Piece, Service, ServiceOptions};
use stage_tokens::Turn;

static MODEL: LazyLock<Option<Arc<LocalModel>>> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "the script that fetches the model reads the same variables")]
    let cache = std::env::var("XDG_CACHE_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cache")));
    let path = PathBuf::from(cache.unwrap_or_default()).join("pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} is absent; `sh datasets/quickstart/fetch_model.sh` fetches it", path.display());
        return None;
    }
    Some(Arc::new(LocalModel::open(&path).unwrap()))
});

const QUESTIONS: [&str; 8] = [
    "What is the capital of France?",
    "What is 2 + 3?",
    "Name a colour.",
    "Write one short sentence about a dog, please.",
    "二加三等于多少？",
    "Who wrote Hamlet? Answer with the name only, without any other words.",
    "Say hello.",
    "Count from one to ten.",
];

#[derive(Debug, Clone, Default, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<Drawn>,
    is_complete: bool,
}

struct Ear(usize, Answer, Sender<(usize, Answer)>);

impl Listener for Ear {
    fn piece(&mut self, piece: &Piece<'_>) -> bool {
        self.1.text.push_str(piece.text);
        self.1.tokens.extend_from_slice(piece.tokens);
        true
    }

    fn end(&mut self, end: End) {
        assert!(matches!(end, End::Complete | End::Cut), "{end:?}");
        self.1.is_complete = end == End::Complete;
        let _ = self.2.send((self.0, self.1.clone()));
    }
}

fn prompt(model: &LocalModel, question: &str) -> Vec<u32> {
    model.prompt(&[Turn { role: "user", content: question, tool_calls: None }]).unwrap()
}

fn answers(model: &Arc<LocalModel>, threads: usize, slots: usize, jobs: &[(Vec<u32>, Draw)]) -> Vec<Answer> {
    let service =
        Service::start(model, &ServiceOptions { threads, slots, cache_bytes: Some(256 << 20), context: None }).unwrap();
    let (to, heard) = channel();
    for (index, (prompt, draw)) in jobs.iter().enumerate() {
        let listener = Box::new(Ear(index, Answer::default(), to.clone()));
        service.submit(Job { prompt: prompt.clone(), draw: draw.clone(), listener });
    }
    drop(to);
    let mut answers: Vec<_> = heard.iter().collect();
    assert_eq!(answers.len(), jobs.len());
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[test]
fn a_simple_question_is_answered() {
    let Some(model) = &*MODEL else { return };
    let draw = Draw { temperature: 0.0, max_tokens: 32, ..Draw::default() };
    let answer = answers(model, 1, 1, &[(prompt(model, QUESTIONS[0]), draw)]).remove(0);
    assert_eq!(answer.text, "The capital of France is Paris.");
    assert!(answer.is_complete);
    assert_eq!(answer.tokens.last().unwrap().id, 2);
}

#[test]
fn logits_are_the_same_bit_for_bit_alone_with_two_others_and_with_seven() {
    let Some(model) = &*MODEL else { return };
    let draw = Draw { max_tokens: 8, top_logprobs: Some(20), ..Draw::default() };
    let jobs: Vec<_> = QUESTIONS.iter().map(|question| (prompt(model, question), draw.clone())).collect();
    let bits = |answers: Vec<Answer>| -> Vec<Vec<(u32, u32)>> {
        let of = |answer: &Answer| -> Vec<(u32, u32)> {
            let tops = answer.tokens.iter().flat_map(|token| token.top.iter());
            tops.map(|(id, log_prob)| (*id, log_prob.to_bits())).collect()
        };
        answers.iter().map(of).collect()
    };
    let alone = bits(answers(model, 1, 1, &jobs));
    assert_eq!(bits(answers(model, 1, 3, &jobs)), alone);
    assert_eq!(bits(answers(model, 1, 8, &jobs)), alone);
}

#[test]
fn samples_of_one_prompt_are_the_same_with_one_thread_and_with_two() {
    let Some(model) = &*MODEL else { return };
    let prompt = prompt(model, QUESTIONS[3]);
    let draw =
        |seed| Draw { temperature: 0.8, top_p: 0.95, max_tokens: 16, top_logprobs: Some(0), seed, ..Draw::default() };
    let jobs: Vec<_> = (0..8).map(|seed| (prompt.clone(), draw(seed))).collect();
    let first = answers(model, 1, 8, &jobs);
    assert_eq!(answers(model, 2, 3, &jobs), first);
    let texts: std::collections::BTreeSet<_> = first.iter().map(|answer| &answer.text).collect();
    assert!(texts.len() > 4, "{texts:?}");
}

#[test]
fn stop_strings_end_answers_of_a_real_tokenizer() {
    let Some(model) = &*MODEL else { return };
    let draw = Draw { temperature: 0.0, max_tokens: 32, stop: vec!["ce is Par".to_owned()], ..Draw::default() };
    let answer = answers(model, 1, 1, &[(prompt(model, QUESTIONS[0]), draw)]).remove(0);
    assert_eq!((answer.text.as_str(), answer.is_complete), ("The capital of Fran", true));
}

/// What llama.cpp (server build 10068, one slot, one thread) writes at temperature 0 to a problem of the quickstart.
#[derive(serde::Deserialize)]
struct Reference {
    question: String,
    /// With the model's `Q4_1` weights, where activations are rounded to 8 bits in blocks; at most 64 tokens.
    q4_1: Reply,
    /// With the same weights written out in f32, keys and values in f32 too; at most 32 tokens.
    f32: Reply,
}

#[derive(serde::Deserialize)]
struct Reply {
    text: String,
    finish_reason: String,
    /// Of the tokens, with five decimals. The server leaves out tokens that are parts of characters.
    #[serde(default)]
    log_probs: Vec<f32>,
}

/// A gap between the two best log-probabilities that the order of sums can turn over.
const NEAR_TIE: f32 = 0.1;

/// A gap that the rounding of activations to 8 bits can turn over: one of a hundred of llama.cpp's log-probabilities with
/// `Q4_1` weights is off by about this much.
const NEAR_TIE_IN_8_BITS: f32 = 0.2;

#[test]
fn greedy_answers_agree_with_llama_cpp_up_to_near_ties() {
    let Some(model) = &*MODEL else { return };
    let references = references();
    let draw = Draw { temperature: 0.0, max_tokens: 32, top_logprobs: Some(2), ..Draw::default() };
    let jobs: Vec<_> = references.iter().map(|one| (prompt(model, &one.question), draw.clone())).collect();
    let answers = answers(model, 2, 8, &jobs);
    for (weights, near_tie, least_percent) in [("f32", NEAR_TIE, 99), ("Q4_1", NEAR_TIE_IN_8_BITS, 90)] {
        let (mut equal, mut ties, mut others) = (0, 0, Vec::new());
        for (reference, answer) in references.iter().zip(&answers) {
            let theirs = if weights == "f32" { &reference.f32 } else { &reference.q4_1 };
            match first_difference(model, theirs, answer) {
                None => equal += 1,
                Some(gap) if gap < near_tie => ties += 1,
                Some(gap) => others.push((gap, &reference.question)),
            }
        }
        let count = references.len();
        println!("{weights}: of {count} answers {equal} are equal, {ties} part at a near-tie, others {others:?}");
        assert!(count > 100 && (equal + ties) * 100 >= count * least_percent);
    }
}

#[test]
fn log_probs_are_those_of_llama_cpp_with_f32_weights() {
    let Some(model) = &*MODEL else { return };
    let references: Vec<Reference> = references().into_iter().step_by(4).collect();
    let draw = Draw { temperature: 0.0, max_tokens: 32, top_logprobs: Some(0), ..Draw::default() };
    let jobs: Vec<_> = references.iter().map(|one| (prompt(model, &one.question), draw.clone())).collect();
    let mut differences = Vec::new();
    for (reference, answer) in references.iter().zip(answers(model, 2, 8, &jobs)) {
        if answer.text == reference.f32.text && answer.tokens.len() == reference.f32.log_probs.len() {
            let pairs = answer.tokens.iter().zip(&reference.f32.log_probs);
            differences.extend(pairs.map(|(token, theirs)| (token.logprob.unwrap() - theirs).abs()));
        }
    }
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    let largest = differences.iter().copied().fold(0.0, f32::max);
    println!("{} tokens: mean |d| {mean:.6}, largest {largest:.6}", differences.len());
    assert!(differences.len() > 500 && mean < 2e-4 && largest < 2e-3);
}

fn references() -> Vec<Reference> {
    let file = fs::read_to_string(Path::new("tests/greedy.jsonl")).unwrap();
    file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The gap between our two best tokens where the texts part; `None` when they do not.
fn first_difference(model: &LocalModel, theirs: &Reply, answer: &Answer) -> Option<f32> {
    // What a cut leaves of a character is no text.
    let our_text = answer.text.trim_end_matches('\u{FFFD}');
    let their_text = theirs.text.trim_end_matches('\u{FFFD}');
    let common = our_text.bytes().zip(their_text.bytes()).take_while(|(our, their)| our == their).count();
    let is_over = |length: usize, is_cut: bool| common == length && is_cut;
    let is_whole = answer.is_complete && theirs.finish_reason == "stop" && our_text == their_text;
    let is_cut =
        is_over(our_text.len(), !answer.is_complete) || is_over(their_text.len(), theirs.finish_reason == "length");
    if is_whole || is_cut {
        return None;
    }
    let mut end = 0;
    let parting = answer.tokens.iter().find(|token| {
        end += model.tokenizer().bytes_of(token.id).len();
        end > common || model.ends().ends_at(token.id)
    });
    let top = &parting.unwrap().top;
    Some(top[0].1 - top[1].1)
}
