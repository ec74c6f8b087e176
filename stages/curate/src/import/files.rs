//! Users' files: which ones a list of names and globs means, in what format they are, and how they are cut into the
//! pieces that tasks read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use pipeline_core::table_io::TableFile;
use pipeline_core::{Digest, Env, ParamError, Source, SourceRange, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read;

/// Format of a user's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// One JSON object a line.
    Jsonl,
    /// One JSON array of objects.
    Json,
    /// Comma-separated values with a header line.
    Csv,
}

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, of one or several members.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// A user's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFile {
    /// Its name in the table and in recipes: relative to the folder of `dag.toml`, else the file name alone.
    pub name: String,
    /// Path that [`Env::path`] resolves.
    pub path: PathBuf,
}

/// Finds the files that `files` means, in the order given; the matches of a glob are sorted, and a file that is meant
/// twice comes once.
///
/// # Errors
/// When a file is missing or a glob matches none.
pub fn expand(env: &Env, files: &[String]) -> Result<Vec<UserFile>, StageError> {
    let mut found: Vec<UserFile> = Vec::new();
    for (index, given) in files.iter().enumerate() {
        let at = format!("files[{index}]");
        let direct = env.base.join(given);
        let paths = if direct.is_file() {
            vec![direct]
        } else if given.contains(['*', '?', '[']) {
            matches(env, given, &at)?
        } else {
            let what = if direct.is_dir() {
                "is a folder; name the files in it, say with `*.jsonl`"
            } else {
                "does not exist"
            };
            return Err(ParamError::new(at, format!("file `{given}` {what}")).into());
        };
        for path in paths {
            let file = match relative_to(&env.base, &path) {
                Some(relative) => UserFile { name: relative.to_string_lossy().into_owned(), path: relative },
                None => UserFile {
                    name: file_name(&path),
                    path: std::path::absolute(&path).map_err(StageError::io("find", &path))?,
                },
            };
            if !found.iter().any(|known| known.path == file.path) {
                found.push(file);
            }
        }
    }
    Ok(found)
}

/// The path below a folder, also where one of the two begins with `./`.
fn relative_to(base: &Path, path: &Path) -> Option<PathBuf> {
    let plain = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_path_buf();
    plain(path)
        .strip_prefix(plain(base))
        .ok()
        .filter(|_| base.is_absolute() == path.is_absolute())
        .map(Path::to_path_buf)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn matches(env: &Env, given: &str, at: &str) -> Result<Vec<PathBuf>, StageError> {
    let pattern = Path::new(&glob::Pattern::escape(&env.base.to_string_lossy())).join(given);
    let refused = |error: glob::PatternError| ParamError::new(at, format!("`{given}` is no pattern: {}", error.msg));
    let mut paths = Vec::new();
    for path in glob::glob(&pattern.to_string_lossy()).map_err(refused)? {
        let path = path.map_err(|error| StageError::io("read", error.path().to_owned())(error.into()))?;
        if path.is_file() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(ParamError::new(at, format!("`{given}` matches no file")).into());
    }
    paths.sort();
    Ok(paths)
}

/// Packing and format of a file: packing by its first bytes, format as given, else by name, where `.json` and `.jsonl`
/// are told apart by their first character.
///
/// # Errors
/// When the file cannot be read or its name says nothing.
pub fn recognise(path: &Path, given: Option<Format>) -> Result<(Packing, Format), StageError> {
    let mut magic = Vec::new();
    let file = File::open(path).map_err(StageError::io("open", path))?;
    file.take(4).read_to_end(&mut magic).map_err(StageError::io("read", path))?;
    let packing = match magic.as_slice() {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
        _ => Packing::Plain,
    };
    if let Some(format) = given {
        return Ok((packing, format));
    }
    let name = file_name(path).to_lowercase();
    let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let format = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("parquet") => Format::Parquet,
        Some("csv") => Format::Csv,
        Some("json" | "jsonl" | "ndjson") => {
            if first_character(path, packing)? == Some(b'[') {
                Format::Json
            } else {
                Format::Jsonl
            }
        }
        _ => {
            let message = "its name says nothing about its format; set `format` to parquet, jsonl, json or csv";
            return Err(StageError::input(path, None, message));
        }
    };
    Ok((packing, format))
}

fn first_character(path: &Path, packing: Packing) -> Result<Option<u8>, StageError> {
    let mut reader = read::unpack(path, packing)?;
    loop {
        let bytes = reader.fill_buf().map_err(read::unreadable(path))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            return Ok(Some(*first));
        }
        let count = bytes.len();
        reader.consume(count);
    }
}

