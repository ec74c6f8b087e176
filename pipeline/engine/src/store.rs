//! The store: versions of stages by fingerprint, and the links that say which one is current.
//!
//! ```text
//! out/<stage> -> .store/<stage>-<fingerprint12>
//! ```
//! A version is visible to readers once `_SUCCESS.json` is there. Links are replaced by rename, so a reader sees the
//! old version or the new one and nothing between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipeline_core::env::FileDigests;
use pipeline_core::task::{InputFile, PortInput};
use pipeline_core::{Digest, Fingerprint, Recipe, StageError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use arrow::datatypes::SchemaRef;

use crate::records::{FORMAT, Manifest, OutputRecord, Success};

/// Name of the folder of versions.
pub const STORE: &str = ".store";

/// Where versions lie and which are current.
#[derive(Debug, Clone)]
pub struct Store {
    /// Folder of versions, shared by all dag files of a folder.
    root: PathBuf,
    /// Folder of links of this dag file.
    links: PathBuf,
}

/// A version's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The folder.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
}

impl Store {
    /// A store below `out`, with links in `links` (which is `out` itself, or a folder in it).
    pub fn new(out: &Path, links: PathBuf) -> Self {
        Self { root: out.join(STORE), links }
    }

    /// Folder of versions.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of links.
    pub fn links(&self) -> &Path {
        &self.links
    }

    /// Makes the folders, and finds out whether they can be written to.
    ///
    /// # Errors
    /// When they cannot.
    pub fn create(&self) -> Result<(), StageError> {
        for folder in [&self.root, &self.links] {
            fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
            let probe = folder.join(format!(".probe-{}", std::process::id()));
            fs::write(&probe, b"").map_err(StageError::io("write to", folder))?;
            fs::remove_file(&probe).map_err(StageError::io("write to", folder))?;
        }
        Ok(())
    }

    /// The folder that a version of this recipe has, or would have.
    pub fn version(&self, stage: &str, fingerprint: Fingerprint) -> Version {
        let suffix = format!("-{}", fingerprint.short());
        let mut names: Vec<String> = self.names().into_iter().filter(|name| name.ends_with(&suffix)).collect();
        let own = format!("{stage}{suffix}");
        // a finished version of another name serves as well: a stage may have been renamed
        names.sort_by_key(|name| (!self.root.join(name).join("_SUCCESS.json").exists(), *name != own));
        let name = names.into_iter().next().unwrap_or(own);
        Version { folder: self.root.join(&name), name }
    }

    /// Names of all version folders.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.') && name.contains('-'))
            .collect();
        names.sort();
        names
    }

    /// The current version of a stage.
    pub fn current(&self, stage: &str) -> Option<Version> {
        let target = fs::read_link(self.links.join(stage)).ok()?;
        let name = target.file_name()?.to_str()?.to_owned();
        Some(Version { folder: self.root.join(&name), name })
    }

    /// Makes a version current.
    ///
    /// # Errors
    /// When the link cannot be written, or something else stands in its place.
    pub fn link(&self, stage: &str, version: &Version) -> Result<(), StageError> {
        let link = self.links.join(stage);
        if self.current(stage).is_some_and(|current| current.name == version.name) {
            return Ok(());
        }
        if link.exists() && fs::read_link(&link).is_err() {
            let message = "is in the way of a link; move it elsewhere".to_owned();
            return Err(StageError::input(link, None, message));
        }
        let up = self
            .links
            .strip_prefix(self.root.parent().unwrap_or(&self.root))
            .map_or(0, |path| path.components().count());
        let target: PathBuf = std::iter::repeat_n("..", up).collect::<PathBuf>().join(STORE).join(&version.name);
        // made where nobody looks for stages: a kill before the renaming must not leave a second link to the version
        let partial = version.folder.join(format!(".link-{}", std::process::id()));
        let _ = fs::remove_file(&partial);
        std::os::unix::fs::symlink(&target, &partial).map_err(StageError::io("link", &link))?;
        fs::rename(&partial, &link).map_err(StageError::io("link", &link))
    }

    /// Names of versions that some link of some dag file of the folder points to.
    pub fn linked(&self) -> BTreeSet<String> {
        let mut linked = BTreeSet::new();
        let out = self.root.parent().unwrap_or(&self.root);
        let mut folders = vec![out.to_owned()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let path = entry.path();
                if let Ok(target) = fs::read_link(&path) {
                    linked.extend(target.file_name().and_then(|name| name.to_str()).map(str::to_owned));
                } else if path.is_dir() && path != self.root && folder == out {
                    folders.push(path);
                }
            }
        }
        linked
    }

    /// Committed tasks of other versions that may serve a version whose tasks have this recipe, by input key.
    pub fn reusable_tasks(
        &self,
        fingerprint: Fingerprint,
        kind: &str,
        port: Option<&str>,
    ) -> BTreeMap<Digest, (PathBuf, Manifest)> {
        let mut found = BTreeMap::new();
        for name in self.names() {
            let folder = self.root.join(&name);
            let recipe = read_json::<Recipe>(&folder.join("recipe.json")).ok().flatten();
            if !recipe.is_some_and(|recipe| recipe.kind == kind && recipe.for_tasks(port) == fingerprint) {
                continue;
            }
            for manifest in manifests(&folder) {
                found.entry(manifest.input_key).or_insert_with(|| (folder.clone(), manifest));
            }
        }
        found
    }
}

