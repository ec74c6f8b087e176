//! What the server does, as plain fields; each is a flag of the program, too.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::delay::{Delay, parse_duration, parse_share};
use crate::fault::FaultShare;

/// Everything that can be switched. `Options::default()` is a fast server without faults.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct Options {
    /// Decides all draws, together with what is asked
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Names of models that are known; others get 404. None given: every name is answered
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Who may ask.
    #[command(flatten)]
    pub access: Access,
    /// What is answered.
    #[command(flatten)]
    pub answers: Answers,
    /// How long it takes.
    #[command(flatten)]
    pub latency: Latency,
    /// What goes wrong.
    #[command(flatten)]
    pub faults: Faults,
    /// What is allowed in a time.
    #[command(flatten)]
    pub limits: Limits,
    /// The batch API.
    #[command(flatten)]
    pub batches: Batches,
}

/// Who may ask.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Access")]
pub struct Access {
    /// Key that `Authorization: Bearer` must hold; else 401
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Messages of errors repeat the key that was sent, as bad servers do
    #[arg(long)]
    pub echo_key: bool,
    /// From this request on all are refused: `1000:402` (401, 402 or 403)
    #[arg(long, value_name = "COUNT:STATUS")]
    pub refuse_after: Option<RefuseAfter>,
}

/// A number of requests after which all are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefuseAfter {
    /// Requests that are still answered.
    pub count: u64,
    /// 401, 402 or 403.
    pub status: u16,
}

impl FromStr for RefuseAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, status) = text.split_once(':').unwrap_or((text, "401"));
        let count = count.parse().map_err(|_| format!("`{count}` is no number of requests"))?;
        match status {
            "401" => Ok(Self { count, status: 401 }),
            "402" => Ok(Self { count, status: 402 }),
            "403" => Ok(Self { count, status: 403 }),
            _ => Err(format!("`{status}` is none of 401, 402 and 403")),
        }
    }
}

/// What is answered.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Answers")]
pub struct Answers {
    /// File of rules, one JSON object a line; the first that fits decides:
    /// `contains` (text) or `regex` (pattern) of the last message; `answer` (text) or `answers` (a list, picked by
    /// seed), `finish_reason`, `reasoning_content`, `status` (of an error)
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Share of sums that are answered one too high
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub wrong_share: f64,
    /// Makes derived answers at least this many words long
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub words: u32,
    /// Where the chain of thought stands
    #[arg(long, value_enum, default_value_t)]
    pub reasoning: ReasoningShape,
    /// What is done about `response_format` with a JSON schema
    #[arg(long, value_enum, default_value_t)]
    pub schema: SchemaMode,
    /// When `logprobs` are given
    #[arg(long, value_enum, default_value_t)]
    pub logprobs: LogprobsMode,
    /// Most choices of one request; 400 above
    #[arg(long, value_name = "COUNT")]
    pub most_choices: Option<u32>,
    /// `usage` counts one choice only, as llama.cpp does
    #[arg(long)]
    pub usage_of_one: bool,
    /// Tokens of the context (four letters a token): longer prompts get 400, longer answers end with `length`
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<u32>,
    /// Share of the prompt's tokens that `usage` reports as cached
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub cached_share: f64,
}

/// Where the chain of thought stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ReasoningShape {
    /// There is none
    #[default]
    None,
    /// In the field `reasoning_content`
    ReasoningContent,
    /// In the field `reasoning`
    Reasoning,
    /// In the text, between `<think>` and `</think>`
    Tags,
    /// In the text, before `</think>` without an opening tag
    ClosingTag,
    /// In the text, opened and never closed; `finish_reason` is `length`
    Unfinished,
    /// Any of these, by what is asked
    Mixed,
}

/// What is done about a JSON schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SchemaMode {
    /// The answer is an instance of it, cut at the limit of tokens
    #[default]
    Enforce,
    /// The answer is plain text
    Ignore,
    /// Status 400
    Refuse,
}

/// When log-probabilities are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogprobsMode {
    /// Whenever they are asked for
    #[default]
    Asked,
    /// Only with `top_logprobs` of at least 1, else silently not, as llama.cpp does
    NeedsTop,
    /// Never, silently
    Never,
}

