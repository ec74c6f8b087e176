//! First step: sends what could make a row a duplicate to where it meets its like. Keys are numbers; the text stays.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, RecordBatch, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{StageError, Task, rows};
use rayon::prelude::*;
use schemas::queries;
use stage_text::lsh::{Bands, band_hashes};
use stage_text::minhash::Sketcher;
use stage_text::ngram::mix;
use stage_text::shingle::Shingler;

use super::Dedup;
use super::parts::{Parts, Texts};

/// Sketches of all tasks and runs must be comparable, so their seed is fixed.
const SKETCH_SEED: u64 = 0;
/// Rows that a thread takes at once.
const CHUNK: usize = 64;

/// `sort` of a key of a query id; `other` is the digest of its label, 0 without one.
pub const QUERY: u64 = 0;
/// `sort` of a key of a text: `key` and `other` are the halves of its digest.
pub const TEXT: u64 = 1;
/// `sort` of a key of a band; `other` is half of the text's digest.
pub const BAND: u64 = 2;

/// Columns of a key, and of what later steps make of it.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let field = |name| Field::new(name, DataType::UInt64, false);
        Arc::new(Schema::new(["sort", "key", "other", "unit"].map(field).to_vec()))
    });
    Arc::clone(&SCHEMA)
}

/// What rows with the same `sort` and `hash` have in common, and the unit that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is a key of.
    pub sort: u64,
    /// Hash that must agree.
    pub hash: u64,
    /// Hash that tells those with the same hash apart.
    pub other: u64,
    /// The unit, see [`Parts::units`].
    pub unit: u64,
}

impl Key {
    /// The keys of a batch.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn read(batch: &RecordBatch) -> Result<impl Iterator<Item = Self> + '_, StageError> {
        let column = |name| rows::row_numbers(batch, name).map(UInt64Array::values);
        let (sorts, keys, others, units) = (column("sort")?, column("key")?, column("other")?, column("unit")?);
        let rows = 0..batch.num_rows();
        Ok(rows.map(|row| Self { sort: sorts[row], hash: keys[row], other: others[row], unit: units[row] }))
    }

    /// Keys as rows.
    ///
    /// # Errors
    /// Never, in fact: the columns are those of the schema.
    pub fn batch(keys: &[Self]) -> Result<RecordBatch, StageError> {
        let column =
            |value: fn(&Self) -> u64| -> ArrayRef { Arc::new(keys.iter().map(value).collect::<UInt64Array>()) };
        let columns =
            vec![column(|key| key.sort), column(|key| key.hash), column(|key| key.other), column(|key| key.unit)];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }
}

/// Sends the keys of a slice. Of equal texts in the slice only the first is sketched and sends bands: a digest says
/// already that the others are equal to it.
///
/// # Errors
/// When a column is missing or the disk refuses.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let bands = if dedup.near { Some(dedup.bands()?) } else { None };
    let mut batches = task.batches_of(&parts.columns())?;
    let (mut units_seen, mut texts_seen) = (HashSet::new(), HashSet::new());
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let rows = Rows {
            texts: parts.texts(&batch)?,
            within: parts.within.as_deref().map(|column| rows::texts(&batch, column)).transpose()?,
            ids: rows::texts(&batch, queries::QUERY_ID)?,
            labels: if parts.has_labels { Some(rows::texts(&batch, queries::LABEL)?) } else { None },
            units: parts.units(&batch, batches.ordinal())?,
        };
        // the text of a query is that of each of its traces
        let is_wanted: Vec<bool> = rows.units.iter().map(|unit| units_seen.insert(*unit)).collect();
        let digests: Vec<Option<u128>> = (0..batch.num_rows())
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|row| if is_wanted[row] { rows.digest(row) } else { None })
            .collect();
        let is_new: Vec<bool> = digests.iter().map(|digest| digest.is_some_and(|it| texts_seen.insert(it))).collect();
        let chunks: Vec<Range<usize>> =
            (0..batch.num_rows()).step_by(CHUNK).map(|start| start..batch.num_rows().min(start + CHUNK)).collect();
        let keys = chunks.into_par_iter().map_init(
            || Maker::new(dedup, bands),
            |maker, chunk| {
                let mut keys = Vec::with_capacity(chunk.len() * (bands.map_or(0, |bands| bands.bands) + 2));
                for row in chunk {
                    rows.add_keys(row, digests[row], &mut keys);
                    if let Some(digest) = digests[row].filter(|_| is_new[row]) {
                        rows.add_bands(maker, row, digest, &mut keys);
                    }
                }
                keys
            },
        );
        for keys in keys.collect::<Vec<Vec<Key>>>() {
            let count = u64::from(task.partitions());
            let partitions = keys.iter().map(|key| u32::try_from(key.hash % count).unwrap_or(0)).collect();
            task.send(partitions, Key::batch(&keys)?)?;
        }
    }
    Ok(())
}

