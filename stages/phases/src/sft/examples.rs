//! Rows as ids in a file, so that memory does not grow with them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use arrow::array::{RecordBatch, UInt64Array};
use pipeline_core::rows::{self, Conversation, Conversations};
use pipeline_core::{Rejection, StageError, Task};
use rayon::prelude::*;
use schemas::traces;
use serde_json::json;
use stage_tokens::{ChatTemplate, EndTokens, Response, Tokenizer, Turn};
use stage_train::{Example, Micro, Renderer, Supervision, Unusable};

use crate::fault::of_tokens;

/// What rows are rendered with.
pub struct Student {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    ends: EndTokens,
}

impl Student {
    /// Opens tokenizer, template and end tokens of a model.
    ///
    /// # Errors
    /// When one of them is missing or cannot be used.
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let tokenizer = Tokenizer::open(path).map_err(|error| of_tokens(&error))?;
        let template = ChatTemplate::open(path).map_err(|error| of_tokens(&error))?;
        let ends = EndTokens::open(path, &tokenizer, Some(&template)).map_err(|error| of_tokens(&error))?;
        if ends.turn_end().is_none() {
            let message =
                format!("`{}` names no token that ends a turn, so it could never learn to stop", path.display());
            return Err(StageError::Param(pipeline_core::ParamError::new("model", message)));
        }
        Ok(Self { tokenizer, template, ends })
    }

    /// Ids that its tokenizer has.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.vocabulary()
    }

    fn render(&self, conversation: &Conversation<'_>, window: usize) -> Result<Example, Unusable> {
        let turns = conversation.messages.iter().map(|message| Turn {
            role: message.role,
            content: message.content,
            tool_calls: message.tool_calls,
        });
        let response = Response {
            text: conversation.response,
            is_complete: conversation.is_complete,
            token_ids: conversation.token_ids.as_deref(),
            tokenizer: conversation.tokenizer,
        };
        let Self { tokenizer, template, ends } = self;
        let renderer = Renderer { tokenizer, template, ends, window, supervision: Supervision::Response };
        renderer.render(&turns.collect::<Vec<_>>(), &response)
    }
}

/// Where an example stands in the file.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    offset: u64,
    tokens: usize,
    supervised: Vec<Range<usize>>,
}

/// Examples of a port, their ids in a file.
#[derive(Debug)]
pub struct Examples {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    /// Rows read.
    pub read: usize,
    /// Rows that are unusable for other reasons than their length.
    pub unusable: usize,
    /// Rows that are too long.
    pub too_long: usize,
    /// The first reason other than length, in words.
    pub first: Option<String>,
}

impl Examples {
    /// Renders all rows of a port. Those that cannot be used fall out where `rejects`, and are counted otherwise.
    ///
    /// # Errors
    /// When a row cannot be read or the disk refuses.
    pub fn render(
        task: &mut Task<'_>,
        port: &str,
        student: &Student,
        window: usize,
        rejects: bool,
    ) -> Result<Self, StageError> {
        let path = task.folder().join(format!("{port}.ids"));
        let out = File::create(&path).map_err(StageError::io("write", &path))?;
        let file = File::open(&path).map_err(StageError::io("open", &path))?;
        let (mut out, mut offset) = (BufWriter::with_capacity(1 << 20, out), 0);
        let mut examples = Self { path, file, entries: Vec::new(), read: 0, unusable: 0, too_long: 0, first: None };
        for batch in task.port_batches(port, None)? {
            let batch = batch?;
            task.check_cancelled()?;
            let rendered = rendered(&batch, student, window)?;
            let ids = rows::texts(&batch, traces::TRACE_ID)?;
            let (mut fallen, mut rejections) = (Vec::new(), Vec::new());
            for (row, outcome) in rendered.into_iter().enumerate() {
                match outcome {
                    Ok(example) => {
                        let tokens = example.ids.len();
                        for id in &example.ids {
                            out.write_all(&id.to_le_bytes()).map_err(StageError::io("write", &examples.path))?;
                        }
                        let name = rows::text_at(ids, row).unwrap_or_default().to_owned();
                        examples.entries.push(Entry { name, offset, tokens, supervised: example.supervised });
                        offset += 4 * tokens as u64;
                    }
                    Err(rejection) => {
                        examples.note(&rejection);
                        fallen.push(row as u64);
                        rejections.push(rejection);
                    }
                }
            }
            examples.read += batch.num_rows();
            if rejects {
                task.read(batch.num_rows() as u64);
                task.kept((batch.num_rows() - fallen.len()) as u64);
                let fallen = arrow::compute::take_record_batch(&batch, &UInt64Array::from(fallen))?;
                task.reject(&fallen, &rejections)?;
            }
        }
        out.flush().map_err(StageError::io("write", &examples.path))?;
        Ok(examples)
    }

    fn note(&mut self, rejection: &Rejection) {
        if rejection.reason == "too_long" {
            self.too_long += 1;
            return;
        }
        self.unusable += 1;
        if self.first.is_none() {
            let evidence = rejection.evidence.as_ref().map(|evidence| format!(": {evidence}")).unwrap_or_default();
            self.first = Some(format!("{}{evidence}", rejection.reason));
        }
    }

    /// Numbers of tokens, in order.
    pub fn lengths(&self) -> Vec<usize> {
        self.entries.iter().map(|entry| entry.tokens).collect()
    }

    /// The examples of a window.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn window(&self, members: &[usize]) -> Result<Micro, StageError> {
        let mut examples = Vec::with_capacity(members.len());
        for member in members {
            let entry = &self.entries[*member];
            let mut bytes = vec![0; 4 * entry.tokens];
            self.file.read_exact_at(&mut bytes, entry.offset).map_err(StageError::io("read", &self.path))?;
            let ids = bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])).collect();
            examples.push((entry.name.as_str(), Example { ids, supervised: entry.supervised.clone() }));
        }
        Ok(Micro::of(examples.iter().map(|(name, example)| (*name, example))))
    }
}

fn rendered(
    batch: &RecordBatch,
    student: &Student,
    window: usize,
) -> Result<Vec<Result<Example, Rejection>>, StageError> {
    let conversations = Conversations::new(batch)?;
    let render = |row: usize| {
        let conversation = conversations.at(row).map_err(|reason| Rejection::new(reason, None))?;
        student.render(&conversation, window).map_err(|unusable| {
            let evidence = match &unusable {
                Unusable::TooLong { tokens, window } => json!({ "tokens": tokens, "window": window }),
                other => json!({ "message": other.to_string() }),
            };
            Rejection::new(unusable.reason(), Some(evidence))
        })
    };
    Ok((0..batch.num_rows()).into_par_iter().map(render).collect())
}
