//! The server through real connections on loopback, over a scripted engine. Names of tests are claims.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod scripted;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pipeline_models::Secret;
use pipeline_serve::Ended;
use proptest::prelude::*;
use reqwest::StatusCode;
use scripted::{CONTEXT, parse_events, serve};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn ask(content: &str) -> Value {
    json!({"model": "small", "messages": [{"role": "user", "content": content}]})
}

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

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

#[tokio::test]
async fn what_cannot_be_honoured_is_refused_by_name() {
    let server = serve(1, |_| ());
    let tool = json!([{"type": "function", "function": {"name": "f"}}]);
    let unsupported = "unsupported_parameter";
    let cases = [
        (CHAT, "tools", json!({"tools": tool}), unsupported),
        (CHAT, "tool_choice", json!({"tool_choice": "auto"}), unsupported),
        (CHAT, "parallel_tool_calls", json!({"parallel_tool_calls": false}), unsupported),
        (CHAT, "functions", json!({"functions": tool}), unsupported),
        (CHAT, "function_call", json!({"function_call": "auto"}), unsupported),
        (CHAT, "response_format", json!({"response_format": {"type": "json_object"}}), unsupported),
        (CHAT, "logit_bias", json!({"logit_bias": {"5": 1}}), unsupported),
        (CHAT, "frequency_penalty", json!({"frequency_penalty": 0.5}), unsupported),
        (CHAT, "presence_penalty", json!({"presence_penalty": -1}), unsupported),
        (CHAT, "audio", json!({"audio": {"voice": "v"}}), unsupported),
        (CHAT, "modalities", json!({"modalities": ["text", "audio"]}), unsupported),
        (CHAT, "reasoning_effort", json!({"reasoning_effort": "low"}), unsupported),
        (CHAT, "prediction", json!({"prediction": {}}), unsupported),
        (CHAT, "service_tier", json!({"service_tier": "flex"}), unsupported),
        (CHAT, "best_of", json!({"best_of": 2}), "unknown_parameter"),
        (CHAT, "temprature", json!({"temprature": 1}), "unknown_parameter"),
        (CHAT, "stream_options.x", json!({"stream": true, "stream_options": {"x": 1}}), "unknown_parameter"),
        (CHAT, "messages[0].name", json!({"messages": [{"role": "user", "content": "", "name": "n"}]}), unsupported),
        (CHAT, "messages[0].x", json!({"messages": [{"role": "user", "content": "", "x": 1}]}), "unknown_parameter"),
        (
            CHAT,
            "messages[0].content[1].type",
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]}),
            unsupported,
        ),
        (TEXT, "suffix", json!({"suffix": "x"}), unsupported),
        (TEXT, "best_of", json!({"best_of": 3, "n": 2}), unsupported),
        (TEXT, "echo", json!({"echo": true, "logprobs": 0}), unsupported),
        (TEXT, "logit_bias", json!({"logit_bias": {"5": 1}}), unsupported),
        (TEXT, "tools", json!({"tools": []}), "unknown_parameter"),
    ];
    for (path, param, more, code) in cases {
        let body = if path == CHAT { ask("x") } else { json!({"model": "small", "prompt": "x"}) };
        let (status, error) = server.refused(path, &with(body, &more)).await;
        assert_eq!(status, 400, "{param}: {error}");
        assert_eq!(error["param"], param, "{error}");
        assert_eq!(error["code"], code, "{error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().unwrap().contains(param), "{error}");
    }
}