impl Version {
    /// Its recipe.
    pub fn recipe(&self) -> Option<Recipe> {
        read_json(&self.folder.join("recipe.json")).ok().flatten()
    }

    /// Its success record, if every file in it is there at its full length.
    ///
    /// # Errors
    /// What is missing or damaged, in words.
    pub fn success(&self) -> Result<Option<Success>, String> {
        let path = self.folder.join("_SUCCESS.json");
        let Some(success) = read_json::<Success>(&path).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        for file in success.files() {
            let path = self.folder.join(&file.file);
            match fs::metadata(&path) {
                Err(_) => return Err(format!("`{}` is missing", file.file)),
                Ok(found) if found.len() != file.bytes => {
                    return Err(format!("`{}` has {} bytes instead of {}", file.file, found.len(), file.bytes));
                }
                Ok(_) => {}
            }
        }
        Ok(Some(success))
    }

    /// Reads every file of a version and compares its digest with the one that was committed.
    ///
    /// # Errors
    /// The first file that is damaged or cannot be read.
    pub fn check_files(&self, success: &Success, digests: &FileDigests) -> Result<(), StageError> {
        for file in success.files() {
            let path = self.folder.join(&file.file);
            if digests.digest(&path)? != file.digest {
                let message = "its digest is not the one that was committed".to_owned();
                return Err(StageError::Damaged { path, message });
            }
        }
        Ok(())
    }

    /// What an output gives to a port.
    pub fn port_input(&self, output: &OutputRecord, schema: &SchemaRef) -> PortInput {
        let files = output.files.iter().map(|file| InputFile {
            path: self.folder.join(&file.file),
            rows: file.rows,
            digest: file.digest,
            partitions: file.partitions.clone(),
        });
        PortInput { schema: SchemaRef::clone(schema), files: files.collect() }
    }
}

/// Manifests of a version, in order of tasks; unreadable ones are left out, so that their tasks run again.
pub fn manifests(folder: &Path) -> Vec<Manifest> {
    let Ok(entries) = fs::read_dir(folder.join("manifest")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|path| read_json(&path).ok().flatten())
        .collect()
}

/// Reads a record; `None` when the file is not there.
///
/// # Errors
/// When the file cannot be read, is no JSON of this shape, or has a newer format.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StageError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StageError::io("read", path)(error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let format = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
        let newer = format.and_then(|value| value.get("format")?.as_u64()).filter(|format| *format > u64::from(FORMAT));
        StageError::Damaged {
            path: path.to_owned(),
            message: newer.map_or_else(|| error.to_string(), |format| format!("format {format} is of a newer program")),
        }
    })
}

/// Writes a record completely or not at all, replacing an earlier one.
///
/// # Errors
/// When the disk refuses.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), StageError> {
    let partial = write_partial(path, value)?;
    fs::rename(&partial, path).map_err(StageError::io("write", path))
}

/// Writes a record unless one is there already; says whether it was written.
///
/// # Errors
/// When the disk refuses.
pub fn create_json<T: Serialize>(path: &Path, value: &T) -> Result<bool, StageError> {
    let partial = write_partial(path, value)?;
    let linked = fs::hard_link(&partial, path);
    let outcome = match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        // file systems without links: the exclusive creation decides, and a reader passes over a torn record
        Err(_) => create_exclusively(path, &partial),
    };
    let _ = fs::remove_file(&partial);
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    outcome
}

fn create_exclusively(path: &Path, partial: &Path) -> Result<bool, StageError> {
    let bytes = fs::read(partial).map_err(StageError::io("read", partial))?;
    match fs::File::create_new(path) {
        Ok(mut file) => {
            file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(StageError::io("write", path))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(StageError::io("write", path)(error)),
    }
}

fn write_partial<T: Serialize>(path: &Path, value: &T) -> Result<PathBuf, StageError> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|error| StageError::Internal(format!("a record cannot be written: {error}")))?;
    bytes.push(b'\n');
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("record");
    let partial = path.with_file_name(format!(".{name}.{}", crate::lease::unique()));
    let mut file = fs::File::create(&partial).map_err(StageError::io("write", path))?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        StageError::io("write", path)(error)
    })?;
    Ok(partial)
}

/// Makes renames in a folder durable.
///
/// # Errors
/// When the folder cannot be opened.
pub fn sync_folder(folder: &Path) -> Result<(), StageError> {
    let opened = fs::File::open(folder).map_err(StageError::io("open", folder))?;
    // some file systems cannot sync a folder; the rename is then as durable as they make it
    let _ = opened.sync_all();
    Ok(())
}
