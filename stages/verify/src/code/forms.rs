//! The forms in which open data sets write tests, since people bring them as they are.
//!
//! Inputs beside outputs, with or without the name of a function; a list of cases that each say how
//! they are given; a list of assertions; a `check` function with an entry point. Keys that these data
//! sets carry besides are passed over.

use super::compare::{Compare, TOLERANCE};
use super::json::Json;
use super::tests::{
    Form, FunctionCase, StdinCase, Tests, TestsError, Text, expected, frame, get, name, statements, text,
};

type Entries = [(String, Json)];

/// Reads tests that do not state a `type`.
pub(super) fn read(value: &Json) -> Result<Tests, TestsError> {
    match value {
        Json::Map(entries) => object(entries),
        Json::List(items) => {
            let form = match items.first() {
                None => return Err(TestsError::Empty { place: "tests".to_string() }),
                Some(Json::Text(_)) => {
                    Form::Assert { setup: String::new(), asserts: statements("tests", items)?, entry: None }
                }
                Some(_) => listed(items)?,
            };
            frame(form, &[])
        }
        other => Err(expected("tests", "an object or a list", Some(other))),
    }
}

fn object(entries: &Entries) -> Result<Tests, TestsError> {
    let has = |key: &str| get(entries, key).is_some();
    if has("inputs") || has("outputs") {
        return frame(paired(entries)?, entries);
    }
    if has("test") || has("entry_point") {
        return frame(checked(entries)?, entries);
    }
    if has("test_list") {
        return frame(asserted(entries)?, entries);
    }
    let ways = "state `type` (stdin, function or assert), or give `inputs` and `outputs`, `test` and `entry_point`, or `test_list`";
    Err(TestsError::wrong("tests", ways))
}

/// `{"inputs": [..], "outputs": [..], "fn_name"?}`.
fn paired(entries: &Entries) -> Result<Form, TestsError> {
    let list = |key: &str| match get(entries, key) {
        Some(Json::List(items)) => Ok(items),
        other => Err(expected(key, "a list", other)),
    };
    let (inputs, outputs) = (list("inputs")?, list("outputs")?);
    if inputs.len() != outputs.len() {
        let what = format!("{} outputs for {} inputs; give one for each", outputs.len(), inputs.len());
        return Err(TestsError::wrong("outputs", what));
    }
    let pairs = inputs.iter().zip(outputs).enumerate();
    match get(entries, "fn_name") {
        None | Some(Json::Null) => {
            let read = |(index, (input, output)): (usize, (&Json, &Json))| {
                Ok(StdinCase {
                    input: lines(&format!("inputs[{index}]"), input, true)?,
                    output: lines(&format!("outputs[{index}]"), output, false)?,
                })
            };
            Ok(Form::Stdin { cases: pairs.map(read).collect::<Result<_, _>>()?, compare: Compare::Decimals(TOLERANCE) })
        }
        Some(Json::Text(entry)) => {
            let read = |(index, (input, output)): (usize, (&Json, &Json))| {
                let arguments = arguments(&format!("inputs[{index}]"), input)?;
                Ok(FunctionCase { arguments, expected: results(&format!("outputs[{index}]"), output, input)? })
            };
            let cases = pairs.map(read).collect::<Result<_, _>>()?;
            Ok(Form::Function { entry: name("fn_name", entry)?, cases, tolerance: TOLERANCE })
        }
        other => Err(expected("fn_name", "the name of a function", other)),
    }
}

/// Text, or a list of its lines.
fn lines(place: &str, value: &Json, may_be_null: bool) -> Result<Text, TestsError> {
    match value {
        Json::Null if may_be_null => Ok(Text::Plain(String::new())),
        Json::Text(text) => Ok(Text::Plain(text.clone())),
        Json::Number(number) => Ok(Text::Plain(number.clone())),
        Json::List(items) => {
            let line = |item: &Json| match item {
                Json::Text(text) => Ok(text.trim_end_matches('\n').to_string()),
                Json::Number(number) => Ok(number.clone()),
                other => Err(expected(place, "text, or a list of its lines", Some(other))),
            };
            Ok(Text::Plain(items.iter().map(line).collect::<Result<Vec<_>, _>>()?.join("\n")))
        }
        other => Err(expected(place, "text, or a list of its lines", Some(other))),
    }
}

/// A list of arguments, or text with one JSON value a line.
fn arguments(place: &str, value: &Json) -> Result<Json, TestsError> {
    match value {
        Json::List(_) => Ok(value.clone()),
        Json::Text(text) => {
            let read = |(index, line): (usize, &str)| json(&format!("{place}, line {}", index + 1), line);
            let filled = text.lines().filter(|line| !line.trim().is_empty()).enumerate();
            Ok(Json::List(filled.map(read).collect::<Result<_, _>>()?))
        }
        other => Err(expected(place, "a list of arguments, or text with one JSON value a line", Some(other))),
    }
}

/// What a call must give. Such sets wrap results in a list of one, and not always: both readings count.
fn results(place: &str, output: &Json, input: &Json) -> Result<Vec<Json>, TestsError> {
    match (input, output) {
        (Json::Text(_), Json::Text(text)) => Ok(vec![json(place, text)?]),
        (Json::List(_), Json::List(items)) if items.len() == 1 => Ok(vec![output.clone(), items[0].clone()]),
        _ => Ok(vec![output.clone()]),
    }
}

