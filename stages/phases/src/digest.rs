//! The digest of weights, which is their identity.
//!
//! The digest of a `.gguf` file is its SHA-256. That of a folder is the SHA-256 of what `sha256sum` prints for the files
//! that decide answers, sorted by name: so anybody can work it out, and no file name or byte of them can change unseen.

use std::path::Path;

use pipeline_core::StageError;
use pipeline_core::env::FileDigests;
use sha2::{Digest as _, Sha256};

/// Files of a folder of weights that decide answers, beside `*.safetensors` and their index.
const DECIDING: [&str; 7] = [
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Digest of weights, `sha256:` and 64 hexadecimal digits. Files are read again only when they changed.
///
/// # Errors
/// A file that cannot be read, or a folder without weights.
pub fn digest(path: &Path, digests: &FileDigests) -> Result<String, StageError> {
    // one file has one name in the memory of digests, wherever the program was started
    let path = std::fs::canonicalize(path).map_err(StageError::io("open", path))?;
    if !path.is_dir() {
        return Ok(format!("sha256:{}", digests.sha256(&path)?));
    }
    let names = deciding_files(&path)?;
    if !names.iter().any(|name| name.ends_with(".safetensors")) {
        return Err(StageError::input(path, None, "the folder holds no `*.safetensors`, so no weights"));
    }
    let mut hasher = Sha256::new();
    for name in names {
        hasher.update(format!("{}  {name}\n", digests.sha256(&path.join(&name))?));
    }
    Ok(format!("sha256:{:x}", hasher.finalize()))
}

/// Names of the files of a folder that decide answers, sorted.
///
/// # Errors
/// When the folder cannot be read.
pub fn deciding_files(folder: &Path) -> Result<Vec<String>, StageError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(StageError::io("open", folder))? {
        let name = entry.map_err(StageError::io("open", folder))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_weights = name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
        if is_weights || DECIDING.contains(&name) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config.json", "tokenizer.json", "model.safetensors", "README.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        folder
    }

    fn digest_of(path: &Path) -> String {
        digest(path, &FileDigests::default()).unwrap()
    }

    #[test]
    fn the_digest_of_a_file_is_its_sha256() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("w.gguf"), "abc").unwrap();
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest_of(&folder.path().join("w.gguf")), expected);
    }

    #[test]
    fn the_digest_of_a_folder_is_that_of_what_sha256sum_prints() {
        let folder = folder();
        let printed = std::process::Command::new("sha256sum")
            .args(["config.json", "model.safetensors", "tokenizer.json"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(digest_of(folder.path()), format!("sha256:{:x}", Sha256::digest(&printed.stdout)));
    }

    #[test]
    fn every_file_that_decides_answers_changes_the_digest_of_a_folder_and_no_other_does() {
        let folder = folder();
        let first = digest_of(folder.path());
        for name in ["README.md", "training_args.bin"] {
            fs::write(folder.path().join(name), "changed").unwrap();
            assert_eq!(digest_of(folder.path()), first, "{name}");
        }
        let shards = ["model-2.safetensors", "model.safetensors.index.json"];
        for name in DECIDING.iter().chain(&["model.safetensors"]).chain(&shards) {
            let path = folder.path().join(name);
            let before = fs::read(&path).ok();
            fs::write(&path, "changed").unwrap();
            assert_ne!(digest_of(folder.path()), first, "{name}");
            match before {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
        }
        assert_eq!(digest_of(folder.path()), first);
    }

    #[test]
    fn a_folder_without_weights_is_refused_by_name() {
        let folder = folder();
        fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        let error = digest(folder.path(), &FileDigests::default()).unwrap_err();
        assert!(error.to_string().contains("holds no `*.safetensors`"), "{error}");
    }

    #[test]
    fn weights_that_did_not_change_are_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, memory) = (folder.path().join("w.gguf"), folder.path().join("digests.json"));
        fs::write(&path, "abc").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(1)).unwrap();
        let digests = FileDigests::load(&memory);
        let found = digest(&path, &digests).unwrap();
        digests.save();
        // what is remembered can only come back from the memory if the file is not read
        let remembered = fs::read_to_string(&memory).unwrap().replace("ba7816bf", "00000000");
        fs::write(&memory, remembered).unwrap();
        let again = digest(&path, &FileDigests::load(&memory)).unwrap();
        assert_eq!(again, found.replace("ba7816bf", "00000000"));
        // a touched file is read again and has the same digest
        file.set_modified(SystemTime::now() - Duration::from_secs(30)).unwrap();
        assert_eq!(digest(&path, &FileDigests::load(&memory)).unwrap(), found);
    }
}
