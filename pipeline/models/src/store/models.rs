//! The models whose calls a folder holds, and finding one by what a person types.

use std::fs::File;
use std::io;
use std::path::Path;

use super::record::{self, HEADER};
use super::walk::walk;
use super::{CallStore, EXTENSION, list};
use crate::error::ModelError;

/// Fewest letters of a digest that stand for it.
const SHORTEST: usize = 6;
const DIGEST: &str = "sha256:";

impl CallStore {
    /// Identities (`name` or `name@revision`) of the models with calls here, sorted.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn models(&self) -> Result<Vec<String>, ModelError> {
        let mut models = Vec::new();
        for folder in list(&self.folder)?.into_iter().filter(|path| path.is_dir()) {
            // a folder holds one model
            for path in list(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == EXTENSION)) {
                if let Some(model) = first_model(&path).map_err(|error| ModelError::store(&path, error))? {
                    models.push(model);
                    break;
                }
            }
        }
        models.sort_unstable();
        models.dedup();
        Ok(models)
    }

    /// The model that a person means, as [`Prune::model`](super::Prune) and [`CallStore::write_recordings`] take it: a
    /// name, an identity (`name@revision`), or the beginning of a digest (6 letters or more, with or without `sha256:`,
    /// `@f32` or `…` at the end).
    ///
    /// # Errors
    /// When no model or more than one is meant; the message lists those that are here.
    pub fn model_named(&self, given: &str) -> Result<String, ModelError> {
        let models = self.models()?;
        let name_of =
            |model: &str| model.rsplit_once('@').map_or_else(|| model.to_owned(), |(name, _)| name.to_owned());
        if models.iter().any(|model| model == given || name_of(model) == given) {
            return Ok(given.to_owned());
        }
        let (start, revision) =
            given.split_once('@').map_or((given, None), |(start, revision)| (start, Some(revision)));
        let start = start.strip_prefix(DIGEST).unwrap_or(start).trim_end_matches(['…', '.']);
        let is_meant = |model: &&String| {
            let Some(rest) = model.strip_prefix(DIGEST) else { return false };
            let (digest, of_model) = rest.split_once('@').unwrap_or((rest, ""));
            start.len() >= SHORTEST && digest.starts_with(start) && revision.is_none_or(|revision| revision == of_model)
        };
        let meant: Vec<&String> = models.iter().filter(is_meant).collect();
        if let [model] = meant.as_slice() {
            return Ok((*model).clone());
        }
        let held = if models.is_empty() { "nothing".to_owned() } else { models.join(", ") };
        let message = if meant.is_empty() {
            format!("the call store holds no calls of it; it holds {held}")
        } else {
            format!("several models begin so; give more of the digest. The call store holds {held}")
        };
        Err(ModelError::config(given, message))
    }
}

/// The model of the first record that can be read.
fn first_model(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let size = file.metadata()?.len();
    let mut model = None;
    let walked = walk(&file, 0, size, |key, place, record| {
        let read;
        let record = if record.is_some() {
            record
        } else {
            read = record::read_record(&file, &key, place)?;
            read.as_deref()
        };
        let payload = record.and_then(|record| record.get(HEADER..)).unwrap_or_default();
        model = record::outline(payload, |call| {
            let mut text = String::new();
            call.write_model(&mut text);
            text
        });
        // an error ends the walk
        if model.is_some() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    });
    match walked {
        Err(error) if model.is_none() => Err(error),
        _ => Ok(model),
    }
}
