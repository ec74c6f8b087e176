//! Mistakes in a dag file: what is wrong, where, and the way out.

use std::fmt;

use super::render;
use super::source::{Place, Sources};

/// One mistake. `Display` gives the message alone; [`DagError::render`] shows the place too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagError {
    /// What is wrong: lower case, no full stop, names in backticks.
    pub message: String,
    /// Where, if it is somewhere in a file.
    pub place: Option<Place>,
    /// The way out, if there is one.
    pub hint: Option<String>,
    /// Other places that belong to the mistake.
    pub notes: Vec<Note>,
}

/// A remark with a place of its own: "first defined here".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The remark.
    pub message: String,
    /// Where.
    pub place: Option<Place>,
}

/// All mistakes found at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DagErrors(pub Vec<DagError>);

/// Why a dag could not be loaded, with the texts that are needed to show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The files that were read.
    pub sources: Sources,
    /// What is wrong in them; never empty.
    pub errors: DagErrors,
}

impl DagError {
    /// A mistake without a place yet.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, hint: None, notes: Vec::new() }
    }

    /// The same at a place.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    /// The same with a way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with "did you mean" when there is a near name.
    #[must_use]
    pub fn with_nearest(self, nearest: Option<&str>) -> Self {
        match nearest {
            Some(name) => self.with_hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// The same with a remark about another place.
    #[must_use]
    pub fn with_note(mut self, message: impl Into<String>, place: Option<&Place>) -> Self {
        self.notes.push(Note { message: message.into(), place: place.cloned() });
        self
    }

    /// The mistake with its line, carets under the place, notes and hint; without colour and without a last line end.
    pub fn render(&self, sources: &Sources) -> String {
        render::error(self, sources)
    }
}

impl DagErrors {
    /// Adds a mistake.
    pub fn push(&mut self, error: DagError) {
        self.0.push(error);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, others: DagErrors) {
        self.0.extend(others.0);
    }

    /// Puts the mistakes in the order of the text, file by file, those without a place first, and keeps one of
    /// several that are the same (each combination of a matrix finds the mistakes of its table again).
    pub fn tidy(&mut self) {
        let place = |error: &DagError| error.place.as_ref().map(|place| (place.file, place.span.start));
        self.0.sort_by_key(place);
        let mut kept: Vec<DagError> = Vec::with_capacity(self.0.len());
        for error in self.0.drain(..) {
            let is_near = |other: &&DagError| place(other) == place(&error);
            if !kept.iter().rev().take_while(is_near).any(|other| *other == error) {
                kept.push(error);
            }
        }
        self.0 = kept;
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of mistakes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Every mistake rendered, with an empty line between two.
    pub fn render(&self, sources: &Sources) -> String {
        self.0.iter().map(|error| error.render(sources)).collect::<Vec<_>>().join("\n\n")
    }

    /// `Ok(value)` when nothing is wrong.
    ///
    /// # Errors
    /// The list itself when it is not empty.
    pub fn or_ok<T>(self, value: T) -> Result<T, DagErrors> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<DagError> for DagErrors {
    fn from(error: DagError) -> Self {
        Self(vec![error])
    }
}

impl LoadError {
    /// Every mistake rendered, with an empty line between two.
    pub fn render(&self) -> String {
        self.errors.render(&self.sources)
    }
}

impl fmt::Display for DagError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl fmt::Display for DagErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render())
    }
}

impl std::error::Error for DagError {}
impl std::error::Error for DagErrors {}
impl std::error::Error for LoadError {}
