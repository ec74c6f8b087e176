//! What every kind must hold, checked on its own example.

use serde_json::{Value, json};

use super::{Cut, Outcome, Trial};
use crate::canonical;
use crate::env::Services;
use crate::stage::{StageEntry, StepKind};

/// Runs a kind's example and checks what every kind must hold: parameters survive a round trip, an unknown one is
/// refused, each is documented, columns are those declared, the example gives what it says, and neither the cut of the
/// work nor running again changes a row.
///
/// # Panics
/// When something does not hold; the message says what.
pub fn conformance(entry: &StageEntry) {
    conformance_with(entry, &Services::default());
}

/// [`conformance`] for kinds that need registered objects, such as models.
///
/// # Panics
/// As there.
pub fn conformance_with(entry: &StageEntry, services: &Services) {
    let example = (entry.example)();
    parameters_hold(entry, &example.params);
    documentation_is_there(entry);
    let trial = Trial::of_example(entry, &example).services(services.clone());
    for input in &trial.inputs {
        let port = entry.ports.iter().find(|port| port.name == input.port);
        let port =
            port.unwrap_or_else(|| panic!("the example of `{}` gives rows to no port `{}`", entry.kind, input.port));
        for column in port.needs {
            let is_filled = input.rows.filled.contains(*column);
            assert!(
                is_filled,
                "the example of `{}` lacks the column `{column}` that port `{}` needs",
                entry.kind, port.name
            );
        }
    }
    let run =
        |cut: &Cut| trial.run(cut).unwrap_or_else(|error| panic!("the example of `{}` fails: {error}", entry.kind));
    let whole = run(&Cut::WHOLE);
    assert_eq!(whole.rows().len(), example.written, "rows written by the example of `{}`", entry.kind);
    assert_eq!(whole.reasons(), example.rejected, "reasons of rejects in the example of `{}`", entry.kind);
    let stage = (entry.parse)(&example.params);
    if stage.is_ok_and(|stage| stage.is_deterministic(&trial.ports())) {
        assert_eq!(run(&Cut::WHOLE).digests, whole.digests, "a second run of `{}` gives other bytes", entry.kind);
    }
    let ends_in_partitions = last_step(&trial) == Some(StepKind::Reduce);
    for cut in [Cut::slices(1), Cut::slices(2).backwards(), Cut::slices(3).files(2)] {
        assert_same(entry, &cut, &whole, &run(&cut), true);
        let cut = cut.partitions(3);
        assert_same(entry, &cut, &whole, &run(&cut), !ends_in_partitions);
    }
}

fn parameters_hold(entry: &StageEntry, params: &Value) {
    let parse = |params: &Value| {
        let stage = (entry.parse)(params);
        stage.unwrap_or_else(|error| {
            panic!("parameters of `{}` are refused: {} at `{}`", entry.kind, error.message, error.path)
        })
    };
    let once = parse(params).params();
    let twice = parse(&once).params();
    assert_eq!(
        canonical::to_string(&once),
        canonical::to_string(&twice),
        "parameters of `{}` do not survive a round trip",
        entry.kind
    );
    let mut wrong = params.clone();
    if let Some(map) = wrong.as_object_mut() {
        map.insert("no_such_parameter".to_owned(), json!(1));
    }
    assert!((entry.parse)(&wrong).is_err(), "`{}` accepts an unknown parameter", entry.kind);
}

fn documentation_is_there(entry: &StageEntry) {
    let schema = (entry.schema)();
    let documented =
        |value: &Value| value.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    assert!(documented(schema.as_value()), "`{}` has no documentation", entry.kind);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        assert!(documented(property), "parameter `{name}` of `{}` has no documentation", entry.kind);
    }
}

fn last_step(trial: &Trial<'_>) -> Option<StepKind> {
    let stage = (trial.entry.parse)(&trial.params).ok()?;
    let mut ports = crate::Ports::default();
    for given in &trial.inputs {
        ports.0.entry(given.port.clone()).or_default().push(given.rows.clone());
    }
    stage.steps(&ports).last().map(|step| step.kind)
}

