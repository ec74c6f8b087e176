//! `[models.NAME]`: where a model lives and how it may be used.
//!
//! Only the identity (name and revision, or weights digest and compute type) enters call keys and
//! fingerprints; everything else here says how a run goes and may change without a new call.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::budget::{Budget, Price};
use crate::error::ModelError;
use crate::known::Known;
use crate::local::Local;
use crate::model::Model;
use crate::openai::OpenAi;
use crate::recordings::Recordings;
use crate::replay::Replay;
use crate::request::ModelId;
use crate::secret::Secret;
use crate::store::CallStore;
use crate::weights::{Weights, WeightsError};

/// Where missing answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Any server that speaks the `OpenAI` chat completions protocol.
    Openai,
    /// Weights in this process; they also score given texts.
    Local,
    /// Recorded answers only.
    Replay,
}

/// When answers are streamed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Streaming {
    /// Where answers may be long.
    #[default]
    Auto,
    /// Every answer.
    Always,
    /// No answer.
    Never,
}

/// Who sees to it that an answer follows a JSON schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StructuredOutput {
    /// The server, or the prompt where the server refuses.
    #[default]
    Auto,
    /// The server: a refusal ends the run.
    Server,
    /// The prompt: the schema is written at the end of the last message.
    Prompt,
}

/// `batch = { ... }` of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchConfig {
    /// Time that the provider has for a batch, as it names it. Default `24h`.
    #[serde(default = "one_day")]
    pub window: String,
    /// Most requests of one batch. Default 50,000.
    #[serde(default = "most_in_batch")]
    pub requests: NonZeroU32,
    /// Seconds between two looks at a batch. Default 30.
    #[serde(default = "half_minute")]
    pub poll_seconds: NonZeroU32,
}

fn one_day() -> String {
    "24h".to_owned()
}

fn most_in_batch() -> NonZeroU32 {
    const { NonZeroU32::new(50_000).unwrap() }
}

fn half_minute() -> NonZeroU32 {
    const { NonZeroU32::new(30).unwrap() }
}

/// Type that weights are computed in, whatever they are stored in.
const COMPUTE: &str = "f32";

/// One `[models.NAME]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Where missing answers come from.
    pub engine: Engine,
    /// `openai`: address of the server up to and with `/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// `openai`, `replay`: name that the server knows; part of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `openai`, `replay`: revision of the model as you name it; part of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Most requests at the same time. Default 32; for engine `local` it is the number of texts that are worked on
    /// together, default 8 for each thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<NonZeroU32>,
    /// Most requests sent in a minute, evenly spaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Most tokens, read and written, in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<NonZeroU32>,
    /// `openai`: whether answers are streamed, so that only silence ends a long one and not its length. Default `auto`:
    /// where an answer may have 4,096 tokens or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Streaming>,
    /// `openai`: samples of one query that go into one request (`n` of the protocol). Default 1: a request for each
    /// sample. More saves prompt tokens, but some servers cap it, and all samples of a request share one seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_request: Option<NonZeroU32>,
    /// `openai`: who sees to it that an answer follows a JSON schema. Default `auto`: the server, and where it refuses,
    /// the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<StructuredOutput>,
    /// `openai`: ask through the provider's batch API, which is slower and cheaper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchConfig>,
    /// Licence of what the model writes, for the check at export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_terms: Option<String>,
    /// Name of the environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// A key in the file is refused; the field exists to say so clearly.
    #[serde(default, skip_serializing, rename = "api_key")]
    #[schemars(skip)]
    refused_key: RefusedKey,
    /// Price per million tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Files of recorded answers and scores (JSON Lines, also `.gz` or `.zst`), relative to `dag.toml`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recordings: Vec<PathBuf>,
    /// `local`: the weights, relative to `dag.toml`: a `.gguf` file, or a folder in the layout of Hugging Face.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// `local`: digest that the weights must have, `sha256:` and 64 hexadecimal digits; part of the identity, and enough
    /// for `--offline` where the weights are not there. Without it the program works it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `local`, instead of `path`: stage of this graph that makes the weights; stages that use the model read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Which checkpoint of that stage, such as `step-200`. Default: its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Keys that say nothing about weights in this process.
