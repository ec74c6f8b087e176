//! Kinds that ask for a language, or for English in capital or lower case.

use crate::instruct::{
    Check, InstructError, Rule,
    characters::{is_lower, is_upper},
    error,
    language::LANGUAGES,
    parameters::Parameters,
    views::Views,
};

/// `capital_frequency`, `capital_relation`: tokens whose letters are all capitals, single ones included.
pub(super) fn capital_word_frequency(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (asked, relation) = (parameters.count("capital_frequency")?, parameters.relation("capital_relation")?);
    Ok(Box::new(move |response| {
        let found = response.tokens().filter(|token| is_upper(token)).count();
        let why = format!("{found} words in capital letters, {} {asked} asked", relation.as_str());
        Check::new(relation.holds(found, asked), why)
    }))
}

/// `language`: an ISO 639-1 code. A text whose language cannot be told does not hold.
pub(super) fn response_language(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let code = parameters.text("language")?;
    let Some(asked) = LANGUAGES.into_iter().find(|language| *language == code) else {
        let hint = error::hint(code, LANGUAGES.into_iter());
        let expected = format!("it must be a language code of IFEval ({}); {hint}", LANGUAGES.join(" "));
        return Err(parameters.out_of_range("language", expected));
    };
    Ok(Box::new(move |response| is_in(response, asked)))
}

fn is_in(response: &Views<'_>, asked: &str) -> Check {
    match response.language() {
        Some(found) => Check::new(found == asked, format!("the language is `{found}`, `{asked}` asked")),
        None => Check::new(false, format!("the language cannot be told, `{asked}` asked")),
    }
}

/// English in capital letters.
pub(super) fn english_capital() -> Rule {
    Box::new(|response| {
        if is_upper(response.text()) {
            is_in(response, "en")
        } else {
            Check::new(false, "not all letters are capitals")
        }
    })
}

/// English in lower case.
pub(super) fn english_lowercase() -> Rule {
    Box::new(|response| {
        if is_lower(response.text()) {
            is_in(response, "en")
        } else {
            Check::new(false, "not all letters are in lower case")
        }
    })
}
