//! Arguments of the program.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// From a few thousand trusted problems to a dataset that a small model learns to reason from.
#[derive(Debug, Parser)]
#[command(name = "pipeline", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run what is stale
    Run(Run),
    /// Say what would run and why; runs nothing
    Plan(Plan),
    /// Check the whole graph: kinds, keys, columns of every edge, files, models
    Check(Check),
    /// Say what state each stage is in
    Status(Status),
    /// Run a few rows through one stage and show them; commits nothing
    Try(Try),
    /// Show rows of a stage
    Show(Show),
    /// Write a stage's output as a dataset that trainers read
    Export(Export),
    /// Document the kinds of stages and their parameters
    Kinds(Kinds),
    /// Judge one answer and give the reason
    Verify(Verify),
    /// Say what the call store holds, or prune it
    Calls(Calls),
    /// Remove versions that no link points to
    Clean(Clean),
    /// Put a local model behind an OpenAI-compatible API
    Serve(Serve),
    /// Work on the tasks of one version; for executors
    Worker(Worker),
}

/// Where a project is and where its results go.
#[derive(Debug, Args)]
pub struct Project {
    /// The dag file
    pub dag: PathBuf,
    /// Folder of results, instead of `out` beside the dag file
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder of the call store, instead of `calls` in the folder of results
    #[arg(long, value_name = "DIR")]
    pub calls: Option<PathBuf>,
    /// Use only the first N rows of each import that feeds no evaluation port; results go to `out/try`
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Most rows of a task's slice
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_rows: Option<u64>,
}

/// Which stages.
#[derive(Debug, Args)]
pub struct Which {
    /// These stages and all that they need; all when none is named
    pub stages: Vec<String>,
    /// This stage alone, on inputs as they are
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["stages", "from", "until"])]
    pub only: Option<String>,
    /// This stage and all after it, on inputs as they are
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["stages", "until"])]
    pub from: Option<String>,
    /// This stage and all that it needs
    #[arg(long, value_name = "STAGE")]
    pub until: Option<String>,
    /// This stage even if it is fresh; may be given several times
    #[arg(long, value_name = "STAGE")]
    pub force: Vec<String>,
    /// Ask again for rows that failed for passing reasons
    #[arg(long)]
    pub retry_errors: bool,
}

/// `pipeline run`
#[derive(Debug, Args)]
pub struct Run {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// Which stages.
    #[command(flatten)]
    pub which: Which,
    /// Threads; results do not depend on it
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
    /// Use recorded answers only
    #[arg(long)]
    pub offline: bool,
    /// Run programs of the data without a sandbox: only for programs that you trust
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One event a line.
    Json,
}

/// `pipeline plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// Which stages.
    #[command(flatten)]
    pub which: Which,
    /// End with code 5 when something is stale
    #[arg(long)]
    pub check: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pipeline check`
#[derive(Debug, Args)]
pub struct Check {
    /// Where.
    #[command(flatten)]
    pub project: Project,
}

/// `pipeline status`
#[derive(Debug, Args)]
pub struct Status {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pipeline try`
#[derive(Debug, Args)]
pub struct Try {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// The stage
    pub stage: String,
    /// Rows to run
    #[arg(short = 'n', long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Use recorded answers only
    #[arg(long)]
    pub offline: bool,
    /// Run programs of the data without a sandbox: only for programs that you trust
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
}

/// `pipeline show`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
pub struct Show {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// The stage, or `STAGE.OUTPUT` for a further output
    pub stage: String,
    /// Rows to show
    #[arg(short = 'n', long, default_value_t = 10)]
    pub rows: usize,
    /// Show the rows that fell out
    #[arg(long)]
    pub rejects: bool,
    /// Show rows for which this SQL condition holds
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Show long texts whole
    #[arg(long)]
    pub full: bool,
    /// Count nulls, distinct values and ranges of each column
    #[arg(long)]
    pub stats: bool,
    /// One JSON object a row, nulls included
    #[arg(long)]
    pub json: bool,
}

/// `pipeline export`
#[derive(Debug, Args)]
pub struct Export {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// The stage
    pub stage: String,
    /// Folder to write to
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Form of the rows
    #[arg(long, value_enum, default_value_t = ExportFormat::Messages)]
    pub format: ExportFormat,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Form of exported rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A column `messages` with the whole conversation.
    Messages,
    /// Columns `prompt` and `completion`.
    PromptCompletion,
    /// The table as it is.
    Parquet,
}

/// `pipeline kinds`
#[derive(Debug, Args)]
pub struct Kinds {
    /// One kind with its parameters
    pub kind: Option<String>,
    /// The JSON schema of the parameters
    #[arg(long)]
    pub json: bool,
    /// All kinds as the Markdown page of the documentation
    #[arg(long, conflicts_with_all = ["kind", "json"])]
    pub markdown: bool,
}

