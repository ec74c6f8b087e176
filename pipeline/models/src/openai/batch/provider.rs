//! What is said to the provider: files and batches, with the patience that hours of waiting need.
//!
//! A request that only reads, or that costs nothing when it happens twice, is repeated after time-outs, cut connections
//! and 5xx. Creating a batch costs money, so a creation whose reply was lost is looked for in the list of batches before
//! it is tried again.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::exchange::{Failure, Tries, Trouble, read};
use super::{Told, input};
use crate::error::ModelError;
use crate::openai::ask::Server;

/// Slowest upload that is waited for, in bytes a second.
const SLOWEST: u64 = 50_000;
const MOST_PAGES: usize = 1_000;
/// Key in a batch's metadata under which it carries the name of our submission.
const MARK: &str = "pipeline";

/// A batch as the provider describes it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Batch {
    pub(super) id: String,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) status: String,
    #[serde(default)]
    pub(super) input_file_id: Option<String>,
    #[serde(default)]
    pub(super) output_file_id: Option<String>,
    #[serde(default)]
    pub(super) error_file_id: Option<String>,
    #[serde(default)]
    errors: Option<Value>,
    /// For display only.
    #[serde(default, deserialize_with = "if_readable")]
    request_counts: Counts,
    #[serde(default)]
    metadata: Option<Value>,
}

/// What is of another shape than it should be is as if it were not there.
fn if_readable<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Requests of a batch by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Counts {
    #[serde(default)]
    pub(super) total: u64,
    #[serde(default)]
    pub(super) completed: u64,
    #[serde(default)]
    pub(super) failed: u64,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Batch>,
    #[serde(default)]
    has_more: bool,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

/// The provider's files and batches.
#[derive(Clone)]
pub(super) struct Provider {
    pub(super) server: Arc<Server>,
    files: Url,
    batches: Url,
    pub(super) told: Sender<Told>,
}

impl Batch {
    /// Whether nothing more comes of it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "expired" | "cancelled")
    }

    pub(super) fn counts(&self) -> Counts {
        self.request_counts
    }

    /// What the provider says against the batch as a whole: code and words of the first error.
    pub(super) fn error(&self) -> Option<(String, String)> {
        let errors = self.errors.as_ref()?;
        let list = errors.get("data").unwrap_or(errors).as_array()?;
        let first = list.first()?;
        let text = |name: &str| first.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let line = first.get("line").and_then(Value::as_u64).map(|line| format!("line {line}: ")).unwrap_or_default();
        let further = if list.len() > 1 { format!(" (and {} more)", list.len() - 1) } else { String::new() };
        Some((text("code"), format!("{line}{}{further}", text("message"))))
    }

    fn is_of(&self, submission: &str, file: &str) -> bool {
        let mark = self.metadata.as_ref().and_then(|metadata| metadata.get(MARK)).and_then(Value::as_str);
        mark == Some(submission) || self.input_file_id.as_deref() == Some(file)
    }
}

impl Provider {
    /// `completions` is the address that live requests go to.
    pub(super) fn new(server: Arc<Server>, told: Sender<Told>) -> Self {
        let (files, batches) = (below(&server.url, &["files"]), below(&server.url, &["batches"]));
        Self { server, files, batches, told }
    }

    /// Sends a file that stands on disk as the whole body of an upload, and gives its name.
    pub(super) async fn upload(&self, path: &Path, length: u64, submission: &str) -> Result<String, ModelError> {
        let form = format!("multipart/form-data; boundary={}", input::boundary(submission));
        let silence = self.server.timing.idle + Duration::from_secs(length / SLOWEST);
        let mut tries = Tries::new();
        loop {
            let file = File::open(path).map_err(|error| ModelError::store(path, error))?;
            let request = self
                .server
                .client
                .post(self.files.clone())
                .header(CONTENT_TYPE, &form)
                .header(CONTENT_LENGTH, length)
                .body(Body::from(tokio::fs::File::from_std(file)));
            let trouble = match self.once(request, silence).await.map(|text| serde_json::from_str::<Named>(&text)) {
                Ok(Ok(named)) => return Ok(named.id),
                Ok(Err(error)) => Trouble::Again(format!("unreadable reply: {error}")),
                Err(trouble) => trouble,
            };
            self.rest(trouble, &mut tries).await.map_err(|failure| self.final_error(failure))?;
        }
    }

    /// Creates a batch, once, however many tries it takes.
    pub(super) async fn create(&self, file: &str, window: &str, submission: &str) -> Result<Batch, ModelError> {
        let body = serde_json::json!({
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": window,
            "metadata": {MARK: submission},
        });
        let mut tries = Tries::new();
        loop {
            let request = self.server.client.post(self.batches.clone()).json(&body);
            let trouble = match self.once(request, self.server.timing.idle).await.map(|text| read(&text)) {
                Ok(Ok(batch)) => return Ok(batch),
                Ok(Err(trouble)) | Err(trouble) => trouble,
            };
            let is_unclear = matches!(trouble, Trouble::Again(_));
            self.rest(trouble, &mut tries).await.map_err(|failure| self.final_error(failure))?;
            if is_unclear && let Some(batch) = self.find(file, submission).await? {
                return Ok(batch);
            }
        }
    }

