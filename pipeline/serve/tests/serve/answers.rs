//! What is answered, whole and as a stream.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::scripted::{CONTEXT, serve};
use crate::{CHAT, TEXT, ask, content, with};

#[tokio::test]
async fn a_chat_is_answered_in_the_protocols_form() {
    let server = serve(2, |_| ());
    let answer = server.ok(CHAT, &ask("say hé!")).await;
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "small");
    assert_eq!(answer["system_fingerprint"], "scripted_f32");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = json!({
        "index": 0, "message": {"role": "assistant", "content": "hé!", "refusal": null}, "logprobs": null,
        "finish_reason": "stop",
    });
    assert_eq!(answer["choices"], json!([choice]));
    // `user:say hé!` and `hé!` with the end token
    assert_eq!(answer["usage"], json!({"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18}));
}

#[tokio::test]
async fn every_role_and_every_form_of_content_reaches_the_template() {
    let server = serve(1, |_| ());
    let body = json!({"model": "org/small", "seed": 1, "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}], "refusal": null, "annotations": []},
        {"role": "tool", "content": "d", "tool_call_id": "1"},
    ]});
    let answer = server.ok(CHAT, &body).await;
    assert!(content(&answer).starts_with("system:ab\nuser:c\nassistant[{\"id\":\"1\"}]:\ntool:d|"), "{answer}");
    assert_eq!(answer["model"], "org/small");
    let (status, error) = server.refused(CHAT, &ask("no such turn")).await;
    assert_eq!((status, error["param"].as_str()), (400, Some("messages")));
    assert_eq!(error["message"], "the template refuses this turn");
}

#[tokio::test]
async fn sampling_is_handed_on_and_its_defaults_truncate_nothing() {
    let server = serve(1, |_| ());
    let plain = with(ask("x"), &json!({"seed": 7}));
    assert!(content(&server.ok(CHAT, &plain).await).ends_with("|seed 7 t 1 p 1 k 0 m 0"));
    let given = json!({"seed": -1, "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.25, "user": "u",
        "metadata": {"a": "b"}, "store": true, "n": null, "tools": null, "logit_bias": {}, "presence_penalty": 0,
        "frequency_penalty": 0.0, "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"],
        "service_tier": "auto"});
    let answer = server.ok(CHAT, &with(ask("x"), &given)).await;
    assert!(content(&answer).ends_with("|seed 18446744073709551615 t 0 p 0.5 k 40 m 0.25"), "{answer}");
}

#[tokio::test]
async fn samples_have_seeds_of_their_own_that_the_request_decides() {
    let server = serve(4, |_| ());
    let three = with(ask("x"), &json!({"seed": 7, "n": 3}));
    let texts = |answer: &Value| -> Vec<String> {
        let choices = answer["choices"].as_array().unwrap();
        assert!(choices.iter().enumerate().all(|(index, choice)| choice["index"] == index));
        choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap().to_owned()).collect()
    };
    let first = texts(&server.ok(CHAT, &three).await);
    assert_eq!(first, texts(&server.ok(CHAT, &three).await));
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
    // asking for one alone gives the first of them
    assert_eq!(first[0], texts(&server.ok(CHAT, &with(ask("x"), &json!({"seed": 7}))).await)[0]);
    // without a seed nobody can foresee it
    let free: BTreeSet<String> = texts(&server.ok(CHAT, &with(ask("x"), &json!({"n": 8}))).await).into_iter().collect();
    assert_eq!(free.len(), 8);
    assert_ne!(texts(&server.ok(CHAT, &ask("x")).await), texts(&server.ok(CHAT, &ask("x")).await));
}

