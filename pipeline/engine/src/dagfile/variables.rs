//! `${NAME}`, `${NAME:-default}` and `$${` in texts.
//!
//! As in a shell, the default also stands in for an empty variable. It cannot hold another variable. What is filled in
//! is not looked at again, and keys are never touched. A text that needs `${` itself (LaTeX, templates) writes `$${`.

use super::error::DagError;
use super::render::shown;
use super::source::{Place, Sources};

/// What is wrong with a variable, and the piece of text to point at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VariableProblem {
    message: String,
    hint: String,
    piece: String,
}

impl VariableProblem {
    /// At the variable if its text is found inside the value, else at the whole value.
    pub(super) fn into_error(self, value: &Place, sources: &Sources) -> DagError {
        let text = sources.text(value.file).get(value.span.clone()).unwrap_or_default();
        let place = text.find(&self.piece).map(|offset| {
            let start = value.span.start + offset;
            sources.place(value.file, start..start + self.piece.len())
        });
        DagError::new(self.message).at(place.as_ref().unwrap_or(value)).with_hint(self.hint)
    }
}

/// The text with its variables filled in.
pub(super) fn fill(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableProblem> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$${") {
            out.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some(end) = after.find('}') else {
                return Err(problem("a variable has no closing `}`", "write `$${` for the text `${`", rest));
            };
            out.push_str(&resolve(&after[..end], &rest[..end + 3], lookup)?);
            rest = &after[end + 1..];
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// `inner` is what stands between the braces, `piece` the braces too.
fn resolve(inner: &str, piece: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableProblem> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        let message = format!("`{}` is no name of a variable", shown(name));
        return Err(problem(&message, "write `$${` for the text `${`", piece));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(problem("a default cannot hold another variable", "write the default out", piece));
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            let hint = format!("set it, or give a default: `${{{name}:-…}}`");
            Err(problem(&format!("variable `{name}` is not set"), &hint, piece))
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_word = name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    is_word && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

fn problem(message: &str, hint: &str, piece: &str) -> VariableProblem {
    VariableProblem { message: message.to_owned(), hint: hint.to_owned(), piece: piece.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "HOST" => Some("本机".to_owned()),
            "EMPTY" => Some(String::new()),
            "DOLLAR" => Some("${HOST}".to_owned()),
            _ => None,
        };
        fill(text, &lookup).map_err(|problem| problem.message)
    }

    #[test]
    fn variables_defaults_and_escapes_are_filled_in() {
        let cases = [
            ("plain $5 and $", "plain $5 and $"),
            ("http://${HOST}:1/", "http://本机:1/"),
            ("${NONE:-d}${EMPTY:-e}${EMPTY}${HOST:-x}", "de本机"),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("$${HOST} $$${HOST} $$", "${HOST} $${HOST} $$"),
            ("${DOLLAR}", "${HOST}"),
        ];
        for (text, wanted) in cases {
            assert_eq!(filled(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn a_wrong_variable_is_never_left_as_it_is() {
        assert_eq!(filled("${NONE}"), Err("variable `NONE` is not set".into()));
        assert_eq!(filled("${"), Err("a variable has no closing `}`".into()));
        assert_eq!(filled("${}"), Err("`` is no name of a variable".into()));
        assert_eq!(filled("\\frac{${x+1}}{2}"), Err("`x+1` is no name of a variable".into()));
        assert_eq!(filled("${A:-${B}}"), Err("a default cannot hold another variable".into()));
    }
}
