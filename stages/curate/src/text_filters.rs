//! Claims over `decontaminate` and `filter_repetition` together: real sets and traces, any cut of the work, and inputs
//! made to hurt. The real data stands beside the repository; without it those tests say so and are skipped.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use arrow::array::{AsArray, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pipeline_core::StageEntry;
use pipeline_core::testing::{Cut, Outcome, Trial};
use proptest::prelude::*;
use schemas::{queries, traces};
use serde_json::{Value, json};
use stage_text::View;

use crate::decontaminate::Decontaminate;
use crate::filter_repetition::FilterRepetition;

const CLEAN: StageEntry = StageEntry::stage::<Decontaminate>();
const FILTER: StageEntry = StageEntry::stage::<FilterRepetition>();

fn shared(path: &str) -> Option<PathBuf> {
    let folder = PathBuf::from("../../../shared");
    if !folder.is_dir() {
        println!("skipped: no folder `../shared` beside the repository");
        return None;
    }
    Some(folder.join("data").join(path))
}

/// Rows of a JSON or JSON lines file.
fn rows(path: &str) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(shared(path)?).unwrap();
    Some(match serde_json::from_str::<Value>(&text) {
        Ok(Value::Array(rows)) => rows,
        _ => text
            .split('\n')
            .filter(|row| !row.trim().is_empty())
            .map(|row| serde_json::from_str(row).unwrap())
            .collect(),
    })
}

fn batches(path: &str) -> Option<Vec<RecordBatch>> {
    let file = std::fs::File::open(shared(path)?).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    Some(reader.map(Result::unwrap).collect())
}

fn text<'a>(row: &'a Value, column: &str) -> &'a str {
    row[column].as_str().unwrap_or_default()
}

/// Queries with their position as id.
fn queries_of<'a>(prompts: impl Iterator<Item = &'a str>, set: &str) -> Vec<Value> {
    prompts
        .enumerate()
        .map(|(id, prompt)| json!({ "query_id": id.to_string(), "prompt": prompt, "source": set }))
        .collect()
}

fn clean(rows: Vec<Value>, eval: Vec<Vec<Value>>) -> Outcome {
    let mut trial = Trial::new(&CLEAN, json!({})).rows("rows", &queries::TABLE, rows);
    for items in eval {
        trial = trial.rows("eval", &queries::TABLE, items);
    }
    trial.run(&Cut::slices(1_000)).unwrap()
}

fn evidence(reject: &Value) -> Value {
    serde_json::from_str(text(reject, "reject_evidence")).unwrap()
}

fn texts_of<'a>(rows: &'a [Value], column: &str) -> Vec<&'a str> {
    rows.iter().map(|row| text(row, column)).collect()
}

/// Rows that share any 10-gram of tokens with any item.
fn sharing_a_ten_gram(rows: &[&str], items: &[&str]) -> BTreeSet<usize> {
    let n = NonZeroUsize::new(10).unwrap();
    let known: HashSet<u64> =
        items.iter().flat_map(|item| View::new(item).ngram_hashes(n).collect::<Vec<_>>()).collect();
    let shares = |row: &str| View::new(row).ngram_hashes(n).any(|hash| known.contains(&hash));
    (0..rows.len()).filter(|row| shares(rows[*row])).collect()
}

#[test]
fn every_verbatim_math500_item_goes_from_math_and_few_others() {
    let (Some(eval), Some(train)) = (rows("math500/math500_test.json"), rows("math/test.jsonl")) else { return };
    let (items, documents) = (texts_of(&eval, "problem"), texts_of(&train, "problem"));
    let outcome =
        clean(queries_of(documents.iter().copied(), "math"), vec![queries_of(items.iter().copied(), "math500")]);
    let verbatim: HashSet<&str> = items.iter().map(|item| item.trim()).collect();
    let is_verbatim = |document: &str| verbatim.contains(document.trim());
    let expected = documents.iter().filter(|document| is_verbatim(document)).count();
    let (same, other): (Vec<&Value>, Vec<&Value>) =
        outcome.rejects.iter().partition(|reject| is_verbatim(text(reject, "prompt")));
    println!("math: {} of {expected} verbatim rows rejected, {} others:", same.len(), other.len());
    for reject in &other {
        let evidence = evidence(reject);
        println!("  {} covers {}: {}", evidence["item"], evidence["coverage"], evidence["text"]);
    }
    let any = sharing_a_ten_gram(&documents, &items);
    let plain = any.iter().filter(|row| !is_verbatim(documents[**row])).count();
    println!("any shared 10-gram: {} rows, {plain} of them not verbatim; twins {:?}", any.len(), outcome.counters);
    assert_eq!((expected, same.len()), (397, 397));
    assert!(other.len() <= 20 && other.len() * 2 < plain, "{} {plain}", other.len());
    assert_eq!(outcome.counters["contaminated by math500"], outcome.rejects.len() as u64);
}

