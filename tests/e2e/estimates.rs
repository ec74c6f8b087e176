//! What a run will cost is told before it, and what it did cost after it; a budget ends it where it can go on.

use serde_json::Value;
use std::time::Duration;

use crate::support::Project;
use crate::support::server::Server;

/// A thousand sums whose answers differ in length; every tenth problem has no label.
fn project(server: &Server, more: &str) -> Project {
    let project = Project::new(&format!(
        r#"
[models.teacher]
engine = "openai"
base_url = "{}"
model = "adder"
price = {{ input = 1.0, output = 4.0, currency = "EUR" }}
{more}
[stages.problems]
kind = "import"
files = ["problems.jsonl"]
domain = "math"
columns = {{ prompt = "question", label = "answer" }}

[stages.seeds]
kind = "select_seeds"
inputs = "problems"

[stages.paths]
kind = "sample"
inputs = "seeds"
model = "teacher"
n = 2
max_tokens = 2048

[stages.again]
kind = "sample"
inputs = "seeds"
model = "teacher"
salt = "again"
max_tokens = 2048
"#,
        server.url()
    ));
    let line = |row: u64| {
        let (one, two) = (row % 37, row / 37);
        let answer = if row % 10 == 3 { Value::Null } else { (one + two).into() };
        serde_json::json!({"question": format!("Row {row}: how much is {one} and {two}? Answer at length."), "answer": answer.as_u64().map(|sum| sum.to_string())}).to_string()
    };
    project.write("problems.jsonl", (0..1000).map(line).collect::<Vec<_>>().join("\n"));
    project
}

fn stage<'a>(plan: &'a Value, name: &str) -> &'a Value {
    plan["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == name).unwrap()
}

#[test]
fn a_try_out_tells_within_a_fifth_what_a_run_then_uses() {
    let server = Server::start(Duration::ZERO);
    let project = project(&server, "[budget]\ntokens = 1000\n");
    // before anything is known there is an upper bound, which says so
    let plan = project.call("plan", &["--json"]).ok().json();
    assert_eq!(stage(&plan, "paths")["estimate"]["basis"], "max_tokens");
    assert_eq!((&plan["is_upper_bound"], &plan["estimate"]["calls"]), (&Value::Bool(true), &3000.into()));
    let text = project.call("plan", &[]).ok().out;
    assert!(text.contains("at most 3,000 calls, 6,144,000 tokens of answers, 24.58 EUR for answers"), "{text}");
    assert!(text.contains("--limit 20") && text.contains("warning: the run may take up to"), "{text}");

    project.edit("[budget]\ntokens = 1000\n", "");
    project.run(&["--limit", "50"]).ok();
    let plan = project.call("plan", &["--json"]).ok().json();
    let estimate = &plan["estimate"];
    assert_eq!(stage(&plan, "paths")["estimate"]["basis"], "try_out");
    assert_eq!(plan["is_upper_bound"], false);
    let text = project.call("plan", &[]).ok().out;
    assert!(text.contains("(estimated from a try-out of 45 rows)") && text.contains("about 2,"), "{text}");

    let run = project.run(&[]).ok();
    assert!(run.err.contains(" EUR)"), "{}", run.err);
    let spent = &run.json()["spent"];
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"));
    assert_eq!(spent["asked"], 2700 - 3 * 45);
    for (told, used) in [
        (figure(estimate, "calls"), figure(spent, "asked")),
        (figure(estimate, "prompt_tokens"), figure(spent, "prompt_tokens")),
        (figure(estimate, "completion_tokens"), figure(spent, "completion_tokens")),
        (figure(estimate, "money"), figure(spent, "money")),
    ] {
        println!("told {told}, used {used}");
        assert!((told - used).abs() <= 0.2 * used, "told {told}, used {used}");
    }
    // the run's record has the sum of each stage
    let records = std::fs::read_dir(project.path().join("out/runs")).unwrap().map(|entry| entry.unwrap().path());
    let record = records.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let events: Vec<Value> =
        std::fs::read_to_string(record).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let calls: Vec<&Value> = events.iter().filter(|event| event["event"] == "calls").collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls.iter().map(|event| event["asked"].as_u64().unwrap()).sum::<u64>(), 2700 - 3 * 45);
    // nothing is left to ask
    let plan = project.call("plan", &["--json", "--check"]).ok().json();
    assert_eq!(plan["estimate"]["calls"], 0);
}

#[test]
fn a_spent_budget_ends_the_run_with_its_own_code_and_a_larger_one_goes_on() {
    let server = Server::start(Duration::ZERO);
    let project = project(&server, "[budget]\ntokens = 60_000\n");
    project.run(&["--limit", "20"]).ok();
    let run = project.run(&[]);
    assert_eq!(run.code, 4, "{run:#?}");
    assert!(run.err.contains("warning: the run will take about"), "{}", run.err);
    assert!(run.err.contains("budget spent: ") && run.err.contains(" of 60000 tokens used"), "{}", run.err);
    assert!(run.err.contains("another run goes on"), "{}", run.err);
    let document = run.json();
    let states = run.states();
    assert_eq!((states["paths"].as_str(), states["seeds"].as_str()), ("failed", "ran"));
    let tokens =
        |spent: &Value| spent["prompt_tokens"].as_u64().unwrap() + spent["completion_tokens"].as_u64().unwrap();
    let used = tokens(&document["spent"]);
    assert!((60_000..90_000).contains(&used), "{used}");
    let before = server.calls();

    project.edit("tokens = 60_000", "tokens = 5_000_000");
    let run = project.run(&[]).ok();
    assert!(run.json()["spent"]["stored"].as_u64().unwrap() > 0);
    assert!(server.calls() > before);
    // what was in flight when the budget ended arrived and was kept
    assert_eq!((server.calls(), server.asked_again()), (2700, 0));
}

#[test]
fn a_try_shows_what_was_asked_and_what_was_said() {
    let server = Server::start(Duration::ZERO);
    let project = project(&server, "");
    project.edit("n = 2", "n = 2\nsystem = \"Be exact: \\\\frac{1}{2} stays 分数.\"");
    project.run(&["seeds"]).ok();
    let tried = project.call("try", &["paths", "-n", "2"]).ok();
    assert_eq!(tried.out.matches("── request ").count(), 4, "{}", tried.out);
    assert!(tried.out.contains("  system:\n    Be exact: \\frac{1}{2} stays 分数."), "{}", tried.out);
    assert!(tried.out.contains("  user:\n    Row 0: how much is 0 and 0?"), "{}", tried.out);
    assert!(tried.out.contains("  answer (stop, "), "{}", tried.out);
    assert!(tried.err.contains("2 read, 2 kept, 0 rejected; nothing was committed"), "{}", tried.err);
    assert!(!project.path().join("out/paths").exists());
}
