//! `pipeline kinds`: documentation of kinds and their parameters, from the code.

use std::fmt::Write as _;

use pipeline_core::StageEntry;
use pipeline_engine::{Registry, dagfile};
use pipeline_models::{BudgetConfig, ModelConfig};
use serde_json::{Map, Value, json};
use stage_verify::instruct;

use crate::args::Kinds;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::text::brief;

/// Runs the command.
pub fn kinds(arguments: &Kinds, registry: &Registry) -> Result<Exit, Failure> {
    if arguments.markdown {
        output::line(markdown(registry).trim_end());
        return Ok(Exit::Done);
    }
    let Some(name) = &arguments.kind else {
        if arguments.json {
            let kinds = registry.0.iter().map(|entry| (entry.kind.to_owned(), document(entry)));
            output::json(&Value::Object(kinds.collect()));
        } else {
            let rows = registry.0.iter().map(|entry| {
                vec![entry.kind.to_owned(), format!("v{}", entry.version), flow(entry), brief(&summary(entry), 90)]
            });
            output::line(output::table(&["kind", "", "reads", "what it does"], rows.collect(), 4));
            output::line(
                "\n`pipeline kinds KIND` shows its parameters; `models`, `budget`, `queries`, `traces` and `constraints` have pages too",
            );
        }
        return Ok(Exit::Done);
    };
    if let Some(table) = schemas::table(name) {
        output::line(table_page(table).trim_end());
        return Ok(Exit::Done);
    }
    if let Some((_, title, schema)) = sections().into_iter().find(|(section, ..)| section == name) {
        output::line(section_page(title, &schema).trim_end());
        return Ok(Exit::Done);
    }
    if name == CONSTRAINTS {
        output::line(constraints_page().trim_end());
        return Ok(Exit::Done);
    }
    let Some(entry) = registry.get(name) else {
        let mut known: Vec<&str> = registry.0.iter().map(|entry| entry.kind).collect();
        known.extend(["models", "budget", "queries", "traces", "metrics", CONSTRAINTS]);
        let hint = dagfile::nearest(name, &known)
            .map_or_else(|| format!("; there are: {}", known.join(", ")), |near| format!("; did you mean `{near}`?"));
        return Err(Failure::usage(format!("no kind `{name}`{hint}")));
    };
    if arguments.json {
        output::json(&document(entry));
    } else {
        output::line(page(entry).trim_end());
    }
    Ok(Exit::Done)
}

fn schema(entry: &StageEntry) -> Value {
    let mut schema = serde_json::to_value((entry.schema)()).unwrap_or(Value::Null);
    // parameters that several kinds share are a type of their own, which the root refers to
    let shared = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).map(str::to_owned);
    if let Some(Value::Object(shared)) = shared.map(|name| schema["$defs"][name].clone())
        && let Some(root) = schema.as_object_mut()
    {
        root.remove("$ref");
        for (key, value) in shared {
            root.entry(key).or_insert(value);
        }
    }
    schema
}

fn document(entry: &StageEntry) -> Value {
    let ports = entry.ports.iter().map(|port| {
        json!({
            "name": port.name, "doc": port.doc, "tables": port.tables, "needs": port.needs, "many": port.many,
            "optional": port.optional,
        })
    });
    json!({
        "kind": entry.kind, "version": entry.version, "ports": ports.collect::<Vec<_>>(), "parameters": schema(entry),
    })
}

fn summary(entry: &StageEntry) -> String {
    let schema = schema(entry);
    let text = schema["description"].as_str().unwrap_or_default();
    text.split("\n\n").next().unwrap_or_default().replace('\n', " ")
}

fn flow(entry: &StageEntry) -> String {
    if entry.ports.is_empty() {
        return "files".to_owned();
    }
    let ports = entry.ports.iter().map(|port| {
        let tables = if port.tables.is_empty() { "any".to_owned() } else { port.tables.join("|") };
        let name = if entry.ports.len() == 1 { String::new() } else { format!("{}: ", port.name) };
        format!("{name}{tables}")
    });
    ports.collect::<Vec<_>>().join(", ")
}

/// The page of a kind, as Markdown that reads well on a terminal.
fn page(entry: &StageEntry) -> String {
    let schema = schema(entry);
    let mut page = format!("## {} (version {})\n\n", entry.kind, entry.version);
    let _ = writeln!(page, "{}\n", schema["description"].as_str().unwrap_or_default());
    for port in entry.ports {
        let tables = if port.tables.is_empty() { "any table".to_owned() } else { port.tables.join(" or ") };
        let mut marks = Vec::new();
        if port.many {
            marks.push("several stages");
        }
        if port.optional {
            marks.push("optional");
        }
        let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
        let _ = writeln!(page, "- input `{}`: {}; {tables}{marks}", port.name, port.doc);
        if !port.needs.is_empty() {
            let _ = writeln!(page, "  - columns that must be filled: {}", port.needs.join(", "));
        }
    }
    page.push('\n');
    page += &parameters(&schema, &schema, 0);
    let _ = writeln!(page, "- `max_errors` (number, default 0): share of rows that may fail for passing reasons");
    let _ = writeln!(page, "- `allow_empty` (true/false, default false): whether a result without rows is fine");
    page
}

