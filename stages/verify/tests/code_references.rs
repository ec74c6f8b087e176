//! `HumanEval` and MBPP: every reference solution passes its tests, and of the same programs with one operator
//! changed nearly all fail.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop and tell")]

mod code_stand;
#[path = "code_stand/data.rs"]
mod data;

use code_stand::sandbox;
use data::json_lines;
use serde_json::{Value, json};
use stage_verify::code::{Judge, Ran, Tests, Toolchains};
use stage_verify::sandbox::Cgroups;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

struct Reference {
    id: String,
    /// What stands before the solution and stays as it is.
    head: String,
    solution: String,
    tests: Value,
}

fn text(row: &Value, key: &str) -> String {
    row[key].as_str().unwrap().to_string()
}

fn humaneval() -> Option<Vec<Reference>> {
    let rows = json_lines("data/humaneval/HumanEval.jsonl.gz")?;
    let reference = |row: &Value| Reference {
        id: text(row, "task_id"),
        head: text(row, "prompt"),
        solution: text(row, "canonical_solution"),
        tests: json!({"test": row["test"], "entry_point": row["entry_point"]}),
    };
    Some(rows.iter().map(reference).collect())
}

fn mbpp() -> Option<Vec<Reference>> {
    let rows = json_lines("data/mbpp/mbpp.jsonl")?;
    let reference = |row: &Value| Reference {
        id: format!("MBPP/{}", row["task_id"]),
        head: String::new(),
        solution: text(row, "code"),
        tests: json!({"test_list": row["test_list"], "test_setup_code": row["test_setup_code"],
            "challenge_test_list": row["challenge_test_list"]}),
    };
    Some(rows.iter().map(reference).collect())
}

