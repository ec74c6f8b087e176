//! The texts a dag was read from, and places in them.
//!
//! A place carries its line and column, so that an error can be made far from the text; the text itself is
//! only needed to show the line (`render`).

use std::ops::Range;

/// Index of a file in [`Sources`]; 0 is the file the user named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub usize);

/// A stretch of one file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file.
    pub file: FileId,
    /// Line of the first character, from 1.
    pub line: usize,
    /// Column of the first character, from 1, counted in characters (a tab and a wide character are one each).
    pub column: usize,
    /// Byte range in the file's text; empty at the end of a file.
    pub span: Range<usize>,
}

/// One file: its name as shown to the user, and its text without a byte order mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    name: String,
    text: String,
    /// Byte offset at which each line begins; never empty.
    line_starts: Vec<usize>,
}

/// All files of a dag in the order they were opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl SourceFile {
    fn new(name: String, text: String) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index + 1))
            .collect();
        Self { name, text, line_starts }
    }
}

impl Sources {
    /// Takes in a file and gives its number.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.files.push(SourceFile::new(name.into(), text.into()));
        FileId(self.files.len() - 1)
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether no file was opened.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Name of a file as shown to the user; empty for a number that is not ours.
    pub fn name(&self, file: FileId) -> &str {
        self.files.get(file.0).map_or("", |source| &source.name)
    }

    /// Text of a file; empty for a number that is not ours.
    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0).map_or("", |source| &source.text)
    }

    /// The place of a byte range; offsets outside the text or inside a character are moved to the nearest one before.
    pub fn place(&self, file: FileId, span: Range<usize>) -> Place {
        let Some(source) = self.files.get(file.0) else {
            return Place { file, line: 1, column: 1, span: 0..0 };
        };
        let start = source.text.floor_char_boundary(span.start);
        let end = source.text.floor_char_boundary(span.end).max(start);
        let line = source.line_starts.partition_point(|begin| *begin <= start).max(1);
        let line_start = source.line_starts[line - 1];
        let column = source.text[line_start..start].chars().count() + 1;
        Place { file, line, column, span: start..end }
    }

    /// The text of a line (from 1) without its line end, and the byte offset at which it begins.
    pub fn line(&self, file: FileId, line: usize) -> (&str, usize) {
        let Some(source) = self.files.get(file.0) else {
            return ("", 0);
        };
        let Some(start) = line.checked_sub(1).and_then(|index| source.line_starts.get(index)).copied() else {
            return ("", 0);
        };
        let end = source.line_starts.get(line).copied().unwrap_or(source.text.len());
        (source.text[start..end].trim_end_matches(['\n', '\r']), start)
    }
}
