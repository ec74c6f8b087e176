//! Verdicts of all domains in one run: programs in the sandbox with tests looked up in the queries, constraints, answers, a
//! judge model; and the command that explains one verdict.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Ended, Project, ended, program};

const DAG: &str = r#"
[models.judge]
engine = "replay"
model = "judge"
recordings = ["judge.jsonl"]

[stages.problems]
kind = "import"
files = ["problems.jsonl"]
rows = "queries"
columns = { prompt = "question", label = "answer", domain = "domain", tests = "tests", constraints = ["asks", "with"] }

[stages.traces]
kind = "import"
files = ["traces.jsonl"]
rows = "traces"
columns = { prompt = "question", label = "answer", domain = "domain", response = "said", constraints = ["asks", "with"] }

[stages.verified]
kind = "verify"
inputs = { rows = "traces", queries = "problems" }
judge = "judge"
judge_template = "Is {{ answer }} the same as {{ label }}?"
second = "extra.expected"
"#;

/// One line of both files for each (domain, question, label, tests, answer of the model, expected verdict).
struct Case {
    domain: &'static str,
    question: &'static str,
    label: Option<&'static str>,
    tests: Option<Value>,
    constraints: Option<(&'static str, Value)>,
    said: String,
    expected: &'static str,
}

fn case(domain: &'static str, question: &'static str, said: impl Into<String>, expected: &'static str) -> Case {
    Case { domain, question, label: None, tests: None, constraints: None, said: said.into(), expected }
}

fn sum() -> Value {
    json!({ "type": "stdin", "cases": [{ "input": "2 3\n", "output": "5\n" }, { "input": "-7 7\n", "output": "0\n" }], "limits": { "time_s": 2 } })
}

fn python(source: &str) -> String {
    format!("<think>Easy.</think>Read, add, print.\n```python\n{source}\n```\nThat is all.")
}

const ADD: &str = "a, b = map(int, input().split())\nprint(a + b)";

fn cases() -> Vec<Case> {
    let code = |said: String, expected| Case { tests: Some(sum()), ..case("code", "Add two numbers.", said, expected) };
    let square = json!({ "type": "function", "entry": "square", "cases": [{ "args": [3], "expected": 9 }] });
    let asserts =
        json!({ "setup": "import math", "test_list": ["assert half(4) == 2", "assert half(5) == math.floor(2.5)"] });
    let cpp = "```cpp\n#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b; }\n```";
    let no_comma = || Some(("punctuation:no_comma", json!({})));
    vec![
        code(python(ADD), "correct"),
        code(python("print(5)"), "incorrect"),
        code(python("while True: pass"), "incorrect"),
        code(cpp.to_owned(), "correct"),
        code("I would read both and add them.".to_owned(), "no_answer"),
        Case {
            tests: Some(square),
            ..case("code", "Square a number.", python("def square(x):\n    return x * x"), "correct")
        },
        Case {
            tests: Some(asserts),
            ..case("code", "Halve a number.", python("def half(x):\n    return x // 2"), "correct")
        },
        Case { tests: None, ..case("code", "A problem without tests.", python("print(1)"), "label_unparsable") },
        Case { label: Some("\\frac{1}{2}"), ..case("math", "A half?", "So \\boxed{0.5}.", "correct") },
        Case { label: Some("B"), ..case("stem", "A or B?", "The answer is (B).", "correct") },
        Case { constraints: no_comma(), ..case("instruct", "No comma.", "Not one here.", "correct") },
        Case { constraints: no_comma(), ..case("instruct", "No comma.", "Well, one.", "incorrect") },
        Case { label: Some("476"), ..case("history", "When did Rome fall?", "in 476 AD", "correct") },
        case("chat", "Hello?", "Hello!", "none"),
    ]
}

fn project() -> Project {
    let project = Project::new(DAG);
    let (mut problems, mut traces) = (Vec::new(), String::new());
    for case in cases() {
        let (asks, with) = case.constraints.map_or((None, None), |(id, kwargs)| (Some([id]), Some([kwargs])));
        let mut line = json!({
            "question": case.question, "answer": case.label, "domain": case.domain, "tests": case.tests, "asks": asks,
            "with": with,
        });
        let problem = line.to_string();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        line["said"] = json!(case.said);
        line["expected"] = json!(case.expected);
        line["tests"] = Value::Null;
        traces += &format!("{line}\n");
    }
    project.write("problems.jsonl", problems.join("\n"));
    project.write("traces.jsonl", traces);
    let recording = json!({
        "model": "judge", "messages": [{ "role": "user", "content": "Is in 476 AD the same as 476?" }],
        "sampling": { "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 1024 }, "sample": 0,
        "answer": { "text": "The same year.\nVERDICT: CORRECT", "finish_reason": "stop" },
    });
    project.write("judge.jsonl", format!("{recording}\n"));
    project
}

fn verdicts(project: &Project) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let rows = project.rows("verified", &[]);
    rows.iter().map(|row| (word(&row["verdict"]), word(&row["verdict_reason"]))).collect()
}

#[test]
fn each_domain_has_its_verifier_and_what_rules_leave_goes_to_the_judge() {
    let project = project();
    let run = project.run(&[]).ok();
    for ((verdict, reason), case) in verdicts(&project).iter().zip(cases()) {
        assert_eq!(verdict, case.expected, "{} {}: {reason}", case.domain, case.said);
    }
    let reasons: Vec<String> = verdicts(&project).into_iter().map(|(_, reason)| reason).collect();
    assert!(reasons[1].starts_with("wrong_answer: test 2 of 2"), "{}", reasons[1]);
    assert!(reasons[2].starts_with("time_limit: test 1 of 2"), "{}", reasons[2]);
    assert_eq!(reasons[4], "unmarked");
    assert_eq!(reasons[7], "no_tests");
    let rows = project.rows("verified", &[]);
    assert!(rows[0]["verifier"].as_str().unwrap().starts_with("code@"));
    assert_eq!(rows[12]["verifier"], json!("judge@1 judge"));
    assert_eq!(rows[0]["answer"].as_str().unwrap().trim(), ADD);
    assert!(rows.iter().all(|row| row["tests"].is_null()), "tests are looked up, not copied");
    assert_eq!(project.rows("verified.disagreements", &[]), Vec::<Value>::new());
    let counters = &project.success("verified")["counts"]["counters"];
    assert_eq!(counters["asked_the_judge"], json!(1), "{counters}");
    assert!(run.err.contains("label_unparsable"), "a share of unreadable rows is told:\n{}", run.err);
}

#[test]
fn a_program_is_run_once_for_its_tests() {
    let project = project();
    project.run(&[]).ok();
    let kept = || {
        let mut lines = 0;
        for entry in std::fs::read_dir(project.path().join("out/verdicts")).unwrap() {
            lines += std::fs::read_to_string(entry.unwrap().path()).unwrap().lines().count();
        }
        lines
    };
    let (before, first) = (kept(), verdicts(&project));
    assert!(before >= 5, "{before} reports");
    project.run(&["--force", "verified"]).ok();
    assert_eq!((kept(), verdicts(&project)), (before, first));
    // another test for one problem: its programs run again, the others do not
    project.write(
        "problems.jsonl",
        project.read("problems.jsonl").replace("-7 7", "-7 8").replace("\"0\\\\n\"", "\"1\\\\n\""),
    );
    let run = project.run(&[]).ok();
    assert_eq!(run.ran(), ["problems", "verified"]);
    assert!(kept() > before && kept() <= before + 4, "{} after {before}", kept());
}

#[test]
fn programs_see_neither_keys_nor_the_project() {
    let project = project();
    let spy = "import os\nimport glob\nfound = [name for name in os.environ if 'SECRET' in name]\n\
               found += glob.glob('/root/*') + glob.glob('/home/*') + glob.glob('/tmp/*')\n\
               for path in glob.glob('/proc/[0-9]*/environ'):\n    try:\n        found += [path] if b'SECRET' in open(path, 'rb').read() else []\n    except OSError:\n        pass\n\
               print(5 if not found else found)";
    let tests = json!({ "type": "stdin", "cases": [{ "input": null, "output": "5" }] });
    let line = |said: Option<String>| json!({ "question": "Spy.", "domain": "code", "tests": tests, "said": said, "answer": null, "expected": "correct" });
    project.write("problems.jsonl", line(None).to_string());
    project.write("traces.jsonl", line(Some(python(spy))).to_string());
    project.edit("constraints = [\"asks\", \"with\"] }", "source = \"question\" }");
    let run = ended(project.command("run", &["--json"]).env("MY_SECRET_KEY", "s3cr3t").output().unwrap()).ok();
    assert_eq!(run.code, 0);
    let found = verdicts(&project);
    assert_eq!(found[0].0, "correct", "{}", found[0].1);
}

#[test]
fn code_rows_without_any_tests_end_the_stage() {
    let project = project();
    project.edit("inputs = { rows = \"traces\", queries = \"problems\" }", "inputs = \"traces\"");
    let run = project.run(&[]);
    assert_eq!(run.code, 3, "{run:#?}");
    for piece in ["none of 8 code rows has tests", "queries = "] {
        assert!(run.err.contains(piece), "no `{piece}` in\n{}", run.err);
    }
    project.edit("second = ", "verifier = \"code\"\nsecond = ");
    let run = project.call("check", &[]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(run.err.contains("no stage before fills `tests`"), "{}", run.err);
}

#[test]
fn a_killed_run_leaves_no_program_behind_and_goes_on() {
    let project = project();
    let sleep = python("import time\ntime.sleep(4)\na, b = map(int, input().split())\nprint(a + b)");
    let line = json!({ "question": "Add two numbers.", "domain": "code", "said": sleep, "answer": null, "expected": "correct" });
    project.write("traces.jsonl", format!("{}{line}\n", project.read("traces.jsonl")));
    let mut run = project.start("run", &[]);
    // the programs are seen by what lies in their folders, so that those of other tests do not count
    let sleeping = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let programs = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cwd/main.py")).ok());
        programs.filter(|source| source.contains("time.sleep(4)")).count()
    };
    let end = Instant::now() + Duration::from_mins(1);
    while sleeping() == 0 && Instant::now() < end && run.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while sleeping() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(sleeping(), 0, "programs outlive the run");
    project.run(&[]).ok();
    assert_eq!(verdicts(&project).last().unwrap().0, "correct");
}

fn verify(arguments: &[&str]) -> Ended {
    ended(program().arg("verify").args(arguments).output().unwrap())
}

#[test]
fn one_verdict_is_explained_in_one_line() {
    let project = Project::empty();
    project.write("sum.py", ADD);
    project.write("bad.py", "print(5)");
    project.write("tests.json", sum().to_string());
    project.write("said.md", python(ADD));
    let path = |name: &str| project.path().join(name).to_str().unwrap().to_owned();
    let (sum, bad, tests, said) = (path("sum.py"), path("bad.py"), path("tests.json"), path("said.md"));
    let code = ["--domain", "code", "--tests", &tests];
    for (arguments, begins, holds) in [
        (vec!["--domain", "math", "--label", "\\frac{1}{2}", "--answer", "0.5"], "correct: ", "exact"),
        (vec!["--label", "2^{99}", "--answer", "2^{98}"], "incorrect: ", "differs"),
        (vec!["--label", "-1", "--answer", "-1"], "correct: ", "equals"),
        (vec!["--domain", "stem", "--label", "B", "--answer", "B", "--options", "12", "15"], "correct: ", "B"),
        (
            vec!["--domain", "instruct", "--answer", "a, b", "--constraint", "punctuation:no_comma"],
            "incorrect: ",
            "no_comma",
        ),
        ([&code[..], &["--program", &sum]].concat(), "correct: accepted", "2 of 2 tests"),
        ([&code[..], &["--program", &bad]].concat(), "incorrect: wrong_answer", "test 2 of 2"),
        ([&code[..], &["--response", &said]].concat(), "correct: accepted", "python"),
    ] {
        let verdict = verify(&arguments).ok();
        assert_eq!(verdict.out.lines().count(), 1, "{arguments:?}: {}", verdict.out);
        assert!(verdict.out.starts_with(begins) && verdict.out.contains(holds), "{arguments:?}: {}", verdict.out);
    }
    // without the sandbox root still gives up its rights, so that an interpreter is needed which all may read
    let open = program()
        .args([&["verify"][..], &code, &["--program", &sum, "--unsafe-no-sandbox"]].concat())
        .env("PATH", "/usr/bin:/bin")
        .output();
    let open = ended(open.unwrap()).ok();
    assert!(open.out.contains("2 of 2 tests") && open.err.contains("can read and change"), "{open:?}");
    let json = verify(&[&code[..], &["--program", &bad, "--json", "--all-tests"]].concat()).ok().json();
    assert_eq!(json["report"]["tests"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_judged_is_refused_with_the_way_out() {
    for (arguments, message) in [
        (vec!["--domain", "code", "--program", "nowhere.py"], "--tests"),
        (vec!["--domain", "math", "--answer", "1"], "--label"),
        (vec!["--domain", "math", "--label", "1"], "--answer"),
        (vec!["--domain", "instruct", "--answer", "x"], "--constraint"),
        (vec!["--domain", "instruct", "--answer", "x", "--constraint", "punctuation:no_coma"], "no_comma"),
        (vec!["--domain", "math", "--label", "1", "--answer", "1", "--tests", "t.json"], "--tests"),
    ] {
        let run = verify(&arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:#?}");
        assert!(run.err.contains(message), "{arguments:?}: {}", run.err);
    }
}
