//! The shapes of answers: choices, streams, log-probabilities, schemas, chains of thought, rules, batches.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::client::{Client, Got, ask, get, question};
use scripted_server::{Fault, LogprobsMode, Options, ReasoningShape, SchemaMode, Server, StartError};
use serde_json::{Value, json};

fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn sums_are_answered_the_same_for_the_same_seed() {
    let server = Server::start(Options::default()).unwrap();
    let text = |seed: u64| {
        let body = with(&question("What is 12 * 3 + 6?"), &json!({"seed": seed}));
        ask(server.address(), &body).unwrap().content().as_str().unwrap().to_owned()
    };
    assert_eq!(text(1), text(1));
    assert!((1..9).all(|seed| text(seed).contains("\\boxed{42}")));
    assert!((1..9).map(text).collect::<BTreeSet<String>>().len() > 1);
}

#[test]
fn a_share_of_sums_is_wrong() {
    let mut options = Options::default();
    options.answers.wrong_share = 0.5;
    let server = Server::start(options).unwrap();
    let mut client = Client::new(server.address());
    let right = (0..60).filter(|number| {
        let got = client.ask(&question(&format!("What is {number} + 1?"))).unwrap();
        got.content().as_str().unwrap().contains(&format!("\\boxed{{{}}}", number + 1))
    });
    assert!((10..50).contains(&right.count()));
}

#[test]
fn several_choices_come_together_up_to_a_number() {
    let mut options = Options::default();
    options.answers.most_choices = Some(3);
    options.answers.usage_of_one = true;
    let server = Server::start(options).unwrap();
    let ask = |n: u32| ask(server.address(), &with(&question("Tell me more"), &json!({"n": n}))).unwrap();
    let one = ask(1).json();
    let three = ask(3).json();
    assert_eq!(three["choices"].as_array().unwrap().len(), 3);
    assert_eq!(three["choices"][2]["index"], 2);
    assert_ne!(three["choices"][0]["message"], three["choices"][2]["message"]);
    let tokens = |body: &Value| body["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(tokens(&three) < 2 * tokens(&one));
    assert_eq!(ask(4).status, 400);
}

#[test]
fn the_limit_of_tokens_cuts() {
    let server = Server::start(Options::default()).unwrap();
    let got = ask(server.address(), &with(&question("What is 1 + 1?"), &json!({"max_tokens": 3}))).unwrap();
    assert_eq!((got.finish_reason(), &got.json()["usage"]["completion_tokens"]), (json!("length"), &json!(3)));
    assert_eq!(got.content().as_str().unwrap().len(), 12);
}

#[test]
fn log_probabilities_are_given_or_silently_not() {
    let body = with(&question("What is 1 + 1?"), &json!({"logprobs": true}));
    let top = with(&body, &json!({"top_logprobs": 1}));
    for (mode, plain, with_top) in
        [(LogprobsMode::Asked, true, true), (LogprobsMode::NeedsTop, false, true), (LogprobsMode::Never, false, false)]
    {
        let mut options = Options::default();
        options.answers.logprobs = mode;
        let server = Server::start(options).unwrap();
        for (body, is_given) in [(&body, plain), (&top, with_top)] {
            let got = ask(server.address(), body).unwrap().json();
            let tokens = &got["choices"][0]["logprobs"]["content"];
            assert_eq!(tokens.is_array(), is_given);
            if is_given {
                assert!(tokens[0]["id"].is_u64() && tokens[0]["logprob"].as_f64().unwrap() <= 0.0);
                let text: String =
                    tokens.as_array().unwrap().iter().map(|token| token["token"].as_str().unwrap()).collect();
                assert_eq!(got["choices"][0]["message"]["content"], text);
            }
        }
    }
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = Server::start(Options::default()).unwrap();
    let whole = ask(server.address(), &question("What is 12 + 30?")).unwrap();
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let got = ask(server.address(), &with(&question("What is 12 + 30?"), &options)).unwrap();
    assert!(!got.is_cut && got.header("content-type") == Some("text/event-stream"));
    assert!(got.text().ends_with("data: [DONE]\n\n"));
    let events = got.events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": null}));
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole.content(), text);
    let [.., finish, usage] = events.as_slice() else { panic!() };
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert!(usage["choices"] == json!([]) && usage["usage"] == whole.json()["usage"]);
}

