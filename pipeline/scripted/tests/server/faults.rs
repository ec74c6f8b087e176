//! Each fault really happens, at the place where it is said to happen.

use std::time::{Duration, SystemTime};

use crate::client::{Client, Got, ask, get, question};
use scripted_server::{
    Access, Act, Beyond, Fault, Faults, LimitHeaders, Options, RefuseAfter, Script, Server, StartError, Window,
};

fn faulty(fault: Fault) -> Server {
    let mut options =
        Options { faults: Faults { shares: vec![fault.at(1.0)], ..Faults::default() }, ..Options::default() };
    options.latency.drip_over = Some(Duration::from_millis(60));
    options.latency.hang_for = Some(Duration::from_millis(50));
    Server::start(options).unwrap()
}

/// The reply to a sum under a fault, and the number of such faults that were counted.
fn met(fault: Fault) -> Option<Got> {
    let server = faulty(fault);
    let got = ask(server.address(), &question("What is 12 + 30?"));
    assert_eq!(server.stats().faults[fault.name()], 1, "{}", fault.name());
    assert_eq!((server.stats().requests, server.stats().in_flight), (1, 0));
    let is_answer = got.is_some() && fault.is_answer();
    assert_eq!(server.stats().answers, u64::from(is_answer), "{}", fault.name());
    got
}

#[test]
fn refusals_for_a_time_say_when_to_come_back_or_do_not() {
    let plain = met(Fault::RateLimited).unwrap();
    assert_eq!((plain.status, plain.header("retry-after")), (429, None));
    let seconds = met(Fault::RateLimitedSeconds).unwrap();
    assert_eq!((seconds.status, seconds.header("retry-after")), (429, Some("1")));
    let date = met(Fault::RateLimitedDate).unwrap();
    let when = httpdate::parse_http_date(date.header("retry-after").unwrap()).unwrap();
    assert!(date.status == 429 && when + Duration::from_mins(1) > SystemTime::now());
}

#[test]
fn statuses_of_failing_servers_are_sent() {
    for (fault, status) in [
        (Fault::Error500, 500),
        (Fault::Error502, 502),
        (Fault::Error503, 503),
        (Fault::Error503Wait, 503),
        (Fault::Error529, 529),
        (Fault::Always500, 500),
        (Fault::RefusedContent, 400),
    ] {
        let got = met(fault).unwrap();
        assert_eq!(got.status, status, "{}", fault.name());
        assert_eq!(got.header("retry-after").is_some(), fault == Fault::Error503Wait);
        assert_eq!(got.text().contains("<html>"), fault == Fault::Error502);
    }
    assert!(met(Fault::RefusedContent).unwrap().text().contains("content_filter"));
}

#[test]
fn connections_end_before_the_answer_or_in_the_middle() {
    assert!(met(Fault::Reset).is_none());
    assert!(met(Fault::Hang).is_none());
    for fault in [Fault::CutBody, Fault::ResetBody] {
        let got = met(fault).unwrap();
        assert!(got.status == 200 && got.is_cut && !got.body.is_empty(), "{}", fault.name());
    }
}

#[test]
fn what_is_wrong_with_status_200_is_wrong() {
    let cut = met(Fault::CutJson).unwrap();
    assert!(cut.status == 200 && !cut.is_cut && serde_json::from_slice::<serde_json::Value>(&cut.body).is_err());
    let error = met(Fault::ErrorIn200).unwrap();
    assert!(error.status == 200 && error.json()["error"]["message"].is_string());
    let page = met(Fault::Html).unwrap();
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html")));
    let empty = met(Fault::NoChoices).unwrap();
    assert_eq!((empty.status, &empty.json()["choices"]), (200, &serde_json::json!([])));
    let odd = met(Fault::WrongType).unwrap();
    assert_eq!(odd.header("content-type"), Some("text/plain"));
    assert!(odd.content().as_str().unwrap().contains("42"));
    assert!(met(Fault::Drip).unwrap().content().as_str().unwrap().contains("42"));
}

#[test]
fn answers_are_cut_empty_or_filtered() {
    let length = met(Fault::Length).unwrap();
    assert_eq!(length.finish_reason(), "length");
    assert!(!length.content().as_str().unwrap().contains("\\boxed{42}"));
    assert_eq!(met(Fault::Empty).unwrap().content(), "");
    assert!(met(Fault::NullContent).unwrap().content().is_null());
    assert_eq!(met(Fault::ContentFilter).unwrap().finish_reason(), "content_filter");
    assert!(met(Fault::UsageMissing).unwrap().json().get("usage").is_none());
    assert!(met(Fault::UsageFloat).unwrap().json()["usage"]["completion_tokens"].is_f64());
    let usage = met(Fault::UsageWrong).unwrap().json()["usage"].clone();
    assert_ne!(usage["total_tokens"].as_i64().unwrap_or(-1), 30);
}

