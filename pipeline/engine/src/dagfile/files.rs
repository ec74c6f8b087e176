//! Reads the dag file and what it includes, and merges the tables.
//!
//! Included tables come before the file's own, in the order of `include`; a file included twice is read once. Nothing
//! is overridden: one name in two files is a mistake that names both places.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::{DagError, DagErrors};
use super::node::{Converter, Node, NodeValue, dismantle};
use super::render::shown;
use super::sections::{self, TOP_KEYS};
use super::source::{FileId, Place, Sources};

/// Files that may include one another in a chain; a link to a parent folder could go on for ever.
const MAX_CHAIN: usize = 32;
/// Syntax errors shown of one file; the parser goes on after the first and may stumble often.
const MAX_SYNTAX_ERRORS: usize = 10;

/// Where dag files are read from.
pub trait Files {
    /// The bytes of a file.
    ///
    /// # Errors
    /// Whatever hinders reading.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The same for every way to write the path of one file.
    fn identity(&self, path: &Path) -> PathBuf;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

/// Files in memory, by path.
#[derive(Debug, Clone, Default)]
pub struct Texts(pub BTreeMap<PathBuf, Vec<u8>>);

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| without_dots(path))
    }
}

impl Files for Texts {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(&without_dots(path)).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn identity(&self, path: &Path) -> PathBuf {
        without_dots(path)
    }
}

fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// All files' tables, merged.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) sections: BTreeMap<&'static str, Node>,
    pub(super) models: BTreeMap<String, Node>,
    /// In file order, included ones first.
    pub(super) stages: Vec<(String, Node)>,
}

/// Reads files and gathers what they say.
pub(super) struct Loader<'a> {
    files: &'a dyn Files,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    chain: Vec<(PathBuf, PathBuf)>,
    read: BTreeSet<PathBuf>,
    pub(super) sources: Sources,
    pub(super) merged: Merged,
    pub(super) errors: DagErrors,
}

