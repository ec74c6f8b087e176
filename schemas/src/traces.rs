//! `traces`: one answer of a model to a query, complete by itself (no join is needed to train on it).

use crate::column::{Column, Table, Type};
use crate::queries;

/// Id of the trace, see [`crate::ids::trace_id`].
pub const TRACE_ID: &str = "trace_id";
/// Model name and revision that wrote the trace.
pub const MODEL: &str = "model";
/// Index among the samples of one query, from 0.
pub const SAMPLE: &str = "sample";
/// What the model saw, shots and system prompt included.
pub const REQUEST_MESSAGES: &str = "request_messages";
/// The thinking part.
pub const REASONING: &str = "reasoning";
/// The answer part.
pub const ANSWER_TEXT: &str = "answer_text";
/// Raw text of the response.
pub const RESPONSE: &str = "response";
/// What servers say of a response that hit the token cap.
const CUT: [&str; 4] = ["length", "max_tokens", "max_output_tokens", "model_length"];

/// Whether a server says by this word that the response hit the token cap.
pub fn says_cut(finish_reason: &str) -> bool {
    CUT.contains(&finish_reason)
}

/// Why the model stopped.
pub const FINISH_REASON: &str = "finish_reason";
/// Tokens of the request.
pub const PROMPT_TOKENS: &str = "prompt_tokens";
/// Tokens of the response.
pub const COMPLETION_TOKENS: &str = "completion_tokens";
/// Sampling temperature.
pub const TEMPERATURE: &str = "temperature";
/// Nucleus mass.
pub const TOP_P: &str = "top_p";
/// Number of most likely tokens kept.
pub const TOP_K: &str = "top_k";
/// Minimum probability relative to the most likely token.
pub const MIN_P: &str = "min_p";
/// Cap on the response.
pub const MAX_TOKENS: &str = "max_tokens";
/// Seed sent.
pub const SEED: &str = "seed";
/// Ids of the response tokens.
pub const TOKEN_IDS: &str = "token_ids";
/// Log-probabilities of the response tokens.
pub const TOKEN_LOGPROBS: &str = "token_logprobs";
/// Digest of the tokenizer behind `token_ids`.
pub const TOKENIZER: &str = "tokenizer";
/// Digest of the chat template behind `token_ids`.
pub const TEMPLATE: &str = "template";
/// Length under the student's tokenizer.
pub const TOKENS: &str = "tokens";
/// Verdict of a verifier.
pub const VERDICT: &str = "verdict";
/// Reason of the verdict.
pub const VERDICT_REASON: &str = "verdict_reason";
/// Verifier that gave the verdict.
pub const VERIFIER: &str = "verifier";
/// Extracted final answer.
pub const ANSWER: &str = "answer";
/// Mean negative log-likelihood under the student.
pub const LEARNING_POTENTIAL: &str = "learning_potential";

/// Columns that a trace has beside its query's.
pub const COLUMNS: &[Column] = &[
    Column::required(TRACE_ID, Type::Text, "24 hexadecimal digits of blake3(query_id, model, sampling, salt, sample)"),
    Column::new(MODEL, Type::Text, "model name and revision"),
    Column::new(SAMPLE, Type::Int, "index among the samples of one query, from 0"),
    Column::new(
        REQUEST_MESSAGES,
        Type::Messages,
        "what the model saw, shots and system prompt included; never trained on",
    ),
    Column::new(REASONING, Type::Text, "the thinking part, null where there is none"),
    Column::new(ANSWER_TEXT, Type::Text, "the answer part"),
    Column::new(RESPONSE, Type::Text, "the raw response, byte-exact"),
    Column::new(FINISH_REASON, Type::Text, "stop, length, or what the server said"),
    Column::new(PROMPT_TOKENS, Type::Int, "tokens of the request"),
    Column::new(COMPLETION_TOKENS, Type::Int, "tokens of the response as the server counted them"),
    Column::new(TEMPERATURE, Type::Float, "sampling temperature"),
    Column::new(TOP_P, Type::Float, "nucleus mass, 0 to 1"),
    Column::new(TOP_K, Type::Int, "number of most likely tokens kept, 0 = all"),
    Column::new(MIN_P, Type::Float, "minimum probability relative to the most likely token"),
    Column::new(MAX_TOKENS, Type::Int, "cap on the response in tokens"),
    Column::new(SEED, Type::Int, "seed sent with the request"),
    Column::new(TOKEN_IDS, Type::TokenList, "ids of the response tokens, null where the server gives none"),
    Column::new(TOKEN_LOGPROBS, Type::FloatList, "log-probabilities of token_ids at temperature 1, natural logarithm"),
    Column::new(TOKENIZER, Type::Text, "digest of the tokenizer behind token_ids"),
    Column::new(TEMPLATE, Type::Text, "digest of the chat template behind token_ids"),
    Column::new(TOKENS, Type::Int, "length of the response under the student's tokenizer"),
    Column::new(VERDICT, Type::Text, "correct, incorrect, undecided, no_answer or label_unparsable"),
    Column::new(VERDICT_REASON, Type::Text, "why, beginning with a snake_case word"),
    Column::new(VERIFIER, Type::Text, "verifier and version"),
    Column::new(ANSWER, Type::Text, "final answer as extracted from the trace"),
    Column::new(LEARNING_POTENTIAL, Type::Float, "mean negative log-likelihood under the student, nats per token"),
];

/// The table.
pub static TABLE: Table = Table {
    name: "traces",
    version: 1,
    doc: "One answer of a model to a query, with the query's columns.",
    base: queries::COLUMNS,
    own: COLUMNS,
};
