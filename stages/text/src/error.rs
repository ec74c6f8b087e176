//! What can go wrong in this crate: only set-up mistakes, since any text at all is a valid input.

/// A mistake in the parameters or in the evaluation items.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TextError {
    /// A parameter is outside its range.
    #[error("set `{name}`: {reason}")]
    Parameter {
        /// Name of the parameter, as it is written in `dag.toml`.
        name: &'static str,
        /// What its range is.
        reason: String,
    },
    /// There is not one n-gram to look for.
    #[error(
        "index evaluation items: none of {items} items has a text of {ngram} tokens ({empty} texts are empty, {short_answers} answers shorter): set `ngram` to less than their length, or look at the right column"
    )]
    EmptyIndex {
        /// Items that were given.
        items: usize,
        /// Items or parts without a single token.
        empty: usize,
        /// Answers left out because they are shorter than one n-gram.
        short_answers: usize,
        /// Tokens of an n-gram.
        ngram: usize,
    },
    /// No item of one evaluation set has a text that can be found.
    #[error("index evaluation set `{set}`: all its texts are empty, or are answers shorter than an n-gram")]
    EmptySet {
        /// The set.
        set: String,
    },
    /// An item planted into a document was not found again.
    #[error("find planted item `{item_id}` of set `{set}` again when {disguise}")]
    SelfTest {
        /// Evaluation set of the planted item.
        set: String,
        /// Its id in that set.
        item_id: String,
        /// How the item was disguised.
        disguise: &'static str,
    },
}
