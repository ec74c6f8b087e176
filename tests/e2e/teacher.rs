//! A teacher behind a network, through the program: what the collected incidents of others ask for, one test each.
//!
//! | situation | test |
//! |---|---|
//! | B019 many requests meet 429 at once | `requests_that_meet_429_together_wait_together` |
//! | B020 rows that still see 429 at the last attempt | `rate_limits_delay_rows_and_drop_none` |
//! | B022 a hidden cap on connections | `as_many_requests_are_in_flight_as_are_allowed` |
//! | B023 a batch that expires with most requests done | `an_expired_batch_is_taken_in_and_only_its_rest_asked_again` |
//! | B025 a client that dies after submitting batches | `a_client_that_dies_finds_the_batches_it_submitted` |
//! | B026 the chain of thought in one of five places | `reasoning_is_parted_from_the_answer_wherever_it_stands` |
//! | B028, B029 judgements that cannot be parsed, or drift in type and range | `stages/curate/src/asking`, kinds `judge_queries` and `judge_traces` |

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use scripted_server::{Act, Options, ReasoningShape, Script, Server};

use crate::support::Project;

/// A project that samples answers to sums; `SERVER` stands for lines of the model's table, `N` for samples of a query.
const DAG: &str = r#"
[pipeline]
seed = 11

[models.teacher]
engine = "openai"
model = "adder"
SERVER

[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
domain = "math"
columns = { prompt = "question", label = "answer" }

[stages.paths]
kind = "sample"
inputs = "problems"
model = "teacher"
n = N
max_tokens = 256
"#;

/// A project of `count` sums asked of a server, `more` being further lines of the model's table.
pub fn project(url: &str, more: &str, count: u64, n: u32) -> Project {
    let server = format!("base_url = \"{url}\"\n{more}");
    let project = Project::new(&DAG.replace("SERVER", &server).replace("n = N", &format!("n = {n}")));
    project.write("problems.jsonl", problems(count));
    project
}

/// Lines with a sum each.
fn problems(count: u64) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let (one, two) = (number * 7 + 3, number * 13 + 11);
        let question = format!("In case {number} there are apples and pears. How many in all? {one} + {two}");
        let _ = writeln!(lines, "{}", serde_json::json!({ "question": question, "answer": (one + two).to_string() }));
    }
    lines
}

#[test]
fn requests_that_meet_429_together_wait_together() {
    const ROWS: u64 = 120;
    const IN_FLIGHT: u64 = 24;
    // all that comes before the wait which the first refusal asks for is over
    let first = OnceLock::new();
    let server = Server::start(Script::of(move |_| {
        if first.get_or_init(Instant::now).elapsed() >= Duration::from_secs(1) {
            return Act::Usual;
        }
        let reply = scripted_server::Reply::error(429, "rate_limit_error", "rate_limit_exceeded", "slow down");
        Act::Send(reply.with_header("retry-after", "1"))
    }))
    .unwrap();
    let project = project(&server.url(), &format!("max_in_flight = {IN_FLIGHT}"), ROWS, 1);
    project.run(&[]).ok();
    assert_eq!(project.success("paths")["counts"]["kept"], ROWS);
    let stats = server.stats();
    // nobody came back before: only what was under way was refused
    assert!((1..=IN_FLIGHT).contains(&stats.by_status[&429]), "{stats:?}");
    assert_eq!((stats.answers, stats.repeated), (ROWS, 0));
}

#[test]
fn rate_limits_delay_rows_and_drop_none() {
    const ROWS: u64 = 30;
    // more refusals for each row than a failing request has attempts
    let server = Server::start(Script::of(|seen| match seen.attempt {
        0..8 => {
            let reply = scripted_server::Reply::error(429, "rate_limit_error", "rate_limit_exceeded", "slow down");
            Act::Send(reply.with_header("retry-after", "0"))
        }
        _ => Act::Usual,
    }))
    .unwrap();
    let project = project(&server.url(), "max_in_flight = 8", ROWS, 1);
    let run = project.run(&[]).ok();
    assert!(!run.err.contains("for passing reasons"), "{}", run.err);
    let counts = project.success("paths")["counts"].clone();
    assert_eq!((&counts["kept"], &counts["transient"]), (&ROWS.into(), &0.into()));
    assert_eq!(server.stats().answers, ROWS);
}

#[test]
fn as_many_requests_are_in_flight_as_are_allowed() {
    const IN_FLIGHT: u64 = 300;
    let mut options = Options::default();
    options.latency.delay = "400ms".parse().unwrap();
    let server = Server::start(options).unwrap();
    let project = project(&server.url(), &format!("max_in_flight = {IN_FLIGHT}"), 500, 6);
    project.run(&[]).ok();
    assert_eq!(server.stats().peak_in_flight, IN_FLIGHT);
}