fn json(place: &str, text: &str) -> Result<Json, TestsError> {
    Json::parse(text)
        .map_err(|wrong| TestsError::wrong(place, format!("JSON was expected: {} at byte {}", wrong.what, wrong.at)))
}

/// A list of `{"input", "output", "testtype", "metadata"?}`.
fn listed(items: &[Json]) -> Result<Form, TestsError> {
    let mut stdin = Vec::new();
    let mut calls = Vec::new();
    let mut entry: Option<String> = None;
    for (index, item) in items.iter().enumerate() {
        let place = format!("tests[{index}]");
        let Json::Map(entries) = item else {
            return Err(expected(&place, "an object with input and output", Some(item)));
        };
        let part = |key: &str| get(entries, key).ok_or_else(|| expected(&format!("{place}.{key}"), "text", None));
        match get(entries, "testtype") {
            None => stdin.push(standard(&place, part("input")?, part("output")?)?),
            Some(Json::Text(kind)) if kind == "stdin" => stdin.push(standard(&place, part("input")?, part("output")?)?),
            Some(Json::Text(kind)) if kind == "functional" => {
                let arguments = arguments(&format!("{place}.input"), part("input")?)?;
                let output = part("output")?;
                let expected = match output {
                    Json::Text(text) => json(&format!("{place}.output"), text)?,
                    other => other.clone(),
                };
                calls.push(FunctionCase { arguments, expected: vec![expected] });
                let found = function(&place, entries)?;
                if entry.as_ref().is_some_and(|entry| *entry != found) {
                    return Err(TestsError::wrong(place, "another function than the tests before it"));
                }
                entry = Some(found);
            }
            other => return Err(expected(&format!("{place}.testtype"), "`stdin` or `functional`", other)),
        }
    }
    match entry {
        None => Ok(Form::Stdin { cases: stdin, compare: Compare::Decimals(TOLERANCE) }),
        Some(entry) if stdin.is_empty() => Ok(Form::Function { entry, cases: calls, tolerance: TOLERANCE }),
        Some(_) => Err(TestsError::wrong("tests", "`stdin` and `functional` tests are mixed; give one kind")),
    }
}

fn standard(place: &str, input: &Json, output: &Json) -> Result<StdinCase, TestsError> {
    Ok(StdinCase {
        input: lines(&format!("{place}.input"), input, true)?,
        output: lines(&format!("{place}.output"), output, false)?,
    })
}

/// The name of the function: beside the case, or in its `metadata` (an object, or its text).
fn function(place: &str, entries: &Entries) -> Result<String, TestsError> {
    let named = |entries: &Entries| {
        ["fn_name", "func_name"].iter().find_map(|key| match get(entries, key) {
            Some(Json::Text(name)) => Some(name.clone()),
            _ => None,
        })
    };
    let inside = match get(entries, "metadata") {
        Some(Json::Map(inside)) => named(inside),
        Some(Json::Text(text)) => match Json::parse(text) {
            Ok(Json::Map(inside)) => named(&inside),
            _ => None,
        },
        _ => None,
    };
    let found = named(entries).or(inside).ok_or_else(|| {
        let what = "the function has no name; give `metadata.func_name` with every test, or use `inputs`, `outputs` and `fn_name`";
        TestsError::wrong(place, what)
    })?;
    name(place, &found)
}

/// `{"test": "def check(candidate): ...", "entry_point": "f", "prompt"?}`.
fn checked(entries: &Entries) -> Result<Form, TestsError> {
    let test = text(entries, "test")?;
    let entry = name("entry_point", text(entries, "entry_point")?)?;
    let defines = test.lines().any(|line| line.trim_start().starts_with("def check("));
    if !defines {
        return Err(TestsError::wrong(
            "test",
            "a function `check(candidate)` was expected; other statements go into `asserts`",
        ));
    }
    if !["assert", "raise"].iter().any(|word| test.contains(word)) {
        return Err(TestsError::wrong("test", "`check` asserts nothing, so every program would pass it"));
    }
    let setup = match get(entries, "prompt") {
        None | Some(Json::Null) => String::new(),
        Some(Json::Text(prompt)) => prompt.clone(),
        other => return Err(expected("prompt", "text", other)),
    };
    Ok(Form::Assert { setup, asserts: vec![format!("{test}\n\ncheck({entry})\n")], entry: Some(entry) })
}

/// `{"test_list": [..], "test_setup_code"?, "test_imports"?, "challenge_test_list"?}`.
fn asserted(entries: &Entries) -> Result<Form, TestsError> {
    let mut asserts = Vec::new();
    for key in ["test_list", "challenge_test_list"] {
        match get(entries, key) {
            Some(Json::List(items)) => asserts.extend(statements(key, items)?),
            None | Some(Json::Null) => {}
            other => return Err(expected(key, "a list of assertions", other)),
        }
    }
    let mut setup = match get(entries, "test_imports") {
        Some(Json::List(items)) => statements("test_imports", items)?,
        None | Some(Json::Null) => Vec::new(),
        other => return Err(expected("test_imports", "a list of statements", other)),
    };
    match get(entries, "test_setup_code") {
        None | Some(Json::Null) => {}
        Some(Json::Text(code)) => setup.push(code.clone()),
        other => return Err(expected("test_setup_code", "text", other)),
    }
    Ok(Form::Assert { setup: setup.join("\n"), asserts, entry: None })
}
