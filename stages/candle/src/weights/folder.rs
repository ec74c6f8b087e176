//! Weights of a folder as Hugging Face lays it out: `config.json` and safetensors.

use std::path::Path;

use super::{EMBEDDING, HEAD, NORM, Shards, Source};
use crate::NetError;
use crate::net::NetConfig;

/// An open folder.
pub(crate) struct FolderWeights {
    shards: Shards,
    /// What `config.json` says.
    pub(crate) config: NetConfig,
}

impl FolderWeights {
    /// Opens a folder, reads its configuration and the headers of its shards.
    pub(crate) fn open(path: &Path) -> Result<Self, NetError> {
        let config = super::config::read(&path.join("config.json"))?;
        let weights = Self { shards: Shards::open(path)?, config };
        weights.refuse_extra()?;
        Ok(weights)
    }

    /// Refuses tensors that the net would not use.
    fn refuse_extra(&self) -> Result<(), NetError> {
        let is_known = |name: &str| match name {
            // a tied head is the embedding; some files hold it twice
            EMBEDDING | NORM | HEAD => true,
            _ => {
                let part = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
                part.is_some_and(|(layer, part)| {
                    layer.parse().is_ok_and(|layer: usize| layer < self.config.layers)
                        && super::layer_parts(&self.config).any(|known| known == part)
                })
            }
        };
        // frequencies of rotary positions, which old files hold, follow from the configuration
        let mut names = self.shards.shapes().map(|(name, _)| name);
        let extra = names.find(|name| !is_known(name) && !name.ends_with("rotary_emb.inv_freq"));
        match extra {
            Some(name) => Err(NetError::ExtraTensor { path: self.shards.path().to_owned(), name: name.to_owned() }),
            None => Ok(()),
        }
    }
}

impl Source for FolderWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, NetError> {
        self.shards.read(name, shape)
    }
}