const LOCAL_LACKS: [&str; 10] = [
    "base_url",
    "api_key_env",
    "model",
    "revision",
    "requests_per_minute",
    "tokens_per_minute",
    "stream",
    "samples_per_request",
    "structured_output",
    "batch",
];

/// Cannot be read from anything.
#[derive(Debug, Clone, Default, PartialEq)]
struct RefusedKey;

impl<'de> Deserialize<'de> for RefusedKey {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom(
            "`api_key` must not stand in the file: put the key into an environment variable and name it with `api_key_env`",
        ))
    }
}

/// Opens weights, when something is first missing: given their path and `max_in_flight`.
pub type WeightsOpener = Arc<dyn Fn(&Path, Option<NonZeroU32>) -> Result<Arc<dyn Weights>, WeightsError> + Send + Sync>;

/// What a caller decides for all models of a run.
pub struct OpenOptions<'a> {
    /// Answer from store and recordings only; what is missing is listed.
    pub offline: bool,
    /// Limits of the run, shared by its models.
    pub budget: Arc<Budget>,
    /// Looks up an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<Secret>,
    /// Waits and retries.
    pub timing: Timing,
    /// Opens the weights of engine `local`; without it that engine answers from the store only.
    pub weights: Option<WeightsOpener>,
}

/// How long an engine waits and how often it tries.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest silence of a server within a request. To the first byte of a reply, which comes when all of it is
    /// written, `per_token` is added for each token that may be written.
    pub idle: Duration,
    /// See `idle`.
    pub per_token: Duration,
    /// Attempts of one request that end in a time-out, a cut connection, a 5xx or an unreadable reply.
    pub attempts: u32,
    /// Wait before the second attempt; doubles each time, with jitter.
    pub backoff: Duration,
    /// Longest such wait.
    pub most_backoff: Duration,
    /// How long a run may get nothing but "too many requests" before it ends, resumable.
    pub patience: Duration,
    /// Failed attempts to connect in a row, without any success, after which the server counts as unreachable.
    pub breaker: u32,
    /// How long a server that has answered may be out of reach before the run ends, resumable. Requests wait meanwhile,
    /// and none loses an attempt.
    pub outage: Duration,
    /// After a first success: time since the last one before the breaker may act, so that a restart is survived.
    pub grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_mins(5),
            per_token: Duration::from_millis(100),
            attempts: 5,
            backoff: Duration::from_millis(500),
            most_backoff: Duration::from_secs(30),
            patience: Duration::from_mins(30),
            breaker: 10,
            outage: Duration::from_mins(10),
            grace: Duration::from_mins(1),
        }
    }
}

impl ModelConfig {
    /// Weights in this process, known by their digest.
    pub fn weights(path: &Path, digest: &str) -> Self {
        Self {
            engine: Engine::Local,
            path: Some(path.to_owned()),
            digest: Some(digest.to_owned()),
            base_url: None,
            model: None,
            revision: None,
            max_in_flight: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            stream: None,
            samples_per_request: None,
            structured_output: None,
            batch: None,
            output_terms: None,
            api_key_env: None,
            refused_key: RefusedKey,
            price: None,
            recordings: Vec::new(),
            stage: None,
            checkpoint: None,
        }
    }

    /// The identity, where the configuration alone tells it: not for weights without a digest.
    pub fn identity(&self) -> Option<ModelId> {
        match (self.engine, &self.model) {
            (Engine::Openai | Engine::Replay, Some(model)) => Some(ModelId::named(model, self.revision.as_deref())),
            (Engine::Local, _) => self.digest.as_ref().map(|digest| ModelId::weights(digest, COMPUTE)),
            _ => None,
        }
    }