/// 128 bits of the digest of texts, each with its length behind it: the hasher is fastest on a text from its start.
pub fn hash_of(texts: &[&str]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(text.as_bytes()).update(&(text.len() as u64).to_le_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

/// Half of [`hash_of`] a single text.
pub fn half_hash_of(text: &str) -> u64 {
    low(hash_of(&[text]))
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn low(hash: u128) -> u64 {
    hash as u64
}

/// Working memory of one thread.
struct Maker {
    shingler: Shingler,
    sketcher: Box<dyn Sketcher + Send>,
    sketch: Vec<u64>,
    bands: Option<Bands>,
    hashes: Vec<u64>,
}

impl Maker {
    fn new(dedup: &Dedup, bands: Option<Bands>) -> Self {
        let sketcher = dedup.sketch.sketcher(dedup.components, SKETCH_SEED);
        Self { shingler: dedup.shingler(), sketcher, sketch: Vec::new(), bands, hashes: Vec::new() }
    }

    /// The band hashes of a text; none where it has no token.
    fn band_hashes(&mut self, text: &str) -> &[u64] {
        self.hashes.clear();
        if let Some(bands) = self.bands {
            self.sketcher.sketch(self.shingler.shingles(text).hashes, &mut self.sketch);
            if !self.sketch.is_empty() {
                band_hashes(&self.sketch, bands, &mut self.hashes);
            }
        }
        &self.hashes
    }
}

/// The columns of a batch. Rows of two groups share neither digest nor bands.
struct Rows<'a> {
    texts: Texts<'a>,
    within: Option<&'a StringViewArray>,
    ids: &'a StringViewArray,
    labels: Option<&'a StringViewArray>,
    units: Vec<u64>,
}

impl Rows<'_> {
    fn group(&self, row: usize) -> Option<&str> {
        self.within.and_then(|within| rows::text_at(within, row))
    }

    /// Digest of a row's text and group; `None` without a text.
    fn digest(&self, row: usize) -> Option<u128> {
        let text = self.texts.at(row)?;
        Some(self.group(row).map_or_else(|| hash_of(&[&text]), |group| hash_of(&[&text, group])))
    }

    fn add_keys(&self, row: usize, digest: Option<u128>, keys: &mut Vec<Key>) {
        let unit = self.units[row];
        if let Some(labels) = self.labels {
            let label = rows::text_at(labels, row).map_or(0, |label| half_hash_of(label).max(1));
            keys.push(Key { sort: QUERY, hash: half_hash_of(self.ids.value(row)), other: label, unit });
        }
        keys.extend(digest.map(|digest| Key { sort: TEXT, hash: low(digest), other: low(digest >> 64), unit }));
    }

    fn add_bands(&self, maker: &mut Maker, row: usize, digest: u128, keys: &mut Vec<Key>) {
        let (unit, group) = (self.units[row], self.group(row).map_or(0, half_hash_of));
        let text = self.texts.at(row).unwrap_or_default();
        let bands = maker.band_hashes(&text).iter();
        keys.extend(bands.map(|band| Key { sort: BAND, hash: mix(band ^ group), other: low(digest), unit }));
    }
}
