//! First step: a narrow row for each row, enough to find what may be a duplicate of what.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, AsArray, Float64Array, ListArray, ListBuilder, RecordBatch, StringViewArray, UInt64Array, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use pipeline_core::{StageError, Task, rows};
use rayon::prelude::*;
use schemas::column::LIST_ITEM;
use schemas::{queries, traces};
use stage_text::ViewBuilder;
use stage_text::lsh::{Bands, band_hashes};
use stage_text::minhash::{Sketcher, SuperMinHash};
use stage_text::ngram::mix;

use super::Dedup;
use super::parts::{Level, Parts, Texts};

/// Sketches of all tasks and runs must be comparable, so their seed is fixed.
const SKETCH_SEED: u64 = 0;

/// Columns of a signature. `high` and `low` are the text's digest, null where there is no text and where an earlier
/// row of the slice has the same unit; `bands` are its band hashes, null there and where it has no token.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let bands = DataType::List(Arc::new(Field::new(LIST_ITEM, DataType::UInt64, true)));
        Arc::new(Schema::new(vec![
            Field::new("ordinal", DataType::UInt64, false),
            Field::new("query", DataType::Utf8View, false),
            Field::new("trace", DataType::Utf8View, true),
            Field::new("high", DataType::UInt64, true),
            Field::new("low", DataType::UInt64, true),
            Field::new("label", DataType::UInt64, true),
            Field::new("best", DataType::Float64, true),
            Field::new("bands", bands, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// Digest and band hashes of a text.
type Signature = (u128, Option<Vec<u64>>);

/// Hands the signatures of a slice on.
///
/// # Errors
/// When a column is missing or the disk refuses.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let mut batches = task.batches_of(&parts.columns())?;
    let mut seen = HashSet::new();
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let queries = rows::texts(&batch, queries::QUERY_ID)?;
        let is_first: Vec<bool> = (0..batch.num_rows())
            .map(|row| parts.level != Level::QueryOfTraces || seen.insert(hash_of(&[queries.value(row)])))
            .collect();
        let signatures = signatures(dedup, parts, &batch, &is_first)?;
        let ordinals = UInt64Array::from_iter_values((batches.ordinal()..).take(batch.num_rows()));
        let traces: StringViewArray = if parts.level == Level::Trace {
            rows::texts(&batch, traces::TRACE_ID)?.clone()
        } else {
            StringViewArray::new_null(batch.num_rows())
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(ordinals),
            Arc::new(queries.clone()),
            Arc::new(traces),
            Arc::new(half(&signatures, |hash| hash >> 64)),
            Arc::new(half(&signatures, |hash| hash)),
            Arc::new(labels(parts, &batch)?),
            Arc::new(best(parts, &batch)?),
            Arc::new(band_column(&signatures)),
        ];
        task.write(&RecordBatch::try_new(schema(), columns)?)?;
    }
    Ok(())
}

/// 128 bits of the digest of length-prefixed texts.
pub fn hash_of(texts: &[&str]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn low(hash: u128) -> u64 {
    hash as u64
}

fn half(signatures: &[Option<Signature>], half: impl Fn(u128) -> u128) -> UInt64Array {
    signatures.iter().map(|signature| signature.as_ref().map(|(hash, _)| low(half(*hash)))).collect()
}

fn labels(parts: &Parts, batch: &RecordBatch) -> Result<UInt64Array, StageError> {
    if !parts.has_labels {
        return Ok(UInt64Array::new_null(batch.num_rows()));
    }
    let labels = rows::texts(batch, queries::LABEL)?;
    Ok(labels.iter().map(|label| label.map(|label| low(hash_of(&[label])))).collect())
}

fn best(parts: &Parts, batch: &RecordBatch) -> Result<Float64Array, StageError> {
    let Some(name) = &parts.best else {
        return Ok(Float64Array::new_null(batch.num_rows()));
    };
    let column = rows::column(batch, name)?;
    if let Some(integers) = column.as_primitive_opt::<Int64Type>() {
        return Ok(integers.iter().map(|value| value.map(|value| value as f64)).collect());
    }
    rows::floats(batch, name).cloned()
}

fn band_column(signatures: &[Option<Signature>]) -> ListArray {
    let item = Field::new(LIST_ITEM, DataType::UInt64, true);
    let mut lists = ListBuilder::new(UInt64Builder::new()).with_field(item);
    for signature in signatures {
        match signature {
            Some((_, Some(bands))) => {
                lists.values().append_slice(bands);
                lists.append(true);
            }
            _ => lists.append(false),
        }
    }
    lists.finish()
}

fn signatures(
    dedup: &Dedup,
    parts: &Parts,
    batch: &RecordBatch,
    is_first: &[bool],
) -> Result<Vec<Option<Signature>>, StageError> {
    let texts = parts.texts(batch)?;
    let within = parts.within.as_deref().map(|column| rows::texts(batch, column)).transpose()?;
    let bands = dedup.near.then(|| dedup.bands());
    let signature = |maker: &mut Option<Maker>, row: usize| {
        if !is_first[row] {
            return None;
        }
        let group = within.and_then(|within| rows::text_at(within, row));
        sign(dedup, maker.as_mut(), &texts, group, row)
    };
    let rows = (0..batch.num_rows()).into_par_iter().with_min_len(64);
    Ok(rows.map_init(|| bands.map(|bands| Maker::new(dedup, bands)), signature).collect())
}

/// Working memory of one thread.
struct Maker {
    views: ViewBuilder,
    sketcher: SuperMinHash,
    sketch: Vec<u64>,
    bands: Bands,
}

impl Maker {
    fn new(dedup: &Dedup, bands: Bands) -> Self {
        let sketcher = SuperMinHash::new(dedup.components, SKETCH_SEED);
        Self { views: Dedup::view_builder(), sketcher, sketch: Vec::new(), bands }
    }
}

/// The signature of a row; rows of two groups share neither digest nor bands.
fn sign(
    dedup: &Dedup,
    maker: Option<&mut Maker>,
    texts: &Texts<'_>,
    group: Option<&str>,
    row: usize,
) -> Option<Signature> {
    let text = texts.at(row)?;
    let hash = group.map_or_else(|| hash_of(&[&text]), |group| hash_of(&[&text, group]));
    let bands = maker.and_then(|maker| {
        let shingles = dedup.shingles(maker.views.build_folded(&text))?;
        maker.sketcher.sketch(&shingles, &mut maker.sketch);
        let mut bands = Vec::with_capacity(maker.bands.bands);
        band_hashes(&maker.sketch, maker.bands, &mut bands);
        if let Some(group) = group {
            let group = low(hash_of(&[group]));
            for band in &mut bands {
                *band = mix(*band ^ group);
            }
        }
        Some(bands)
    });
    Some((hash, bands))
}