/// How long it takes.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Latency")]
pub struct Latency {
    /// Wait before an answer: `100ms`, `uniform:50ms,150ms`, `lognormal:100ms,0.5` (median, deviation of the
    /// logarithm), `tail:100ms,0.01,2s` (base, share, begin of a long tail)
    #[arg(long, default_value_t)]
    pub delay: Delay,
    /// More wait for each token of the answer; in a stream between its words
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s")]
    pub per_token: Duration,
    /// Time over which the fault `drip` spreads a body [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub drip_over: Option<Duration>,
    /// Time after which the fault `hang` closes the connection; without, it waits for the client to go
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub hang_for: Option<Duration>,
}

/// What goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Faults")]
pub struct Faults {
    /// A fault and its share of requests, may be given often. Passing faults, drawn anew each time a request is sent:
    /// `rate_limited` (429 without Retry-After), `rate_limited_seconds`, `rate_limited_date`, `error_500`, `error_502` (HTML),
    /// `error_503`, `error_503_wait` (with Retry-After), `error_529`, `reset` (before the answer), `cut_body`, `reset_body` (in the
    /// middle of it), `cut_json` (status 200), `error_in_200`, `html` (status 200), `wrong_type` (a good answer as text/plain),
    /// `no_choices`, `hang`, `drip`. Lasting faults, the same whenever the same is asked: `usage_missing`, `usage_wrong`,
    /// `usage_float`, `length`, `empty`, `null_content`, `content_filter` (status 200), `refused_content` (400), `always_500`
    #[arg(long = "fault", value_name = "NAME=SHARE")]
    pub shares: Vec<FaultShare>,
    /// Share of every fault that `--fault` does not name
    #[arg(long = "every-fault", value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub every: f64,
    /// Seconds in `Retry-After` of the faults that have it [default: 1]
    #[arg(long, value_name = "SECONDS")]
    pub retry_after: Option<u32>,
    /// A request whose text contains this always gets status 500
    #[arg(long, value_name = "TEXT")]
    pub failing_text: Option<String>,
}

/// What is allowed in a time.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Requests answered in a window; 429 beyond
    #[arg(long, value_name = "COUNT")]
    pub requests_per_minute: Option<u32>,
    /// Tokens, of prompts and answers, in a window; 429 beyond
    #[arg(long, value_name = "COUNT")]
    pub tokens_per_minute: Option<u64>,
    /// How the window moves
    #[arg(long, value_enum, default_value_t)]
    pub window: Window,
    /// Length of the window, so that a test need not take minutes [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub window_length: Option<Duration>,
    /// Headers that tell the limits
    #[arg(long, value_enum, default_value_t)]
    pub limit_headers: LimitHeaders,
    /// What `Retry-After` of a 429 says
    #[arg(long, value_enum, default_value_t)]
    pub limit_wait: LimitWait,
    /// Most requests worked on at one time
    #[arg(long, value_name = "COUNT")]
    pub concurrent: Option<u32>,
    /// What happens to those beyond
    #[arg(long, value_enum, default_value_t)]
    pub beyond_concurrent: Beyond,
}

/// How a window moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Window {
    /// Any stretch of its length counts
    #[default]
    Sliding,
    /// Counts start anew at its end
    Fixed,
}

/// Headers that tell limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LimitHeaders {
    /// None
    #[default]
    None,
    /// `x-ratelimit-limit-requests` and its siblings, times such as `6m0s`
    OpenAi,
    /// `ratelimit-limit`, `-remaining`, `-reset` in seconds, for requests
    Ietf,
}

/// What `Retry-After` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LimitWait {
    /// Whole seconds
    #[default]
    Seconds,
    /// A date
    Date,
    /// Nothing
    None,
}

/// What happens to requests beyond a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Beyond {
    /// Status 429
    #[default]
    Refuse,
    /// They wait, as at llama.cpp
    Queue,
}

/// The batch API.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Batches")]
pub struct Batches {
    /// Time from the creation of a batch to its end
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s")]
    pub batch_delay: Duration,
    /// Share of batches that expire with part of the answers
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub batch_expired_share: f64,
    /// Share of batches that fail when they are looked through
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub batch_failed_share: f64,
    /// Share of requests that an expired batch has not answered [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub batch_unanswered_share: Option<f64>,
    /// Share of the requests of a batch that end in the error file, drawn anew for each batch
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub batch_error_share: f64,
    /// Most requests of a batch; batches beyond fail
    #[arg(long, value_name = "COUNT")]
    pub batch_most_requests: Option<usize>,
}