#[test]
fn the_rows_of_gsm8k_that_overlap_are_named() {
    let (Some(eval), Some(train)) = (rows("gsm8k/test.jsonl"), rows("gsm8k/train.jsonl")) else { return };
    let (items, documents) = (texts_of(&eval, "question"), texts_of(&train, "question"));
    let outcome = clean(queries_of(documents.into_iter(), "train"), vec![queries_of(items.iter().copied(), "gsm8k")]);
    for reject in &outcome.rejects {
        let evidence = evidence(reject);
        let item = items[text(&evidence, "item").parse::<usize>().unwrap()];
        println!("row {} holds {} of {}: {item}", reject["query_id"], evidence["coverage"], evidence["item"]);
    }
    println!("gsm8k: {} of {} rows, {:?}", outcome.rejects.len(), outcome.read, outcome.counters);
    assert!(outcome.rejects.len() <= 6, "{}", outcome.rejects.len());
}

#[test]
fn chinese_items_in_long_text_are_found() {
    let Some(rows) = rows("cmath/cmath_dev.jsonl") else { return };
    let items = texts_of(&rows, "input");
    let filler =
        "港口的早晨很安静，码头上还没有人看见那两条从北方回来的灰色小船，船上的网半空着，灯还亮着。".repeat(20);
    let documents: Vec<String> = items.iter().map(|item| format!("{filler}\n{item}\n{filler}")).collect();
    let outcome = clean(
        queries_of(documents.iter().map(String::as_str), "pages"),
        vec![queries_of(items.iter().copied(), "cmath")],
    );
    let found: BTreeSet<usize> =
        outcome.rejects.iter().map(|reject| text(reject, "query_id").parse().unwrap()).collect();
    let missed: Vec<&&str> = (0..items.len()).filter(|id| !found.contains(id)).map(|id| &items[id]).collect();
    println!("cmath: {} of {} found, missed {missed:?}", found.len(), items.len());
    assert!(missed.iter().all(|item| View::new(item).len() < 10), "{missed:?}");
    assert!(missed.len() <= 6, "{missed:?}");
}

#[test]
fn olympiad_items_are_found_without_the_instruction_that_all_of_them_share() {
    let mut sets = Vec::new();
    let mut bare = Vec::new();
    for name in ["aime", "aime25", "hmmt25"] {
        let Some(batches) = batches(&format!("vibethinker-eval/{name}.parquet")) else { return };
        let mut prompts = Vec::new();
        for batch in &batches {
            let messages = batch.column_by_name("prompt").unwrap().as_list::<i32>();
            for row in 0..batch.num_rows() {
                let message = messages.value(row);
                let content = message.as_struct().column_by_name("content").unwrap().as_string::<i32>();
                prompts.push(content.value(0).to_owned());
            }
        }
        bare.extend(prompts.iter().map(|prompt| {
            let end = prompt.find("Let's think step by step").unwrap_or(prompt.len());
            format!("Here is a hard one for tonight.\n\n{}\n\nGood luck to all of you!", prompt[..end].trim())
        }));
        sets.push(queries_of(prompts.iter().map(String::as_str), name));
    }
    let outcome = clean(queries_of(bare.iter().map(String::as_str), "pages"), sets.clone());
    println!("AIME and HMMT: {} of {} found, {}", outcome.rejects.len(), bare.len(), outcome.notes["index"]);
    assert_eq!((outcome.rejects.len(), bare.len()), (90, 90));
    let instruction = "Who was it? Let's think step by step and output the final answer within \\boxed{}.";
    assert_eq!(clean(queries_of([instruction].into_iter(), "pages"), sets).kept, 1);
}

fn filtered(responses: &[(String, String)]) -> Outcome {
    let rows = responses.iter().enumerate().map(|(id, (prompt, response))| {
        json!({ "query_id": "q", "trace_id": id.to_string(), "prompt": prompt, "response": response })
    });
    Trial::new(&FILTER, json!({})).rows("rows", &traces::TABLE, rows.collect()).run(&Cut::slices(100)).unwrap()
}

fn print_rejects(name: &str, outcome: &Outcome) {
    println!("{name}: {} of {} rejected", outcome.rejects.len(), outcome.read);
    for reject in &outcome.rejects {
        println!("  {}: {}", reject["trace_id"], reject["reject_evidence"]);
    }
}