#[tokio::test]
async fn wrong_types_and_values_are_refused_with_their_path() {
    let server = serve(1, |_| ());
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let cases = [
        (CHAT, "model", json!({"model": 5}), "invalid_type"),
        (CHAT, "model", json!({"model": null}), "missing_required_parameter"),
        (CHAT, "messages", json!({"messages": null}), "missing_required_parameter"),
        (CHAT, "messages", json!({"messages": []}), "invalid_value"),
        (CHAT, "messages", json!({"messages": "hi"}), "invalid_type"),
        (CHAT, "messages[0]", json!({"messages": ["hi"]}), "invalid_type"),
        (CHAT, "messages[0].role", json!({"messages": [{"content": "x"}]}), "missing_required_parameter"),
        (CHAT, "messages[0].role", json!({"messages": [{"role": "boss", "content": "x"}]}), "invalid_value"),
        (CHAT, "messages[0].content", json!({"messages": [{"role": "user"}]}), "missing_required_parameter"),
        (CHAT, "messages[0].content", user(json!(5)), "invalid_type"),
        (CHAT, "messages[0].content", user(json!("a\u{0}b")), "invalid_value"),
        (CHAT, "messages[0].content[0].text", user(json!([{"type": "text", "text": 5}])), "invalid_type"),
        (CHAT, "messages[0].content[0].type", user(json!([{}])), "missing_required_parameter"),
        (
            CHAT,
            "messages[0].tool_calls",
            json!({"messages": [{"role": "user", "content": "", "tool_calls": [{}]}]}),
            "invalid_value",
        ),
        (CHAT, "n", json!({"n": 0}), "invalid_value"),
        (CHAT, "n", json!({"n": 129}), "invalid_value"),
        (CHAT, "n", json!({"n": 1.5}), "invalid_type"),
        (CHAT, "n", json!({"n": "2"}), "invalid_type"),
        (CHAT, "temperature", json!({"temperature": 2.1}), "invalid_value"),
        (CHAT, "temperature", json!({"temperature": -0.1}), "invalid_value"),
        (CHAT, "top_p", json!({"top_p": 0}), "invalid_value"),
        (CHAT, "top_p", json!({"top_p": 1.1}), "invalid_value"),
        (CHAT, "top_k", json!({"top_k": -1}), "invalid_value"),
        (CHAT, "min_p", json!({"min_p": 2}), "invalid_value"),
        (CHAT, "max_tokens", json!({"max_tokens": 0}), "invalid_value"),
        (CHAT, "max_completion_tokens", json!({"max_tokens": 1, "max_completion_tokens": 2}), "invalid_value"),
        (CHAT, "seed", json!({"seed": 1.5}), "invalid_type"),
        (CHAT, "seed", json!({"seed": 1e30}), "invalid_type"),
        (CHAT, "stop", json!({"stop": 5}), "invalid_type"),
        (CHAT, "stop", json!({"stop": ""}), "invalid_value"),
        (CHAT, "stop[1]", json!({"stop": ["a", ""]}), "invalid_value"),
        (CHAT, "stop", json!({"stop": vec!["a"; 17]}), "invalid_value"),
        (CHAT, "stream", json!({"stream": "yes"}), "invalid_type"),
        (CHAT, "stream_options", json!({"stream_options": {"include_usage": true}}), "invalid_value"),
        (CHAT, "logprobs", json!({"logprobs": 5}), "invalid_type"),
        (CHAT, "top_logprobs", json!({"top_logprobs": 5}), "invalid_value"),
        (CHAT, "top_logprobs", json!({"logprobs": true, "top_logprobs": 21}), "invalid_value"),
        (TEXT, "prompt", json!({"prompt": null}), "missing_required_parameter"),
        (TEXT, "prompt", json!({"prompt": ""}), "invalid_value"),
        (TEXT, "prompt", json!({"prompt": []}), "invalid_value"),
        (TEXT, "prompt", json!({"prompt": {}}), "invalid_type"),
        (TEXT, "prompt[1]", json!({"prompt": ["a", 5]}), "invalid_type"),
        (TEXT, "prompt[1]", json!({"prompt": ["a", []]}), "invalid_value"),
        (TEXT, "prompt[1]", json!({"prompt": [1, -1]}), "invalid_type"),
        (TEXT, "prompt[1]", json!({"prompt": [1, 257]}), "invalid_value"),
        (TEXT, "prompt[1][0]", json!({"prompt": ["a", ["b"]]}), "invalid_type"),
        (TEXT, "prompt", json!({"prompt": vec!["a"; 129]}), "invalid_value"),
        (TEXT, "n", json!({"prompt": vec!["a"; 100], "n": 100}), "invalid_value"),
        (TEXT, "logprobs", json!({"logprobs": true}), "invalid_type"),
    ];
    for (path, param, more, code) in cases {
        let body = if path == CHAT { ask("x") } else { json!({"model": "small", "prompt": "x"}) };
        let (status, error) = server.refused(path, &with(body, &more)).await;
        assert_eq!((status, &error["param"], &error["code"]), (400, &json!(param), &json!(code)), "{more}: {error}");
    }
}