/// Compares two outcomes; without `ordered`, rows may come in another order.
fn assert_same(entry: &StageEntry, cut: &Cut, one: &Outcome, two: &Outcome, ordered: bool) {
    let arranged = |rows: &[Value]| {
        let mut rows = rows.to_vec();
        if !ordered {
            rows.sort_by_cached_key(canonical::to_string);
        }
        rows
    };
    let kind = entry.kind;
    for (name, rows) in &one.outputs {
        assert_eq!(arranged(rows), arranged(two.output(name)), "`{kind}` gives other rows of `{name}` for {cut:?}");
    }
    assert_eq!(arranged(&one.rejects), arranged(&two.rejects), "`{kind}` rejects other rows for {cut:?}");
    assert_eq!(
        (one.read, one.kept, one.transient),
        (two.read, two.kept, two.transient),
        "`{kind}` counts otherwise for {cut:?}"
    );
    assert_eq!(one.notes, two.notes, "`{kind}` finds something else for {cut:?}");
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use schemas::queries;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::error::{ParamError, StageError};
    use crate::example::Example;
    use crate::port::{Output, Port, Ports};
    use crate::row_kinds::{Judgement, RowFilter};
    use crate::rows::Row;
    use crate::stage::{Stage, Step};
    use crate::task::Task;

    /// Keeps queries with a label.
    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Labelled {
        /// Shortest label, in characters.
        #[serde(default)]
        shortest: usize,
    }

    impl RowFilter for Labelled {
        const KIND: &'static str = "labelled";
        const VERSION: u32 = 1;
        const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[queries::LABEL])];
        const COLUMNS: &'static [&'static str] = &[queries::LABEL];

        fn example() -> Example {
            let rows = vec![
                json!({"query_id": "a", "label": "1"}),
                json!({"query_id": "b"}),
                json!({"query_id": "c", "label": "2"}),
            ];
            Example::rows(json!({}), "rows", &queries::TABLE, rows).gives(2, &["no_label"])
        }

        fn judge(&self, row: Row<'_>) -> Result<Judgement, StageError> {
            let kept = row.text(queries::LABEL)?.is_some_and(|label| label.chars().count() >= self.shortest);
            Ok(if kept { Judgement::Keep } else { Judgement::reject("no_label") })
        }
    }

    /// Forgets every row after the first of each slice.
    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Forgetful {}

    impl Stage for Forgetful {
        const KIND: &'static str = "forgetful";
        const VERSION: u32 = 1;
        const PORTS: &'static [Port] = &[Port::rows(&["queries"], &[])];

        fn example() -> Example {
            let rows = vec![json!({"query_id": "a"}), json!({"query_id": "b"})];
            Example::rows(json!({}), "rows", &queries::TABLE, rows).gives(1, &[])
        }

        fn outputs(&self, inputs: &Ports) -> Result<Vec<Output>, ParamError> {
            Ok(vec![Output::same(inputs.expect("rows")?.clone())])
        }

        fn run(&self, _step: &Step, task: &mut Task<'_>) -> Result<(), StageError> {
            if let Some(batch) = task.batches()?.next() {
                task.write(&batch?.slice(0, 1))?;
            }
            Ok(())
        }
    }

    #[test]
    fn a_sound_kind_conforms() {
        conformance(&StageEntry::filter::<Labelled>());
    }

    #[test]
    #[should_panic(expected = "do not balance")]
    fn a_kind_that_loses_rows_is_found_out() {
        conformance(&StageEntry::stage::<Forgetful>());
    }

    #[test]
    fn files_and_slices_come_in_order() {
        let entry = StageEntry::filter::<Labelled>();
        let rows = (0..17).map(|row| json!({"query_id": format!("{row}"), "label": "x"})).collect();
        let trial = Trial::new(&entry, json!({})).rows("rows", &queries::TABLE, rows);
        let outcome = trial.run(&Cut::slices(3).files(5).backwards()).unwrap();
        let ids: Vec<Value> = (0..17).map(|row| json!(format!("{row}"))).collect();
        assert_eq!(outcome.column("query_id"), ids);
        assert_eq!((outcome.read, outcome.kept), (17, 17));
    }
}
