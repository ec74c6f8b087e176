//! Answers and scores of a tiny random net, for requests as the engine `local` makes them.

use std::sync::Mutex;
use std::thread::scope;

use pipeline_models::{Refusal, Sampling};
use stage_tokens::{ChatTemplate, EndTokens, Tokenizer, byte_tokenizer};

use super::*;
use crate::desk::tests::ScriptedDesk;
use crate::{Architecture, Net, NetConfig};

const TEMPLATE: &str = "{% for message in messages %}\
    {% if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
    <|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// One token a byte, and two control tokens: 256 and 257.
fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(byte_tokenizer(&["<|im_start|>", "<|im_end|>"]).as_bytes()).unwrap()
}

fn model() -> Arc<LocalModel> {
    let net = Net::random(NetConfig { vocabulary: 260, ..NetConfig::tiny(Architecture::Llama) }, 5).unwrap();
    let tokenizer = tokenizer();
    let template = ChatTemplate::new(TEMPLATE, "", "<|im_end|>").unwrap();
    let ends = EndTokens::new(vec![257], &tokenizer, Some(&template));
    Arc::new(LocalModel::new(net, tokenizer, Ok(template), ends).unwrap())
}

fn weights(threads: usize, slots: usize) -> LocalWeights {
    LocalWeights::new(model(), &ServiceOptions { threads, slots, cache_bytes: Some(1 << 22), context: None }).unwrap()
}

fn request(content: &str, sample: u32, max_tokens: u32) -> Request {
    let sampling = Sampling { logprobs: true, ..Sampling::full(0.9, max_tokens) };
    Request::new(vec![Message::new("user", content)], sampling, sample)
}

fn generate(weights: &LocalWeights, requests: Vec<Request>) -> Vec<Result<Generation, Refusal>> {
    let desk = ScriptedDesk::new(requests, false);
    weights.generate(&desk).unwrap();
    desk.told()
}

fn score(weights: &LocalWeights, requests: Vec<ScoreRequest>) -> Vec<Result<Score, Refusal>> {
    let desk = ScriptedDesk::new(requests, false);
    weights.score(&desk).unwrap();
    desk.told()
}

fn to_score(generation: &Generation, content: &str) -> ScoreRequest {
    ScoreRequest {
        messages: vec![Message::new("user", content)],
        response: generation.text.clone(),
        is_complete: generation.is_complete,
        token_ids: Some(generation.token_ids.clone()),
        tokenizer: Some(generation.tokenizer.clone()),
    }
}

#[test]
fn answers_and_their_scores_do_not_depend_on_threads_and_slots() {
    let contents = ["a", "a longer question", "ß?"];
    let requests = || contents.iter().flat_map(|content| (0..6).map(|sample| request(content, sample, 40))).collect();
    let expected: Vec<_> = generate(&weights(1, 1), requests()).into_iter().map(Result::unwrap).collect();
    for (threads, slots) in [(1, 4), (2, 3), (3, 8)] {
        let heard: Vec<_> = generate(&weights(threads, slots), requests()).into_iter().map(Result::unwrap).collect();
        assert_eq!(heard, expected, "{threads} threads of {slots} slots");
    }
    assert!(expected.iter().map(|answer| &answer.text).collect::<std::collections::BTreeSet<_>>().len() > 15);
    let to_scores =
        || expected.iter().enumerate().map(|(index, answer)| to_score(answer, contents[index / 6])).collect();
    for (threads, slots) in [(1, 1), (2, 3)] {
        let scores = score(&weights(threads, slots), to_scores());
        for (answer, score) in expected.iter().zip(scores) {
            let log_prob: f64 =
                answer.token_logprobs.as_ref().unwrap().iter().map(|log_prob| f64::from(*log_prob)).sum();
            let score = score.unwrap();
            assert_eq!(score.log_prob.to_bits(), log_prob.to_bits(), "what is drawn and what is scored differ");
            assert_eq!(score.tokens as usize, answer.token_ids.len());
        }
    }
}

#[test]
fn text_is_what_the_tokens_say_and_its_numbers_add_up() {
    let weights = weights(1, 4);
    for answer in generate(&weights, (0..12).map(|sample| request("x", sample, 30)).collect()) {
        let answer = answer.unwrap();
        let bytes = weights.model().tokenizer().decode(&answer.token_ids);
        assert_eq!(answer.text, String::from_utf8_lossy(&bytes));
        assert_eq!(answer.prompt_tokens, 1 + 5 + 1 + 1 + 1 + 10);
        assert_eq!(answer.token_logprobs.unwrap().len(), answer.token_ids.len());
        assert_eq!(answer.is_complete, answer.token_ids.last() == Some(&257));
        assert!(answer.is_complete || answer.token_ids.len() == 30);
        assert!(answer.tokenizer.starts_with("sha256:") && answer.template.starts_with("sha256:"));
    }
}

#[test]
fn a_given_seed_decides_and_otherwise_the_key_does() {
    let with = |seed| {
        let mut request = request("x", 0, 20);
        request.sampling.seed = seed;
        request
    };
    // The desk gives each request a key of its own.
    let heard = generate(&weights(1, 4), vec![with(None), with(None), with(Some(3)), with(Some(3))]);
    let ids: Vec<_> = heard.into_iter().map(|answer| answer.unwrap().token_ids).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[2], ids[3]);
}

