use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::harness::{Cut, Given, WHOLE, check, given, run};
use pipeline_core::StageEntry;

const ENTRY: StageEntry = StageEntry::stage::<Bucket>();

fn lengths(tokens: &[Option<i64>]) -> Given {
    let rows = tokens.iter().enumerate().map(|(index, tokens)| {
        json!({"trace_id": format!("t{index}"), "query_id": "q", "tokens": tokens, "response": "一二三四五"})
    });
    let mut given = given(ROWS, &traces::TABLE, rows.collect());
    given.rows = given.rows.fill([traces::TOKENS, traces::RESPONSE]);
    given
}

#[test]
fn fixed_edges_need_one_pass_and_name_ranges() {
    let stage = (ENTRY.parse)(&json!({"column": "tokens", "edges": [1000, 5000]})).unwrap();
    assert_eq!(stage.steps(&Ports::default()).len(), 1);
    let input = lengths(&[Some(999), Some(1000), Some(4999), Some(5000), None]);
    let outcome = run(&ENTRY, &json!({"column": "tokens", "edges": [1000, 5000]}), &[input], WHOLE).unwrap();
    assert_eq!(outcome.texts("length_bucket"), ["0-999", "1000-4999", "1000-4999", "5000+"]);
    assert_eq!(outcome.reasons(), ["no_value"]);
    assert_eq!(outcome.evidence(0), json!({"column": "tokens"}));
    assert_eq!(outcome.counters["bucket 1000-4999"], 2);
    assert_eq!(outcome.notes["edges"], json!([1000.0, 5000.0]));
}

#[test]
fn a_row_without_a_value_may_stay_without_a_bucket() {
    let input = lengths(&[Some(1), None]);
    let params = json!({"column": "tokens", "edges": [10], "missing": "keep"});
    let outcome = run(&ENTRY, &params, &[input], WHOLE).unwrap();
    assert_eq!(outcome.column("length_bucket"), [json!("0-9"), Value::Null]);
}

#[test]
fn texts_are_measured_in_characters_and_go_into_a_new_column() {
    let params = json!({"column": "response", "measure": "characters", "edges": [5, 6], "into": "size"});
    let outcome = run(&ENTRY, &params, &[lengths(&[Some(1)])], WHOLE).unwrap();
    assert_eq!(outcome.texts("size"), ["5"]);
}

#[test]
fn names_may_be_given() {
    let rows = [0.0, 0.25, 0.9].map(|rate| json!({"query_id": "q", "pass_rate": rate}));
    let input = given(ROWS, &queries::TABLE, rows.to_vec());
    let params = json!({"column": "pass_rate", "quantiles": 3, "names": ["hard", "medium", "easy"]});
    let outcome = run(&ENTRY, &params, &[input], WHOLE).unwrap();
    assert_eq!(outcome.texts("difficulty_bucket"), ["hard", "medium", "easy"]);
    assert_eq!(outcome.notes["edges"], json!([0.25, 0.9]));
}

#[test]
fn a_table_without_values_has_no_quantiles() {
    let params = json!({"column": "tokens", "quantiles": 4, "missing": "keep"});
    let outcome = run(&ENTRY, &params, &[lengths(&[None, None])], WHOLE).unwrap();
    assert_eq!(outcome.column("length_bucket"), [Value::Null, Value::Null]);
}

#[test]
fn parameters_that_cannot_work_are_refused() {
    let input = [lengths(&[Some(1)])];
    let refused = |params: Value| check(&ENTRY, &params, &input).expect_err(&params.to_string());
    assert!(refused(json!({"column": "tokens"})).message.contains("is needed"));
    assert_eq!(refused(json!({"column": "tokens", "edges": [2, 1]})).path, "edges");
    assert_eq!(refused(json!({"column": "tokens", "edges": []})).path, "edges");
    assert_eq!(refused(json!({"column": "tokens", "quantiles": 1})).path, "quantiles");
    assert_eq!(refused(json!({"column": "tokens", "edges": [1], "names": ["a"]})).path, "names");
    assert_eq!(refused(json!({"column": "tokens", "edges": [1], "into": "label"})).path, "into");
    assert_eq!(refused(json!({"column": "temperature", "edges": [1]})).path, "into");
    assert_eq!(refused(json!({"column": "response", "edges": [1], "into": "x"})).path, "column");
    assert_eq!(refused(json!({"column": "tokens", "measure": "characters", "edges": [1]})).path, "measure");
    assert_eq!(refused(json!({"column": "pass_rate", "edges": [0.5]})).path, "column");
    assert_eq!(refused(json!({"column": "nothing", "edges": [0.5], "into": "x"})).path, "column");
}