#[test]
fn looping_rollouts_are_rejected() {
    let Some(batches) = batches("smollm2-rollouts/rollouts.parquet") else { return };
    let mut responses = Vec::new();
    for batch in &batches {
        let column = |name: &str| {
            let column = batch.column_by_name(name).unwrap();
            arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap()
        };
        let (tasks, questions, completions) = (column("task"), column("question"), column("completion"));
        for row in 0..batch.num_rows() {
            if tasks.as_string::<i32>().value(row) == "greedy_long" {
                let at = |array: &arrow::array::ArrayRef| array.as_string::<i32>().value(row).to_owned();
                responses.push((at(&questions), at(&completions)));
            }
        }
    }
    let outcome = filtered(&responses);
    print_rejects("greedy rollouts", &outcome);
    assert!(outcome.rejects.len() * 10 >= responses.len() * 7, "{} of {}", outcome.rejects.len(), responses.len());
}

#[test]
fn careful_traces_are_not_taken_for_loops() {
    let (Some(many), Some(one), Some(two)) = (
        rows("traces-math-8x/math_cot_100.jsonl"),
        rows("traces-long-cot/sample_ollama_outputs.json"),
        rows("traces-long-cot/sample_openrouter_outputs.json"),
    ) else {
        return;
    };
    let long = one.iter().chain(&two).map(|row| {
        let response =
            format!("<think>\n{}\n</think>\n\n{}", text(row, "message_thinking"), text(row, "message_content"));
        (text(row, "problem").to_owned(), response)
    });
    let outcome = filtered(&long.collect::<Vec<_>>());
    print_rejects("long traces", &outcome);
    assert_eq!(outcome.rejects.len(), 0);
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for row in &many {
        for (code, score) in row["code"].as_array().unwrap().iter().zip(row["score"].as_array().unwrap()) {
            let pair = (text(row, "question").to_owned(), code.as_str().unwrap().to_owned());
            if *score == true { right.push(pair) } else { wrong.push(pair) }
        }
    }
    print_rejects("wrong solutions", &filtered(&wrong));
    let outcome = filtered(&right);
    print_rejects("right solutions", &outcome);
    assert_eq!((right.len(), outcome.rejects.len()), (591, 0));
}

const ITEM: &str =
    "A gardener plants 12 rows of tulips with 15 bulbs in each row. How many bulbs does the gardener plant in all?";

#[test]
fn items_in_any_script_are_found_re_wrapped_and_in_long_paragraphs() {
    let items = [
        ITEM,
        "妈妈带了30元，买了一条鱼，剩6元，这条鱼多少钱？",
        "اشترى أحمد ثلاث تفاحات وخمس برتقالات من السوق ثم أعطى أخته تفاحة واحدة فكم حبة بقيت معه",
        "राम के पास बारह सेब हैं और वह अपने भाई को पाँच सेब देता है तो उसके पास कितने सेब बचे",
        "แม่ซื้อส้มสิบสองผลและกินไปสามผลเหลือส้มกี่ผล",
        "Маша купила двенадцать яблок и отдала брату пять яблок, сколько яблок осталось у Маши?",
    ];
    let filler = "The harbour was quiet that morning, and nobody had seen the two grey boats come back. ".repeat(30);
    let wrap = |item: &str| {
        item.split(' ').collect::<Vec<_>>().chunks(8).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n> ")
    };
    let documents: Vec<String> =
        items.iter().flat_map(|item| [wrap(item), format!("{filler}{item} {filler}")]).collect();
    let eval = queries_of(items.into_iter(), "bench");
    let outcome = clean(queries_of(documents.iter().map(String::as_str), "pages"), vec![eval.clone()]);
    let found: Vec<Value> = outcome.rejects.iter().map(|reject| evidence(reject)["item"].clone()).collect();
    assert_eq!(found, ["0", "0", "1", "1", "2", "2", "3", "3", "4", "4", "5", "5"]);
    assert_eq!(outcome.notes["index"]["not_indexable"], 0);
    let rejected: Vec<&str> = outcome.rejects.iter().map(|reject| text(reject, "prompt")).collect();
    assert_eq!(rejected, documents.iter().map(String::as_str).collect::<Vec<_>>(), "the stored text is unchanged");
    assert_eq!(clean(queries_of([filler.as_str()].into_iter(), "pages"), vec![eval]).kept, 1);
}

