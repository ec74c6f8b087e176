//! Spellings of one answer, and answers that only look alike: the policy kind by kind, a pair a line in
//! `spellings/`. Each pair is read both ways round.

use stage_verify::{Verdict, math};

fn hold(pairs: &str, equal: bool) {
    let pairs: Vec<(&str, &str)> = pairs.lines().filter_map(|line| line.split_once(" ¦ ")).collect();
    let wrong: Vec<String> = pairs
        .iter()
        .flat_map(|(a, b)| [(a, b), (b, a)])
        .filter(|(a, b)| (math::equivalent(a, b).verdict == Verdict::Correct) != equal)
        .map(|(a, b)| format!("{a} | {b}: {:?}", math::equivalent(a, b)))
        .collect();
    assert!(pairs.len() > 200 && wrong.is_empty(), "{} pairs; {wrong:#?}", pairs.len());
}

#[test]
fn spellings_of_one_answer_are_equal() {
    hold(include_str!("spellings/equal.txt"), true);
}

#[test]
fn answers_that_look_alike_are_not_equal() {
    hold(include_str!("spellings/different.txt"), false);
}
