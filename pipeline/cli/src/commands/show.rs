//! `pipeline show`: rows of a stage as a person reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use arrow::array::{Array as _, RecordBatch};
use pipeline_core::json_rows::{to_json, value_at};
use pipeline_core::table_io::TableFile;
use pipeline_core::{TableType, rows};
use pipeline_engine::record::grouped;
use pipeline_engine::records::FileRecord;
use pipeline_engine::store::Version;
use pipeline_engine::{Node, Registry};
use schemas::rejects;
use serde_json::{Map, Value};
use stage_relational::condition::Condition;

use crate::args::Show;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::session::{Options, Session};

/// Runs the command.
pub fn show(arguments: &Show, registry: &Registry) -> Result<Exit, Failure> {
    let session = Session::open(&arguments.project, registry, Options::default())?;
    let (name, output_name) = match arguments.stage.split_once('.') {
        Some((stage, output)) if session.project.find(&arguments.stage).is_none() => (stage, Some(output)),
        _ => (arguments.stage.as_str(), None),
    };
    let node = &session.project.nodes[session.stage(name)?];
    let (version, success) = session.output_of(name)?;
    let (files, table) = if arguments.rejects {
        (success.rejects.clone(), rejected_rows(node))
    } else {
        let wanted = output_name.unwrap_or(pipeline_core::port::MAIN);
        let record = success.outputs.get(wanted);
        let record = record.ok_or_else(|| {
            let known: Vec<&str> = success.outputs.keys().map(String::as_str).collect();
            Failure::usage(format!("`{name}` has no output `{wanted}`; it has: {}", known.join(", ")))
        })?;
        let declared = node.outputs.iter().find(|output| output.name == wanted);
        (record.files.clone(), declared.map(|output| output.rows.clone()))
    };
    // a reader may ask about any column, also about one that nobody filled
    let table = table.map(|table| {
        let names: Vec<String> = table.schema.fields().iter().map(|field| field.name().clone()).collect();
        table.fill(names.iter().map(String::as_str))
    });
    let condition = match (&arguments.condition, &table) {
        (Some(text), Some(table)) => {
            Some(Condition::check(text, table).map_err(|error| Failure::usage(error.message))?)
        }
        (Some(text), None) => Some(Condition::read(text).map_err(|error| Failure::usage(error.message))?),
        (None, _) => None,
    };
    let reading = Reading { version: &version, files: &files, condition: condition.as_ref() };
    if arguments.stats {
        return reading.stats();
    }
    reading.rows(arguments)
}

/// Columns of a stage's rejects file.
fn rejected_rows(node: &Node) -> Option<TableType> {
    let port = node.rows_port().and_then(|port| node.ports.first(port));
    let rows = port.or_else(|| node.outputs.first().map(|output| &output.rows))?;
    Some(TableType { table: None, schema: rejects::schema(&rows.schema), filled: rows.filled.clone() })
}

struct Reading<'a> {
    version: &'a Version,
    files: &'a [FileRecord],
    condition: Option<&'a Condition>,
}