#[test]
fn evaluation_sets_with_empty_questions_are_counted_or_refused() {
    let run = |eval: Vec<Value>| {
        let row = json!({ "query_id": "q", "prompt": ITEM });
        Trial::new(&CLEAN, json!({}))
            .rows("rows", &queries::TABLE, vec![row])
            .rows("eval", &queries::TABLE, eval)
            .run(&Cut::WHOLE)
    };
    let item = |id: &str, prompt: &str| json!({ "query_id": id, "prompt": prompt, "source": id });
    let outcome = run(vec![item("a", ITEM), json!({ "query_id": "b", "prompt": "", "source": "a" })]).unwrap();
    assert_eq!((outcome.kept, &outcome.notes["index"]["not_indexable"]), (0, &json!(1)));
    let error = run(vec![item("a", ITEM), item("b", "")]).unwrap_err().to_string();
    assert!(error.contains("`b`") && error.contains("empty"), "{error}");
    let error = run(vec![item("a", "What is 12 + 7?")]).unwrap_err().to_string();
    assert!(error.contains("`ngram`"), "{error}");
}

#[test]
fn huge_uniform_and_empty_texts_have_a_clear_result() {
    let mut prose = String::with_capacity(50_100_000);
    let mut number = 1_u64;
    while prose.len() < 50_000_000 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        prose.push_str(
            ["river", "lamp", "stone", "field", "paper", "winter", "apple", "glass"][(number >> 40) as usize % 8],
        );
        prose.push_str(["s ", "ing ", " and ", ", ", ". The ", " of ", " 12 ", " in "][(number >> 50) as usize % 8]);
    }
    let planted = format!("{prose} {ITEM} The end.");
    let uniform = "哈".repeat(2_000_000);
    let prompts = [planted.as_str(), "", uniform.as_str(), &"a".repeat(5_000_000), &"0 ".repeat(1_000_000)];
    let eval =
        vec![json!({ "query_id": "e", "prompt": ITEM }), json!({ "query_id": "w", "prompt": "word ".repeat(5_000) })];
    let outcome = clean(queries_of(prompts.into_iter(), "pages"), vec![eval]);
    assert_eq!((outcome.kept, outcome.rejects.len()), (4, 1));
    assert_eq!(evidence(&outcome.rejects[0])["span"], json!([prose.len() + 1, prose.len() + 1 + ITEM.len() - 1]));
    let responses: Vec<(String, String)> =
        prompts.iter().map(|prompt| ("Why?".to_owned(), (*prompt).to_owned())).collect();
    let reasons = filtered(&responses);
    assert_eq!(reasons.reasons(), ["empty_response", "tail_loop", "tail_loop", "tail_loop"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn neither_order_nor_cut_changes_what_falls_out_and_what_stays_stays(
        mut texts in prop::collection::vec("(gardener |plants |12 |15 |rows |of |tulips |数|学|题|。|the |the |the ){0,60}", 1..24),
        at in any::<prop::sample::Index>(),
        slice in 1_u64..7,
        files in 1_usize..9,
    ) {
        let place = at.index(texts.len());
        texts[place] = format!("{} {ITEM}", texts[place]);
        let row = |(id, text): (usize, &String)| json!({
            "query_id": id.to_string(), "trace_id": id.to_string(), "prompt": text, "response": format!("{text}{text}{text}")
        });
        let rows: Vec<Value> = texts.iter().enumerate().map(row).collect();
        let eval = vec![json!({ "query_id": "e", "prompt": ITEM }), json!({ "query_id": "f", "prompt": "数学题数学题数学题数学题数学题" })];
        let clean = |rows: Vec<Value>, cut: Cut| Trial::new(&CLEAN, json!({}))
            .rows("rows", &traces::TABLE, rows).rows("eval", &queries::TABLE, eval.clone()).run(&cut).unwrap();
        let filter = |rows: Vec<Value>, cut: Cut| Trial::new(&FILTER, json!({ "min_ngrams": 5, "tail_short_tokens": 9 }))
            .rows("rows", &traces::TABLE, rows).run(&cut).unwrap();
        let by_id = |outcome: &Outcome| -> BTreeMap<String, (Value, Value)> {
            let pair = |row: &Value| (row["reject_reason"].clone(), row["reject_evidence"].clone());
            outcome.rejects.iter().map(|row| (text(row, "query_id").to_owned(), pair(row))).collect()
        };
        let kinds: [&dyn Fn(Vec<Value>, Cut) -> Outcome; 2] = [&clean, &filter];
        for kind in kinds {
            let whole = kind(rows.clone(), Cut::WHOLE);
            let cut = kind(rows.clone(), Cut::slices(slice).files(files).backwards());
            prop_assert_eq!((whole.rows(), &whole.rejects, &whole.counters), (cut.rows(), &cut.rejects, &cut.counters));
            let mut backwards = rows.clone();
            backwards.reverse();
            prop_assert_eq!(by_id(&whole), by_id(&kind(backwards, Cut::WHOLE)));
            if whole.rows().is_empty() {
                continue;
            }
            let again = kind(whole.rows().to_vec(), Cut::WHOLE);
            prop_assert_eq!((again.rows(), again.rejects.len()), (whole.rows(), 0));
        }
    }
}