#[test]
fn faults_meet_streams_too() {
    let mut body = question("What is 12 + 30?");
    body["stream"] = true.into();
    let met = |fault| ask(faulty(fault).address(), &body).unwrap();
    assert!(met(Fault::CutBody).is_cut);
    let text = met(Fault::CutJson).text();
    assert!(!text.contains("[DONE]") && !text.ends_with("\n\n"));
    let error = met(Fault::ErrorIn200);
    assert!(error.events().last().unwrap()["error"].is_object() && !error.text().contains("[DONE]"));
    assert!(met(Fault::Drip).text().ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_passing_fault_passes_and_a_lasting_one_does_not() {
    let shares = vec![Fault::Error500.at(0.5)];
    let server =
        Server::start(Options { faults: Faults { shares, ..Faults::default() }, ..Options::default() }).unwrap();
    let mut client = Client::new(server.address());
    for number in 0..20 {
        let body = question(&format!("What is {number} + 1?"));
        assert!((0..40).any(|_| client.ask(&body).unwrap().status == 200));
    }
    let shares = vec![Fault::Always500.at(0.5)];
    let server =
        Server::start(Options { faults: Faults { shares, ..Faults::default() }, ..Options::default() }).unwrap();
    let mut client = Client::new(server.address());
    for number in 0..20 {
        let body = question(&format!("What is {number} + 1?"));
        let first = client.ask(&body).unwrap().status;
        assert!((0..5).all(|_| client.ask(&body).unwrap().status == first));
    }
    assert_eq!(server.stats().by_status.len(), 2);
}

#[test]
fn the_same_seed_brings_the_same_faults() {
    let run = |seed| {
        let server = Server::start(Options {
            seed,
            faults: Faults { every: 0.02, shares: vec![Fault::Hang.at(0.0)], ..Faults::default() },
            ..Options::default()
        });
        let server = server.unwrap();
        let statuses: Vec<Option<u16>> = (0..60)
            .map(|number| ask(server.address(), &question(&format!("{number} + 4"))).map(|got| got.status))
            .collect();
        statuses
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn keys_credit_and_permission_can_be_refused() {
    let access = Access { api_key: Some("right".to_owned()), echo_key: true, refuse_after: None };
    let server = Server::start(Options { access, ..Options::default() }).unwrap();
    let mut client = Client::new(server.address());
    let wrong = client.ask(&question("1 + 1")).unwrap();
    assert_eq!(wrong.status, 401);
    let body = question("1 + 1").to_string();
    client.send("POST", "/v1/chat/completions", &[("authorization", "Bearer wrong")], body.as_bytes());
    assert!(client.receive().unwrap().text().contains("Bearer wrong"));
    client.send("POST", "/v1/chat/completions", &[("Authorization", "Bearer right")], body.as_bytes());
    assert_eq!(client.receive().unwrap().status, 200);
    for status in [401, 402, 403] {
        let access = Access { refuse_after: Some(RefuseAfter { count: 2, status }), ..Access::default() };
        let server = Server::start(Options { access, ..Options::default() }).unwrap();
        let statuses: Vec<u16> = (0..3).map(|_| ask(server.address(), &question("1 + 1")).unwrap().status).collect();
        assert_eq!(statuses, [200, 200, status]);
    }
}

#[test]
fn models_prompts_and_texts_are_refused() {
    let mut options = Options { models: vec!["m".to_owned()], ..Options::default() };
    options.answers.context = Some(40);
    options.faults.failing_text = Some("poison".to_owned());
    let server = Server::start(options).unwrap();
    let mut other = question("1 + 1");
    other["model"] = "other".into();
    let got = ask(server.address(), &other).unwrap();
    assert!(got.status == 404 && got.text().contains("model_not_found"));
    let long = ask(server.address(), &question(&"word ".repeat(60))).unwrap();
    assert!(long.status == 400 && long.json()["error"]["n_ctx"] == 40);
    assert_eq!(ask(server.address(), &question("poison 1 + 1")).unwrap().status, 500);
    assert_eq!(ask(server.address(), &question("1 + 1")).unwrap().status, 200);
    assert_eq!(get(server.address(), "/v1/models").json()["data"][0]["id"], "m");
    let broken = {
        let mut client = Client::new(server.address());
        client.send("POST", "/v1/chat/completions", &[], b"{\"model\": ");
        client.receive().unwrap()
    };
    assert_eq!(broken.status, 400);
}

#[test]
fn requests_beyond_a_limit_are_refused_with_headers_that_tell() {
    for (window, headers) in [(Window::Sliding, LimitHeaders::OpenAi), (Window::Fixed, LimitHeaders::Ietf)] {
        let mut options = Options::default();
        options.limits.requests_per_minute = Some(3);
        options.limits.tokens_per_minute = Some(100_000);
        options.limits.window = window;
        options.limits.limit_headers = headers;
        let server = Server::start(options).unwrap();
        let all: Vec<Got> = (0..5).map(|_| ask(server.address(), &question("1 + 1")).unwrap()).collect();
        let statuses: Vec<u16> = all.iter().map(|got| got.status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429]);
        let (limit, remaining) = match headers {
            LimitHeaders::Ietf => ("ratelimit-limit", "ratelimit-remaining"),
            _ => ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"),
        };
        assert_eq!((all[0].header(limit), all[0].header(remaining)), (Some("3"), Some("2")));
        let wait: u64 = all[4].header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait));
        assert!((server.stats().refused_share - 0.4).abs() < 1e-9);
    }
}

#[test]
fn a_window_that_is_over_admits_again() {
    let mut options = Options::default();
    options.limits.requests_per_minute = Some(1);
    options.limits.window_length = Some(Duration::from_millis(100));
    let server = Server::start(options).unwrap();
    let ask = || ask(server.address(), &question("1 + 1")).unwrap().status;
    assert_eq!(ask(), 200);
    assert!((0..1000).any(|_| ask() == 200));
}

#[test]
fn tokens_beyond_a_limit_are_refused() {
    let mut options = Options::default();
    options.limits.tokens_per_minute = Some(40);
    let server = Server::start(options).unwrap();
    let statuses: Vec<u16> = (0..4).map(|_| ask(server.address(), &question("1 + 1")).unwrap().status).collect();
    assert_eq!((statuses[0], statuses[3]), (200, 429));
}

#[test]
fn requests_at_one_time_are_refused_or_queue() {
    for beyond in [Beyond::Refuse, Beyond::Queue] {
        let mut options = Options::default();
        options.limits.concurrent = Some(2);
        options.limits.beyond_concurrent = beyond;
        options.latency.delay = "100ms".parse().unwrap();
        let server = Server::start(options).unwrap();
        let address = server.address();
        let mut clients: Vec<Client> = (0..6).map(|_| Client::new(address)).collect();
        for client in &mut clients {
            client.send("POST", "/v1/chat/completions", &[], question("1 + 1").to_string().as_bytes());
        }
        let statuses: Vec<u16> = clients.iter_mut().map(|client| client.receive().unwrap().status).collect();
        let refused = statuses.iter().filter(|status| **status == 429).count();
        match beyond {
            // on a busy machine the first may be done before the last comes
            Beyond::Refuse => assert!((1..=4).contains(&refused), "{statuses:?}"),
            Beyond::Queue => assert_eq!((refused, server.stats().peak_in_flight), (0, 6)),
        }
    }
}

#[test]
fn a_client_that_goes_is_counted() {
    let mut options = Options::default();
    options.latency.delay = "60s".parse().unwrap();
    let server = Server::start(options).unwrap();
    let mut client = Client::new(server.address());
    client.send("POST", "/v1/chat/completions", &[], question("1 + 1").to_string().as_bytes());
    while server.stats().in_flight == 0 {
        std::thread::yield_now();
    }
    drop(client);
    while server.stats().aborted == 0 {
        std::thread::yield_now();
    }
    assert_eq!((server.stats().in_flight, server.stats().answers), (0, 0));
}

#[test]
fn what_is_asked_again_is_counted_when_it_was_answered() {
    let server = Server::start(Options::default()).unwrap();
    for (text, repeated) in [("1 + 1", 0), ("1 + 2", 0), ("1 + 1", 1), ("1 + 1", 2)] {
        assert_eq!(ask(server.address(), &question(text)).unwrap().status, 200);
        assert_eq!(server.stats().repeated, repeated);
    }
    let stats = get(server.address(), "/stats").json();
    assert_eq!((&stats["requests"], &stats["answers"], &stats["repeated"]), (&4.into(), &4.into(), &2.into()));
    assert_eq!((&stats["by_status"]["200"], &stats["by_minute"][0]), (&4.into(), &4.into()));
    assert_eq!(get(server.address(), "/health").status, 200);
}

#[test]
fn a_closure_decides_each_request() {
    let server = Server::start(Script::of(|seen| match (seen.text, seen.attempt) {
        ("late", _) => Act::After(Duration::from_millis(20), Box::new(Act::say("well"))),
        ("once", 0) => Act::Fail(Fault::Reset),
        ("no", _) => Act::error(418, "a teapot"),
        _ => Act::Usual,
    }))
    .unwrap();
    let ask = |text: &str| ask(server.address(), &question(text));
    assert_eq!(ask("late").unwrap().content(), "well");
    assert!(ask("once").is_none());
    assert_eq!(ask("once").unwrap().status, 200);
    assert_eq!(ask("no").unwrap().status, 418);
    assert!(ask("12 + 30").unwrap().content().as_str().unwrap().contains("42"));
}

#[test]
fn options_that_cannot_hold_are_errors_at_the_start() {
    let faults = Faults { every: 0.2, ..Faults::default() };
    let error = Server::start(Options { faults, ..Options::default() }).unwrap_err();
    assert!(matches!(error, StartError::Options(_)), "{error}");
    let mut options = Options::default();
    options.answers.rules = Some("nowhere.jsonl".into());
    assert!(matches!(Server::start(options).unwrap_err(), StartError::RulesUnread { .. }));
}