#[test]
fn reasoning_is_parted_from_the_answer_wherever_it_stands() {
    let shapes = [
        (ReasoningShape::ReasoningContent, true, true),
        (ReasoningShape::Reasoning, true, true),
        (ReasoningShape::Tags, true, true),
        (ReasoningShape::ClosingTag, true, true),
        (ReasoningShape::None, false, true),
        (ReasoningShape::Unfinished, true, false),
    ];
    for (shape, has_reasoning, has_answer) in shapes {
        let mut options = Options::default();
        options.answers.reasoning = shape;
        let server = Server::start(options).unwrap();
        let project = project(&server.url(), "", 3, 1);
        project.run(&[]).ok();
        for row in project.rows("paths", &[]) {
            let reasoning = row["reasoning"].as_str().unwrap_or_default();
            let answer = row["answer_text"].as_str().unwrap_or_default();
            assert_eq!(reasoning.contains("Let me think"), has_reasoning, "{shape:?}: {row}");
            assert_eq!(answer.contains("\\boxed{"), has_answer, "{shape:?}: {row}");
            assert!(!answer.contains("think>") && !reasoning.contains("think>"), "{shape:?}: {row}");
            assert_eq!(row["finish_reason"] == "length", shape == ReasoningShape::Unfinished);
        }
    }
}

#[test]
fn a_prompt_that_always_fails_leaves_the_others_and_ends_the_stage_resumable() {
    let mut options = Options::default();
    options.faults.failing_text = Some("In case 7 ".to_owned());
    let server = Server::start(options).unwrap();
    let project = project(&server.url(), "", 20, 1);
    let failed = project.run(&[]);
    assert_ne!(failed.code, 0);
    assert!(server.stats().answers == 19 && failed.err.contains("run again"), "{}", failed.err);
    project.edit("max_tokens = 256", "max_tokens = 256\nmax_errors = 0.1");
    project.run(&[]).ok();
    let counts = project.success("paths")["counts"].clone();
    let left = counts["transient"].as_u64().unwrap() + counts["rejected"].as_object().map_or(0, |all| all.len() as u64);
    assert_eq!((counts["kept"].as_u64(), left), (Some(19), 1));
    // the answers are those of the first run
    assert_eq!((server.stats().answers, server.stats().repeated), (19, 0));
}

#[test]
fn a_server_that_is_gone_or_refuses_ends_the_run_with_its_own_code_and_the_next_goes_on() {
    for status in [401_u16, 402, 403] {
        let mut options = Options::default();
        options.access.refuse_after = Some(scripted_server::RefuseAfter { count: 40, status });
        let server = Server::start(options).unwrap();
        let project = project(&server.url(), "max_in_flight = 4", 60, 1);
        let refused = project.run(&[]);
        assert_eq!(refused.code, 4, "{status}: {}", refused.err);
        assert!(server.stats().requests <= 40 + 4, "nothing is asked after a refusal");
        let again = Server::start(Options::default()).unwrap();
        project.edit(&server.url(), &again.url());
        project.run(&[]).ok();
        assert_eq!((project.success("paths")["counts"]["kept"].as_u64(), again.stats().answers), (Some(60), 20));
    }
}

#[test]
fn a_limit_of_requests_is_kept_without_loss() {
    let mut options = Options::default();
    options.limits.requests_per_minute = Some(40);
    options.limits.window_length = Some(Duration::from_secs(1));
    let server = Server::start(options).unwrap();
    let project = project(&server.url(), "max_in_flight = 16", 60, 2);
    project.run(&[]).ok();
    let traces = project.rows("paths", &[]);
    let ids: BTreeSet<&str> = traces.iter().map(|row| row["trace_id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), server.stats().answers, server.stats().repeated), (120, 120, 0));
}

#[test]
fn an_expired_batch_is_taken_in_and_only_its_rest_asked_again() {
    const ROWS: u64 = 60;
    let mut options = Options { seed: 1, ..Options::default() };
    options.batches.batch_expired_share = 0.5;
    options.batches.batch_unanswered_share = Some(0.3);
    let server = Server::start(options).unwrap();
    let project = project(&server.url(), "batch = { requests = 20, poll_seconds = 1 }", ROWS, 1);
    project.edit("max_tokens = 256", "max_tokens = 256\nmax_errors = 0.5");
    project.run(&[]).ok();
    project.run(&["--retry-errors"]).ok();
    let counts = project.success("paths")["counts"].clone();
    assert_eq!((&counts["kept"], &counts["transient"]), (&ROWS.into(), &0.into()));
    let stats = server.stats();
    assert!(stats.batches > 3, "no batch expired: {stats:?}");
    assert_eq!((stats.batch_answers, stats.repeated, stats.requests), (ROWS, 0, 0));
}

#[test]
fn a_client_that_dies_finds_the_batches_it_submitted() {
    const ROWS: u64 = 60;
    let mut options = Options::default();
    options.batches.batch_delay = Duration::from_secs(3);
    let server = Server::start(options).unwrap();
    let project = project(&server.url(), "batch = { requests = 20, poll_seconds = 1 }", ROWS, 1);
    for batches in 1..=2 {
        let mut child = project.start("run", &["--json"]);
        while server.stats().batches < batches && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    project.run(&[]).ok();
    assert_eq!(project.success("paths")["counts"]["kept"], ROWS);
    let stats = server.stats();
    assert_eq!((stats.batches, stats.batch_answers, stats.repeated), (3, ROWS, 0), "{stats:?}");
}
