//! Kinds that look at lines, bullets and the ends of sentences.

use super::{
    emoji::is_emoji,
    sentences,
    text::{first, pieces, quoted, without_punctuation},
};
use crate::instruct::{Check, characters::strip, views::Views};
use std::collections::{HashMap, VecDeque};

/// An emoji ends each sentence, or begins the next.
pub(super) fn emoji(response: &Views<'_>) -> Check {
    let sentences = response.marked_sentences();
    let bare = |sentence: &String| strip(&without_punctuation(sentence)).to_owned();
    for (index, sentence) in sentences.iter().enumerate() {
        let text = bare(sentence);
        // The last character of an emoji may be an invisible selector of its form.
        let ends = text.chars().rev().take(2).any(is_emoji);
        let begins_next = || sentences.get(index + 1).map(bare).and_then(|next| first(&next)).is_some_and(is_emoji);
        if text.is_empty() || !(ends || begins_next()) {
            return Check::new(false, format!("no emoji after {}", quoted(sentence)));
        }
    }
    Check::new(true, "an emoji at each end of a sentence")
}

/// Each line is indented more than the one before.
pub(super) fn line_indent(response: &Views<'_>) -> Check {
    let mut before: Option<usize> = None;
    for line in without_single_blanks(response.lines().collect()) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if let Some(before) = before.filter(|before| indent <= *before) {
            return Check::new(false, format!("{} is indented by {indent} spaces after {before}", quoted(line)));
        }
        before = Some(indent);
    }
    Check::new(true, "each line is indented more than the one before")
}

/// The lines that the benchmark looks at. It takes blank lines out of the list that it walks along, so
/// that it never looks at the line after a blank one; and what it takes out is the first line that
/// reads like the one it looks at.
fn without_single_blanks(lines: Vec<&str>) -> Vec<&str> {
    let mut is_kept = vec![true; lines.len()];
    let mut overlooked: HashMap<&str, VecDeque<usize>> = HashMap::new();
    let mut index = 0;
    while let Some(&line) = lines.get(index) {
        if strip(line).is_empty() {
            let alike = overlooked.entry(line).or_default();
            alike.push_back(index);
            if let Some(taken) = alike.pop_front() {
                is_kept[taken] = false;
            }
            index += 1;
            if let Some(&next) = lines.get(index).filter(|next| strip(next).is_empty()) {
                overlooked.entry(next).or_default().push_back(index);
            }
        }
        index += 1;
    }
    lines.into_iter().zip(is_kept).filter_map(|(line, is_kept)| is_kept.then_some(line)).collect()
}

/// As many lines as words.
pub(super) fn newline(response: &Views<'_>) -> Check {
    let bare = without_punctuation(response.text());
    let lines = strip(&bare).split('\n').filter(|line| !line.is_empty()).count();
    let words = pieces(&bare).count();
    Check::new(lines == words, format!("{words} words on {lines} lines"))
}

/// Sentences, then bullets, then nothing.
pub(super) fn no_bullets_bullets(response: &Views<'_>) -> Check {
    let (mut found, mut bullets) = (0, 0);
    // A blank line or a bullet ends the sentences: after it there are bullets alone.
    let mut has_ended = false;
    for line in response.lines().map(strip) {
        if line.starts_with('*') {
            has_ended = true;
            bullets += 1;
            if found < 2 {
                return Check::new(false, format!("{found} sentences before the bullets, at least 2 asked"));
            }
        } else if has_ended {
            return Check::new(false, format!("the line {} is no bullet", quoted(line)));
        } else {
            let count = sentences(line).len();
            has_ended = count == 0;
            found += count;
        }
    }
    Check::new(bullets >= 2, format!("{bullets} bullets, at least 2 asked"))
}

/// A `-` between each `*` and the next.
pub(super) fn sub_bullets(response: &Views<'_>) -> Check {
    match response.text().split('*').skip(1).find(|bullet| !bullet.contains('-')) {
        Some(bullet) => Check::new(false, format!("no `-` after the bullet {}", quoted(strip(bullet)))),
        None => Check::new(true, "each `*` is followed by a `-`"),
    }
}

/// A phrase in italics with text after it.
pub(super) fn thesis(response: &Views<'_>) -> Check {
    let Some(start) = ["<i>", "<em>"].into_iter().find_map(|tag| response.text().find(tag)) else {
        return Check::new(false, "no `<i>` and no `<em>`");
    };
    let text = &response.text()[start..];
    let Some(end) = ["</i>", "</em>"].into_iter().find_map(|tag| text.find(tag)) else {
        return Check::new(false, "the italics are not closed");
    };
    // The lengths are those of `<i>` and `</i>`; a rest of the longer tags counts as text, as in the original.
    if strip(&text["<i>".len()..end]).is_empty() {
        return Check::new(false, "nothing is in italics");
    }
    let has_text = !strip(&text[end + "</i>".len()..]).is_empty();
    Check::new(has_text, if has_text { "italics with text after them" } else { "no text after the italics" })
}