    /// Looks for the batch of a submission in the provider's list, to its end: no order is promised.
    pub(super) async fn find(&self, file: &str, submission: &str) -> Result<Option<Batch>, ModelError> {
        let mut after: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut url = self.batches.clone();
            url.query_pairs_mut().append_pair("limit", "100");
            if let Some(after) = &after {
                url.query_pairs_mut().append_pair("after", after);
            }
            let page: Page = match self.get(&url).await {
                Ok(page) => page,
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Missing(message)) => {
                    let message = format!(
                        "it does not list batches ({message}), so whether one was made of submission `{submission}` is \
                         not known; look there, and remove the submission's folder from the call store to ask again"
                    );
                    return Err(self.failed(file, &message));
                }
            };
            if let Some(batch) = page.data.iter().find(|batch| batch.is_of(submission, file)) {
                return Ok(Some(batch.clone()));
            }
            match page.data.last() {
                Some(last) if page.has_more => after = Some(last.id.clone()),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// How a batch stands.
    pub(super) async fn look(&self, batch: &str) -> Result<Batch, Failure> {
        self.get(&below(&self.server.url, &["batches", batch])).await
    }

    /// Hands the lines of a file to `take`, which says whether it was one. Lines may come again after a cut.
    pub(super) async fn download(
        &self,
        file: &str,
        take: &mut (impl FnMut(&[u8]) -> Result<bool, ModelError> + Send),
    ) -> Result<(), Failure> {
        let url = below(&self.server.url, &["files", file, "content"]);
        let mut tries = Tries::new();
        loop {
            let sent = self.send(self.server.client.get(url.clone()), self.server.timing.idle).await;
            let trouble = match sent {
                Ok(response) => match self.read_lines(response, take).await {
                    Ok(()) => return Ok(()),
                    Err(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            self.rest(trouble, &mut tries).await?;
        }
    }

    /// Deletes a file; one that is not there is deleted already.
    pub(super) async fn delete(&self, file: &str) -> Result<(), String> {
        let request = self.server.client.delete(below(&self.server.url, &["files", file]));
        match self.once(request, self.server.timing.idle).await {
            Ok(_) | Err(Trouble::Missing(404 | 410, _)) => Ok(()),
            Err(Trouble::Wait(_)) => Err("too many requests".to_owned()),
            Err(Trouble::Again(message) | Trouble::Missing(_, message)) => Err(message),
            Err(Trouble::Final(error)) => Err(error.to_string()),
        }
    }

    /// A batch that the provider will not work on, or an answer of its that cannot be used.
    pub(super) fn failed(&self, batch: &str, message: &str) -> ModelError {
        ModelError::Batch {
            model: self.server.name.clone(),
            host: self.server.host.clone(),
            batch: batch.to_owned(),
            message: self.server.redact(message),
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &Url) -> Result<T, Failure> {
        let mut tries = Tries::new();
        loop {
            let request = self.server.client.get(url.clone());
            let trouble = match self.once(request, self.server.timing.idle).await.map(|text| read(&text)) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(trouble)) | Err(trouble) => trouble,
            };
            self.rest(trouble, &mut tries).await?;
        }
    }

    fn final_error(&self, failure: Failure) -> ModelError {
        match failure {
            Failure::Error(error) => error,
            Failure::Missing(message) => ModelError::Refused {
                model: self.server.name.clone(),
                host: self.server.host.clone(),
                status: 404,
                message: format!("it has no batch API at this address ({message}); leave out `batch`"),
            },
        }
    }
}

/// The address of something beside the chat completions; the query stays.
fn below(completions: &Url, parts: &[&str]) -> Url {
    const END: &str = "/chat/completions";
    let mut url = completions.clone();
    let path = url.path().trim_end_matches('/');
    let base = path.strip_suffix(END).unwrap_or(path).to_owned();
    url.set_path(&base);
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(parts);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_batches_stand_beside_the_completions() {
        let url = |text: &str| Url::parse(text).unwrap();
        let content = below(&url("http://h:1/v1/chat/completions?v=2"), &["files", "a/b", "content"]);
        assert_eq!(content.as_str(), "http://h:1/v1/files/a%2Fb/content?v=2");
        assert_eq!(below(&url("http://h/chat/completions"), &["batches"]).as_str(), "http://h/batches");
    }

    #[test]
    fn the_first_error_of_a_batch_is_named_with_its_line() {
        let text = r#"{"id":"b","status":"failed","errors":{"object":"list","data":[
            {"code":"invalid_json_line","message":"not JSON","line":3,"param":null},{"code":"x","message":"y"}]}}"#;
        let batch: Batch = serde_json::from_str(text).unwrap();
        let expected = ("invalid_json_line".to_owned(), "line 3: not JSON (and 1 more)".to_owned());
        assert_eq!(batch.error(), Some(expected));
        assert!(batch.is_over());
    }
}
