//! The kind `command` through the program: reruns by the content of scripts, and an interrupt that leaves nothing behind.

use std::process::Command;
use std::time::Duration;

use crate::support::{Project, ended};

fn project(script: &str) -> Project {
    let project = Project::new(
        r#"
[stages.problems]
kind = "import"
files = ["problems.jsonl"]
domain = "math"
columns = { prompt = "question" }

[stages.own]
kind = "command"
inputs = "problems"
run = ["sh", "own.sh", "{input}", "{output}"]
"#,
    );
    project.write("problems.jsonl", "{\"question\": \"How much is 3 + 4?\"}\n{\"question\": \"三加四等于多少？\"}\n");
    project.write("own.sh", script);
    project
}

#[test]
fn a_changed_script_reruns_its_stage_and_says_so() {
    let project = project("echo working on $# files\ncp \"$1\" \"$2\"\n");
    let run = project.run(&[]).ok();
    assert!(run.err.contains("own            | working on 2 files"), "{}", run.err);
    assert_eq!(project.rows("own", &[]).len(), 2);
    assert!(project.run(&[]).ok().ran().is_empty());
    project.write("own.sh", "cp \"$1\" \"$2\"\n");
    let run = project.run(&[]).ok();
    assert_eq!(run.ran(), ["own"]);
    assert!(run.reason("own").contains("file own.sh has other content"), "{}", run.err);
}

#[test]
fn a_program_that_fails_is_a_failed_stage_with_its_words() {
    let project = project("echo 'no disk left' >&2\nexit 3\n");
    let run = project.run(&[]);
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.err.contains("`sh` ended with code 3") && run.err.contains("no disk left"), "{}", run.err);
}

#[test]
fn an_interrupt_ends_the_program_too() {
    let project = project("echo $$ > begun.txt; mv begun.txt started.txt; sleep 1000; cp \"$1\" \"$2\"\n");
    let run = project.start("run", &[]);
    let started = project.path().join("started.txt");
    while !started.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let process = std::fs::read_to_string(&started).unwrap();
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let run = ended(run.wait_with_output().unwrap());
    assert_eq!(run.code, 130, "{run:#?}");
    let alive = || {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
    };
    while alive() {
        std::thread::sleep(Duration::from_millis(10)); // the system takes a moment to clear away what was killed
    }
}

#[test]
fn a_stage_that_kept_nothing_is_no_fresh_stage() {
    let project = project("cp \"$1\" \"$2\"\n");
    project.edit(
        "kind = \"command\"\ninputs = \"problems\"\nrun = [\"sh\", \"own.sh\", \"{input}\", \"{output}\"]",
        "kind = \"select_seeds\"\ninputs = \"problems\"",
    );
    assert_eq!(project.run(&[]).code, 3);
    let status = project.call("status", &["--json"]).ok().json();
    let own = status["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == "own").unwrap();
    assert_eq!(own["state"], "failed");
    assert!(own["reason"].as_str().unwrap().contains("kept none of 2 rows (no_label 2)"), "{own}");
    assert_eq!(project.call("plan", &["--check"]).code, 5);
}
