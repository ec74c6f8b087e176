//! The registry of the group `format`, and the kinds that look for marks and templates.

use super::{
    asked, fixed, kind, layout,
    text::{PUNCTUATION, is_letter, is_outer, quoted},
};
use crate::instruct::{
    Check, InstructError, KindInfo, Resource, Rule, Shape,
    characters::{is_space, strip},
    parameters::Parameters,
    views::Views,
};

/// How deep brackets are to nest.
const BRACKETS: usize = 5;
/// How deep quotes are to nest.
const QUOTES: usize = 3;

/// The registry of the group.
pub(super) const KINDS: &[KindInfo] = &[
    kind(
        "format:emoji",
        &[],
        &[],
        "an emoji at the end of each sentence, or at the begin of the next; an emoji is a single character of \
         the Unicode property Emoji, so a flag is none",
        |_| fixed(layout::emoji),
    ),
    kind(
        "format:line_indent",
        &[],
        &[],
        "each line is indented by more spaces than the one before; as in the benchmark, one blank line \
         between is let pass and two in a row are not",
        |_| fixed(layout::line_indent),
    ),
    kind("format:list", &[asked("sep", Shape::Text)], &[], "the marker at least twice, anywhere", list),
    kind("format:newline", &[], &[], "as many lines as words; blank lines and marks do not count", |_| {
        fixed(layout::newline)
    }),
    kind(
        "format:no_bullets_bullets",
        &[],
        &[],
        "at least two sentences, then at least two lines that begin with `*`, then nothing",
        |_| fixed(layout::no_bullets_bullets),
    ),
    kind("format:no_whitespace", &[], &[], "no white space at all", |_| fixed(no_whitespace)),
    kind(
        "format:options",
        &[asked("options", Shape::Text)],
        &[],
        "one of the options alone; options are separated by `/`, else by `or`, else by commas. Letters \
         (a, b, c) must be given exactly as listed, other options in any case and with any marks around",
        options,
    ),
    kind(
        "format:output_template",
        &[],
        &[],
        "`My Answer:`, `My Conclusion:` and `Future Outlook:` are there, in any order",
        |_| fixed(output_template),
    ),
    kind(
        "format:parentheses",
        &[],
        &[],
        "brackets of any kind nest five deep; a bracket that closes another kind starts the count anew",
        |_| fixed(parentheses),
    ),
    kind("format:quote_unquote", &[], &[], "no quoted phrase directly follows another or ends the response", |_| {
        fixed(quote_unquote)
    }),
    kind(
        "format:quotes",
        &[],
        &[],
        "double and single straight quotes nest three deep in turn; an apostrophe is a single quote",
        |_| fixed(quotes),
    ),
    kind(
        "format:sub-bullets",
        &[],
        &[],
        "a `-` after each `*`, before the next; as in the benchmark, a response without `*` passes",
        |_| fixed(layout::sub_bullets),
    ),
    kind(
        "format:thesis",
        &[],
        &[],
        "a phrase in `<i>` or `<em>` with text after it; as in the benchmark, it may stand anywhere",
        |_| fixed(layout::thesis),
    ),
    kind(
        "format:title_case",
        &[],
        &[Resource::TreebankTokens],
        "no word of lower case; a word of mixed case is let pass",
        |_| fixed(title_case),
    ),
];

fn list(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let marker = parameters.text("sep")?.to_owned();
    Ok(Box::new(move |response| {
        let found = response.text().matches(&marker).count();
        Check::new(found >= 2, format!("{} {found} times, at least 2 asked", quoted(&marker)))
    }))
}

fn no_whitespace(response: &Views<'_>) -> Check {
    match response.text().chars().position(is_space) {
        Some(at) => Check::new(false, format!("white space at character {}", at + 1)),
        None => Check::new(true, "no white space"),
    }
}