#[test]
fn the_example_does_what_it_says() {
    crate::harness::example(&ENTRY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn quantile_buckets_are_exact_for_any_cut(
        tokens in prop::collection::vec(prop::option::of(0_i64..30), 1..60),
        buckets in 2_u32..6, shard in 1_usize..10, file in 1_usize..20,
    ) {
        let params = json!({"column": "tokens", "quantiles": buckets, "missing": "keep"});
        let input = [lengths(&tokens)];
        let outcome = run(&ENTRY, &params, &input, Cut { shard, file }).unwrap();
        let mut sorted: Vec<i64> = tokens.iter().copied().flatten().collect();
        sorted.sort_unstable();
        if !sorted.is_empty() {
            let edges: Vec<i64> = (1..u64::from(buckets))
                .map(|k| (k * sorted.len() as u64).div_ceil(u64::from(buckets)))
                .map(|position| sorted[usize::try_from(position).unwrap().min(sorted.len() - 1)])
                .collect();
            let noted: Vec<f64> = serde_json::from_value(outcome.notes["edges"].clone()).unwrap();
            prop_assert_eq!(noted, edges.iter().map(|edge| *edge as f64).collect::<Vec<_>>());
        }
        prop_assert_eq!(outcome, run(&ENTRY, &params, &input, WHOLE).unwrap());
    }
}

mod by_tokens {
    use pipeline_core::Env;
    use pipeline_core::testing::{Cut, Outcome, Trial};

    use super::*;
    use crate::lengths::tests::tokenizer_json;

    const FILE: &str = "student/tokenizer.json";

    fn trial(params: Value) -> Trial<'static> {
        static KIND: StageEntry = ENTRY;
        Trial::new(&KIND, params).file(FILE, tokenizer_json(&[["a", "b"], ["Ġ", "ab"]]).as_bytes())
    }

    fn traces(params: Value, responses: &[Option<&str>], cut: &Cut) -> Outcome {
        let row = |(index, response): (usize, Option<&str>)| json!({"trace_id": format!("t{index}"), "query_id": "q", "response": response});
        let rows = responses.iter().copied().enumerate().map(row).collect();
        trial(params).rows(ROWS, &traces::TABLE, rows).run(cut).unwrap()
    }

    #[test]
    fn responses_are_counted_and_the_count_is_kept() {
        let params = json!({"tokenizer": FILE, "edges": [2, 4]});
        let responses = [Some("ab ab"), Some(""), None, Some("ab x y"), Some("ab ab ab ab")];
        let outcome = traces(params, &responses, &Cut::WHOLE);
        assert_eq!(outcome.column("tokens"), [2, 0, 5, 4].map(|count| json!(count)));
        assert_eq!(outcome.column("length_bucket"), ["2-3", "0-1", "4+", "4+"].map(|name| json!(name)));
        assert_eq!(outcome.reasons(), ["no_value"]);
        assert_eq!(outcome.rejects[0]["reject_evidence"], json!(r#"{"column":"response"}"#));
    }

    #[test]
    fn prompts_of_queries_are_counted_into_a_new_column() {
        let params = json!({"tokenizer": "student", "column": "tokens", "edges": [3], "missing": "keep"});
        let rows = ["ab ab ab", "ab"].map(|prompt| json!({"query_id": prompt, "prompt": prompt}));
        let outcome = trial(params).rows(ROWS, &queries::TABLE, rows.to_vec()).run(&Cut::WHOLE).unwrap();
        assert_eq!(outcome.column("tokens"), [json!(3), json!(1)]);
        assert_eq!(outcome.column("length_bucket"), [json!("3+"), json!("0-2")]);
    }

    #[test]
    fn quantiles_of_counts_are_those_of_a_column_and_the_same_for_any_cut() {
        let texts: Vec<String> = (0..40).map(|index: usize| "ab ".repeat(index * 7 % 23)).collect();
        let mut responses: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
        responses[5] = None;
        let params = json!({"tokenizer": FILE, "quantiles": 4});
        let whole = traces(params.clone(), &responses, &Cut::WHOLE);
        let lengths: Vec<Option<i64>> = responses
            .iter()
            .map(|text| text.map(|text| i64::try_from(text.len().div_ceil(3) + usize::from(!text.is_empty())).unwrap()))
            .collect();
        let expected: Vec<Value> = lengths.iter().flatten().map(|length| json!(length)).collect();
        assert_eq!(whole.column("tokens"), expected);
        let given =
            run(&ENTRY, &json!({"column": "tokens", "quantiles": 4}), &[super::lengths(&lengths)], WHOLE).unwrap();
        assert_eq!(whole.column("length_bucket"), given.column("length_bucket"));
        for cut in [Cut::slices(3), Cut::slices(1).backwards(), Cut::slices(7).files(5)] {
            let other = traces(params.clone(), &responses, &cut);
            assert_eq!(other.rows(), whole.rows());
            assert_eq!((other.counters, other.notes), (whole.counters.clone(), whole.notes.clone()));
        }
    }

    #[test]
    fn the_recipe_holds_what_decides_ids_and_not_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |json: &str| {
            std::fs::write(folder.path().join("t.json"), json).unwrap();
            let stage = (ENTRY.parse)(&json!({"tokenizer": "t.json", "edges": [2]})).unwrap();
            stage.externals(&Env::new(folder.path()), &Ports::default()).unwrap()
        };
        let json = tokenizer_json(&[["a", "b"], ["b", "c"]]);
        let written_otherwise = serde_json::from_str::<Value>(&json).unwrap();
        let base = digest(&json);
        assert_eq!((base.len(), base[0].name.as_str(), base[0].sliced), (1, "tokenizer", false));
        assert_eq!(digest(&format!("{written_otherwise:#}")), base);
        assert_ne!(digest(&tokenizer_json(&[["b", "c"], ["a", "b"]])), base);
    }

    #[test]
    fn parameters_that_cannot_work_are_refused() {
        let input = [super::lengths(&[Some(1)])];
        let refused = |params: Value| {
            let checked =
                (ENTRY.parse)(&params).and_then(|stage| stage.outputs(&crate::harness::ports(&input)).map(|_| ()));
            checked.expect_err(&params.to_string())
        };
        assert_eq!(refused(json!({"edges": [1]})).path, "column");
        assert_eq!(refused(json!({"tokenizer": FILE, "column": "completion_tokens", "edges": [1]})).path, "column");
        assert_eq!(refused(json!({"tokenizer": FILE, "measure": "characters", "edges": [1]})).path, "measure");
        let unfilled = given(ROWS, &traces::TABLE, vec![json!({"trace_id": "t", "query_id": "q"})]);
        let refused = check(&ENTRY, &json!({"tokenizer": FILE, "edges": [1]}), &[unfilled]).unwrap_err();
        assert_eq!((refused.path.as_str(), refused.message.contains("`response`")), ("tokenizer", true));
    }

    #[test]
    fn a_tokenizer_that_is_missing_is_named_with_its_parameter() {
        let stage = (ENTRY.parse)(&json!({"tokenizer": "nowhere", "edges": [2]})).unwrap();
        let problem = stage.externals(&Env::new(std::env::temp_dir()), &Ports::default()).unwrap_err().to_string();
        assert!(problem.starts_with("parameter `tokenizer`: ") && problem.contains("nowhere"), "{problem}");
    }
}
