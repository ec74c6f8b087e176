//! Lengths in tokens: counted by a student's tokenizer, and made anew only when what decides its ids has changed.

use serde_json::{Map, Value, json};

use crate::support::Project;

const DAG: &str = r#"
[stages.traces]
kind = "import"
files = ["traces.jsonl"]
rows = "traces"
columns = { prompt = "question", response = "solution" }

[stages.lengths]
kind = "bucket"
inputs = "traces"
tokenizer = "student"
edges = [3]
"#;

/// A `tokenizer.json` of small letters, the space, and these merges.
fn tokenizer(merges: &[[&str; 2]]) -> Value {
    let mut vocabulary = Map::new();
    for text in std::iter::once("<unk>".to_owned()).chain(('a'..='z').map(String::from)).chain(["Ġ".to_owned()]) {
        vocabulary.insert(text, json!(vocabulary.len()));
    }
    for [left, right] in merges {
        vocabulary.insert(format!("{left}{right}"), json!(vocabulary.len()));
    }
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let unknown = json!({"id": 0, "content": "<unk>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false});
    json!({
        "version": "1.0", "added_tokens": [unknown], "normalizer": null, "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": merges},
    })
}

fn lengths(project: &Project) -> Vec<(Value, Value)> {
    project.rows("lengths", &[]).iter().map(|row| (row["tokens"].clone(), row["length_bucket"].clone())).collect()
}

#[test]
fn a_bucket_counts_tokens_and_reruns_when_the_tokenizer_decides_otherwise() {
    let mut project = Project::new(DAG);
    let traces = ["ab ab", "ab", "ab ab ab ab"].map(|text| json!({"question": "q", "solution": text}).to_string());
    project.write("traces.jsonl", traces.join("\n"));
    project.write("student/tokenizer.json", tokenizer(&[["a", "b"], ["Ġ", "ab"]]).to_string());
    project.run(&[]).ok();
    let expected = [(2, "0-2"), (1, "0-2"), (4, "3+")].map(|(tokens, name)| (json!(tokens), json!(name)));
    assert_eq!(lengths(&project), expected);

    project.write("student/tokenizer.json", format!("{:#}", tokenizer(&[["a", "b"], ["Ġ", "ab"]])));
    assert!(project.run(&[]).ok().ran().is_empty());
    project.move_to("elsewhere");
    assert!(project.run(&[]).ok().ran().is_empty());

    project.write("student/tokenizer.json", tokenizer(&[["a", "b"]]).to_string());
    let run = project.run(&[]).ok();
    assert_eq!(run.ran(), ["lengths"]);
    assert!(run.reason("lengths").contains("tokenizer has other content"), "{}", run.err);
    assert_eq!(lengths(&project)[0], (json!(3), json!("3+")));
}

#[test]
fn a_tokenizer_that_cannot_be_used_is_named_with_a_way_out() {
    let project = Project::new(DAG);
    project.write("traces.jsonl", json!({"question": "q", "solution": "ab"}).to_string());
    let missing = project.run(&[]);
    assert_ne!(missing.code, 0);
    assert!(
        missing.err.contains("parameter `tokenizer`") && missing.err.contains("hint: a `tokenizer.json`"),
        "{}",
        missing.err
    );
    project.write("student/tokenizer.json", "{");
    let broken = project.run(&[]);
    assert!(broken.err.contains("this is not a `tokenizer.json`"), "{}", broken.err);
}