#[test]
fn the_context_cuts_answers_and_refuses_prompts() {
    let heard = generate(&weights(1, 2), vec![request("x", 0, 4000), request(&"x".repeat(200), 0, 5)]);
    let answer = heard[0].as_ref().unwrap();
    assert!(answer.is_complete || answer.token_ids.len() + answer.prompt_tokens as usize == 128, "{answer:?}");
    let refusal = heard[1].as_ref().unwrap_err();
    assert_eq!(refusal.code, "context_exceeded");
    assert!(refusal.message.contains("218") && refusal.message.contains("128"), "{}", refusal.message);
}

#[test]
fn what_the_template_refuses_is_refused_in_its_words() {
    let mut request = request("x", 0, 5);
    request.messages.push(Message::new("tool", "42"));
    let score_request = ScoreRequest {
        messages: request.messages.clone(),
        response: "y".to_owned(),
        is_complete: true,
        token_ids: None,
        tokenizer: None,
    };
    let weights = weights(1, 1);
    let refusals = [
        generate(&weights, vec![request]).remove(0).unwrap_err(),
        score(&weights, vec![score_request]).remove(0).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.code, "template_refused");
        assert!(refusal.message.contains("no tools here"), "{}", refusal.message);
    }
}

#[test]
fn scored_ids_are_those_given_only_when_they_are_the_text_by_the_same_tokenizer() {
    let weights = weights(1, 2);
    let base = ScoreRequest {
        messages: vec![Message::new("user", "x")],
        response: "abc".to_owned(),
        is_complete: false,
        token_ids: None,
        tokenizer: None,
    };
    let own = Some(weights.model().tokenizer().digest().to_owned());
    let requests = vec![
        base.clone(),
        ScoreRequest { is_complete: true, ..base.clone() },
        ScoreRequest { token_ids: Some(vec![97, 98, 99, 257]), tokenizer: own.clone(), ..base.clone() },
        ScoreRequest {
            token_ids: Some(vec![97, 98, 99, 257]),
            tokenizer: Some("sha256:other".to_owned()),
            ..base.clone()
        },
        ScoreRequest {
            response: "a".to_owned(),
            token_ids: Some(vec![97, 257]),
            tokenizer: own.clone(),
            is_complete: true,
            ..base.clone()
        },
        ScoreRequest { token_ids: Some(vec![97, 98]), tokenizer: own.clone(), ..base.clone() },
        ScoreRequest { response: String::new(), is_complete: true, ..base.clone() },
        ScoreRequest { response: String::new(), ..base.clone() },
        ScoreRequest { token_ids: Some(vec![97, 98, 99, 9999]), tokenizer: own, ..base.clone() },
        ScoreRequest { response: "y".repeat(200), ..base },
    ];
    let heard = score(&weights, requests);
    let tokens: Vec<_> = heard.iter().map(|score| score.as_ref().map(|score| score.tokens)).collect();
    assert_eq!(tokens[..7], [Ok(3), Ok(4), Ok(4), Ok(3), Ok(2), Ok(3), Ok(1)]);
    let sums: Vec<f64> = heard[..7].iter().map(|score| score.as_ref().unwrap().log_prob).collect();
    assert!(sums.iter().all(|sum| *sum < 0.0));
    assert_eq!([sums[3].to_bits(), sums[5].to_bits()], [sums[0].to_bits(); 2]);
    let codes: Vec<_> = heard[7..].iter().map(|score| score.as_ref().unwrap_err().code.as_str()).collect();
    assert_eq!(codes, ["empty_response", "bad_token", "context_exceeded"]);
}

#[test]
fn a_cancelled_pass_returns_soon_and_tells_nothing_more() {
    let weights = weights(1, 2);
    let desk = ScriptedDesk::new((0..1000).map(|sample| request("x", sample, 100)), false);
    let told = Mutex::new(0);
    scope(|scope| {
        let pass = scope.spawn(|| weights.generate(&desk));
        while desk.count() < 2 {
            std::thread::yield_now();
        }
        desk.cancel();
        assert_eq!(pass.join().unwrap(), Ok(()));
        *told.lock().unwrap() = desk.count();
    });
    assert!(*told.lock().unwrap() < 1000);
    // The service is free for others.
    assert!(generate(&weights, vec![request("y", 0, 3)])[0].is_ok());
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let net = Net::random(NetConfig { vocabulary: 257, ..NetConfig::tiny(Architecture::Llama) }, 5).unwrap();
    let (tokenizer, template) = (tokenizer(), Err("none".to_owned()));
    let ends = EndTokens::new(vec![257], &tokenizer, None);
    let error = LocalModel::new(net, tokenizer, template, ends).unwrap_err().to_string();
    assert!(error.contains("ids up to 257") && error.contains("257 tokens"), "{error}");
}

#[test]
fn a_model_without_template_answers_no_conversation() {
    let net = Net::random(NetConfig { vocabulary: 260, ..NetConfig::tiny(Architecture::Llama) }, 5).unwrap();
    let (tokenizer, template) = (tokenizer(), Err("`config.json` names none".to_owned()));
    let ends = EndTokens::new(vec![257], &tokenizer, None);
    let model = Arc::new(LocalModel::new(net, tokenizer, template, ends).unwrap());
    let weights =
        LocalWeights::new(model, &ServiceOptions { cache_bytes: Some(1 << 20), ..ServiceOptions::default() }).unwrap();
    let desk = ScriptedDesk::new([request("x", 0, 5)], true);
    let error = weights.generate(&desk).unwrap_err().to_string();
    assert!(error.contains("no chat template") && error.contains("names none"), "{error}");
}
