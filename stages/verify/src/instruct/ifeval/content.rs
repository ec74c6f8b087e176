//! Kinds that look for a piece of content: placeholders, a postscript, a repeated prompt, an end.

use crate::instruct::{
    Check, InstructError, Rule,
    characters::{is_space, strip},
    parameters::Parameters,
};

/// `num_placeholders`: at least so many pairs of square brackets, each within a line.
pub(super) fn number_placeholders(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let asked = parameters.count("num_placeholders")?;
    Ok(Box::new(move |response| {
        let found: usize = response.lines().map(placeholders).sum();
        Check::new(found >= asked, format!("{found} placeholders in square brackets, at least {asked} asked"))
    }))
}

fn placeholders(line: &str) -> usize {
    let mut found = 0;
    let mut rest = line;
    while let Some((_, after)) = rest.split_once('[') {
        let Some((_, after)) = after.split_once(']') else {
            break;
        };
        found += 1;
        rest = after;
    }
    found
}

/// `postscript_marker`. The two markers of the data set may have one white space between their letters,
/// and P.P.S needs no last dot.
pub(super) fn postscript(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let marker = strip(parameters.text("postscript_marker")?).to_owned();
    let parts: Vec<String> = match marker.as_str() {
        "P.P.S" => vec!["p.".to_owned(), "p.".to_owned(), "s".to_owned()],
        "P.S." => vec!["p.".to_owned(), "s.".to_owned()],
        other => vec![other.to_lowercase()],
    };
    Ok(Box::new(move |response| {
        let text = response.lower();
        let first = parts.first().map_or("", String::as_str);
        let has = text.match_indices(first).any(|(at, _)| is_spaced(&text[at..], &parts));
        Check::new(has, format!("{} postscript that begins with {marker}", if has { "a" } else { "no" }))
    }))
}

/// Whether a text begins with the parts, with at most one white space between two.
fn is_spaced(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(is_space).unwrap_or(rest);
        }
        let Some(after) = rest.strip_prefix(part.as_str()) else {
            return false;
        };
        rest = after;
    }
    true
}

/// `prompt_to_repeat`: the response begins with it, in any case of its letters.
pub(super) fn repeat_prompt(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let prompt = strip(parameters.text("prompt_to_repeat")?).to_lowercase();
    Ok(Box::new(move |response| {
        let begins = response.lower().trim_start_matches(is_space).starts_with(&prompt);
        Check::new(begins, if begins { "the request is repeated first" } else { "the request is not repeated first" })
    }))
}

/// `end_phrase`: the response ends with it, in any case of its letters; quotes around all are allowed.
pub(super) fn end_checker(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let phrase = strip(parameters.text("end_phrase")?).to_lowercase();
    Ok(Box::new(move |response| {
        let ends = strip(response.lower()).trim_matches('"').ends_with(&phrase);
        let verb = if ends { "ends" } else { "does not end" };
        Check::new(ends, format!("the response {verb} with `{phrase}`"))
    }))
}

/// The response is wrapped in double quotes.
pub(super) fn quotation() -> Rule {
    Box::new(|response| {
        let text = response.stripped();
        let wrapped = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
        Check::new(wrapped, if wrapped { "wrapped in double quotes" } else { "not wrapped in double quotes" })
    })
}

/// No comma.
pub(super) fn no_comma() -> Rule {
    Box::new(|response| match response.text().matches(',').count() {
        0 => Check::new(true, "no comma"),
        found => Check::new(false, format!("{found} commas, none allowed")),
    })
}

/// Two different responses with six asterisks between them.
pub(super) fn two_responses() -> Rule {
    Box::new(|response| {
        let last = response.text().matches("******").count();
        let mut given: Vec<&str> = Vec::with_capacity(2);
        for (index, part) in response.text().split("******").map(strip).enumerate() {
            if !part.is_empty() {
                given.push(part);
            } else if index != 0 && index != last {
                return Check::new(false, "an empty response between two `******`");
            }
        }
        match given[..] {
            [first, second] if first == second => Check::new(false, "the two responses are the same"),
            [_, _] => Check::new(true, "two responses"),
            _ => Check::new(false, format!("{} responses separated by `******`, 2 asked", given.len())),
        }
    })
}
