//! Saves tiny random models, with what they make of a conversation, for `tests/python/check_saved_model.py`.
//!
//! `cargo run -p stage-train --example save_tiny_model -- FOLDER`

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use serde_json::json;
use stage_candle::{Architecture, LocalModel, NetConfig, TapedNet};
use stage_tokens::{ChatTemplate, EndTokens, Tokenizer, Turn, byte_tokenizer};
use stage_train::{ModelFiles, Storage, save_folder};

const TEMPLATE: &str = "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|start|>assistant\n{% endif %}";
const WORDS: &str = "What is 2 + 2? — ü";

fn main() -> Result<(), Box<dyn Error>> {
    let root = env::args().nth(1).map(PathBuf::from).ok_or("the folder to write to is missing")?;
    fs::create_dir_all(&root)?;
    for (name, architecture, storage) in [
        ("llama-f32", Architecture::Llama, Storage::F32),
        ("qwen2-f32", Architecture::Qwen2, Storage::F32),
        ("qwen2-bf16", Architecture::Qwen2, Storage::Bf16),
    ] {
        let config = NetConfig { vocabulary: 264, ..NetConfig::tiny(architecture) };
        let json = byte_tokenizer(&["<|start|>", "<|end|>"]);
        let tokenizer = Tokenizer::from_json(json.as_bytes())?;
        let template = ChatTemplate::new(TEMPLATE, "", "<|end|>")?;
        let ends = EndTokens::new(vec![257], &tokenizer, Some(&template));
        let files = ModelFiles::made(&config, &json, Some(&template), &ends)?;
        let folder = root.join(name);
        save_folder(&TapedNet::random(config, 7)?, &files, &folder, storage)?;
        let ids = LocalModel::open(&folder)?.prompt(&[Turn { role: "user", content: WORDS, tool_calls: None }])?;
        let net = TapedNet::load(&folder)?;
        let rows = net.rows(&ids, &[ids.len()])?;
        let logits = net.logits(&rows)?.to_vec2::<f32>()?.pop();
        let expected = json!({"messages": [{"role": "user", "content": WORDS}], "ids": ids, "logits": logits});
        fs::write(root.join(format!("{name}.json")), expected.to_string())?;
    }
    Ok(())
}