#[tokio::test]
async fn bodies_that_are_no_json_are_refused_with_the_place() {
    let server = serve(1, |_| ());
    let deep = "[".repeat(100_000);
    let bodies: [(&[u8], &str); 7] = [
        (b"", "line 1 column 0"),
        (b"{", "line 1 column 1"),
        (b"{\"model\":\n nul}", "line 2"),
        (br#"{"model": "\ud800"}"#, "line 1"),
        (b"{\"model\": \"\xff\"}", "line 1"),
        (br#"{"temperature": 1e999}"#, "line 1"),
        (deep.as_bytes(), "recursion limit"),
    ];
    for (body, place) in bodies {
        let (status, answer) = server.raw(CHAT, body.to_vec()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer["error"]["code"], "invalid_json");
        assert!(answer["error"]["message"].as_str().unwrap().contains(place), "{answer}");
    }
    for body in ["5", "[]", "\"x\"", "null"] {
        let (status, answer) = server.raw(TEXT, body).await;
        assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_type")), "{answer}");
    }
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_refused_with_numbers() {
    let server = serve(1, |_| ());
    let (status, error) = server.refused(CHAT, &ask(&"x".repeat(CONTEXT))).await;
    assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("4101 tokens") && message.contains("4096"), "{message}");
    let (_, error) = server.refused(TEXT, &json!({"model": "small", "prompt": ["a", "x".repeat(CONTEXT)]})).await;
    assert_eq!(error["param"], "prompt[1]");
    let almost = server.ok(TEXT, &json!({"model": "small", "prompt": "x".repeat(CONTEXT - 1)})).await;
    assert_eq!(almost["choices"][0]["finish_reason"], "length");
    assert_eq!(almost["usage"]["completion_tokens"], 1);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_and_the_server_goes_on() {
    let server = serve(1, |_| ());
    let huge = ask(&"x".repeat(40 << 20));
    let (status, error) = server.refused(CHAT, &huge).await;
    assert_eq!((status, &error["code"]), (413, &json!("request_too_large")));
    assert!(error["message"].as_str().unwrap().contains("32 MiB"));
    server.ok(CHAT, &ask("say a")).await;
}

#[tokio::test]
async fn other_paths_methods_models_and_media_are_told_from_each_other() {
    let server = serve(1, |_| ());
    let (status, error) = server.refused(CHAT, &with(ask("x"), &json!({"model": "large"}))).await;
    assert_eq!((status, &error["code"], &error["param"]), (404, &json!("model_not_found"), &json!("model")));
    assert!(error["message"].as_str().unwrap().contains("`small`"));
    let (status, error) = server.refused("/v1/embeddings", &json!({})).await;
    assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    let get = server.client.get(server.url(CHAT)).send().await.unwrap();
    assert_eq!(get.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(get.json::<Value>().await.unwrap()["error"]["code"], "method_not_allowed");
    let form = server.client.post(server.url(CHAT)).header("content-type", "text/plain").body("{}");
    assert_eq!(form.send().await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let get = async |path: &str| {
        let response = server.client.get(server.url(path)).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    assert_eq!(get("/health").await, (200, json!({"status": "ok"})));
    let (_, models) = get("/v1/models").await;
    let names: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["small", "org/small"]);
    assert_eq!(get("/v1/models/org/small").await.1["id"], "org/small");
    assert_eq!(get("/v1/models/large").await.0, 404);
}

#[tokio::test]
async fn only_the_key_opens_and_no_answer_repeats_it() {
    let server = serve(1, |options| options.key = Some(Secret::new("sk-open-sesame")));
    for key in [None, Some("sk-open-sesamf"), Some("sk-open"), Some("sk-open-sesame2"), Some("")] {
        for path in [CHAT, TEXT, "/v1/models", "/elsewhere"] {
            let mut request = server.client.post(server.url(path)).json(&ask("x"));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let text = response.text().await.unwrap();
            assert!(text.contains("invalid_api_key") && text.contains("authentication_error"), "{text}");
            assert!(!text.contains("sesame"), "{text}");
        }
    }
    let open = server.client.post(server.url(CHAT)).bearer_auth("sk-open-sesame").json(&ask("say a"));
    assert_eq!(open.send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(server.client.get(server.url("/health")).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn what_the_engine_cannot_do_is_an_error_and_never_an_answer() {
    let server = serve(2, |_| ());
    let (status, error) = server.refused(CHAT, &ask("refuse")).await;
    assert_eq!((status, &error["code"], &error["message"]), (400, &json!("cache_exceeded"), &json!("9 pages of 8")));
    for order in ["fail", "die"] {
        let (status, error) = server.refused(CHAT, &ask(order)).await;
        assert_eq!((status, &error["type"]), (500, &json!("server_error")), "{error}");
        let (events, last) = server.events(CHAT, &with(ask(order), &json!({"stream": true}))).await;
        assert_eq!(events.last().unwrap()["error"]["code"], "internal_error");
        assert_eq!(last, "", "an answer that broke off is not done");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_slot() {
    let server = serve(1, |options| options.queue = 4);
    let mut stream = server.send(CHAT, &with(ask("hold"), &json!({"stream": true, "n": 3}))).await;
    stream.chunk().await.unwrap();
    server.watch.until(|watch| watch.running.load(Ordering::SeqCst) == 1).await;
    drop(stream);
    // one held the only slot; two were waiting for it and are never begun
    assert_eq!(content(&server.ok(CHAT, &ask("say free")).await), "free");
    assert_eq!(server.watch.given_up.load(Ordering::SeqCst), 1);
    assert_eq!(server.watch.never_begun.load(Ordering::SeqCst), 2);
    // and their places in the queue are free as well
    server.ok(CHAT, &with(ask("say free"), &json!({"n": 4}))).await;
}

#[tokio::test]
async fn a_client_that_waits_for_a_whole_answer_may_go_away_too() {
    let server = serve(1, |_| ());
    let waiting = tokio::spawn(server.client.post(server.url(CHAT)).json(&ask("hold")).send());
    server.watch.until(|watch| watch.running.load(Ordering::SeqCst) == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(content(&server.ok(CHAT, &ask("say free")).await), "free");
    assert_eq!(server.watch.given_up.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let server = serve(1, |_| ());
    let mut slow = server.send(CHAT, &with(ask("tick"), &json!({"stream": true, "logprobs": true}))).await;
    // the engine is through with the whole answer while nothing but the first chunk was read
    server.watch.until(|watch| watch.ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!(content(&server.ok(CHAT, &ask("say quick")).await), "quick");
    let mut text = Vec::new();
    while let Some(chunk) = slow.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    let (events, last) = parse_events(std::str::from_utf8(&text).unwrap());
    assert_eq!(last, "[DONE]");
    let written = events.iter().filter(|event| !event["choices"][0]["logprobs"].is_null()).count();
    assert_eq!(written, CONTEXT - "user:tick".len());
}

#[tokio::test]
async fn many_clients_at_once_each_get_their_own_answer() {
    let server = serve(8, |_| ());
    let ask_one = async |index: u64| {
        let body = with(ask(&format!("q{index}")), &json!({"seed": index, "n": 2}));
        let answer = server.ok(CHAT, &body).await;
        assert!(content(&answer).starts_with(&format!("user:q{index}|seed {index} ")), "{answer}");
        let streamed = with(ask(&format!("say {index}")), &json!({"stream": true}));
        let (events, last) = server.events(CHAT, &streamed).await;
        assert_eq!(last, "[DONE]");
        let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, index.to_string());
    };
    futures::future::join_all((0..32).map(ask_one)).await;
    assert!(server.watch.most_running.load(Ordering::SeqCst) <= 8);
    assert_eq!(server.end().await, Ended::Clean);
}

#[tokio::test]
async fn a_full_queue_is_said_with_a_time_to_come_again() {
    let server = serve(1, |options| options.queue = 2);
    let both = tokio::spawn(server.client.post(server.url(CHAT)).json(&with(ask("wait"), &json!({"n": 2}))).send());
    server.watch.until(|watch| watch.running.load(Ordering::SeqCst) == 1).await;
    let response = server.send(CHAT, &ask("say a")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], "queue_full");
    let (status, error) = server.refused(CHAT, &with(ask("say a"), &json!({"n": 3}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("n")), "more than the queue can ever hold");
    server.watch.open_gate();
    assert_eq!(both.await.unwrap().unwrap().status(), StatusCode::OK);
    server.ok(CHAT, &ask("say a")).await;
}

#[tokio::test]
async fn a_server_that_ends_lets_answers_finish_and_cuts_what_takes_too_long() {
    let patient = serve(1, |_| ());
    let waiting = tokio::spawn(patient.client.post(patient.url(CHAT)).json(&ask("wait")).send());
    patient.watch.until(|watch| watch.running.load(Ordering::SeqCst) == 1).await;
    let watch = std::sync::Arc::clone(&patient.watch);
    let ended = tokio::spawn(patient.end());
    watch.open_gate();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(ended.await.unwrap(), Ended::Clean);

    let hasty = serve(1, |options| options.grace = Duration::from_millis(20));
    let waiting = tokio::spawn(hasty.client.post(hasty.url(CHAT)).json(&ask("wait")).send());
    hasty.watch.until(|watch| watch.running.load(Ordering::SeqCst) == 1).await;
    let watch = std::sync::Arc::clone(&hasty.watch);
    assert_eq!(hasty.end().await, Ended::Cut(1));
    let response = waiting.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], "shutting_down");
    watch.open_gate();
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = pipeline_serve::ServeOptions::new("small");
    options.port = taken.local_addr().unwrap().port();
    let Err(error) = pipeline_serve::Server::bind(options.clone()) else { panic!("it was given twice") };
    let message = error.to_string();
    assert!(message.contains(&format!("127.0.0.1:{}", options.port)) && message.contains("--port 0"), "{message}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop_oneof![Just("user"), Just("assistant"), Just("system"), Just("tool"), Just("text"), Just("none")]
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let name = prop_oneof![
            Just("role".to_owned()),
            Just("content".to_owned()),
            Just("type".to_owned()),
            Just("text".to_owned()),
            Just("include_usage".to_owned()),
            ".{0,5}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..5).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn no_body_ever_makes_the_server_fail() {
    const FIELDS: [&str; 22] = [
        "model",
        "messages",
        "prompt",
        "n",
        "seed",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "stop",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "echo",
        "stream",
        "stream_options",
        "tools",
        "best_of",
        "logit_bias",
        "response_format",
        "x",
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async { serve(4, |_| ()) });
    let check = |path: &str, body: Vec<u8>| {
        let (status, text) = runtime.block_on(async {
            let response = server.client.post(server.url(path)).body(body).send().await.unwrap();
            (response.status(), response.text().await.unwrap())
        });
        if status.is_success() {
            return Ok(());
        }
        prop_assert!(status.is_client_error(), "{status}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        prop_assert!(answer["error"]["message"].is_string() && answer["error"]["type"].is_string(), "{text}");
        Ok(())
    };
    let paths = prop_oneof![Just(CHAT), Just(TEXT)];
    let field = prop::sample::select(FIELDS.to_vec());
    let strategy = (paths, any_json(), prop::collection::vec((field, any_json()), 0..3), any::<Vec<u8>>());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(600));
    let outcome = runner.run(&strategy, |(path, json, changes, bytes)| {
        check(path, json.to_string().into_bytes())?;
        check(path, bytes)?;
        let mut body = if path == CHAT { ask("x") } else { json!({"model": "small", "prompt": "x"}) };
        for (name, value) in changes {
            body[name] = value;
        }
        check(path, body.to_string().into_bytes())
    });
    outcome.unwrap();
}
