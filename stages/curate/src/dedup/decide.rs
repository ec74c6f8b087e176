//! Second step: brings all signatures together and decides which rows fall out, and why.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, RecordBatch, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{StageError, Task, rows};
use schemas::queries;
use serde_json::{Value, json};

use super::Dedup;
use super::near::Near;
use super::parts::Parts;
use super::units::Units;
use crate::text_column::excerpt;

/// Texts from which the share of the largest cluster is looked at.
const ALARM_FROM: usize = 100;
/// Largest clusters that the notes name.
const NAMED_CLUSTERS: usize = 20;
/// Different labels that the evidence of a conflict names.
const NAMED_LABELS: usize = 10;
/// Rows of a batch of decisions.
const BATCH_ROWS: usize = 8192;

/// Columns of a decision: a row that falls out.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("ordinal", DataType::UInt64, false),
            Field::new("reason", DataType::Utf8View, false),
            Field::new("evidence", DataType::Utf8View, false),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// Why a unit falls out.
type Fate = (&'static str, Value);

/// A unit that stays, and the number of units that it stands for, itself included.
type Cluster = (u32, usize);

/// Decides over all rows, sounds the alarm where that cannot be right, and hands the decisions on.
///
/// # Errors
/// [`StageError::Alarm`] when one cluster holds too much of the data; otherwise when a file is damaged.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let units = Units::read(parts, task)?;
    let mut fates: HashMap<u32, Fate> = HashMap::new();
    let conflicts = conflicts(&units, task)?;
    for (index, unit) in (0..).zip(&units.all) {
        if let Some(labels) = conflicts.get(&unit.query) {
            let labels: Vec<&String> = labels.iter().take(NAMED_LABELS).collect();
            fates.insert(index, ("label_conflict", json!({ "labels": labels })));
        }
    }
    let exact = exact_groups(&units);
    let members: Vec<u32> = exact.iter().map(|group| group[0]).collect();
    let mut near = Near::find(dedup, parts, task, &units, &members)?;
    let texts = exact.iter().map(Vec::len).sum();
    let clusters = drop_duplicates(&units, &exact, &mut near, &mut fates);
    check_share(dedup, parts, task, &units, &clusters, texts)?;
    let conflicts = units.queries.iter().filter(|query| query.has_conflict).count();
    task.note("clusters", note(&units, &clusters, texts, conflicts, near.number_twins));
    write(task, &units, &fates)
}

/// Labels of each query that has several, by index.
fn conflicts(units: &Units, task: &Task<'_>) -> Result<HashMap<u32, BTreeSet<String>>, StageError> {
    let with_conflict = (0..).zip(&units.queries).filter(|(_, query)| query.has_conflict);
    let wanted: HashMap<&str, u32> = with_conflict.map(|(index, query)| (&*query.id, index)).collect();
    let mut labels: HashMap<u32, BTreeSet<String>> = HashMap::new();
    if wanted.is_empty() {
        return Ok(labels);
    }
    for batch in task.port_batches("rows", Some(&[queries::QUERY_ID, queries::LABEL]))? {
        let batch = batch?;
        let (ids, texts) = (rows::texts(&batch, queries::QUERY_ID)?, rows::texts(&batch, queries::LABEL)?);
        for row in 0..batch.num_rows() {
            if let (Some(index), Some(label)) = (wanted.get(ids.value(row)), rows::text_at(texts, row)) {
                labels.entry(*index).or_default().insert(excerpt(label, (0, label.len())));
            }
        }
    }
    Ok(labels)
}

/// Units of the same text, the one that stays first; groups in the order of those.
fn exact_groups(units: &Units) -> Vec<Vec<u32>> {
    let with_text = units.without_conflict().filter_map(|unit| Some((units.all[unit as usize].content?, unit)));
    let mut by_content: Vec<(u128, u32)> = with_text.collect();
    by_content.sort_unstable();
    let mut groups: Vec<Vec<u32>> = by_content
        .chunk_by(|one, two| one.0 == two.0)
        .map(|group| group.iter().map(|(_, unit)| *unit).collect())
        .collect();
    for group in &mut groups {
        group.sort_unstable_by(|one, two| units.rank(*one, *two));
    }
    groups.sort_unstable_by(|one, two| units.rank(one[0], two[0]));
    groups
}

