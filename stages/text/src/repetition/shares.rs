//! Shares of a text that occurred before: n-grams, lines, and what its prompt says.

use std::num::NonZeroUsize;

use xxhash_rust::xxh3::xxh3_64;

use super::seen::Seen;
use super::{Finding, RepetitionRules};
use crate::ngram::for_each_run;
use crate::region::Line;
use crate::view::{TokenKind, View};

/// Writes the runs of tokens (first, end) that lie in lines which are not exempt into `runs`.
pub(super) fn prose_runs(view: &View, lines: &[Line], runs: &mut Vec<(usize, usize)>) {
    runs.clear();
    let mut token = 0;
    for line in lines {
        let first = token;
        while view.spans().get(token).is_some_and(|span| (span.0 as usize) < line.next) {
            token += 1;
        }
        if line.is_exempt || first == token {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.1 == first => run.1 = token,
            _ => runs.push((first, token)),
        }
    }
}

/// Calls `visit` with the position and the hash of each n-gram within the runs.
fn for_each_ngram(view: &View, runs: &[(usize, usize)], n: NonZeroUsize, mut visit: impl FnMut(usize, u64)) {
    for (first, end) in runs {
        let tokens = &view.tokens()[*first..*end];
        for_each_run(tokens.len(), n, |at| tokens[at], |at, hash| visit(first + at, hash));
    }
}

/// Share of the wordy n-grams that occurred before. Formulas repeat their parts from line to line, and so do tables of
/// numbers; an n-gram counts when at least half its tokens are words, or characters of unspaced scripts.
pub(super) fn ngram_repetition(
    view: &View,
    runs: &[(usize, usize)],
    rules: &RepetitionRules,
    seen: &mut Seen,
) -> Option<Finding> {
    let n = rules.ngram.get();
    let most: usize = runs.iter().map(|(first, end)| (end - first + 1).saturating_sub(n)).sum();
    if most == 0 || most < rules.min_ngrams {
        return None;
    }
    seen.reset(most);
    let is_word = |at: usize| usize::from(matches!(view.kinds()[at], TokenKind::Word | TokenKind::Single));
    let (mut all, mut repeated, mut span) = (0_usize, 0_usize, None);
    for (first, end) in runs {
        let tokens = &view.tokens()[*first..*end];
        let mut words: usize = (*first..*end).take(n - 1).map(is_word).sum();
        for_each_run(
            tokens.len(),
            rules.ngram,
            |at| tokens[at],
            |at, hash| {
                let at = first + at;
                words += is_word(at + n - 1);
                if words * 2 >= n {
                    all += 1;
                    if !seen.insert(hash) {
                        repeated += 1;
                        span = Some((span.map_or(at, |(first, _)| first), at + n - 1));
                    }
                }
                words -= is_word(at);
            },
        );
    }
    let share = repeated as f64 / all.max(1) as f64;
    let (first, last) = span.filter(|_| all >= rules.min_ngrams && share > rules.max_repeated_share)?;
    Some(Finding { rule: "ngram_repetition", span: view.span(first, last), figure: share })
}

pub(super) fn duplicate_lines(text: &str, lines: &[Line], rules: &RepetitionRules, seen: &mut Seen) -> Option<Finding> {
    let is_counted = |line: &&Line| !line.is_exempt && line.text.1 - line.text.0 >= rules.min_line_bytes;
    let counted = lines.iter().filter(is_counted).count();
    if counted < rules.min_lines {
        return None;
    }
    seen.reset(counted);
    let (mut duplicates, mut span) = (0_usize, None);
    for line in lines.iter().filter(is_counted) {
        if !seen.insert(xxh3_64(&text.as_bytes()[line.text.0..line.text.1])) {
            duplicates += 1;
            span = Some((span.map_or(line.start, |(start, _)| start), line.next));
        }
    }
    let share = duplicates as f64 / counted.max(1) as f64;
    let span = span.filter(|_| share > rules.max_duplicate_line_share)?;
    Some(Finding { rule: "duplicate_lines", span, figure: share })
}

/// Share of the response's prose that is covered by n-grams of the prompt. Half the n-gram length is used,
/// since a prompt is often shorter than two n-grams.
pub(super) fn prompt_repeat(
    view: &View,
    runs: &[(usize, usize)],
    asked: &View,
    rules: &RepetitionRules,
    seen: &mut Seen,
) -> Option<Finding> {
    let n = NonZeroUsize::new(rules.ngram.get().div_ceil(2))?;
    let all: usize = runs.iter().map(|(first, end)| end - first).sum();
    if asked.len() < n.get() || all < rules.min_prompt_repeat_tokens {
        return None;
    }
    seen.reset(asked.len());
    for_each_run(asked.len(), n, |at| asked.tokens()[at], |_, hash| _ = seen.insert(hash));
    let (mut covered, mut until, mut span) = (0, 0, None);
    for_each_ngram(view, runs, n, |at, hash| {
        if seen.contains(hash) {
            covered += at + n.get() - at.max(until);
            until = at + n.get();
            span = Some((span.map_or(at, |(first, _)| first), until - 1));
        }
    });
    let share = covered as f64 / all as f64;
    let (first, last) = span.filter(|_| share > rules.max_prompt_share)?;
    Some(Finding { rule: "prompt_repeat", span: view.span(first, last), figure: share })
}