/// A line for each parameter; tables of their own are shown below theirs.
fn parameters(part: &Value, schema: &Value, depth: usize) -> String {
    let empty = Map::new();
    let required: Vec<&str> = part["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut page = String::new();
    for (name, parameter) in part["properties"].as_object().unwrap_or(&empty) {
        let default = match parameter.get("default") {
            Some(Value::Null) | None if required.contains(&name.as_str()) => "required".to_owned(),
            Some(Value::Null) | None => "optional".to_owned(),
            Some(default) => format!("default {default}"),
        };
        let text = parameter["description"].as_str().unwrap_or_default().replace('\n', " ");
        let indent = "  ".repeat(depth);
        let _ = writeln!(page, "{indent}- `{name}` ({}, {default}): {text}", type_name(parameter, schema));
        if depth < 2
            && let Some(table) = table_of(parameter, schema)
        {
            page += &parameters(table, schema, depth + 1);
        }
    }
    page
}

/// The definition behind a parameter that is a table of its own, or a list of such.
fn table_of<'a>(parameter: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    if let Some(reference) = parameter["$ref"].as_str() {
        return table_of(&schema["$defs"][reference.rsplit('/').next().unwrap_or_default()], schema);
    }
    if let Some(choices) = parameter["anyOf"].as_array() {
        return choices.iter().find_map(|choice| table_of(choice, schema));
    }
    for inner in ["items", "additionalProperties"] {
        if parameter[inner].is_object() {
            return table_of(&parameter[inner], schema);
        }
    }
    parameter["properties"].is_object().then_some(parameter)
}

/// Sections of a dag file that are no stages.
fn sections() -> Vec<(&'static str, &'static str, Value)> {
    let value = |schema: schemars::Schema| serde_json::to_value(schema).unwrap_or(Value::Null);
    vec![
        ("models", "Section `[models.NAME]`", value(schemars::schema_for!(ModelConfig))),
        ("budget", "Section `[budget]`", value(schemars::schema_for!(BudgetConfig))),
    ]
}

fn section_page(title: &str, schema: &Value) -> String {
    let about = schema["description"].as_str().unwrap_or_default();
    format!("## {title}\n\n{about}\n\n{}", parameters(schema, schema, 0))
}

/// The type of a parameter in words.
fn type_name(parameter: &Value, schema: &Value) -> String {
    if let Some(reference) = parameter["$ref"].as_str() {
        return type_name(&schema["$defs"][reference.rsplit('/').next().unwrap_or_default()], schema);
    }
    if let Some(choices) = parameter["oneOf"].as_array().or_else(|| parameter["anyOf"].as_array()) {
        let names: Vec<String> = choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .map(|choice| {
                choice["const"].as_str().map_or_else(|| type_name(choice, schema), |name| format!("\"{name}\""))
            })
            .collect();
        return names.join(" | ");
    }
    if let Some(choices) = parameter["enum"].as_array() {
        return choices.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    let named = |kind: &str| match kind {
        "string" => "text".to_owned(),
        "boolean" => "true/false".to_owned(),
        "array" => format!("list of {}", type_name(&parameter["items"], schema)),
        "object" => "table".to_owned(),
        other => other.to_owned(),
    };
    match &parameter["type"] {
        Value::String(kind) => named(kind),
        Value::Array(kinds) => {
            let kinds: Vec<String> =
                kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").map(named).collect();
            kinds.join(" | ")
        }
        _ => "any value".to_owned(),
    }
}

fn table_page(table: &schemas::Table) -> String {
    let mut page = format!("## Table {} (version {})\n\n{}\n\n", table.name, table.version, table.doc);
    for column in table.columns() {
        let _ = writeln!(page, "- `{}` ({}): {}", column.name, column.kind.name(), column.doc);
    }
    page
}

/// Name of the page of constraints.
const CONSTRAINTS: &str = "constraints";

/// The kinds of constraints that an instruction may have.
fn constraints_page() -> String {
    let mut page = "## Constraints of instructions\n\nWhat `constraints` of a query may hold, as `{id, kwargs}`: the \
                    kinds of IFEval and IFBench.\n\n"
        .to_owned();
    for kind in instruct::kinds() {
        let parameters = kind.parameters.iter().map(|parameter| {
            let optional = if parameter.required { "" } else { ", optional" };
            format!("`{}`: {}{optional}", parameter.name, parameter.shape.expected())
        });
        let parameters = parameters.collect::<Vec<_>>().join("; ");
        let parameters = if parameters.is_empty() { String::new() } else { format!(" ({parameters})") };
        let uses = kind.uses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let uses = if uses.is_empty() { String::new() } else { format!(" Uses {uses}.") };
        let _ = writeln!(page, "- `{}`{parameters}: {}.{uses}", kind.id, kind.summary.trim_end_matches('.'));
    }
    page
}

fn markdown(registry: &Registry) -> String {
    let mut text =
        "# Kinds and tables\n\nMade by `pipeline kinds --markdown`; a test compares this page with the code.\n\n"
            .to_owned();
    for entry in &registry.0 {
        text += &page(entry);
        text.push('\n');
    }
    for (_, title, schema) in sections() {
        text += &section_page(title, &schema);
        text.push('\n');
    }
    for table in schemas::TABLES {
        text += &table_page(table);
        text.push('\n');
    }
    text += &constraints_page();
    text
}
