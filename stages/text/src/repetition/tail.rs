//! Finds a loop at the end of a text: the longest suffix that repeats one period, in linear time.
//!
//! The Z function of the tokens read backwards tells for each period how far back it holds. A word without end
//! (`hahaha...`, `0000...`) is one token, so that its letters are looked at.

use super::{Finding, RepetitionRules};
use crate::view::View;

/// A loop at the end. The last token of a truncated text may be half a word, which would hide the loop before it, so
/// that the end is looked at once with and once without it.
pub(super) fn tail_loop(view: &View, rules: &RepetitionRules, prefixes: &mut Vec<u32>) -> Option<Finding> {
    let all = view.len();
    for cut in 0..2_usize.min(all) {
        let covered = periodic_suffix(&view.tokens()[..all - cut], rules.tail_min_repeats, prefixes);
        let share = covered as f64 / all as f64;
        let is_long = covered > rules.tail_min_tokens && share > rules.tail_min_share;
        let is_most = covered >= rules.tail_short_tokens && share >= rules.tail_short_share;
        if covered > 0 && (is_long || is_most) {
            let last = all - 1 - cut;
            let span = view.span(last + 1 - covered, last);
            return Some(Finding { rule: "tail_loop", span, figure: share });
        }
    }
    None
}

/// Longest period of a loop inside one word, in bytes.
const WORD_PERIOD: usize = 32;

/// A word that repeats a few letters without end, last or last but one (a full stop may follow). Its bytes count as
/// tokens do in other loops.
pub(super) fn word_loop(text: &str, view: &View, rules: &RepetitionRules) -> Option<Finding> {
    for last in (0..view.len()).rev().take(2) {
        let (start, end) = view.span(last, last);
        let Some(word) = text.as_bytes().get(start..end).filter(|word| word.len() > rules.tail_min_tokens) else {
            continue;
        };
        let held = |period: usize| {
            let back = word.iter().rev();
            period + back.clone().zip(back.skip(period)).take_while(|(one, two)| one == two).count()
        };
        let share = |bytes: usize| bytes as f64 / text.len() as f64;
        let is_loop = |(period, bytes): &(usize, usize)| {
            *bytes > rules.tail_min_tokens
                && bytes / period >= rules.tail_min_repeats
                && share(*bytes) > rules.tail_min_share
        };
        let found = (1..=WORD_PERIOD.min(word.len())).map(|period| (period, held(period))).find(is_loop);
        if let Some((_, bytes)) = found {
            let from = (end - bytes..end).find(|at| text.is_char_boundary(*at)).unwrap_or(start);
            return Some(Finding { rule: "tail_loop", span: (from, end), figure: share(bytes) });
        }
    }
    None
}

/// Length of the longest suffix that is at least `min_repeats` periods long. Positions of texts of at most 4 GiB
/// fit in 32 bits.
pub(super) fn periodic_suffix(tokens: &[u64], min_repeats: usize, z: &mut Vec<u32>) -> usize {
    let Some((last, _)) = tokens.split_last() else { return 0 };
    let count = tokens.len();
    let back = |at: usize| tokens[count - 1 - at];
    // a longer period does not fit in often enough; a loop has at least two
    let periods = count / min_repeats.max(2);
    z.clear();
    z.resize(periods + 1, 0);
    let (mut left, mut right, mut longest) = (0, 0, 0);
    for at in 1..=periods {
        let mut length = if at < right { (z[at - left] as usize).min(right - at) } else { 0 };
        if at + length >= right || length == 0 {
            if length == 0 && back(at) != *last {
                continue;
            }
            while at + length < count && back(length) == back(at + length) {
                length += 1;
            }
            if at + length > right {
                (left, right) = (at, at + length);
            }
        }
        z[at] = u32::try_from(length).unwrap_or(u32::MAX);
        if length >= at && (at + length) / at >= min_repeats {
            longest = longest.max(at + length);
        }
    }
    longest
}
