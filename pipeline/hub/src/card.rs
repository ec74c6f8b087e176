//! The text of a dataset card: what the rows are, how they were made, under which licences, and how to load them.

use std::fmt::Write;

use arrow::datatypes::{DataType, Schema};
use schemas::queries;

use crate::header::Facts;
use crate::layout::COMPLETION;
use crate::license;
use crate::request::{CardFacts, ExportRequest, Format};
use crate::tally::Tally;

/// Sources that get a line of their own.
const SOURCE_LINES: usize = 50;
/// A language is named in the header when at least one row in this many is written in it.
const LANGUAGE_SHARE: u64 = 100;

/// What the header says about the rows.
pub fn facts(card: &CardFacts, tally: &Tally) -> Facts {
    let mut licenses: Vec<String> = tally.licenses.keys().flat_map(|terms| license::header_ids(terms)).collect();
    for model in &card.models {
        if let Some(terms) = model.output_terms.as_deref().filter(|_| tally.models.contains_key(&model.id)) {
            licenses.extend(license::header_ids(terms));
        }
    }
    licenses.sort();
    licenses.dedup();
    let languages = tally.languages.iter().filter(|(_, rows)| **rows * LANGUAGE_SHARE >= tally.rows);
    Facts { licenses, languages: languages.map(|(language, _)| (*language).to_owned()).collect(), rows: tally.rows }
}

/// The card's section, Markdown.
pub fn body(request: &ExportRequest, schema: &Schema, tally: &Tally) -> String {
    let mut text = String::new();
    about(&mut text, request, tally);
    making(&mut text, &request.card);
    models(&mut text, &request.card, tally);
    licenses(&mut text, tally);
    languages(&mut text, tally);
    columns(&mut text, request, schema);
    loading(&mut text, request.format);
    text
}

/// Appends a line; a `String` takes every text.
macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($part:tt)*) => {{ let _ = writeln!($text, $($part)*); }};
}

fn about(text: &mut String, request: &ExportRequest, tally: &Tally) {
    let card = &request.card;
    line!(text, "## The rows");
    line!(text);
    let what = if request.table == "traces" {
        "one answer of a model to a question, reasoning included"
    } else {
        "one question with its supervision"
    };
    line!(
        text,
        "{} rows, each of them {what}. They are the output of stage {} of pipeline {}, exported as `{}`.",
        grouped(tally.rows),
        code(&request.stage),
        code(&card.pipeline),
        request.format
    );
    if tally.unfinished > 0 {
        line!(text, "{} answers stop inside their reasoning.", grouped(tally.unfinished));
    }
    line!(text);
}

fn making(text: &mut String, card: &CardFacts) {
    line!(text, "## How they were made");
    line!(text);
    line!(text, "Made with {}; the same recipe and inputs give the same bytes.", code(&card.program));
    line!(text);
    if !card.stages.is_empty() {
        line!(text, "| stage | kind | read | kept | rejected | rows out |");
        line!(text, "|---|---|---:|---:|---|---:|");
        for stage in &card.stages {
            let mut fates: Vec<String> =
                stage.rejected.iter().map(|(reason, rows)| format!("{} {}", cell(reason), grouped(*rows))).collect();
            if stage.transient > 0 {
                fates.push(format!("left out after failures {}", grouped(stage.transient)));
            }
            line!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                cell(&stage.name),
                cell(&stage.kind),
                grouped(stage.read),
                grouped(stage.kept),
                if fates.is_empty() { "-".to_owned() } else { fates.join(", ") },
                grouped(stage.rows)
            );
        }
        line!(text);
    }
    if !card.recipe.is_empty() {
        line!(text, "Recipe:");
        line!(text);
        // indented, so that no line of it can end the block
        for recipe in card.recipe.iter().flat_map(|lines| lines.lines()) {
            line!(text, "    {}", recipe.replace("<!--", "<! --"));
        }
        line!(text);
    }
}

fn models(text: &mut String, card: &CardFacts, tally: &Tally) {
    let unlisted = tally.models.keys().filter(|id| card.models.iter().all(|model| model.id != **id));
    let unlisted: Vec<&String> = unlisted.collect();
    if card.models.is_empty() && unlisted.is_empty() {
        return;
    }
    line!(text, "## Models");
    line!(text);
    line!(text, "| model | used by | answers here | terms of its output |");
    line!(text, "|---|---|---:|---|");
    for model in &card.models {
        line!(
            text,
            "| {} | {} | {} | {} |",
            cell(&model.id),
            cell(&model.stages.join(", ")),
            grouped(tally.models.get(&model.id).copied().unwrap_or(0)),
            model.output_terms.as_deref().map_or_else(|| "not stated".to_owned(), cell)
        );
    }
    for id in unlisted {
        let name = if id.is_empty() { "not stated".to_owned() } else { cell(id) };
        line!(text, "| {name} | - | {} | not stated |", grouped(tally.models[id]));
    }
    line!(text);
}

