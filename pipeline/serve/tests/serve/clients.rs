//! Clients that go away, are slow or many, and a server that ends.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pipeline_serve::Ended;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::scripted::{CONTEXT, parse_events, serve};
use crate::{CHAT, ask, content, with};

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

#[tokio::test]
async fn bodies_that_come_slowly_hold_up_nobody() {
    let server = serve(1, |_| ());
    let url = server.url("/");
    let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    let slow: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut connection = TcpStream::connect(&address).unwrap();
            connection.write_all(head.as_bytes()).unwrap();
            connection
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = server.client.post(server.url(CHAT)).json(&ask("say there")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop(slow);
}
