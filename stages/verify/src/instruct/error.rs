//! What can be wrong with a constraint before any response is looked at.

/// A constraint that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstructError {
    /// No kind has this id.
    #[error("unknown constraint kind `{kind}`; {hint}")]
    UnknownKind {
        /// The id as given.
        kind: String,
        /// The nearest known id, or where to look.
        hint: String,
    },
    /// The parameters are no object.
    #[error("the parameters of `{kind}` are {found}, not an object")]
    NotAnObject {
        /// The kind.
        kind: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// The kind has no such parameter.
    #[error("unknown parameter `{parameter}` of `{kind}`; {hint}")]
    UnknownParameter {
        /// The kind.
        kind: &'static str,
        /// The name as given.
        parameter: String,
        /// The nearest known name, or what the kind takes.
        hint: String,
    },
    /// A parameter that the kind needs is absent or null.
    #[error("`{kind}` needs the parameter `{parameter}` ({expected})")]
    MissingParameter {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A parameter is of another type.
    #[error("the parameter `{parameter}` of `{kind}` is {found}, not {expected}")]
    IllTyped {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// A parameter is of the right type, but no value that the kind can ask.
    #[error("the parameter `{parameter}` of `{kind}` is {found}; {expected}")]
    OutOfRange {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What it should be, as a clause.
        expected: String,
        /// What was given.
        found: String,
    },
}

/// Names the nearest of some known names, or all of them when they are few and none is near.
pub(super) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let lower = name.to_lowercase();
    let last = |text: &str| text.rsplit(':').next().unwrap_or_default().to_owned();
    let near = |candidate: &str| {
        let whole = strsim::jaro_winkler(&lower, candidate);
        if lower.contains(':') { whole } else { whole.max(strsim::jaro_winkler(&last(&lower), &last(candidate))) }
    };
    let best =
        known.clone().map(|candidate| (near(candidate), candidate)).max_by(|left, right| left.0.total_cmp(&right.0));
    match best {
        Some((likeness, candidate)) if likeness > 0.8 => format!("did you mean `{candidate}`?"),
        Some(_) if known.clone().count() <= 8 => {
            format!("it takes {}", known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
        Some((_, candidate)) => format!("the nearest known is `{candidate}`"),
        None => "it takes none".to_owned(),
    }
}