#[test]
fn a_paced_stream_arrives_whole() {
    let mut options = Options::default();
    options.latency.per_token = Duration::from_millis(1);
    let server = Server::start(options).unwrap();
    let got = ask(server.address(), &with(&question("What is 12 + 30?"), &json!({"stream": true}))).unwrap();
    assert!(!got.is_cut && got.text().ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_schema_is_enforced_ignored_or_refused() {
    let schema = json!({"type": "object", "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}}});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}});
    let asked = |mode| {
        let mut options = Options::default();
        options.answers.schema = mode;
        ask(Server::start(options).unwrap().address(), &with(&question("Judge it"), &format)).unwrap()
    };
    let text = asked(SchemaMode::Enforce).content().as_str().unwrap().to_owned();
    let made: Value = serde_json::from_str(&text).unwrap();
    assert!((1..=5).contains(&made["score"].as_i64().unwrap()));
    let ignored = asked(SchemaMode::Ignore).content().as_str().unwrap().to_owned();
    assert!(serde_json::from_str::<Value>(&ignored).is_err());
    assert_eq!(asked(SchemaMode::Refuse).status, 400);
    let server = Server::start(Options::default()).unwrap();
    let cut = ask(server.address(), &with(&with(&question("Judge it"), &format), &json!({"max_tokens": 2}))).unwrap();
    assert_eq!(cut.finish_reason(), "length");
    let written = ask(server.address(), &question(&format!("Judge it. Answer with JSON: {schema}"))).unwrap();
    assert!(serde_json::from_str::<Value>(written.content().as_str().unwrap()).unwrap()["score"].is_i64());
}

#[test]
fn the_chain_of_thought_stands_where_it_is_told() {
    let asked = |shape| {
        let mut options = Options::default();
        options.answers.reasoning = shape;
        ask(Server::start(options).unwrap().address(), &question("What is 12 + 30?")).unwrap()
    };
    let message = |got: &Got| got.json()["choices"][0]["message"].clone();
    let field = message(&asked(ReasoningShape::ReasoningContent));
    assert!(field["reasoning_content"].is_string() && field["content"].as_str().unwrap().contains("42"));
    assert!(message(&asked(ReasoningShape::Reasoning))["reasoning"].is_string());
    let tags = asked(ReasoningShape::Tags).content();
    assert!(tags.as_str().unwrap().starts_with("<think>") && tags.as_str().unwrap().contains("</think>"));
    let closing = asked(ReasoningShape::ClosingTag).content();
    assert!(!closing.as_str().unwrap().contains("<think>") && closing.as_str().unwrap().contains("</think>"));
    let unfinished = asked(ReasoningShape::Unfinished);
    assert!(unfinished.finish_reason() == "length" && !unfinished.text().contains("</think>"));
}

#[test]
fn rules_of_a_file_answer_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.jsonl");
    let rules = "{\"contains\": \"fail\", \"status\": 422, \"answer\": \"not this\"}\n\n\
        {\"regex\": \"^Judge\", \"answers\": [\"1\", \"2\"], \"finish_reason\": \"length\", \"reasoning_content\": \"hm\"}\n";
    std::fs::write(&path, rules).unwrap();
    let mut options = Options::default();
    options.answers.rules = Some(path.clone());
    let server = Server::start(options.clone()).unwrap();
    assert_eq!(ask(server.address(), &question("Please fail")).unwrap().status, 422);
    let judged = ask(server.address(), &question("Judge this")).unwrap();
    assert!(["1", "2"].contains(&judged.content().as_str().unwrap()));
    assert_eq!(judged.finish_reason(), "length");
    assert_eq!(judged.json()["choices"][0]["message"]["reasoning_content"], "hm");
    assert!(ask(server.address(), &question("12 + 30")).unwrap().text().contains("42"));
    std::fs::write(&path, "{\"contains\": \"a\"}\n{\"contain\": \"a\"}\n").unwrap();
    let error = Server::start(options).unwrap_err();
    assert!(matches!(&error, StartError::Rule(at, _) if at.ends_with("rules.jsonl:2")), "{error}");
}

#[test]
fn cached_tokens_of_the_prompt_are_told() {
    let mut options = Options::default();
    options.answers.cached_share = 0.5;
    let server = Server::start(options).unwrap();
    let usage = ask(server.address(), &question(&"word ".repeat(80))).unwrap().json()["usage"].clone();
    let half = usage["prompt_tokens"].as_u64().unwrap() / 2;
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], half);
}

#[test]
fn a_body_in_chunks_is_read() {
    let server = Server::start(Options::default()).unwrap();
    let body = question("What is 12 + 30?").to_string();
    let (first, second) = body.split_at(20);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let mut client = Client::new(server.address());
    client.send_raw(&format!("POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
    assert!(client.receive().unwrap().text().contains("42"));
    assert!(client.ask(&question("1 + 1")).unwrap().text().contains('2'));
}

// Batches.

fn upload(address: SocketAddr, lines: &[Value]) -> Got {
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let text = text.join("\n");
    let form = format!(
        "--B\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --B\r\ncontent-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{text}\r\n--B--\r\n"
    );
    let mut client = Client::new(address);
    client.send("POST", "/v1/files", &[("content-type", "multipart/form-data; boundary=B")], form.as_bytes());
    client.receive().unwrap()
}

fn post(address: SocketAddr, path: &str, body: &Value) -> Got {
    let mut client = Client::new(address);
    client.send("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes());
    client.receive().unwrap()
}

fn lines(count: u32) -> Vec<Value> {
    let line = |number: u32| {
        let body = question(&format!("What is {number} + 1?"));
        json!({"custom_id": format!("row-{number}"), "method": "POST", "url": "/v1/chat/completions", "body": body})
    };
    (0..count).map(line).collect()
}

fn create(address: SocketAddr, lines: &[Value]) -> Value {
    let file = upload(address, lines).json()["id"].clone();
    let wish = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", "metadata": {"of": "test"}});
    let made = post(address, "/v1/batches", &wish);
    assert_eq!(made.status, 200, "{}", made.text());
    made.json()
}

fn poll(address: SocketAddr, batch: &Value, wanted: &str) -> Value {
    for _ in 0..100_000 {
        let now = get(address, &format!("/v1/batches/{}", batch["id"].as_str().unwrap())).json();
        if now["status"] == wanted {
            return now;
        }
    }
    panic!("never {wanted}")
}

fn content(address: SocketAddr, id: &Value) -> Vec<Value> {
    let Some(id) = id.as_str() else { return Vec::new() };
    let text = get(address, &format!("/v1/files/{id}/content")).text();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_batch_is_answered_in_another_order() {
    let mut options = Options::default();
    options.batches.batch_delay = Duration::from_millis(100);
    let server = Server::start(options).unwrap();
    let made = create(server.address(), &lines(20));
    assert_eq!((&made["status"], &made["metadata"]["of"]), (&json!("validating"), &json!("test")));
    let done = poll(server.address(), &made, "completed");
    assert_eq!(done["request_counts"], json!({"total": 20, "completed": 20, "failed": 0}));
    let output = content(server.address(), &done["output_file_id"]);
    let ids: Vec<&str> = output.iter().map(|line| line["custom_id"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 20);
    assert!((0..20).any(|place| ids[place] != format!("row-{place}")));
    for line in &output {
        let number: u32 = line["custom_id"].as_str().unwrap()[4..].parse().unwrap();
        let text = line["response"]["body"]["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.contains(&format!("\\boxed{{{}}}", number + 1)), "{text}");
    }
    let stats = server.stats();
    assert_eq!((stats.files, stats.batches, stats.batch_answers, stats.repeated), (1, 1, 20, 0));
    assert!(ask(server.address(), &question("What is 3 + 1?")).is_some());
    assert_eq!(server.stats().repeated, 1);
}

#[test]
fn an_expired_batch_hands_over_what_it_has() {
    let mut options = Options::default();
    options.batches.batch_expired_share = 1.0;
    options.batches.batch_unanswered_share = Some(0.25);
    let server = Server::start(options).unwrap();
    let done = poll(server.address(), &create(server.address(), &lines(20)), "expired");
    assert_eq!(content(server.address(), &done["output_file_id"]).len(), 15);
    let errors = content(server.address(), &done["error_file_id"]);
    assert!(errors.len() == 5 && errors.iter().all(|line| line["error"]["code"] == "batch_expired"));
}

#[test]
fn requests_of_a_batch_fail_one_by_one() {
    let mut options = Options { models: vec!["m".to_owned()], ..Options::default() };
    options.batches.batch_error_share = 0.4;
    let server = Server::start(options).unwrap();
    let mut all = lines(30);
    all[3]["body"]["model"] = json!("other");
    let done = poll(server.address(), &create(server.address(), &all), "completed");
    let output = content(server.address(), &done["output_file_id"]);
    let errors = content(server.address(), &done["error_file_id"]);
    assert!(output.len() + errors.len() == 30 && (2..28).contains(&errors.len()));
    assert!(errors.iter().any(|line| line["custom_id"] == "row-3"));
    assert_eq!(done["request_counts"]["failed"], errors.len());
}

#[test]
fn batches_fail_and_are_cancelled() {
    let mut options = Options::default();
    options.batches.batch_most_requests = Some(5);
    let server = Server::start(options.clone()).unwrap();
    let failed = poll(server.address(), &create(server.address(), &lines(6)), "failed");
    assert!(failed["errors"]["data"][0]["message"].as_str().unwrap().contains("more than"));
    let twice = [lines(1), lines(1)].concat();
    let failed = poll(server.address(), &create(server.address(), &twice), "failed");
    assert!(failed["errors"]["data"][0]["message"].as_str().unwrap().contains("row-0"));
    options.batches.batch_delay = Duration::from_hours(1);
    options.batches.batch_most_requests = None;
    let server = Server::start(options).unwrap();
    let made = create(server.address(), &lines(6));
    let path = format!("/v1/batches/{}/cancel", made["id"].as_str().unwrap());
    assert_eq!(post(server.address(), &path, &json!({})).json()["status"], "cancelling");
    assert_eq!(get(server.address(), "/v1/batches/batch_9").status, 404);
    assert_eq!(get(server.address(), "/v1/batches").json()["data"][0]["id"], made["id"]);
}

#[test]
fn uploads_and_polls_meet_faults_too() {
    let mut options = Options::default();
    options.faults.shares = vec![Fault::Error503.at(0.5)];
    let server = Server::start(options).unwrap();
    let made = (0..60).map(|_| upload(server.address(), &lines(2))).find(|got| got.status == 200).unwrap();
    let wish =
        json!({"input_file_id": made.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    let batch =
        (0..60).map(|_| post(server.address(), "/v1/batches", &wish)).find(|got| got.status == 200).unwrap().json();
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    let statuses: BTreeSet<u16> = (0..60).map(|_| get(server.address(), &path).status).collect();
    assert_eq!(statuses, BTreeSet::from([200, 503]));
}
