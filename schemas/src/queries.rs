//! `queries`: problems with their supervision.

use crate::column::{Column, Table, Type};

/// Id of the problem, see [`crate::ids::query_id`].
pub const QUERY_ID: &str = "query_id";
/// Domain: `math`, `code`, `stem`, `chat`, `instruct`.
pub const DOMAIN: &str = "domain";
/// Finer topic, such as `algebra`.
pub const SUBDOMAIN: &str = "subdomain";
/// Conversation that the student is to answer.
pub const MESSAGES: &str = "messages";
/// Text of the last user message.
pub const PROMPT: &str = "prompt";
/// Gold or voted answer.
pub const LABEL: &str = "label";
/// Options of a multiple-choice problem.
pub const OPTIONS: &str = "options";
/// Tests of a code problem, JSON text.
pub const TESTS: &str = "tests";
/// Constraints of an instruction problem.
pub const CONSTRAINTS: &str = "constraints";
/// Where the row came from.
pub const SOURCE: &str = "source";
/// SPDX licence expression or `LicenseRef-...`.
pub const LICENSE: &str = "license";
/// Ids of the queries this one was derived from.
pub const PARENTS: &str = "parents";
/// Expansion dimension that made it.
pub const DIMENSION: &str = "dimension";
/// Share of votes the label got.
pub const VOTE_SHARE: &str = "vote_share";
/// Share of correct rollouts of the reference model.
pub const PASS_RATE: &str = "pass_rate";
/// Rollouts behind the pass rate.
pub const ROLLOUTS: &str = "rollouts";
/// Score of a query judge.
pub const JUDGE_SCORE: &str = "judge_score";
/// Reason a query judge gave.
pub const JUDGE_REASON: &str = "judge_reason";
/// Length stratum.
pub const LENGTH_BUCKET: &str = "length_bucket";
/// Difficulty stratum.
pub const DIFFICULTY_BUCKET: &str = "difficulty_bucket";
/// Columns of the user's that have no place here, JSON text.
pub const EXTRA: &str = "extra";

/// Columns of a query; a trace begins with the same ones.
pub const COLUMNS: &[Column] = &[
    Column::required(
        QUERY_ID,
        Type::Text,
        "24 hexadecimal digits of blake3(domain, messages, options); the label is not in it",
    ),
    Column::new(DOMAIN, Type::Text, "math, code, stem, chat or instruct"),
    Column::new(SUBDOMAIN, Type::Text, "finer topic, such as algebra"),
    Column::new(MESSAGES, Type::Messages, "the conversation that the student is to answer, system prompt included"),
    Column::new(PROMPT, Type::Text, "text of the last user message: what is deduplicated and decontaminated"),
    Column::new(LABEL, Type::Text, "gold or voted answer"),
    Column::new(OPTIONS, Type::TextList, "options of a multiple-choice problem, in order, without their letters"),
    Column::new(TESTS, Type::Text, "tests of a code problem, JSON text"),
    Column::new(CONSTRAINTS, Type::Constraints, "checkable constraints of an instruction problem"),
    Column::new(SOURCE, Type::Text, "where the row came from: a name given in `dag.toml`, else the file"),
    Column::new(LICENSE, Type::Text, "SPDX expression or LicenseRef-...; null where unknown"),
    Column::new(PARENTS, Type::TextList, "ids of the queries it was derived from"),
    Column::new(DIMENSION, Type::Text, "expansion dimension that made it"),
    Column::new(VOTE_SHARE, Type::Float, "share of the votes that its label got, 0 to 1"),
    Column::new(PASS_RATE, Type::Float, "share of correct rollouts of the reference model, 0 to 1"),
    Column::new(ROLLOUTS, Type::Int, "number of rollouts behind pass_rate"),
    Column::new(JUDGE_SCORE, Type::Float, "score of the last query judge"),
    Column::new(JUDGE_REASON, Type::Text, "reason of the last query judge"),
    Column::new(LENGTH_BUCKET, Type::Text, "length stratum"),
    Column::new(DIFFICULTY_BUCKET, Type::Text, "difficulty stratum"),
    Column::new(EXTRA, Type::Text, "JSON object with every column of the user's that has no place here"),
];

/// The table.
pub static TABLE: Table =
    Table { name: "queries", version: 1, doc: "One problem with its supervision.", base: COLUMNS, own: &[] };
