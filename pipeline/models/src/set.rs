//! The models of a project by name, opened when a stage first needs them: a run that has nothing to ask reads no call
//! store and no key.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::ModelError;
use crate::model::Model;

type Opener = Box<dyn Fn(&str) -> Result<Arc<dyn Model>, ModelError> + Send + Sync>;
type Locator = Box<dyn Fn(&str) -> Result<PathBuf, ModelError> + Send + Sync>;

/// Models by the NAME of `[models.NAME]`.
pub struct ModelSet {
    opener: Opener,
    locator: Option<Locator>,
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
        Self { opener: Box::new(opener), locator: None, opened: Mutex::new(BTreeMap::new()) }
    }

    /// Lets `locator` say where the weights of a model lie, for stages that train.
    #[must_use]
    pub fn locating(mut self, locator: impl Fn(&str) -> Result<PathBuf, ModelError> + Send + Sync + 'static) -> Self {
        self.locator = Some(Box::new(locator));
        self
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