fn options(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let listed = parameters.text("options")?;
    let separator = ["/", "or"].into_iter().find(|separator| listed.contains(separator)).unwrap_or(",");
    let options: Vec<String> = listed.split(separator).map(|option| strip(option).to_owned()).collect();
    let bare = |option: &str| option.trim_matches(is_outer).to_lowercase();
    let bare_options: Vec<String> = options.iter().map(|option| bare(option)).collect();
    let is_exact = lists_letters(listed);
    Ok(Box::new(move |response| {
        let holds = if is_exact {
            options.iter().any(|option| option == response.text())
        } else {
            bare_options.contains(&bare(response.text()))
        };
        let found = quoted(response.text());
        Check::new(holds, if holds { format!("the option {found}") } else { format!("{found} is none of the options") })
    }))
}

/// Whether the letters a, b, c are listed, with nothing but marks and spaces before each.
fn lists_letters(options: &str) -> bool {
    let is_word = crate::instruct::characters::is_word;
    let mut letters = options.chars().filter(|character| is_word(*character));
    ['a', 'b', 'c'].into_iter().all(|letter| letters.next().is_some_and(|found| found.eq_ignore_ascii_case(&letter)))
}

fn output_template(response: &Views<'_>) -> Check {
    match ["My Answer:", "My Conclusion:", "Future Outlook:"].into_iter().find(|part| !response.text().contains(part)) {
        Some(part) => Check::new(false, format!("no `{part}`")),
        None => Check::new(true, "all parts of the template"),
    }
}

fn parentheses(response: &Views<'_>) -> Check {
    let mut open: Vec<char> = Vec::new();
    let (mut deepest, mut best) = (0, 0);
    for character in response.text().chars() {
        let closed = match character {
            '(' | '[' | '{' => {
                open.push(character);
                deepest = deepest.max(open.len());
                best = best.max(deepest);
                continue;
            }
            ')' => '(',
            ']' => '[',
            '}' => '{',
            _ => continue,
        };
        if open.last() == Some(&closed) {
            open.pop();
            if deepest >= BRACKETS {
                return Check::new(true, format!("brackets nest {deepest} deep"));
            }
        } else {
            open.clear();
            deepest = 0;
        }
    }
    Check::new(false, format!("brackets open at most {best} deep and close less, {BRACKETS} asked"))
}

fn quotes(response: &Views<'_>) -> Check {
    let mut open: Vec<char> = Vec::new();
    let mut deepest: usize = 0;
    for character in response.text().chars().filter(|character| matches!(character, '"' | '\'')) {
        if open.last() == Some(&character) {
            open.pop();
            if deepest - open.len() >= QUOTES {
                return Check::new(true, format!("quotes nest {deepest} deep"));
            }
        } else {
            open.push(character);
            deepest = deepest.max(open.len());
        }
    }
    Check::new(false, format!("fewer than {QUOTES} levels of quotes in turn are closed"))
}

fn quote_unquote(response: &Views<'_>) -> Check {
    // Talk of the mark itself, `'"'`, quotes nothing.
    let text = response.text().replace(['“', '”'], "\"").replace("'\"'", "");
    let dense: String = text.chars().filter(|character| !is_space(*character)).collect();
    if dense.contains("\"\"") {
        return Check::new(false, "two quoted phrases with nothing between");
    }
    let is_outer =
        |character: char| character != '"' && (character.is_ascii_digit() || PUNCTUATION.contains(character));
    let ends_quoted = dense.trim_matches(is_outer).ends_with('"');
    Check::new(
        !ends_quoted,
        if ends_quoted { "the response ends with a quoted phrase" } else { "each quoted phrase is followed by text" },
    )
}

fn title_case(response: &Views<'_>) -> Check {
    let is_lower = |token: &str| {
        let mut characters = token.chars();
        characters.next().is_some_and(|initial| is_letter(initial) && initial.is_lowercase())
            && (characters.as_str().is_empty() || is_uniform(characters.as_str()))
    };
    match response.tokens().find(|token| is_lower(token)) {
        Some(token) => Check::new(false, format!("{} begins with a small letter", quoted(token))),
        None => Check::new(true, "title case"),
    }
}

/// Whether letters with case are there, all of one case.
fn is_uniform(text: &str) -> bool {
    let (mut has_lower, mut has_upper) = (false, false);
    for character in text.chars() {
        has_lower |= character.is_lowercase();
        has_upper |= character.is_uppercase();
    }
    has_lower != has_upper
}
