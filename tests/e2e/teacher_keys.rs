//! A key is read from the environment and is found nowhere else, not even when a server repeats it in its errors.

use std::path::Path;
use std::process::Stdio;

use scripted_server::{Fault, Options, Server};

use crate::support::{Project, ended};
use crate::teacher;

const VARIABLE: &str = "CANARY_TEACHER_KEY";
const KEY: &str = "sk-canary-4f1d0c9e7b62";
/// The part that is looked for: a shortened or split key would be a leak as well.
const CANARY: &[u8] = b"canary-4f1d0c";
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY)
}

/// Files below a folder that hold the key, as they are or in a compressed part of them.
fn leaks(folder: &Path, found: &mut Vec<String>, looked_at: &mut (u64, u64)) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            leaks(&path, found, looked_at);
        } else if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(&path).unwrap();
            looked_at.0 += 1;
            let frames = bytes.windows(4).enumerate().filter(|(_, window)| *window == ZSTD);
            let is_within = frames.map(|(place, _)| unpacked(&bytes[place..])).any(|text| {
                looked_at.1 += u64::from(!text.is_empty());
                has_canary(&text)
            });
            if has_canary(&bytes) || is_within {
                found.push(path.display().to_string());
            }
        }
    }
}

/// What a compressed frame holds, as far as it can be read.
fn unpacked(frame: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(decoder) = zstd::stream::read::Decoder::with_buffer(frame) {
        let _ = std::io::copy(&mut decoder.single_frame(), &mut text);
    }
    text
}

/// A server that wants the key and repeats it in every error.
fn echoing() -> Options {
    let mut options = Options::default();
    options.access.api_key = Some(KEY.to_owned());
    options.access.echo_key = true;
    options.faults.shares = vec![
        Fault::Error500.at(0.1),
        Fault::Error503.at(0.05),
        Fault::ErrorIn200.at(0.1),
        Fault::RefusedContent.at(0.2),
        Fault::Always500.at(0.03),
    ];
    options
}

#[test]
fn a_key_is_nowhere_but_in_the_environment() {
    let server = Server::start(echoing()).unwrap();
    let more = format!("max_in_flight = 8\napi_key_env = \"{VARIABLE}\"");
    let project = teacher::project(&server.url(), &more, 60, 1);
    project.edit("max_tokens = 256", "max_tokens = 256\nmax_errors = 0.5");
    let mut printed = Vec::new();
    let mut call = |project: &Project, command: &str, arguments: &[&str]| {
        let mut command = project.command(command, arguments);
        let ended = ended(command.env(VARIABLE, KEY).output().unwrap());
        printed.extend_from_slice(ended.out.as_bytes());
        printed.extend_from_slice(ended.err.as_bytes());
        ended
    };

    // while it runs, the list of processes shows the command line to everyone
    let mut running = project.command("run", &["--log-format", "json"]);
    let mut child = running.env(VARIABLE, KEY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while server.stats().requests < 10 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
    assert!(!has_canary(&line));
    let first = ended(child.wait_with_output().unwrap()).ok();
    assert!(server.stats().by_status[&400] > 0 && server.stats().by_status[&500] > 0);

    call(&project, "run", &["--json", "--retry-errors"]);
    call(&project, "plan", &["--json"]);
    call(&project, "show", &["paths", "--json", "-n", "1000"]);
    let rejects = call(&project, "show", &["paths", "--rejects", "--json", "-n", "1000"]);
    call(&project, "status", &["--json"]);
    let calls = project.path().join("out/calls").display().to_string();
    let recorded = project.path().join("recorded.jsonl").display().to_string();
    let mut record = crate::support::program();
    let record = ended(record.args(["calls", &calls, "--record", &recorded]).output().unwrap()).ok();

    // with a wrong key, the refusal repeats it
    let wrong = format!("{KEY}-wrong");
    let other = teacher::project(&server.url(), &more, 5, 1);
    let refused = ended(other.command("run", &["--json"]).env(VARIABLE, &wrong).output().unwrap());
    assert_eq!(refused.code, 4, "{}", refused.err);

    for text in [&first.out, &first.err, &record.out, &record.err, &refused.out, &refused.err] {
        printed.extend_from_slice(text.as_bytes());
    }
    let place = printed.windows(CANARY.len()).position(|window| window == CANARY);
    let near = place.map(|place| String::from_utf8_lossy(&printed[place.saturating_sub(200)..place + 40]).into_owned());
    assert!(place.is_none(), "the key was printed: {near:?}");
    // the server's words are kept, and only the key is taken out of them
    assert!(rejects.out.contains("you sent"), "{}", rejects.out);
    let (mut found, mut looked_at) = (Vec::new(), (0, 0));
    leaks(&project.path(), &mut found, &mut looked_at);
    leaks(&other.path(), &mut found, &mut looked_at);
    assert!(found.is_empty(), "the key is in {found:?}");
    assert!(looked_at.0 > 10 && looked_at.1 > 10, "{looked_at:?} files and compressed parts were looked at");
}
