//! Weights and configurations that are damaged, do not fit or are not supported: each is refused with its name.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use stage_candle::Net;
use tempfile::TempDir;

/// A copy of a fixture, to be spoilt.
fn copy(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let fixture = Path::new("tests/fixtures").join(name);
    for entry in fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn refusal(folder: &TempDir) -> String {
    Net::load(folder.path()).unwrap_err().to_string()
}

fn edit(folder: &TempDir, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = folder.path().join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn configure(folder: &TempDir, key: &str, value: serde_json::Value) {
    edit(folder, "config.json", |bytes| {
        let mut config: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        config[key] = value;
        *bytes = serde_json::to_vec(&config).unwrap();
    });
}

/// Changes text in a shard's header without changing its length.
fn rename(folder: &TempDir, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    edit(folder, "model.safetensors", |bytes| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    });
}

#[test]
fn a_cut_shard_is_refused_wherever_it_is_cut() {
    let whole = copy("qwen2");
    let length = fs::metadata(whole.path().join("model.safetensors")).unwrap().len();
    for kept in [0, 7, 8, 100, 2000, length / 2, length - 1] {
        let folder = copy("qwen2");
        edit(&folder, "model.safetensors", |bytes| bytes.truncate(usize::try_from(kept).unwrap()));
        let message = refusal(&folder);
        assert!(message.contains("model.safetensors` is damaged"), "{kept} bytes: {message}");
        assert!(message.contains("fetch it again"), "{message}");
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = copy("llama");
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    let message = refusal(&folder);
    assert!(message.contains("cannot read") && message.contains("model-00002-of-00002.safetensors"), "{message}");
}

#[test]
fn an_index_cannot_name_files_elsewhere() {
    let folder = copy("llama");
    edit(&folder, "model.safetensors.index.json", |bytes| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("model-00002-of", "../del-00002-of").into_bytes();
    });
    let message = refusal(&folder);
    assert!(message.contains("no file of this folder"), "{message}");
}

#[test]
fn weights_that_are_not_finite_are_refused() {
    for value in [f32::NAN, f32::INFINITY] {
        let folder = copy("qwen2");
        edit(&folder, "model.safetensors", |bytes| {
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&value.to_le_bytes());
        });
        let message = refusal(&folder);
        assert!(message.contains("weights must be finite") && message.contains("at element"), "{message}");
    }
}

#[test]
fn missing_extra_and_misshaped_tensors_are_named() {
    let folder = copy("qwen2");
    rename(&folder, "layers.1.mlp.up_proj", "layers.2.mlp.up_proj");
    let message = refusal(&folder);
    assert!(message.contains("tensor `model.layers.2.mlp.up_proj.weight`"), "{message}");
    let folder = copy("qwen2");
    configure(&folder, "num_hidden_layers", 3.into());
    let message = refusal(&folder);
    assert!(message.contains("no tensor `model.layers.2."), "{message}");
    let folder = copy("qwen2");
    configure(&folder, "vocab_size", 191.into());
    let message = refusal(&folder);
    let shapes = "`model.embed_tokens.weight`";
    assert!(message.contains(shapes) && message.contains("[192, 64] instead of [191, 64]"), "{message}");
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let cases = [
        ("model_type", "gpt2".into(), "gpt2"),
        ("hidden_act", "gelu".into(), "gelu"),
        ("attention_bias", true.into(), "attention_bias"),
        ("mlp_bias", true.into(), "mlp_bias"),
        ("rope_parameters", serde_json::json!({"rope_type": "dynamic", "factor": 2.0}), "dynamic"),
        ("rope_scaling", serde_json::json!({"type": "longrope"}), "longrope"),
        ("layer_types", serde_json::json!(["full_attention", "sliding_attention"]), "sliding window"),
        ("quantization_config", serde_json::json!({}), "quantization_config"),
    ];
    for (key, value, named) in cases {
        let folder = copy("qwen2");
        if key == "rope_scaling" {
            configure(&folder, "rope_parameters", serde_json::Value::Null);
        }
        configure(&folder, key, value);
        let message = refusal(&folder);
        assert!(message.contains(named) && message.contains("not supported"), "{key}: {message}");
    }
}

#[test]
fn senseless_sizes_are_refused() {
    for (key, value, named) in [
        ("num_key_value_heads", 3, "cannot share 3 key/value heads"),
        ("head_dim", 15, "even one"),
        ("hidden_size", 0, "the hidden size is 0"),
        ("max_position_embeddings", u64::MAX, "the context is"),
    ] {
        let folder = copy("qwen2");
        configure(&folder, key, value.into());
        let message = refusal(&folder);
        assert!(message.contains(named), "{message}");
    }
    let folder = copy("qwen2");
    configure(&folder, "num_hidden_layers", "two".into());
    assert!(refusal(&folder).contains("`num_hidden_layers` is \"two\"; expected a whole number"));
}

#[test]
fn a_folder_without_weights_or_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(&folder).contains("config.json"));
    let folder = copy("qwen2");
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(refusal(&folder).contains("model.safetensors"));
}
