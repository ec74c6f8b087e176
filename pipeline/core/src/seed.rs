//! Randomness that depends on the data's identity, never on threads, clocks or the order of rows.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::digest::Digest;

/// A seed derived from (seed of `dag.toml`, kind, salt, row id, sample).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed of one row, or of one sample of it.
    pub fn for_row(seed: u64, kind: &str, salt: &str, row_id: &str, sample: u64) -> Self {
        let text = format!("{seed}\u{1f}{kind}\u{1f}{salt}\u{1f}{row_id}\u{1f}{sample}");
        let digest = Digest::of(text.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest.bytes()[..8]);
        Self(u64::from_le_bytes(bytes))
    }

    /// All 64 bits.
    pub fn value(self) -> u64 {
        self.0
    }

    /// 31 bits, which every server and every signed type takes.
    pub fn small(self) -> u64 {
        self.0 >> 33
    }

    /// A number in [0, 1), uniform over 2^53 values.
    pub fn unit(self) -> f64 {
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Partition of a key among `partitions`, the same on every machine.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    let partition = xxh3_64_with_seed(key, 0) % u64::from(partitions.max(1));
    u32::try_from(partition).unwrap_or(0)
}