    /// Checks what can be checked without files and network.
    ///
    /// # Errors
    /// [`ModelError::Config`], naming the key.
    pub fn validate(&self, name: &str) -> Result<(), ModelError> {
        let fail = |message: &str| Err(ModelError::config(name, message));
        if self.price.as_ref().is_some_and(|price| {
            let all = [Some(price.input), Some(price.output), price.cached_input];
            all.into_iter().flatten().any(|price| !(price >= 0.0 && price.is_finite()))
        }) {
            return fail("the figures of `price` must be numbers from 0");
        }
        let is_variable = |name: &String| {
            let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
            name.bytes().all(is_word) && !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if self.api_key_env.as_ref().is_some_and(|variable| !is_variable(variable)) {
            // it is not repeated: it may be the key itself
            return fail(
                "`api_key_env` is the name of an environment variable that holds the key: letters, digits and `_`",
            );
        }
        let given = [
            ("base_url", self.base_url.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("path", self.path.is_some()),
            ("digest", self.digest.is_some()),
            ("stage", self.stage.is_some()),
            ("checkpoint", self.checkpoint.is_some()),
            ("model", self.model.is_some()),
            ("revision", self.revision.is_some()),
            ("requests_per_minute", self.requests_per_minute.is_some()),
            ("tokens_per_minute", self.tokens_per_minute.is_some()),
            ("stream", self.stream.is_some()),
            ("samples_per_request", self.samples_per_request.is_some()),
            ("structured_output", self.structured_output.is_some()),
            ("batch", self.batch.is_some()),
        ];
        let (engine, foreign): (&str, &[&str]) = match self.engine {
            Engine::Openai => ("openai", &["path", "digest", "stage", "checkpoint"]),
            Engine::Local => ("local", &LOCAL_LACKS),
            Engine::Replay => ("replay", &["path", "digest", "stage", "checkpoint"]),
        };
        if let Some((key, _)) = given.iter().find(|(key, is_given)| *is_given && foreign.contains(key)) {
            return fail(&format!("`{key}` has no meaning for engine `{engine}`"));
        }
        match self.engine {
            Engine::Local => self.validate_weights().or_else(|message| fail(&message)),
            _ if self.model.as_ref().is_none_or(|model| model.trim().is_empty()) => {
                fail(&format!("engine `{engine}` needs `model`, the name that the server knows"))
            }
            Engine::Replay if self.recordings.is_empty() => fail("engine `replay` needs `recordings`"),
            Engine::Replay => Ok(()),
            Engine::Openai => self.address(name).map(|_| ()),
        }
    }

    fn validate_weights(&self) -> Result<(), String> {
        if self.stage.is_some() {
            let given = [("path", self.path.is_some()), ("digest", self.digest.is_some())];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((key, _)) => Err(format!("`stage` says where the weights come from, so leave out `{key}`")),
                None => Ok(()),
            };
        }
        if self.checkpoint.is_some() {
            return Err("`checkpoint` names one of a stage's: say which `stage` makes it".to_owned());
        }
        if self.path.is_none() {
            let ways = "`path`, a `.gguf` file or a folder of weights, or `stage`, which makes them";
            return Err(format!("engine `local` needs {ways}"));
        }
        let is_digest = |digest: &String| {
            digest.strip_prefix("sha256:").is_some_and(|digits| {
                digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
            })
        };
        match &self.digest {
            Some(digest) if !is_digest(digest) => {
                Err(format!("`digest` must be `sha256:` and 64 digits 0-9a-f, found `{digest}`"))
            }
            _ => Ok(()),
        }
    }

    /// The server's address, checked.
    pub(crate) fn address(&self, name: &str) -> Result<reqwest::Url, ModelError> {
        let fail = |message: String| Err(ModelError::config(name, message));
        let Some(text) = &self.base_url else {
            return fail("engine `openai` needs `base_url`, such as `http://127.0.0.1:8080/v1`".to_owned());
        };
        let url = match reqwest::Url::parse(text.trim()) {
            Ok(url) => url,
            Err(error) => return fail(format!("`base_url` is no address: {error}")),
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return fail("`base_url` must begin with `http://` or `https://` and name a host".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return fail(
                "`base_url` must not hold a user name or password: name the key's variable with `api_key_env`"
                    .to_owned(),
            );
        }
        Ok(url)
    }
}

/// Opens a model.
///
/// `name` is the NAME of `[models.NAME]`, `folder` the one that relative paths start from.
///
/// # Errors
/// A configuration that is wrong, weights whose digest is not known, recordings that cannot be read, or a key
/// variable that is not set. Weights are not opened here, but when something is first missing.
pub fn open(
    config: &ModelConfig,
    name: &str,
    folder: &Path,
    calls: Arc<CallStore>,
    options: &OpenOptions<'_>,
) -> Result<Arc<dyn Model>, ModelError> {
    config.validate(name)?;
    let Some(id) = config.identity() else {
        return Err(ModelError::config(name, "the digest of its weights is not known"));
    };
    // weights at hand answer themselves, and give the same text each time: their recordings stand in for them offline
    let files = if config.engine == Engine::Local && !options.offline { &[][..] } else { &config.recordings[..] };
    let recordings = Recordings::open(&id, folder, files)?;
    match config.engine {
        Engine::Replay => Ok(Arc::new(Replay::new(id, calls, recordings))),
        _ if options.offline => Ok(Arc::new(Replay::new(id, calls, recordings))),
        Engine::Local => Ok(Arc::new(Local::new(config, name, folder, Known { id, calls, recordings }, options)?)),
        Engine::Openai => Ok(Arc::new(OpenAi::new(config, name, id, calls, recordings, options)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_documented_example_is_read() {
        let config = parse(
            r#"
            engine = "openai"
            base_url = "http://127.0.0.1:8080/v1"
            model = "smollm2-135m"
            revision = "q4_1"
            max_in_flight = 64
            output_terms = "Apache-2.0"
            api_key_env = "TEACHER_API_KEY"
            price = { input = 0.27, output = 1.10, currency = "USD", as_of = "2026-11-01" }
            "#,
        )
        .unwrap();
        config.validate("teacher").unwrap();
        assert_eq!(config.max_in_flight.map(NonZeroU32::get), Some(64));
        assert_eq!(config.identity(), Some(ModelId::named("smollm2-135m", Some("q4_1"))));
        let text = toml::to_string(&config).unwrap();
        assert!(!text.contains("api_key ="), "{text}");
        assert_eq!(parse(&text), Ok(config));
    }

    #[test]
    fn weights_are_known_by_their_digest_and_the_type_they_are_computed_in() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let config = parse(&format!("engine = \"local\"\npath = \"w.gguf\"\ndigest = \"{digest}\"")).unwrap();
        config.validate("student").unwrap();
        assert_eq!(config.identity(), Some(ModelId::weights(digest, "f32")));
        assert_eq!(parse("engine = \"local\"\npath = \"w.gguf\"").unwrap().identity(), None);
    }

    #[test]
    fn a_key_in_the_file_is_refused_with_the_way_out() {
        let error = parse("engine = \"openai\"\nmodel = \"m\"\napi_key = \"sk-123\"").unwrap_err();
        assert!(error.contains("api_key_env") && !error.contains("sk-123"), "{error}");
    }

    #[test]
    fn mistakes_name_their_key() {
        let wrong = [
            ("engine = \"openai\"\nmodel = \"m\"", "base_url"),
            ("engine = \"openai\"\nbase_url = \"http://h/v1\"", "model"),
            ("engine = \"openai\"\nmodel = \"m\"\nbase_url = \"localhost:80\"", "http://"),
            ("engine = \"openai\"\nmodel = \"m\"\nbase_url = \"http://u:p@h/v1\"", "api_key_env"),
            ("engine = \"openai\"\nmodel = \"m\"\nbase_url = \"http://h\"\npath = \"w\"", "path"),
            (
                "engine = \"openai\"\nmodel = \"m\"\nbase_url = \"http://h\"\napi_key_env = \"sk-1\"",
                "name of an environment",
            ),
            ("engine = \"replay\"\nmodel = \"m\"", "recordings"),
            ("engine = \"local\"", "path"),
            ("engine = \"local\"\nstage = \"merged\"\npath = \"w.gguf\"", "leave out `path`"),
            ("engine = \"local\"\npath = \"w.gguf\"\ncheckpoint = \"step-1\"", "say which `stage` makes it"),
            ("engine = \"local\"\npath = \"w\"\ndigest = \"sha256:12\"", "64 digits"),
            ("engine = \"local\"\npath = \"w\"\nrevision = \"q4\"", "revision"),
        ];
        for (text, expected) in wrong {
            let error = parse(text).unwrap().validate("teacher").unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("teacher"), "{text}: {error}");
        }
        assert!(parse("engine = \"openai\"\nmodle = \"m\"").is_err());
        assert!(parse("engine = \"openai\"\nmax_in_flight = 0").is_err());
    }

    #[test]
    fn the_schema_does_not_offer_a_key() {
        let schema = serde_json::to_string(&schemars::schema_for!(ModelConfig)).unwrap();
        assert!(schema.contains("api_key_env") && !schema.contains("\"api_key\""));
    }
}
