use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome as Tried, Trial, conformance};
use schemas::traces;

use super::*;

const ENTRY: StageEntry = StageEntry::stage::<Decontaminate>();

const ITEM: &str =
    "A gardener plants 12 rows of tulips with 15 bulbs in each row. How many bulbs does the gardener plant in all?";

fn item(id: &str, prompt: &str) -> Value {
    json!({ "query_id": id, "prompt": prompt, "label": "180" })
}

fn run(params: Value, rows: Vec<Value>, eval: Vec<Vec<Value>>) -> Result<Tried, StageError> {
    let mut trial = Trial::new(&ENTRY, params).rows("rows", &queries::TABLE, rows);
    for rows in eval {
        trial = trial.rows(EVAL, &queries::TABLE, rows);
    }
    trial.run(&Cut::slices(2))
}

fn evidence(row: &Value) -> Value {
    serde_json::from_str(row["reject_evidence"].as_str().unwrap()).unwrap()
}

#[test]
fn it_conforms() {
    conformance(&ENTRY);
}

#[test]
fn evidence_names_item_set_and_text() {
    let rows = vec![item("q", &format!("Hard one! {ITEM}"))];
    let other = vec![item("e0", "一个农夫有三只羊和五只鸡，请问他一共有多少只动物？")];
    let outcome = run(json!({}), rows, vec![other, vec![item("e1", ITEM)]]).unwrap();
    let evidence = evidence(&outcome.rejects[0]);
    assert_eq!(
        (&evidence["item"], &evidence["set"], &evidence["part"]),
        (&json!("e1"), &json!("eval-2"), &json!("question"))
    );
    assert_eq!(evidence["coverage"], 1.0);
    assert!(ITEM.starts_with(evidence["text"].as_str().unwrap()));
}

#[test]
fn marking_keeps_every_row() {
    let rows = vec![item("q1", ITEM), item("q2", "How many legs has a spider?")];
    let outcome = run(json!({ "mode": "mark" }), rows, vec![vec![item("e1", ITEM)]]).unwrap();
    assert_eq!(outcome.kept, 2);
    let mark: Value = serde_json::from_str(outcome.rows()[0]["contamination"].as_str().unwrap()).unwrap();
    assert_eq!(mark["item"], "e1");
    assert_eq!(outcome.rows()[1]["contamination"], Value::Null);
}

#[test]
fn a_number_twin_stays_and_is_counted() {
    let rows = vec![item("q1", &ITEM.replace("12", "7").replace("15", "30"))];
    let outcome = run(json!({}), rows, vec![vec![item("e1", ITEM)]]).unwrap();
    assert_eq!((outcome.kept, outcome.counters["number_twins"]), (1, 1));
}

#[test]
fn an_index_that_can_find_nothing_is_an_alarm() {
    let rows = vec![item("q1", ITEM)];
    let empty = run(json!({}), rows.clone(), vec![vec![item("e1", ITEM)], vec![]]).unwrap_err();
    assert!(matches!(&empty, StageError::Alarm(message) if message.contains("evaluation set 2 of 2")), "{empty}");
    let blank = run(json!({}), rows.clone(), vec![vec![item("e1", "?!")]]).unwrap_err();
    assert!(matches!(blank, StageError::Alarm(_)), "{blank}");
    let answers = run(json!({ "parts": "answer" }), rows, vec![vec![item("e1", ITEM)]]).unwrap_err();
    assert!(matches!(answers, StageError::Alarm(_)), "{answers}");
}

#[test]
fn all_traces_of_a_contaminated_query_go() {
    let trace = |query: &str, id: &str, prompt: &str| json!({ "query_id": query, "trace_id": id, "prompt": prompt, "response": format!("The answer is {id}.") });
    let rows = vec![trace("a", "1", ITEM), trace("b", "2", "What is a prime?"), trace("a", "3", ITEM)];
    let outcome = Trial::new(&ENTRY, json!({}))
        .rows("rows", &traces::TABLE, rows)
        .rows(EVAL, &queries::TABLE, vec![item("e1", ITEM)])
        .run(&Cut::WHOLE)
        .unwrap();
    assert_eq!(outcome.column("trace_id"), ["2"]);
    assert_eq!(outcome.rejected["contaminated"], 2);
}

#[test]
fn parameters_outside_their_range_are_refused() {
    for params in
        [json!({ "min_coverage": 0.0 }), json!({ "min_coverage": 1.5 }), json!({ "ngram": 0 }), json!({ "ngrams": 9 })]
    {
        assert!((ENTRY.parse)(&params).is_err(), "{params}");
    }
    assert!(run(json!({ "column": "response" }), vec![item("q", ITEM)], vec![vec![item("e", ITEM)]]).is_err());
}
