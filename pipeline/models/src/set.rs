//! The models of a project by name, opened when a stage first needs them: a run that has nothing to ask reads no call
//! store and no key.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::ModelError;
use crate::model::Model;

type Opener = Box<dyn Fn(&str) -> Result<Arc<dyn Model>, ModelError> + Send + Sync>;
type FolderOpener = Box<dyn Fn(&Path, &str) -> Result<Arc<dyn Model>, ModelError> + Send + Sync>;
type Locator = Box<dyn Fn(&str) -> Result<PathBuf, ModelError> + Send + Sync>;

/// Models by the NAME of `[models.NAME]`.
pub struct ModelSet {
    opener: Opener,
    locator: Option<Locator>,
    folder_opener: Option<FolderOpener>,
    opened: Mutex<BTreeMap<String, Arc<dyn Model>>>,
}

impl fmt::Debug for ModelSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ModelSet")
    }
}

impl ModelSet {
    /// Models that `opener` opens by name.
    pub fn new(opener: impl Fn(&str) -> Result<Arc<dyn Model>, ModelError> + Send + Sync + 'static) -> Self {
        Self { opener: Box::new(opener), locator: None, folder_opener: None, opened: Mutex::new(BTreeMap::new()) }
    }

    /// Lets `locator` say where the weights of a model lie, for stages that train.
    #[must_use]
    pub fn locating(mut self, locator: impl Fn(&str) -> Result<PathBuf, ModelError> + Send + Sync + 'static) -> Self {
        self.locator = Some(Box::new(locator));
        self
    }

    /// Lets `opener` open weights that no name stands for, given their folder and digest.
    #[must_use]
    pub fn opening_folders(
        mut self,
        opener: impl Fn(&Path, &str) -> Result<Arc<dyn Model>, ModelError> + Send + Sync + 'static,
    ) -> Self {
        self.folder_opener = Some(Box::new(opener));
        self
    }

    /// The model in a folder of weights whose digest is `digest`. It is not kept: weights go when the caller is done.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn in_folder(&self, folder: &Path, digest: &str) -> Result<Arc<dyn Model>, ModelError> {
        match &self.folder_opener {
            Some(opener) => opener(folder, digest),
            None => Err(ModelError::config(&folder.display().to_string(), "this run opens no weights")),
        }
    }

    /// Where the weights of this model lie: a `.gguf` file, or a folder in the layout of Hugging Face.
    ///
    /// # Errors
    /// When the model has no weights here, or they are not there.
    pub fn weights(&self, name: &str) -> Result<PathBuf, ModelError> {
        match &self.locator {
            Some(locator) => locator(name),
            None => Err(ModelError::config(name, "there are no weights in this run")),
        }
    }

    /// The model of this name; all callers share one.
    ///
    /// # Errors
    /// What keeps it from being opened; the next call tries again.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = opened.get(name) {
            return Ok(Arc::clone(model));
        }
        let model = (self.opener)(name)?;
        opened.insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }
}
