//! The program: flags, address, counts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use clap::Parser;
use scripted_server::{Fault, LimitHeaders, Options, ReasoningShape, RefuseAfter, Stats};

use crate::client::{ask, question};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(flags: &str) -> Options {
    Line::try_parse_from(["x"].into_iter().chain(flags.split_whitespace())).map(|line| line.options).unwrap()
}

#[test]
fn flags_are_the_fields_of_the_options() {
    assert_eq!(options(""), Options::default());
    let read = options(
        "--seed 3 --model a --model b --refuse-after 10:402 --delay tail:1ms,0.5,1s --fault reset=0.1 --fault hang=0 \
         --every-fault 0.01 --reasoning closing-tag --requests-per-minute 60 --limit-headers open-ai --batch-delay 1m",
    );
    assert_eq!((read.seed, read.models.len(), read.faults.every), (3, 2, 0.01));
    assert_eq!(read.access.refuse_after, Some(RefuseAfter { count: 10, status: 402 }));
    assert_eq!(read.latency.delay, "tail:1ms,0.5,1s".parse().unwrap());
    assert_eq!(read.faults.shares, [Fault::Reset.at(0.1), Fault::Hang.at(0.0)]);
    assert_eq!(read.answers.reasoning, ReasoningShape::ClosingTag);
    assert_eq!((read.limits.requests_per_minute, read.limits.limit_headers), (Some(60), LimitHeaders::OpenAi));
    assert_eq!(read.batches.batch_delay.as_secs(), 60);
    assert!(Line::try_parse_from(["x", "--fault", "rest=0.1"]).is_err());
}

#[test]
fn the_program_tells_its_address_and_at_the_end_its_counts() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_scripted-server")).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap().strip_suffix("/v1").unwrap();
    assert_eq!(ask(address.parse().unwrap(), &question("1 + 1")).unwrap().status, 200);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let stats: Stats = serde_json::from_str(&rest).unwrap();
    assert_eq!((stats.requests, stats.answers), (1, 1));
}

#[test]
fn the_help_names_every_fault() {
    let output = Command::new(env!("CARGO_BIN_EXE_scripted-server")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for fault in Fault::all() {
        assert!(help.contains(fault.name()), "{}", fault.name());
    }
}