impl Reading<'_> {
    /// Calls `visit` with batches of matching rows until it returns false.
    fn each(&self, mut visit: impl FnMut(&RecordBatch) -> Result<bool, Failure>) -> Result<(), Failure> {
        for file in self.files {
            let table = TableFile::open(&self.version.folder.join(&file.file))?;
            for batch in table.read(0, file.rows, None)? {
                let mut batch = batch?;
                if let Some(condition) = self.condition {
                    batch = rows::filter(&batch, &condition.mask(&batch)?)?;
                }
                if !visit(&batch)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn rows(&self, arguments: &Show) -> Result<Exit, Failure> {
        let mut shown = 0;
        self.each(|batch| {
            let batch = batch.slice(0, batch.num_rows().min(arguments.rows - shown));
            for row in to_json(&batch) {
                shown += 1;
                if arguments.json {
                    output::json(&row);
                } else {
                    output::line(readable(shown, &row, arguments.full));
                }
            }
            Ok(shown < arguments.rows)
        })?;
        if !arguments.json {
            let total: u64 = self.files.iter().map(|file| file.rows).sum();
            let of = if self.condition.is_some() { "rows that match" } else { "rows" };
            output::note(format!("{shown} {of} shown, {} in the table", grouped(total)));
        }
        Ok(Exit::Done)
    }

    fn stats(&self) -> Result<Exit, Failure> {
        let mut columns: Vec<(String, Stats)> = Vec::new();
        self.each(|batch| {
            let schema = batch.schema();
            for (index, (field, column)) in schema.fields().iter().zip(batch.columns()).enumerate() {
                if columns.len() <= index {
                    columns.push((field.name().clone(), Stats::default()));
                }
                let stats = &mut columns[index].1;
                for row in 0..column.len() {
                    stats.add(&value_at(column.as_ref(), row));
                }
            }
            Ok(true)
        })?;
        let table = columns.into_iter().map(|(name, stats)| stats.row(name));
        output::line(output::table(&["column", "values", "nulls", "distinct", "what"], table.collect(), 1));
        Ok(Exit::Done)
    }
}

/// Values counted apart until there are this many.
const DISTINCT: usize = 10_000;
/// Bytes up to which a text is counted as it is.
const COUNTED_WHOLE: usize = 128;

#[derive(Default)]
struct Stats {
    values: u64,
    nulls: u64,
    least: Option<f64>,
    most: Option<f64>,
    sum: f64,
    characters: u64,
    counted: BTreeMap<String, u64>,
    is_full: bool,
}

impl Stats {
    fn add(&mut self, value: &Value) {
        if value.is_null() {
            self.nulls += 1;
            return;
        }
        self.values += 1;
        if let Some(number) = value.as_f64() {
            self.least = Some(self.least.map_or(number, |least| least.min(number)));
            self.most = Some(self.most.map_or(number, |most| most.max(number)));
            self.sum += number;
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.characters += text.chars().count() as u64;
        let text = counted_as(text);
        if self.counted.len() < DISTINCT {
            *self.counted.entry(text).or_default() += 1;
        } else if let Some(count) = self.counted.get_mut(&text) {
            *count += 1;
        } else {
            self.is_full = true;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^52")]
    fn row(self, name: String) -> Vec<String> {
        let distinct = format!("{}{}", grouped(self.counted.len() as u64), if self.is_full { "+" } else { "" });
        let what = match (self.least, self.most) {
            (Some(least), Some(most)) => {
                format!("{least:.4} to {most:.4}, mean {:.4}", self.sum / self.values.max(1) as f64)
            }
            _ if self.counted.len() <= 8 && !self.is_full => {
                let parts = self
                    .counted
                    .iter()
                    .map(|(text, count)| format!("{} {}", crate::text::brief(text, 24), grouped(*count)));
                parts.collect::<Vec<_>>().join(", ")
            }
            _ => format!("{} characters on average", grouped(self.characters / self.values.max(1))),
        };
        vec![name, grouped(self.values), grouped(self.nulls), distinct, what]
    }
}

/// A text as it is counted: of a long one its beginning and a hash, so that memory does not grow with texts.
fn counted_as(text: String) -> String {
    if text.len() <= COUNTED_WHOLE {
        return text;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{} {:016x}", &text[..text.floor_char_boundary(COUNTED_WHOLE)], hasher.finish())
}

/// Columns that are shown as blocks of text, in this order, after the short ones.
const BLOCKS: [&str; 7] = ["prompt", "reasoning", "answer_text", "response", "tests", "extra", "reject_evidence"];

/// A row for a person: reasons and short values in a few lines, then the long texts, their middles left out unless
/// `is_full`.
pub fn readable(number: usize, row: &Map<String, Value>, is_full: bool) -> String {
    let mut text = format!("── {number} ");
    if let Some(reason) = row.get(rejects::REJECT_REASON).and_then(Value::as_str) {
        let _ = write!(text, "rejected: {reason} ");
    }
    text += "──";
    let hidden = ["messages", "request_messages", "token_ids", "token_logprobs", rejects::REJECT_REASON];
    let short = row.iter().filter(|(name, value)| {
        !value.is_null() && !BLOCKS.contains(&name.as_str()) && !hidden.contains(&name.as_str())
    });
    for (name, value) in short {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(text, "\n  {name}: {}", block(&shown, is_full));
    }
    for name in BLOCKS {
        let Some(content) = row.get(name).and_then(Value::as_str) else { continue };
        if name == "response" && row.get("answer_text").and_then(Value::as_str) == Some(content) {
            continue;
        }
        let shown = match name {
            "reasoning" if !is_full => without_middle_lines(content),
            rejects::REJECT_EVIDENCE => fields(content),
            _ => content.to_owned(),
        };
        let _ = write!(text, "\n  {name}:\n    {}", block(shown.trim_end(), is_full));
    }
    text
}

/// A text indented under its name.
fn block(text: &str, is_full: bool) -> String {
    let shown = if is_full { text.to_owned() } else { without_middle(text) };
    shown.replace('\n', "\n    ")
}

/// A JSON object as lines `name: value`.
fn fields(json: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(json) else { return json.to_owned() };
    let line = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}: {text}"),
        other => format!("{name}: {other}"),
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The beginning and the end of a text that is too long to read.
fn without_middle(text: &str) -> String {
    const END: usize = 2_000;
    if text.len() <= 3 * END {
        return text.to_owned();
    }
    let (head, tail) = (text.floor_char_boundary(END), text.ceil_char_boundary(text.len() - END));
    let hidden = text[head..tail].chars().count();
    format!("{}\n… {} characters …\n{}", &text[..head], grouped(hidden as u64), &text[tail..])
}

/// The first and last lines of a long reasoning.
fn without_middle_lines(text: &str) -> String {
    const ENDS: usize = 4;
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 2 * ENDS + 1 {
        return text.to_owned();
    }
    let hidden = lines.len() - 2 * ENDS;
    let middle = format!("… {hidden} lines …");
    let parts =
        lines[..ENDS].iter().copied().chain([middle.as_str()]).chain(lines[lines.len() - ENDS..].iter().copied());
    parts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_texts_lose_their_middle_unless_all_is_wanted() {
        let long = format!("{}{}", "始".repeat(3_000), "z".repeat(5_000));
        let row = json!({ "prompt": long, "reject_evidence": r#"{"rule":"tail_loop","span":[0,9],"text":"a\nb"}"# });
        let row = row.as_object().unwrap();
        let (brief, full) = (readable(1, row, false), readable(1, row, true));
        assert!(full.contains(&long) && brief.len() < 5_000);
        assert!(brief.contains("characters …") && brief.ends_with("text: a\n    b"), "{brief}");
    }

    #[test]
    fn long_texts_that_differ_are_counted_apart() {
        let long = |end: &str| format!("{}{end}", "长".repeat(9_000));
        assert_eq!(counted_as("short".to_owned()), "short");
        assert_eq!(counted_as(long("a")), counted_as(long("a")));
        assert!(counted_as(long("a")) != counted_as(long("b")) && counted_as(long("a")).len() < 200);
    }
}
