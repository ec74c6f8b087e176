//! What is refused, by name and place, and that no body makes the server fail.

use pipeline_models::Secret;
use proptest::prelude::*;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::scripted::{CONTEXT, serve};
use crate::{CHAT, TEXT, ask, with};

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
