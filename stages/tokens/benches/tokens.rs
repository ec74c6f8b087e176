//! Bytes of text counted per second on one thread: `Tokenizer::count` and the `tokenizers` crate on the same text.
//!
//! `cargo bench -p stage-tokens --bench tokens`. The text is made here from a few words, numbers, LaTeX, code and Chinese;
//! the tokenizer is that of the sample model's GGUF file (`datasets/quickstart/fetch_model.sh`).

#![expect(clippy::print_stderr, reason = "says why nothing is measured")]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use stage_tokens::{Gguf, Tokenizer};

fn main() {
    if model().is_none() {
        eprintln!("nothing to measure: fetch the sample model first, bash datasets/quickstart/fetch_model.sh");
    }
    divan::main();
}

/// About a megabyte, the same every time.
fn text() -> String {
    const WORDS: [&str; 24] = [
        "the",
        "number",
        "of",
        "apples",
        "is",
        "\\frac{3}{4}",
        "therefore",
        "we",
        "have",
        "x^2 + 1 =",
        "17",
        "1024.5",
        "equation",
        "substituting",
        "for x in range(10):\n    total += x",
        "求解",
        "方程的根",
        "\n\n",
        "remainder",
        "(a + b)",
        "triangle",
        "and",
        "so,",
        "answer",
    ];
    let (mut text, mut state) = (String::new(), 1_u32);
    while text.len() < 1 << 20 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(WORDS[(state >> 16) as usize % WORDS.len()]);
        text.push(if state >> 28 == 0 { '\n' } else { ' ' });
    }
    text
}

/// The sample model's file.
fn model() -> Option<Gguf> {
    let home = std::path::PathBuf::from(std::env::var_os("HOME")?);
    Gguf::open(&home.join(".cache/pipeline/models/smollm2-135m-instruct-q4_1.gguf")).ok()
}

/// A `tokenizer.json` of the sample model.
fn json() -> Option<String> {
    let gguf = model()?;
    let texts = |key: &str| -> Option<Vec<String>> {
        gguf.array(key).ok()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let vocabulary: serde_json::Map<String, serde_json::Value> = texts("tokenizer.ggml.tokens")?
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, serde_json::Value::from(id)))
        .collect();
    let merges: Vec<Vec<String>> =
        texts("tokenizer.ggml.merges")?.iter().map(|merge| merge.split(' ').map(str::to_owned).collect()).collect();
    let bytes =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = serde_json::json!({"type": "Digits", "individual_digits": true});
    Some(
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytes]}, "post_processor": null, "decoder": bytes,
            "model": {"type": "BPE", "unk_token": "<|endoftext|>", "vocab": vocabulary, "merges": merges},
        })
        .to_string(),
    )
}

#[divan::bench]
fn count(bencher: Bencher<'_, '_>) {
    let Some(tokenizer) = model().and_then(|gguf| Tokenizer::from_gguf(&gguf).ok()) else { return };
    let text = text();
    bencher.counter(BytesCount::of_str(&text)).bench(|| tokenizer.count(black_box(&text)));
}

#[divan::bench]
fn tokenizers_crate(bencher: Bencher<'_, '_>) {
    let Some(tokenizer) = json().and_then(|json| tokenizers::Tokenizer::from_bytes(json).ok()) else { return };
    let text = text();
    bencher
        .counter(BytesCount::of_str(&text))
        .bench(|| tokenizer.encode_fast(black_box(text.as_str()), false).map_or(0, |encoding| encoding.len()));
}

#[divan::bench]
fn load_from_gguf() -> Option<usize> {
    model().and_then(|gguf| Tokenizer::from_gguf(&gguf).ok()).map(|tokenizer| tokenizer.vocabulary())
}
