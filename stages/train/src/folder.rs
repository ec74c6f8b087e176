//! Models as folders in the layout of Hugging Face, written whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stage_candle::{NetConfig, TapedNet};
use stage_tokens::{ChatTemplate, EndTokens, Gguf, Tokenizer, gguf_tokenizer};

use crate::{Storage, TensorFile, TrainError};

/// The configuration of a net.
pub(crate) const CONFIG: &str = "config.json";
/// The weights.
const WEIGHTS: &str = "model.safetensors";
/// Files beside weights and configuration that a model is made of.
const FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
    "LICENSE",
];

/// Everything of a model but its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFiles {
    /// The content of `config.json`.
    config: Value,
    /// Other files by name, as they were.
    files: BTreeMap<String, Vec<u8>>,
}

impl ModelFiles {
    /// The files of the model that lies at `path`: of a folder, as they are; of a `.gguf` file, made of its metadata.
    ///
    /// # Errors
    /// When a file cannot be read, or the metadata does not say what the files need.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        if path.is_dir() {
            return Self::of_folder(path);
        }
        let (gguf, tokenizer) = (Gguf::open(path)?, Tokenizer::open(path)?);
        let template = ChatTemplate::open(path).ok();
        let ends = EndTokens::open(path, &tokenizer, template.as_ref())?;
        let config = NetConfig::open(path)?;
        Self::made(&config, &gguf_tokenizer(&gguf)?, template.as_ref(), &ends)
    }

    fn of_folder(path: &Path) -> Result<Self, TrainError> {
        let config_path = path.join(CONFIG);
        let text = fs::read(&config_path).map_err(TrainError::read(&config_path))?;
        let config =
            serde_json::from_slice(&text).map_err(|error| TrainError::state(&config_path, error.to_string()))?;
        let mut files = BTreeMap::new();
        for name in FILES {
            let file = path.join(name);
            if file.is_file() {
                files.insert(name.to_owned(), fs::read(&file).map_err(TrainError::read(&file))?);
            }
        }
        Ok(Self { config, files })
    }

    /// Files for a model that is made from nothing, or of other parts: its sizes, the text of a `tokenizer.json`, a chat
    /// template and the tokens that end a turn.
    ///
    /// # Errors
    /// When the sizes cannot be said in a `config.json`.
    pub fn made(
        config: &NetConfig,
        tokenizer: &str,
        template: Option<&ChatTemplate>,
        ends: &EndTokens,
    ) -> Result<Self, TrainError> {
        let unsaid = || TrainError::Parameter("its rotary frequencies cannot be said in a `config.json`".to_owned());
        let mut config = config.hugging_face().ok_or_else(unsaid)?;
        config["eos_token_id"] = json!(ends.turn_end());
        let mut settings = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
            "model_max_length": config["max_position_embeddings"],
        });
        let mut files = BTreeMap::new();
        if let Some(template) = template {
            let (bos, eos) = template.named_tokens();
            for (key, text) in [("bos_token", bos), ("eos_token", eos)] {
                if !text.is_empty() {
                    settings[key] = json!(text);
                }
            }
            files.insert("chat_template.jinja".to_owned(), template.source().as_bytes().to_vec());
        }
        files.insert("tokenizer.json".to_owned(), tokenizer.as_bytes().to_vec());
        files.insert("tokenizer_config.json".to_owned(), pretty(&settings));
        files.insert("generation_config.json".to_owned(), pretty(&json!({"eos_token_id": ends.ids()})));
        Ok(Self { config, files })
    }

    /// The configuration without what does not change the net's function.
    pub(crate) fn function(&self) -> Value {
        let mut config = self.config.clone();
        if let Some(keys) = config.as_object_mut() {
            for key in ["dtype", "torch_dtype", "transformers_version", "_name_or_path", "use_cache"] {
                keys.remove(key);
            }
        }
        config
    }

    /// Writes all files into a folder that is there.
    pub(crate) fn write(&self, folder: &Path, storage: Storage) -> Result<(), TrainError> {
        let mut config = self.config.clone();
        if let Some(keys) = config.as_object_mut() {
            keys.remove("torch_dtype");
        }
        config["dtype"] = json!(storage.name());
        write_file(&folder.join(CONFIG), &pretty(&config))?;
        self.files.iter().try_for_each(|(name, content)| write_file(&folder.join(name), content))
    }
}

/// Writes a model to a folder that is not there yet: configuration, weights, tokenizer, chat template, settings of
/// generation. The folder appears when all of it is on disk, or not at all.
///
/// # Errors
/// When the folder is there, a weight is NaN or infinite, or the files cannot be written.
pub fn save_folder(net: &TapedNet, files: &ModelFiles, folder: &Path, storage: Storage) -> Result<(), TrainError> {
    write_whole(folder, |draft| write_model(net, files, draft, storage))
}

/// Writes a model's files into a folder that is there.
pub(crate) fn write_model(
    net: &TapedNet,
    files: &ModelFiles,
    folder: &Path,
    storage: Storage,
) -> Result<(), TrainError> {
    files.write(folder, storage)?;
    let shapes = net.variables().iter().map(|(name, variable)| (name.as_str(), variable.dims()));
    let mut file = create_weights(folder, shapes, storage)?;
    for name in net.variables().keys() {
        net.read_with(name, |values| file.append(values))??;
    }
    file.finish()
}

/// Begins the file of weights of a folder.
pub(crate) fn create_weights<'a>(
    folder: &Path,
    shapes: impl Iterator<Item = (&'a str, &'a [usize])>,
    storage: Storage,
) -> Result<TensorFile, TrainError> {
    TensorFile::create(&folder.join(WEIGHTS), shapes, storage)
}

/// Fills a draft beside `folder`, waits until it is on disk, and gives it its name. What fails leaves no trace; a kill leaves
/// a draft, which the next call removes.
pub(crate) fn write_whole(folder: &Path, fill: impl FnOnce(&Path) -> Result<(), TrainError>) -> Result<(), TrainError> {
    if folder.exists() {
        let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(TrainError::Write { path: folder.to_owned(), source });
    }
    let draft = draft_of(folder)?;
    remove(&draft)?;
    fs::create_dir_all(&draft).map_err(TrainError::write(&draft))?;
    let outcome = fill(&draft).and_then(|()| sync_folder(&draft)).and_then(|()| {
        fs::rename(&draft, folder).map_err(TrainError::write(folder))?;
        sync_folder(folder.parent().unwrap_or(Path::new(".")))
    });
    if outcome.is_err() {
        // the first failure is the one to tell
        let _ = remove(&draft);
    }
    outcome
}

fn draft_of(folder: &Path) -> Result<PathBuf, TrainError> {
    match folder.file_name() {
        Some(name) => Ok(folder.with_file_name(format!(".{}.draft", name.display()))),
        None => Err(TrainError::Parameter(format!("`{}` names no folder", folder.display()))),
    }
}

/// Removes a folder if it is there.
pub(crate) fn remove(folder: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TrainError::write(folder)(error)),
        _ => Ok(()),
    }
}

/// Writes a file and waits until it is on disk.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<(), TrainError> {
    fs::write(path, content).map_err(TrainError::write(path))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(TrainError::write(path))
}

/// Waits until a folder's entries are on disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), TrainError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(TrainError::write(path))
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