/// `pipeline verify`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(group = clap::ArgGroup::new("judged").required(true).args(["answer", "response", "program"]))]
pub struct Verify {
    /// Domain
    #[arg(long, value_enum, default_value_t = Domain::Math)]
    pub domain: Domain,
    /// The label: an answer, or the letter of an option
    #[arg(long, allow_hyphen_values = true, value_name = "L")]
    pub label: Option<String>,
    /// The answer by itself; a box or "the answer is" around it is taken off. For `instruct` the whole response
    #[arg(long, allow_hyphen_values = true, value_name = "A")]
    pub answer: Option<String>,
    /// File with a whole response, in which the answer is looked for (`-` = stdin)
    #[arg(long, value_name = "FILE")]
    pub response: Option<PathBuf>,
    /// File with a program, for `code`
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// File with the tests of a program, JSON
    #[arg(long, value_name = "FILE")]
    pub tests: Option<PathBuf>,
    /// Language of the program; by default its fence, the tests or the file name say it
    #[arg(long, value_name = "NAME")]
    pub language: Option<String>,
    /// Runs all tests, also after one has failed
    #[arg(long)]
    pub all_tests: bool,
    /// A constraint, for `instruct`: its id, and its parameters as JSON behind a space; may be given several times
    #[arg(long = "constraint", value_name = "'ID {...}'")]
    pub constraints: Vec<String>,
    /// Scores constraints loosely: on any of eight views of the response
    #[arg(long)]
    pub loose: bool,
    /// Options of a multiple-choice problem
    #[arg(long, num_args = 1.., value_name = "TEXT")]
    pub options: Vec<String>,
    /// Which answers of a response count
    #[arg(long, value_enum, default_value_t = Extraction::Strict)]
    pub extraction: Extraction,
    /// Relative tolerance of a number, for `stem`
    #[arg(long, value_name = "T")]
    pub tolerance: Option<f64>,
    /// Runs programs without a sandbox: only for programs that you trust
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// A domain that has a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Domain {
    /// Mathematical answers.
    Math,
    /// Programs, by tests.
    Code,
    /// Options, or numbers with units.
    Stem,
    /// Responses, by constraints.
    Instruct,
}

/// Which answers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Extraction {
    /// A marked final answer.
    Strict,
    /// Else the last formula or number.
    Lenient,
}

/// `pipeline calls`
#[derive(Debug, Args)]
pub struct Calls {
    /// Folder of the call store
    #[arg(default_value = "out/calls")]
    pub folder: PathBuf,
    /// Write the calls as recordings (JSON Lines; `.gz` and `.zst` compress), for `recordings` of a model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prune_model", "prune_older"])]
    pub record: Option<PathBuf>,
    /// Record only calls of this model: a name (with all its revisions), name@revision, name@ for the one without a revision, or the beginning of a digest
    #[arg(long, value_name = "MODEL", requires = "record")]
    pub model: Option<String>,
    /// Join the files that runs have left into one a model, without doubles and damaged stretches; nothing is lost
    #[arg(long, conflicts_with_all = ["record", "prune_model", "prune_older"])]
    pub compact: bool,
    /// Remove calls of this model, named as for `--model`
    #[arg(long, value_name = "MODEL")]
    pub prune_model: Option<String>,
    /// Remove calls older than this many days
    #[arg(long, value_name = "DAYS")]
    pub prune_older: Option<u64>,
    /// Remove what was named, instead of only saying how much it is
    #[arg(long)]
    pub yes: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pipeline clean`
#[derive(Debug, Args)]
pub struct Clean {
    /// Where.
    #[command(flatten)]
    pub project: Project,
    /// Remove without asking
    #[arg(long)]
    pub yes: bool,
}

/// `pipeline serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// A `.gguf` file, a Hugging Face folder, or `DAG:NAME`, a local model of a project
    pub model: PathBuf,
    /// Address to listen at; the default reaches this machine alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen at; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Another name for the model; may be given several times
    #[arg(long, value_name = "NAME")]
    pub alias: Vec<String>,
    /// Environment variable with the key that requests must bring
    #[arg(long, value_name = "VARIABLE")]
    pub api_key_env: Option<String>,
    /// Threads that decode; answers do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// Answers that a thread decodes together
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub slots: u64,
    /// Most tokens of a prompt and its answer; by default what the model was trained for
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(2..))]
    pub context: Option<u64>,
    /// Most answers in flight and waiting; more are asked to come again
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub queue: u64,
}

/// `pipeline worker`
#[derive(Debug, Args)]
pub struct Worker {
    /// Folder of the version, with its `plan.json`
    #[arg(long, value_name = "DIR")]
    pub stage_dir: PathBuf,
    /// Threads
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: u64,
    /// Use recorded answers only
    #[arg(long)]
    pub offline: bool,
    /// Run programs of the data without a sandbox: only for programs that you trust
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
}