#[tokio::test]
async fn usage_counts_the_prompt_once_and_every_choice() {
    let server = serve(4, |_| ());
    let answer = server.ok(CHAT, &with(ask("say abc"), &json!({"n": 5}))).await;
    assert_eq!(answer["usage"], json!({"prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 32}));
}

#[tokio::test]
async fn limits_and_stop_strings_say_why_an_answer_ended() {
    let server = serve(1, |_| ());
    let cut = server.ok(CHAT, &with(ask("say abcdef"), &json!({"max_completion_tokens": 3}))).await;
    assert_eq!((content(&cut), &cut["choices"][0]["finish_reason"]), ("abc", &json!("length")));
    assert_eq!(cut["usage"]["completion_tokens"], 3);
    let stopped = server.ok(CHAT, &with(ask("say abcdef"), &json!({"stop": ["x", "de"]}))).await;
    assert_eq!((content(&stopped), &stopped["choices"][0]["finish_reason"]), ("abc", &json!("stop")));
    // without a limit an answer ends with the context
    let endless = server.ok(CHAT, &ask("tick")).await;
    assert_eq!(endless["choices"][0]["finish_reason"], "length");
    assert_eq!(endless["usage"]["total_tokens"], CONTEXT);
}

#[tokio::test]
async fn log_probabilities_list_every_token_with_its_bytes() {
    let server = serve(1, |_| ());
    let body = with(ask("say é"), &json!({"logprobs": true, "top_logprobs": 5}));
    let answer = server.ok(CHAT, &body).await;
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 3, "two bytes and the end token");
    assert_eq!(tokens[0]["bytes"], json!([0xc3]));
    assert_eq!(tokens[0]["token"], "\u{fffd}");
    assert_eq!(tokens[0]["id"], 0xc3);
    assert_eq!(tokens[0]["logprob"], -0.5);
    assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 5);
    assert_eq!(tokens[0]["top_logprobs"][3]["logprob"], -9999.0);
    assert_eq!((&tokens[2]["token"], &tokens[2]["bytes"], &tokens[2]["id"]), (&json!(""), &json!([]), &json!(256)));
    let bare = server.ok(CHAT, &with(ask("say a"), &json!({"logprobs": true}))).await;
    assert_eq!(bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([]));
    let read = pipeline_models::parse_answer(&answer.to_string()).unwrap();
    assert_eq!(read.token_ids, Some(vec![0xc3, 0xa9, 256]));
    assert_eq!(read.token_logprobs, Some(vec![-0.5; 3]));
}

#[tokio::test]
async fn completions_take_texts_and_ids_and_give_the_older_log_probabilities() {
    let server = serve(2, |_| ());
    let body = json!({"model": "small", "prompt": ["say ab", [115, 97, 121, 32, 99]], "n": 2, "seed": 3});
    let answer = server.ok(TEXT, &body).await;
    assert_eq!(answer["object"], "text_completion");
    let texts: Vec<&str> =
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["ab", "ab", "c", "c"]);
    assert_eq!(answer["usage"], json!({"prompt_tokens": 11, "completion_tokens": 10, "total_tokens": 21}));
    let ids = server.ok(TEXT, &json!({"model": "small", "prompt": [115, 97, 121, 32, 100]})).await;
    assert_eq!(ids["choices"], json!([{"index": 0, "text": "d", "logprobs": null, "finish_reason": "stop"}]));

    let echoed = server.ok(TEXT, &json!({"model": "small", "prompt": "say é", "echo": true})).await;
    assert_eq!(echoed["choices"][0]["text"], "say éé");
    let scored = server.ok(TEXT, &json!({"model": "small", "prompt": "say aéb", "logprobs": 1})).await;
    let logprobs = &scored["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["a", "bytes:\\xc3", "bytes:\\xa9", "b", ""]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 2, 3]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.5, -0.5, -0.5, -0.5, -0.5]));
    assert_eq!(logprobs["top_logprobs"][0], json!({"a": -0.5}));
}

#[tokio::test]
async fn a_choice_does_not_depend_on_the_other_prompts_of_its_request() {
    let server = serve(2, |_| ());
    let both = server.ok(TEXT, &json!({"model": "small", "prompt": ["x", "y"], "n": 2, "seed": 3})).await;
    let alone = server.ok(TEXT, &json!({"model": "small", "prompt": "y", "n": 2, "seed": 3})).await;
    for sample in 0..2 {
        assert_eq!(both["choices"][2 + sample]["text"], alone["choices"][sample]["text"]);
    }
}

#[tokio::test]
async fn a_stream_begins_with_the_role_and_ends_with_usage_and_done() {
    let server = serve(1, |_| ());
    let body = with(ask("say aé"), &json!({"stream": true, "stream_options": {"include_usage": true}}));
    let (events, last) = server.events(CHAT, &body).await;
    assert_eq!(last, "[DONE]");
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    let role = json!({"role": "assistant", "content": "", "refusal": null});
    assert_eq!(deltas, [&role, &json!({"content": "a"}), &json!({"content": "é"}), &json!({}), &Value::Null]);
    let reasons: Vec<&Value> = events[..4].iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &Value::Null, &Value::Null, &json!("stop")]);
    assert!(events.iter().all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"]));
    assert!(events[..4].iter().all(|event| event.get("usage") == Some(&Value::Null)));
    assert_eq!(events[4]["choices"], json!([]));
    assert_eq!(events[4]["usage"], json!({"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}));
    let (plain, _) = server.events(CHAT, &with(ask("say a"), &json!({"stream": true}))).await;
    assert!(plain.iter().all(|event| event.get("usage").is_none()));
}

#[tokio::test]
async fn a_stream_of_several_choices_joins_to_what_the_whole_answer_says() {
    let server = serve(3, |_| ());
    for (path, body, field) in [
        (CHAT, ask("x"), "message"),
        (TEXT, json!({"model": "small", "prompt": ["x", "y"], "echo": true}), "text"),
        (TEXT, json!({"model": "small", "prompt": ["x", "y"], "logprobs": 2}), "text"),
    ] {
        let body = with(body, &json!({"n": 3, "seed": 5}));
        let whole = server.ok(path, &body).await;
        let (events, last) = server.events(path, &with(body, &json!({"stream": true}))).await;
        assert_eq!(last, "[DONE]");
        let choices = whole["choices"].as_array().unwrap();
        let mut texts = vec![String::new(); choices.len()];
        let mut offsets = vec![Vec::new(); choices.len()];
        for choice in events.iter().map(|event| &event["choices"][0]) {
            let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
            let delta = if field == "text" { &choice["text"] } else { &choice["delta"]["content"] };
            texts[index] += delta.as_str().unwrap_or_default();
            offsets[index].extend(choice["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default());
        }
        for (index, choice) in choices.iter().enumerate() {
            let text = if field == "text" { &choice["text"] } else { &choice["message"]["content"] };
            assert_eq!(texts[index], text.as_str().unwrap());
            if choice["logprobs"].is_object() {
                assert_eq!(json!(offsets[index]), choice["logprobs"]["text_offset"]);
            }
        }
    }
}