fn licenses(text: &mut String, tally: &Tally) {
    line!(text, "## Licences and sources");
    line!(text);
    let unknown = tally.licenses.get("").copied().unwrap_or(0);
    if unknown > 0 {
        line!(text, "The licence of {} rows is unknown.", grouped(unknown));
        line!(text);
    }
    line!(text, "| licence | rows |");
    line!(text, "|---|---:|");
    for (terms, rows) in &tally.licenses {
        line!(text, "| {} | {} |", or_unknown(terms), grouped(*rows));
    }
    line!(text);
    let mut sources: Vec<(&String, &String, u64)> = tally
        .sources
        .iter()
        .flat_map(|(source, licenses)| licenses.iter().map(move |(terms, rows)| (source, terms, *rows)))
        .collect();
    // most rows first, then by name, so that the order is the same each time
    sources.sort_by(|one, other| other.2.cmp(&one.2).then_with(|| (one.0, one.1).cmp(&(other.0, other.1))));
    line!(text, "| source | licence | rows |");
    line!(text, "|---|---|---:|");
    for (source, terms, rows) in sources.iter().take(SOURCE_LINES) {
        line!(text, "| {} | {} | {} |", or_unknown(source), or_unknown(terms), grouped(*rows));
    }
    let further: u64 = sources.iter().skip(SOURCE_LINES).map(|(_, _, rows)| rows).sum();
    let further = further + tally.further_sources;
    if further > 0 {
        line!(text, "| further sources | | {} |", grouped(further));
    }
    line!(text);
}

fn languages(text: &mut String, tally: &Tally) {
    line!(text, "## Languages");
    line!(text);
    line!(text, "Told by script, question and answer apart, so that a row may count for two.");
    line!(text);
    line!(text, "| language | rows |");
    line!(text, "|---|---:|");
    for (language, rows) in &tally.languages {
        line!(text, "| {language} | {} |", grouped(*rows));
    }
    if tally.other_language > 0 {
        line!(text, "| neither, or formulas only | {} |", grouped(tally.other_language));
    }
    line!(text);
}

fn columns(text: &mut String, request: &ExportRequest, schema: &Schema) {
    line!(text, "## Columns");
    line!(text);
    line!(text, "| column | type | holds |");
    line!(text, "|---|---|---|");
    let table = schemas::table(&request.table);
    for field in schema.fields() {
        let known = table.and_then(|table| table.column(field.name()));
        let doc = match (request.format, field.name().as_str()) {
            (Format::Messages, queries::MESSAGES) if request.table == "traces" => {
                "the conversation, the model's answer as its last turn, with the reasoning in a `<think>` block"
            }
            (Format::PromptCompletion, queries::PROMPT) => "the conversation up to the answer",
            (Format::PromptCompletion, COMPLETION) => {
                "the model's answer as one turn, with the reasoning in a `<think>` block"
            }
            _ => known.map_or("added by a stage", |column| column.doc),
        };
        line!(text, "| {} | {} | {} |", cell(field.name()), type_name(field.data_type()), doc.replace('|', "\\|"));
    }
    line!(text);
}

fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::List(item) => format!("list of {}", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            format!("{{{}}}", names.join(", "))
        }
        DataType::Boolean => "true/false".to_owned(),
        kind if kind.is_integer() => "integer".to_owned(),
        kind if kind.is_floating() => "number".to_owned(),
        other => other.to_string(),
    }
}

fn loading(text: &mut String, format: Format) {
    line!(text, "## Loading");
    line!(text);
    line!(text, "```python");
    line!(text, "from datasets import load_dataset");
    line!(text);
    line!(text, "rows = load_dataset(\"path/to/this/folder\", split=\"train\")");
    line!(text, "```");
    line!(text);
    match format {
        Format::Messages => line!(text, "Trainers that read conversations take the column `messages` as it is."),
        Format::PromptCompletion => {
            line!(text, "Trainers that read `prompt` and `completion` take the loss on the answer alone.");
        }
        Format::Parquet => line!(text, "The files are plain Parquet; `polars` and `pyarrow` read `data/*.parquet`."),
    }
    line!(text);
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { cell(text) }
}

/// A text inside a table, which can end neither the cell nor the section.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'").replace("<!--", "<! --").replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }

    #[test]
    fn no_name_ends_a_cell_or_the_section() {
        assert_eq!(cell("a|b\n<!-- pipeline:end -->"), "a\\|b &lt;!-- pipeline:end -->");
        assert!(!code("<!-- pipeline:end -->").contains("<!-- pipeline:end -->"));
    }
}
