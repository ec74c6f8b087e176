//! Kinds that look for marks of form: bullets, highlights, sections, titles, JSON.

use super::json::is_json;
use crate::instruct::{
    Check, InstructError, Rule,
    characters::{is_digit, is_space, strip},
    parameters::Parameters,
};

/// `num_bullets`: exactly so many lines that begin with `-`, or with one `*` and more.
pub(super) fn number_bullet_lists(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("num_bullets")?;
    Ok(Box::new(move |response| {
        let found = bullets(response.lines());
        Check::new(found == asked, format!("{found} bullet points, {asked} asked"))
    }))
}

/// A bare `*` takes the next line for its text, be that a bullet of its own; at the end it is none.
fn bullets<'t>(lines: impl Iterator<Item = &'t str>) -> usize {
    let (mut found, mut bare) = (0, false);
    for line in lines {
        let line = line.trim_start_matches(is_space);
        found += usize::from(line.starts_with('-') || bare);
        let star = line.strip_prefix('*').filter(|_| !bare);
        found += usize::from(star.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('*')));
        bare = star == Some("");
    }
    found
}

/// One of three sentences is in the response.
pub(super) fn constrained_response() -> Rule {
    const OPTIONS: [&str; 3] = ["My answer is yes.", "My answer is no.", "My answer is maybe."];
    Box::new(|response| match OPTIONS.iter().find(|option| response.text().contains(**option)) {
        Some(option) => Check::new(true, *option),
        None => Check::new(false, "none of `My answer is yes.`, `My answer is no.`, `My answer is maybe.`"),
    })
}

/// `num_highlights`: at least so many pieces of a line between asterisks, single or double.
pub(super) fn number_highlighted_sections(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("num_highlights")?;
    Ok(Box::new(move |response| {
        let found: usize = response.lines().map(|line| highlights(line, "*") + highlights(line, "**")).sum();
        Check::new(found >= asked, format!("{found} highlighted sections, at least {asked} asked"))
    }))
}

/// Pieces without asterisk between two marks, left to right without overlap; blank ones do not count.
fn highlights(line: &str, mark: &str) -> usize {
    let (mut found, mut from) = (0, 0);
    while let Some(start) = line[from..].find(mark).map(|at| from + at) {
        let inner = start + mark.len();
        let Some(length) = line[inner..].find('*') else {
            break;
        };
        if line[inner + length..].starts_with(mark) {
            found += usize::from(!strip(&line[inner..inner + length]).is_empty());
            from = inner + length + mark.len();
        } else {
            from = start + 1;
        }
    }
    found
}

/// `section_spliter`, `num_sections`: at least so many times the word with a number after it.
pub(super) fn multiple_sections(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let word = strip(parameters.text("section_spliter")?).to_owned();
    let asked = parameters.count("num_sections")?;
    Ok(Box::new(move |response| {
        let text = response.text();
        let is_numbered = |(at, _): &(usize, &str)| {
            let rest = &text[at + word.len()..];
            rest.strip_prefix(is_space).unwrap_or(rest).starts_with(is_digit)
        };
        let found = text.match_indices(word.as_str()).filter(is_numbered).count();
        Check::new(found >= asked, format!("{found} sections marked `{word} N`, at least {asked} asked"))
    }))
}

/// The response is JSON, be it in a fence of three backticks.
pub(super) fn json_format() -> Rule {
    Box::new(|response| {
        let mut text = response.stripped();
        for mark in ["```json", "```Json", "```JSON", "```"] {
            text = text.strip_prefix(mark).unwrap_or(text);
        }
        let is_json = is_json(strip(text.strip_suffix("```").unwrap_or(text)));
        Check::new(is_json, if is_json { "JSON" } else { "the response is not JSON" })
    })
}

/// A title in double angular brackets, within a line.
pub(super) fn title() -> Rule {
    Box::new(|response| {
        let has = response.lines().any(has_title);
        Check::new(has, if has { "a title in `<<` and `>>`" } else { "no title in `<<` and `>>`" })
    })
}

fn has_title(line: &str) -> bool {
    let (Some(open), Some(close)) = (line.find("<<"), line.rfind(">>")) else {
        return false;
    };
    close > open + 2 && !strip(line[open..close + 2].trim_start_matches('<').trim_end_matches('>')).is_empty()
}
