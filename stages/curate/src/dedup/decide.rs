//! Fifth step: brings all findings together, sounds the alarm where they cannot be right, and decides which rows fall
//! out, and why.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pipeline_core::{StageError, Task, rows};
use schemas::queries;
use serde_json::{Value, json};

use super::parts::Parts;
use super::plan::{Names, Plan};
use super::verified::{self, Finding};
use super::{Dedup, VERIFIED};
use crate::text_column::excerpt;

/// Texts from which the share of the largest cluster is looked at.
const ALARM_FROM: u64 = 100;
/// Largest clusters that the notes name.
const NAMED_CLUSTERS: usize = 20;
/// Members of such a cluster that the notes name.
const NAMED_MEMBERS: usize = 5;
/// Different labels that the evidence of a conflict names.
const NAMED_LABELS: usize = 10;
/// Rows of a batch of decisions.
const BATCH_ROWS: usize = 8192;

/// Columns of a decision about a unit that falls out or is in a cluster. `reason` is null where it stays, `labels` (a
/// JSON list) where no labels contradict each other, `cluster` (the id of the unit that stays), `size` and `similarity`
/// where it is in no cluster.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("unit", DataType::UInt64, false),
            Field::new("reason", DataType::Utf8View, true),
            Field::new("labels", DataType::Utf8View, true),
            Field::new("cluster", DataType::Utf8View, true),
            Field::new("size", DataType::Int64, true),
            Field::new("similarity", DataType::Float64, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// What becomes of a unit.
#[derive(Debug)]
struct Fate {
    unit: u64,
    reason: Option<&'static str>,
    /// Labels that contradict each other, as JSON.
    labels: Option<String>,
    /// The unit that stays, and the Jaccard index with it.
    cluster: Option<(u64, f64)>,
}

/// The units that a surviving unit stands for, itself included, best first.
type Clusters = BTreeMap<u64, Vec<u64>>;

/// Decides over all units and hands the decisions on.
///
/// # Errors
/// [`StageError::Alarm`] when one cluster holds too much of the data; otherwise when a file is damaged.
pub fn run(dedup: &Dedup, parts: &Parts, task: &mut Task<'_>) -> Result<(), StageError> {
    let plan = task.shared("plan", Plan::read)?;
    let names = task.shared("names", |task| Names::read(parts, &plan, task))?;
    let (mut near, mut twins, mut bounded) = (HashMap::new(), 0_usize, 0);
    for batch in task.earlier(VERIFIED)? {
        for finding in verified::read(&batch?)? {
            match finding {
                Finding::Near { unit, survivor, similarity } => {
                    near.insert(unit, (survivor, similarity));
                }
                Finding::Twin(_) => twins += 1,
                Finding::Bounded(count) => bounded += count,
            }
        }
    }
    let conflicts = conflicts(parts, &plan, task)?;
    let queries = conflicts.iter().map(|(_, query, _)| query).collect::<BTreeSet<_>>().len();
    let mut fates: Vec<Fate> = conflicts.into_iter().map(|(unit, _, labels)| conflict(unit, &labels)).collect();
    let clusters = cluster(&plan, &names, &near, &mut fates);
    let sizes = sorted(&clusters, &names);
    check_share(dedup, parts, task, &plan, &names, sizes.first())?;
    let mut note = note(&names, &sizes);
    note["texts"] = json!(plan.texts);
    note["label_conflicts"] = json!(queries);
    note["number_twins_kept"] = json!(twins);
    note["buckets_not_compared_in_full"] = json!(bounded);
    task.note("clusters", note);
    if dedup.near {
        task.note("bands", dedup.curve()?);
    }
    fates.sort_unstable_by_key(|fate| fate.unit);
    write(task, &names, &clusters, &fates)
}

/// Unit, query id and labels of each unit whose query has several, by unit.
fn conflicts(parts: &Parts, plan: &Plan, task: &Task<'_>) -> Result<Vec<(u64, String, BTreeSet<String>)>, StageError> {
    let (mut queries_of, mut labels) = (BTreeMap::new(), BTreeMap::<String, BTreeSet<String>>::new());
    if plan.conflicts.is_empty() {
        return Ok(Vec::new());
    }
    let mut batches = task.port_batches("rows", Some(&[queries::QUERY_ID, queries::LABEL]))?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let (ids, texts) = (rows::texts(&batch, queries::QUERY_ID)?, rows::texts(&batch, queries::LABEL)?);
        for (row, unit) in parts.units(&batch, batches.ordinal())?.into_iter().enumerate() {
            if plan.conflicts.binary_search(&unit).is_ok() {
                queries_of.insert(unit, ids.value(row).to_owned());
                let label = rows::text_at(texts, row).map(|label| excerpt(label, (0, label.len())));
                labels.entry(ids.value(row).to_owned()).or_default().extend(label);
            }
        }
    }
    let of = |(unit, query): (u64, String)| {
        let labels = labels.get(&query).cloned().unwrap_or_default();
        (unit, query, labels)
    };
    Ok(queries_of.into_iter().map(of).collect())
}

fn conflict(unit: u64, labels: &BTreeSet<String>) -> Fate {
    let labels: Vec<&String> = labels.iter().take(NAMED_LABELS).collect();
    Fate { unit, reason: Some("label_conflict"), labels: Some(json!(labels).to_string()), cluster: None }
}