impl<'a> Loader<'a> {
    pub(super) fn new(files: &'a dyn Files, lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            files,
            lookup,
            chain: Vec::new(),
            read: BTreeSet::new(),
            sources: Sources::default(),
            merged: Merged::default(),
            errors: DagErrors::default(),
        }
    }

    /// Reads a file; `from` is the place that includes it.
    pub(super) fn load(&mut self, path: &Path, from: Option<&Place>) {
        let identity = self.files.identity(path);
        if let Some(begin) = self.chain.iter().position(|(other, _)| *other == identity) {
            let names = self.chain[begin..].iter().map(|(_, name)| name.as_path()).chain([path]);
            let cycle = names.map(|name| shown(&name.to_string_lossy())).collect::<Vec<_>>().join(" -> ");
            self.report(DagError::new(format!("files include each other: `{cycle}`")), from);
            return;
        }
        if self.chain.len() >= MAX_CHAIN {
            self.report(DagError::new(format!("files include each other more than {MAX_CHAIN} deep")), from);
            return;
        }
        if !self.read.insert(identity.clone()) {
            return;
        }
        let name = path.to_string_lossy().into_owned();
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.report(DagError::new(format!("cannot read `{}`: {error}", shown(&name))), from);
                return;
            }
        };
        let Some(file) = self.decode(name, &bytes) else {
            return;
        };
        let Some(entries) = self.parse(file) else {
            return;
        };
        self.chain.push((identity, path.to_owned()));
        if let Some(include) = entries.get("include") {
            self.include(path, include);
        }
        self.chain.pop();
        self.merge(entries);
    }

    fn report(&mut self, error: DagError, place: Option<&Place>) {
        self.errors.push(match place {
            Some(place) => error.at(place),
            None => error,
        });
    }

    fn decode(&mut self, name: String, bytes: &[u8]) -> Option<FileId> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match std::str::from_utf8(bytes) {
            Ok(text) => Some(self.sources.add(name, text)),
            Err(error) => {
                let at = error.valid_up_to();
                let message = format!("`{}` is not UTF-8 text", shown(&name));
                let file = self.sources.add(name, String::from_utf8_lossy(bytes));
                let place = self.sources.place(file, at..at + char::REPLACEMENT_CHARACTER.len_utf8());
                self.errors.push(DagError::new(message).at(&place).with_hint("save the file as UTF-8"));
                None
            }
        }
    }

    fn parse(&mut self, file: FileId) -> Option<BTreeMap<String, Node>> {
        let (table, problems) = DeTable::parse_recoverable(self.sources.text(file));
        if problems.is_empty() {
            let (sources, lookup, errors) = (&self.sources, self.lookup, &mut self.errors);
            return Some(Converter { file, sources, lookup, errors }.root(table));
        }
        dismantle(DeValue::Table(table.into_inner()));
        // after a slip the parser may stumble over the rest of the line again
        let mut lines = BTreeSet::new();
        let length = self.sources.text(file).len();
        for problem in problems {
            let place = self.sources.place(file, problem.span().unwrap_or(length..length));
            if lines.len() < MAX_SYNTAX_ERRORS && lines.insert(place.line) {
                self.errors.push(syntax_error(problem.message()).at(&place));
            }
        }
        None
    }

    fn include(&mut self, path: &Path, include: &Node) {
        let Some(elements) = include.as_array() else {
            if !include.is_invalid() {
                self.errors.push(
                    DagError::new(format!("`include` must be a list of files, not {}", include.type_name()))
                        .at(&include.place)
                        .with_hint("write `include = [\"models.toml\"]`"),
                );
            }
            return;
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        for element in elements {
            match element.as_str() {
                Some(name) if !name.is_empty() => {
                    self.load(&folder.join(name), Some(&element.place));
                }
                _ if element.is_invalid() => {}
                _ => self.errors.push(DagError::new("`include` must be a list of files").at(&element.place)),
            }
        }
    }

    fn merge(&mut self, entries: BTreeMap<String, Node>) {
        for (key, node) in entries {
            match key.as_str() {
                "include" => {}
                "models" => {
                    let own = self.entries_in_order(&key, node);
                    for (name, node) in own {
                        if let Some(first) = self.merged.models.get(&name) {
                            self.errors.push(defined_twice("model", &name, first, &node));
                        } else {
                            self.merged.models.insert(name, node);
                        }
                    }
                }
                "stages" => {
                    let own = self.entries_in_order(&key, node);
                    for (name, node) in own {
                        if let Some((_, first)) = self.merged.stages.iter().find(|(other, _)| *other == name) {
                            self.errors.push(defined_twice("stage", &name, first, &node));
                        } else {
                            self.merged.stages.push((name, node));
                        }
                    }
                }
                _ => match TOP_KEYS.iter().find(|known| **known == key) {
                    Some(section) => self.merge_section(section, node),
                    None => self.errors.push(sections::unknown_top_key(&key, &node)),
                },
            }
        }
    }

    fn merge_section(&mut self, section: &'static str, node: Node) {
        let NodeValue::Table(entries) = node.value else {
            self.errors.extend(sections::not_a_table(section, &node));
            return;
        };
        let empty = Node { value: NodeValue::Table(BTreeMap::new()), ..node };
        let merged = self.merged.sections.entry(section).or_insert(empty);
        let NodeValue::Table(known) = &mut merged.value else {
            return;
        };
        for (key, node) in entries {
            if let Some(first) = known.get(&key) {
                self.errors.push(defined_twice("key", &format!("{section}.{key}"), first, &node));
            } else {
                known.insert(key, node);
            }
        }
    }

    fn entries_in_order(&mut self, section: &str, node: Node) -> Vec<(String, Node)> {
        if let NodeValue::Table(entries) = node.value {
            let mut entries: Vec<_> = entries.into_iter().collect();
            entries.sort_by_key(|(_, node)| node.key_or_value_place().span.start);
            entries
        } else {
            self.errors.extend(sections::not_a_table(section, &node));
            Vec::new()
        }
    }
}

fn defined_twice(what: &str, name: &str, first: &Node, second: &Node) -> DagError {
    DagError::new(format!("{what} `{}` is defined twice", shown(name)))
        .at(second.key_or_value_place())
        .with_note("first defined here", Some(first.key_or_value_place()))
}

/// The parser's words, put so that they say what to do.
fn syntax_error(message: &str) -> DagError {
    if message == "duplicate key" {
        return DagError::new("this key or table is defined twice");
    }
    let error = DagError::new(format!("not valid TOML: {message}"));
    if message.starts_with("invalid unquoted key") {
        error.with_hint("a key with other characters than a-z, A-Z, 0-9, `_` and `-` is written in quotes")
    } else {
        error
    }
}