/// Cuts files into pieces: plain JSON lines and plain Parquet at `shard_rows` rows (JSON lines also at `shard_bytes`
/// bytes), other files not at all. With `limit`, the first so many rows of the files in order.
///
/// # Errors
/// When a file cannot be read.
pub fn sources(
    env: &Env,
    files: &[UserFile],
    format: Option<Format>,
    limit: Option<u64>,
) -> Result<Vec<Source>, StageError> {
    let mut sources = Vec::new();
    let mut left = limit;
    for file in files {
        let path = env.base.join(&file.path);
        match left {
            None => match recognise(&path, format)? {
                (Packing::Plain, Format::Jsonl) => lines(env, file, &path, &mut sources)?,
                (Packing::Plain, Format::Parquet) => rows(env, file, &path, &mut sources)?,
                _ => sources.push(piece(file, &env.digest_of(&path)?, SourceRange::Whole)),
            },
            Some(0) => break,
            Some(wanted) => {
                let count = count_up_to(&path, format, wanted)?;
                left = Some(wanted - count);
                sources.push(piece(file, &env.digest_of(&path)?, SourceRange::Rows { start: 0, count }));
            }
        }
    }
    Ok(sources)
}

/// Rows that the files hold, with `limit` at most so many.
///
/// # Errors
/// When a file cannot be read.
pub fn count(env: &Env, files: &[UserFile], format: Option<Format>, limit: Option<u64>) -> Result<u64, StageError> {
    let limit = limit.unwrap_or(u64::MAX);
    let mut rows = 0;
    for file in files {
        if rows < limit {
            rows += count_up_to(&env.base.join(&file.path), format, limit - rows)?;
        }
    }
    Ok(rows)
}

fn count_up_to(path: &Path, format: Option<Format>, wanted: u64) -> Result<u64, StageError> {
    let range = SourceRange::Rows { start: 0, count: wanted };
    let mut reader = read::open(path, format, &range)?;
    let mut count = 0;
    while let Some(chunk) = reader.next_chunk()? {
        count += chunk.records.len() as u64;
    }
    Ok(count)
}

/// A piece whose digest is that of the whole file and the rows taken from it.
fn piece(file: &UserFile, content: &Digest, range: SourceRange) -> Source {
    let mut hasher = blake3::Hasher::new();
    hasher.update(file.name.as_bytes()).update(&[0]).update(content.bytes());
    if let SourceRange::Rows { start, count } = range {
        hasher.update(&start.to_le_bytes()).update(&count.to_le_bytes());
    }
    Source { name: file.name.clone(), path: file.path.clone(), digest: Digest::finish(&hasher), range }
}

fn rows(env: &Env, file: &UserFile, path: &Path, sources: &mut Vec<Source>) -> Result<(), StageError> {
    let digest = env.digest_of(path)?;
    let table = read::open_table(path)?;
    let bytes = std::fs::metadata(path).map_err(StageError::io("read", path))?.len();
    let step = env.shard_rows.min(rows_of(&table, bytes, env.shard_bytes)).max(1);
    let mut start = 0;
    loop {
        let count = step.min(table.rows() - start);
        sources.push(piece(file, &digest, SourceRange::Rows { start, count }));
        start += count;
        if start >= table.rows() {
            return Ok(());
        }
    }
}

/// Rows of a table in `wanted` bytes of its file.
fn rows_of(table: &TableFile, bytes: u64, wanted: u64) -> u64 {
    wanted.saturating_mul(table.rows()) / bytes.max(1)
}

fn lines(env: &Env, file: &UserFile, path: &Path, sources: &mut Vec<Source>) -> Result<(), StageError> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(StageError::io("open", path))?);
    let mut line = Vec::new();
    let (mut start, mut end, mut first, mut next) = (0, 0, 1, 1);
    let mut content = blake3::Hasher::new();
    loop {
        line.clear();
        let count = reader.read_until(b'\n', &mut line).map_err(StageError::io("read", path))? as u64;
        let is_full = next - first >= env.shard_rows.max(1) || end - start >= env.shard_bytes.max(1);
        if count == 0 || is_full {
            if end > start || sources.last().is_none_or(|last| last.path != file.path) {
                let mut hasher = blake3::Hasher::new();
                hasher.update(file.name.as_bytes()).update(&[0]).update(&u64::to_le_bytes(first));
                hasher.update(content.finalize().as_bytes());
                let range = SourceRange::Lines { start, end, line: first };
                let digest = Digest::finish(&hasher);
                sources.push(Source { name: file.name.clone(), path: file.path.clone(), digest, range });
            }
            if count == 0 {
                return Ok(());
            }
            (start, first) = (end, next);
            content = blake3::Hasher::new();
        }
        content.update(&line);
        end += count;
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_relative_to_the_folder_of_the_dag_file() {
        let relative = |base: &str, path: &str| relative_to(Path::new(base), Path::new(path));
        assert_eq!(relative("/p", "/p/a/b.csv"), Some(PathBuf::from("a/b.csv")));
        assert_eq!(relative("./p", "p/b.csv"), Some(PathBuf::from("b.csv")));
        assert_eq!(relative("", "b.csv"), Some(PathBuf::from("b.csv")));
        assert_eq!(relative(".", "./a/b.csv"), Some(PathBuf::from("a/b.csv")));
        assert_eq!(relative("/p", "/q/b.csv"), None);
        assert_eq!(relative(".", "/q/b.csv"), None);
    }
}