/// Lets all but the best unit of each cluster fall out.
fn cluster(plan: &Plan, names: &Names, near: &HashMap<u64, (u64, f64)>, fates: &mut Vec<Fate>) -> Clusters {
    let mut clusters = Clusters::new();
    let mut add = |units: &[u64]| {
        let found = near.get(&units[0]).copied();
        let Some((survivor, similarity)) =
            found.or_else(|| names.survivor(units.iter().copied()).map(|survivor| (survivor, 1.0)))
        else {
            return;
        };
        let is_same_text = units.contains(&survivor);
        let reason = if is_same_text { "exact_duplicate" } else { "near_duplicate" };
        clusters.entry(survivor).or_default().extend(units);
        fates.extend(units.iter().map(|unit| {
            let reason = (*unit != survivor).then_some(reason);
            Fate { unit: *unit, reason, labels: None, cluster: Some((survivor, similarity)) }
        }));
    };
    for units in &plan.exact {
        add(units);
    }
    let is_in_group = |unit: &u64| plan.exact.binary_search_by_key(unit, |group| group[0]).is_ok();
    for unit in plan.members.iter().filter(|unit| near.contains_key(*unit) && !is_in_group(unit)) {
        add(&[*unit]);
    }
    clusters
}

/// Clusters, the largest first, each with its members, the best first.
fn sorted(clusters: &Clusters, names: &Names) -> Vec<(u64, Vec<u64>)> {
    let mut sorted: Vec<(u64, Vec<u64>)> =
        clusters.iter().map(|(survivor, units)| (*survivor, units.clone())).collect();
    sorted.sort_by(|one, two| two.1.len().cmp(&one.1.len()).then_with(|| names.rank(one.0, two.0)));
    for (_, units) in sorted.iter_mut().take(NAMED_CLUSTERS) {
        units.sort_by(|one, two| names.rank(*one, *two));
    }
    sorted
}

fn check_share(
    dedup: &Dedup,
    parts: &Parts,
    task: &Task<'_>,
    plan: &Plan,
    names: &Names,
    largest: Option<&(u64, Vec<u64>)>,
) -> Result<(), StageError> {
    let Some((survivor, units)) = largest else {
        return Ok(());
    };
    let (size, texts) = (units.len(), plan.texts);
    if texts < ALARM_FROM || size as f64 / texts as f64 <= dedup.max_cluster_share {
        return Ok(());
    }
    let text = text_of(parts, task, *survivor)?;
    Err(StageError::Alarm(format!(
        "{size} of {texts} texts would become one: the cluster of `{}` (\"{}\") is larger than `max_cluster_share` = {} \
         allows; look at the texts of column `{}`, or raise the parameter",
        names.id(*survivor),
        text.chars().take(80).collect::<String>(),
        dedup.max_cluster_share,
        parts.column,
    )))
}

/// The text of one unit.
fn text_of(parts: &Parts, task: &Task<'_>, unit: u64) -> Result<String, StageError> {
    let mut batches = task.port_batches("rows", Some(&parts.columns()))?;
    while let Some(batch) = batches.next() {
        let batch = batch?;
        let row = parts.units(&batch, batches.ordinal())?.into_iter().position(|found| found == unit);
        if let Some(row) = row {
            return Ok(parts.texts(&batch)?.at(row).unwrap_or_default().into_owned());
        }
    }
    Ok(String::new())
}

/// What the manifest says of the clusters: how many of each size, sizes in powers of two, and the largest.
fn note(names: &Names, clusters: &[(u64, Vec<u64>)]) -> Value {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, units) in clusters {
        *sizes.entry(units.len().next_power_of_two()).or_default() += 1;
    }
    let sizes: Vec<Value> =
        sizes.into_iter().map(|(to, count)| json!({ "from": to / 2 + 1, "to": to, "clusters": count })).collect();
    let largest = clusters.iter().take(NAMED_CLUSTERS).map(|(survivor, units)| {
        let members = units.iter().filter(|unit| *unit != survivor).take(NAMED_MEMBERS);
        let members: Vec<&str> = members.map(|unit| names.id(*unit)).collect();
        json!({ "of": names.id(*survivor), "size": units.len(), "among_them": members })
    });
    json!({ "clusters": clusters.len(), "sizes": sizes, "largest": largest.collect::<Vec<Value>>() })
}

/// Hands the decisions on, in the order of the units.
fn write(task: &mut Task<'_>, names: &Names, clusters: &Clusters, fates: &[Fate]) -> Result<(), StageError> {
    let size = |fate: &Fate| {
        let units = clusters.get(&fate.cluster?.0)?.len();
        i64::try_from(units).ok()
    };
    for fates in fates.chunks(BATCH_ROWS) {
        let cluster = fates.iter().map(|fate| fate.cluster.map(|(survivor, _)| names.id(survivor)));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(fates.iter().map(|fate| fate.unit).collect::<UInt64Array>()),
            Arc::new(fates.iter().map(|fate| fate.reason).collect::<StringViewArray>()),
            Arc::new(fates.iter().map(|fate| fate.labels.as_deref()).collect::<StringViewArray>()),
            Arc::new(cluster.collect::<StringViewArray>()),
            Arc::new(fates.iter().map(size).collect::<Int64Array>()),
            Arc::new(fates.iter().map(|fate| fate.cluster.map(|(_, similarity)| similarity)).collect::<Float64Array>()),
        ];
        task.write(&RecordBatch::try_new(schema(), columns)?)?;
    }
    Ok(())
}