/// Verdicts of programs, over two threads, in order.
fn judged(programs: &[(&Reference, String)], limits: &Value) -> Vec<(Ran, String)> {
    let toolchains = Toolchains::found();
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    let judge = Judge::new(&sandbox, &toolchains);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((index, (reference, program))) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, programs.get(index)?)))
                {
                    let mut tests = reference.tests.clone();
                    tests["limits"] = limits.clone();
                    let report = judge.run("python", program, &Tests::parse(&tests.to_string()).unwrap()).unwrap();
                    done.lock().unwrap().insert(index, (report.overall, report.detail));
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

fn all_pass(references: &[Reference]) {
    let programs: Vec<_> = references.iter().map(|one| (one, format!("{}{}", one.head, one.solution))).collect();
    let verdicts = judged(&programs, &json!({}));
    let failed: Vec<_> = references.iter().zip(&verdicts).filter(|(_, (ran, _))| *ran != Ran::Accepted).collect();
    println!("{} of {} reference solutions pass", references.len() - failed.len(), references.len());
    for (reference, (ran, detail)) in &failed {
        println!("  {}: {}: {detail}", reference.id, ran.as_str());
    }
    assert!(failed.is_empty());
}

fn mutants_fail(references: &[Reference]) {
    let mut programs = Vec::new();
    let mut changes = Vec::new();
    for reference in references {
        if let Some((program, change)) = mutated(&reference.id, &reference.solution) {
            programs.push((reference, format!("{}{program}", reference.head)));
            changes.push(change);
        }
    }
    // a change may make a loop without end: the limit is a reference's own time many times over
    let verdicts = judged(&programs, &json!({"time_s": 4}));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (ran, _) in &verdicts {
        *counts.entry(ran.as_str()).or_default() += 1;
    }
    let survivors = counts.get("accepted").copied().unwrap_or(0);
    println!(
        "{} programs changed ({} hold no operator), {survivors} survive: {counts:?}",
        programs.len(),
        references.len() - programs.len()
    );
    for ((reference, _), ((ran, _), change)) in programs.iter().zip(verdicts.iter().zip(&changes)) {
        if *ran == Ran::Accepted {
            println!("  {}: {change}", reference.id);
        }
    }
    assert!(survivors * 10 <= programs.len());
}

#[test]
fn the_reference_solutions_of_humaneval_pass() {
    if let Some(references) = humaneval() {
        all_pass(&references);
    }
}

#[test]
fn the_reference_solutions_of_mbpp_pass() {
    if let Some(references) = mbpp() {
        all_pass(&references);
    }
}

#[test]
fn nine_of_ten_humaneval_solutions_with_one_operator_changed_fail() {
    if let Some(references) = humaneval() {
        mutants_fail(&references);
    }
}

#[test]
fn nine_of_ten_mbpp_solutions_with_one_operator_changed_fail() {
    if let Some(references) = mbpp() {
        mutants_fail(&references);
    }
}

/// What an operator is changed to. Comparisons are turned into their opposite, so that a change is rarely none.
const CHANGES: [(&str, &str); 25] = [
    ("==", "!="),
    ("!=", "=="),
    ("<=", ">"),
    (">=", "<"),
    ("<", ">="),
    (">", "<="),
    ("+", "-"),
    ("-", "+"),
    ("*", "+"),
    ("/", "*"),
    ("//", "*"),
    ("%", "*"),
    ("**", "*"),
    ("+=", "-="),
    ("-=", "+="),
    ("*=", "+="),
    ("/=", "*="),
    ("//=", "*="),
    ("%=", "*="),
    ("&", "|"),
    ("|", "&"),
    ("^", "&"),
    ("<<", ">>"),
    (">>", "<<"),
    ("and", "or"),
];

/// `source` with one of its operators changed, chosen by `id`, and what was changed; `None` without operators.
fn mutated(id: &str, source: &str) -> Option<(String, String)> {
    let sites = operators(source);
    let digest = blake3::hash(id.as_bytes());
    let chosen = usize::try_from(u32::from_le_bytes(digest.as_bytes()[..4].try_into().unwrap())).unwrap();
    let (at, operator) = *sites.get(chosen % sites.len().max(1))?;
    let other = if operator == "or" { "and" } else { CHANGES.iter().find(|(from, _)| *from == operator)?.1 };
    let program = format!("{}{other}{}", &source[..at], &source[at + operator.len()..]);
    let line = source[..at].matches('\n').count() + 1;
    let shown = source.lines().nth(line - 1).unwrap_or("").trim();
    Some((program, format!("`{operator}` to `{other}` in line {line}: {shown}")))
}

/// Binary operators outside strings and comments, with their places.
fn operators(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_operand = false;
    while at < source.len() {
        let rest = &source[at..];
        let length = token(rest);
        let token = &rest[..length];
        let is_changed = token == "or" || CHANGES.iter().any(|(from, _)| *from == token);
        if is_changed && is_operand {
            found.push((at, token));
        }
        // a sign, or the star of arguments, follows no operand
        let first = token.chars().next().unwrap_or(' ');
        let is_word = first.is_alphanumeric() || first == '_' || "\"'".contains(first);
        let is_keyword = [
            "and", "or", "not", "in", "is", "if", "else", "elif", "while", "return", "for", "lambda", "yield",
            "assert", "print",
        ];
        if is_word {
            is_operand = !is_keyword.contains(&token);
        } else if !first.is_whitespace() && first != '#' && first != '\\' {
            is_operand = ")]}".contains(first);
        }
        at += length;
    }
    found
}

/// Length of the token that a text begins with.
fn token(rest: &str) -> usize {
    let first = rest.chars().next().unwrap_or(' ');
    let run = |accepts: &dyn Fn(char) -> bool| rest.find(|letter| !accepts(letter)).unwrap_or(rest.len());
    if first == '#' {
        return run(&|letter| letter != '\n');
    }
    if first.is_alphabetic() || first == '_' {
        let word = run(&|letter| letter.is_alphanumeric() || letter == '_');
        let is_prefix = word <= 2 && rest[..word].chars().all(|letter| "rbfuRBFU".contains(letter));
        let quoted = rest[word..].starts_with(['"', '\'']);
        return if is_prefix && quoted { word + string(&rest[word..]) } else { word };
    }
    if first.is_ascii_digit() {
        let digits = |from: usize| {
            let rest = &rest[from..];
            from + rest.find(|letter: char| !(letter.is_alphanumeric() || "._".contains(letter))).unwrap_or(rest.len())
        };
        let end = digits(0);
        let has_exponent = rest[..end].ends_with(['e', 'E']) && rest[end..].starts_with(['+', '-']);
        return if has_exponent && !rest.starts_with("0x") { digits(end + 1) } else { end };
    }
    if first == '"' || first == '\'' {
        return string(rest);
    }
    let operators = [
        "**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", "<=", ">=", "==", "!=", "->", ":=", "+=", "-=",
        "*=", "/=", "%=",
    ];
    operators.iter().find(|operator| rest.starts_with(**operator)).map_or(first.len_utf8(), |operator| operator.len())
}

fn string(rest: &str) -> usize {
    let quote = &rest[..1];
    let long = quote.repeat(3);
    let end = if rest.starts_with(&long) { long } else { quote.to_string() };
    let mut at = end.len();
    while at < rest.len() && !rest[at..].starts_with(&end) {
        at += usize::from(rest[at..].starts_with('\\'));
        at += rest[at..].chars().next().map_or(1, char::len_utf8);
    }
    (at + end.len()).min(rest.len())
}

#[test]
fn only_operators_are_changed() {
    let source =
        "def f(*a, b=-1):  # a + b\n    '''a < b'''\n    return x[-1] + f(**{}) if a <= b and not c else 'x*y' % z\n";
    let found: Vec<_> = operators(source).into_iter().map(|(_, operator)| operator).collect();
    assert_eq!(found, ["+", "<=", "and", "%"]);
    assert_eq!(operators("x = 1e-5\ny -= -x\nz = a if b else -1\nf'{a+b}'").len(), 1);
}