/// Lets all but the best unit of each cluster fall out; clusters of one are left out of the answer.
fn drop_duplicates(units: &Units, exact: &[Vec<u32>], near: &mut Near, fates: &mut HashMap<u32, Fate>) -> Vec<Cluster> {
    let roots = near.sets.roots();
    let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
    for ((member, root), group) in (0..).zip(&roots).zip(exact) {
        // groups are sorted best first, so the root of a cluster is the one that stays
        let survivor = exact[*root as usize][0];
        *sizes.entry(*root).or_default() += group.len();
        let of = units.id(survivor);
        let is_near = *root != member;
        let (reason, similarity) =
            if is_near { ("near_duplicate", near.similarity(member, *root)) } else { ("exact_duplicate", 1.0) };
        for unit in group.iter().skip(usize::from(!is_near)) {
            fates.insert(*unit, (reason, json!({ "of": of, "similarity": similarity })));
        }
    }
    let clusters = sizes.into_iter().filter(|(_, size)| *size > 1);
    let mut clusters: Vec<Cluster> = clusters.map(|(root, size)| (exact[root as usize][0], size)).collect();
    clusters.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| units.rank(one.0, two.0)));
    clusters
}

fn check_share(
    dedup: &Dedup,
    parts: &Parts,
    task: &Task<'_>,
    units: &Units,
    clusters: &[Cluster],
    texts: usize,
) -> Result<(), StageError> {
    let Some((survivor, size)) = clusters.first() else {
        return Ok(());
    };
    if texts < ALARM_FROM || *size as f64 / texts as f64 <= dedup.max_cluster_share {
        return Ok(());
    }
    let text = text_of(parts, task, units.all[*survivor as usize].first)?;
    Err(StageError::Alarm(format!(
        "{size} of {texts} texts would become one: the cluster of `{}` (\"{}\") is larger than `max_cluster_share` = {} \
         allows; look at the texts of column `{}`, or raise the parameter",
        units.id(*survivor),
        text.chars().take(80).collect::<String>(),
        dedup.max_cluster_share,
        parts.column,
    )))
}

/// The text of one row.
fn text_of(parts: &Parts, task: &Task<'_>, ordinal: u64) -> Result<String, StageError> {
    let mut batches = task.port_batches("rows", Some(&parts.text_columns()))?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let row = ordinal.checked_sub(batches.ordinal()).and_then(|row| usize::try_from(row).ok());
        if let Some(row) = row.filter(|row| *row < batch.num_rows()) {
            return Ok(parts.texts(&batch)?.at(row).unwrap_or_default().into_owned());
        }
    }
    Ok(String::new())
}

/// What the manifest says of the clusters: how many of each size, sizes in powers of two, and the largest.
fn note(units: &Units, clusters: &[Cluster], texts: usize, conflicts: usize, number_twins: usize) -> Value {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, size) in clusters {
        *sizes.entry(size.next_power_of_two()).or_default() += 1;
    }
    let sizes: Vec<Value> =
        sizes.into_iter().map(|(to, count)| json!({ "from": to / 2 + 1, "to": to, "clusters": count })).collect();
    let largest: Vec<Value> = clusters
        .iter()
        .take(NAMED_CLUSTERS)
        .map(|(survivor, size)| json!({ "of": units.id(*survivor), "size": size }))
        .collect();
    json!({
        "texts": texts,
        "clusters": clusters.len(),
        "sizes": sizes,
        "largest": largest,
        "label_conflicts": conflicts,
        "number_twins_kept": number_twins,
    })
}

/// Hands a decision on for each row that falls out, in the order of the rows.
fn write(task: &mut Task<'_>, units: &Units, fates: &HashMap<u32, Fate>) -> Result<(), StageError> {
    let fallen = units.rows.iter().filter_map(|(ordinal, unit)| Some((*ordinal, fates.get(unit)?)));
    let fallen: Vec<(u64, &Fate)> = fallen.collect();
    for rows in fallen.chunks(BATCH_ROWS) {
        let ordinals = UInt64Array::from_iter_values(rows.iter().map(|(ordinal, _)| *ordinal));
        let reasons = StringViewArray::from_iter_values(rows.iter().map(|(_, fate)| fate.0));
        let evidence = StringViewArray::from_iter_values(rows.iter().map(|(_, fate)| fate.1.to_string()));
        let columns: Vec<ArrayRef> = vec![Arc::new(ordinals), Arc::new(reasons), Arc::new(evidence)];
        task.write(&RecordBatch::try_new(schema(), columns)?)?;
    }
    Ok(())
}
