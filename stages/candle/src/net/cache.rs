//! The paged key/value cache of one thread, with the buffers that passes reuse.

use std::fs;

use super::NetConfig;
use crate::NetError;
use crate::kernels::{KeyValues, Panels};

/// Keys and values of all layers, page by page, and scratch buffers.
#[derive(Debug)]
pub struct Cache {
    pub(super) pages: usize,
    pub(super) layers: Vec<KeyValues>,
    pub(super) spare: Vec<Vec<f32>>,
    pub(super) panels: Panels,
    pub(super) scratch: Vec<f32>,
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
}

impl Cache {
    /// Room for `pages` pages of every layer.
    pub(super) fn new(config: &NetConfig, pages: usize) -> Result<Self, NetError> {
        let needed = (pages as u64).saturating_mul(page_bytes(config) as u64);
        let available = available_memory().unwrap_or(u64::MAX);
        let refusal = |available| NetError::CacheMemory { pages, needed, available };
        if needed > available {
            return Err(refusal(Some(available)));
        }
        let layers = (0..config.layers).map(|_| KeyValues::with_room(pages, config.attention()));
        let layers = layers.collect::<Result<_, _>>().map_err(|_| refusal(None))?;
        Ok(Self {
            pages,
            layers,
            spare: Vec::new(),
            panels: Panels::default(),
            scratch: Vec::new(),
            cos: Vec::new(),
            sin: Vec::new(),
        })
    }

    /// A buffer of `length` elements with any content.
    pub(super) fn take(&mut self, length: usize) -> Vec<f32> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(length, 0.0);
        buffer
    }
}

/// Bytes of one page over all layers.
pub(super) fn page_bytes(config: &NetConfig) -> usize {
    config.layers * config.attention().page_elements() * size_of::<f32>()
}

/// Bytes that the system can give, where it says so.
fn available_memory() -> Option<u64> {
    let report = fs::read_to_string("/proc/meminfo").ok()?;
    let line = report.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
