use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::dagfile::place_of;

/// Everything a dag says, without places.
fn meaning(dag: &DagFile) -> Value {
    let stages = dag.stages.iter().map(|stage| {
        let inputs = stage.inputs.iter().map(|(port, references)| {
            let references = references.iter().map(|reference| json!([reference.stage, reference.output]));
            (port.clone(), references.collect::<Value>())
        });
        json!({
            "name": stage.name, "base": stage.base, "kind": stage.kind, "inputs": inputs.collect::<Value>(),
            "max_errors": stage.max_errors, "matrix": stage.matrix, "params": stage.params.to_string(),
        })
    });
    let models = dag.models.iter().map(|(name, node)| (name.clone(), node.to_json()));
    json!({
        "stages": stages.collect::<Value>(), "models": models.collect::<Value>(),
        "pipeline": [json!(dag.pipeline.name), json!(dag.pipeline.seed)],
        "run": [dag.run.jobs, dag.run.shard_rows], "budget": dag.budget.as_ref().map(super::super::Node::to_json),
    })
}

/// Reads and renders whatever comes, as a command would.
fn exercise(bytes: &[u8]) {
    let files = Texts([("dag.toml".into(), bytes.to_vec())].into());
    let Reading { dag, mut errors } = read(Path::new("dag.toml"), &files, &|name| (name == "HOST").then(String::new));
    if let Err(more) = order(&dag.stages) {
        errors.extend(more);
    }
    let rendered = errors.render(&dag.sources);
    assert_eq!(rendered.is_empty(), errors.is_empty());
    for error in &errors.0 {
        let Some(place) = &error.place else { continue };
        assert!(dag.sources.text(place.file).get(place.span.clone()).is_some(), "{place:?}");
    }
    for stage in &dag.stages {
        assert!(stage.params.is_object());
        assert_eq!(place_of(stage, &[]), stage.place);
    }
}

/// The example as tables of lines: (header, lines), to be put together in another order.
fn tables() -> Vec<(String, Vec<String>)> {
    let mut tables: Vec<(String, Vec<String>)> = Vec::new();
    for line in EXAMPLE.lines().filter(|line| !line.is_empty()) {
        match tables.last_mut() {
            Some((_, lines)) if !line.starts_with('[') => lines.push(line.to_owned()),
            _ => tables.push((line.to_owned(), Vec::new())),
        }
    }
    tables
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
    }

    #[test]
    fn no_text_of_toml_pieces_makes_the_reader_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\"", "'", "\"\"\"", "\n", "\r\n", " ", "\t", "#", "stages", "matrix",
            "kind", "inputs", "include", "models", "run", "a", "中", "1", "-", "1e9", "nan", "inf", "${", "$${", ":-", "\\u0000",
            "\u{feff}", "\u{1b}", "1979-05-27", "max_errors", "'dag.toml'", "e\u{301}",
        ]), 0..60)
    ) {
        exercise(pieces.concat().as_bytes());
    }

    #[test]
    fn no_change_of_a_good_file_makes_the_reader_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8, prop::collection::vec(any::<u8>(), 0..4)), 1..6)
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (at, removed, inserted) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, inserted);
        }
        exercise(&bytes);
    }

    #[test]
    fn comments_and_the_order_of_keys_change_nothing_but_places(seed in any::<u64>(), comment in "[^\\x00-\\x1f\\x7f]{0,20}") {
        let mut state = seed;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let mut text = String::new();
        for (header, mut lines) in tables() {
            for index in (1..lines.len()).rev() {
                lines.swap(index, draw(index + 1));
            }
            let _ = writeln!(text, "# {comment}\n\n  {header} # {comment}");
            for line in lines {
                let _ = writeln!(text, "\t{line}  #{comment}");
            }
        }
        prop_assert_eq!(meaning(&parsed(&text)), meaning(&parsed(EXAMPLE)));
    }

    #[test]
    fn an_order_puts_every_stage_after_its_inputs(links in prop::collection::vec((0_usize..12, 0_usize..12), 0..20)) {
        let mut text = String::new();
        for stage in 0..12 {
            let inputs: Vec<String> = links.iter().filter(|(to, _)| *to == stage).map(|(_, from)| format!("s{from}")).collect();
            let _ = writeln!(text, "[stages.s{stage}]\nkind = 'k'\ninputs = {}", json!(inputs));
        }
        let dag = parsed(&text);
        match order(&dag.stages) {
            Ok(order) => {
                let mut seen = [false; 12];
                for index in order {
                    prop_assert!(links.iter().all(|(to, from)| *to != index || seen[*from]));
                    seen[index] = true;
                }
                prop_assert!(seen.iter().all(|seen| *seen));
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for error in &errors.0 {
                    prop_assert!(error.message.starts_with("stages feed each other"), "{}", error);
                    prop_assert!(error.place.is_some());
                }
            }
        }
    }
}
