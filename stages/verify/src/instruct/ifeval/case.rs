//! Kinds that ask for capital or lower case.

use crate::instruct::{Check, InstructError, Rule, characters::is_upper, parameters::Parameters};

/// `capital_frequency`, `capital_relation`: tokens whose letters are all capitals, single ones included.
pub(super) fn capital_word_frequency(parameters: &Parameters<'_>) -> Result<Rule, InstructError> {
    let (asked, relation) = (parameters.count("capital_frequency")?, parameters.relation("capital_relation")?);
    Ok(Box::new(move |response| {
        let found = response.tokens().filter(|token| is_upper(token)).count();
        let why = format!("{found} words in capital letters, {} {asked} asked", relation.as_str());
        Check::new(relation.holds(found, asked), why)
    }))
}
