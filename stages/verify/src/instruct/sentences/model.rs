//! The English model: abbreviations, collocations, sentence starters, and the cases words were seen in.

use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::OnceLock;

const TEXT: &str = include_str!("../../../data/punkt_english.txt");

/// In which letter cases a word was seen that was seen in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letters {
    /// Never with a capital inside a sentence.
    Starter,
    /// At the start of a sentence, and never with a capital.
    Opener,
    /// Both.
    StarterOpener,
    /// Neither.
    Lower,
}

impl Letters {
    pub fn is_starter(self) -> bool {
        matches!(self, Self::Starter | Self::StarterOpener)
    }

    pub fn is_opener(self) -> bool {
        matches!(self, Self::Opener | Self::StarterOpener)
    }
}

/// What was learnt from the training text.
#[derive(Default)]
pub(super) struct Model {
    abbreviations: FxHashSet<&'static str>,
    starters: FxHashSet<&'static str>,
    collocations: FxHashSet<(&'static str, &'static str)>,
    letters: FxHashMap<&'static str, Letters>,
}

impl Model {
    /// The model, read when first asked for.
    pub fn english() -> &'static Self {
        static ENGLISH: OnceLock<Model> = OnceLock::new();
        ENGLISH.get_or_init(|| Self::read(TEXT))
    }

    /// Reads sections that begin with their name in brackets, an entry a line.
    fn read(text: &'static str) -> Self {
        // an ellipsis written with spaces, which a line of the file cannot show
        let mut model = Self { abbreviations: FxHashSet::from_iter([". . "]), ..Self::default() };
        let mut section = "";
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
                continue;
            }
            let letters = match section {
                "abbreviation" => {
                    model.abbreviations.insert(line);
                    continue;
                }
                "sentence" => {
                    model.starters.insert(line);
                    continue;
                }
                "collocation" => {
                    model.collocations.extend(line.split_once(' '));
                    continue;
                }
                "starter" => Letters::Starter,
                "opener" => Letters::Opener,
                "starter-opener" => Letters::StarterOpener,
                _ => Letters::Lower,
            };
            model.letters.insert(line, letters);
        }
        model
    }

    pub fn is_abbreviation(&self, stem: &str) -> bool {
        self.abbreviations.contains(stem)
    }

    pub fn is_starter(&self, kind: &str) -> bool {
        self.starters.contains(kind)
    }

    pub fn is_collocation(&self, kind: &str, next: &str) -> bool {
        self.collocations.contains(&(kind, next))
    }

    /// `None` for a word that was never seen in lower case.
    pub fn letters(&self, kind: &str) -> Option<Letters> {
        self.letters.get(kind).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_whole() {
        let model = Model::english();
        assert_eq!((model.abbreviations.len(), model.starters.len(), model.collocations.len()), (156, 39, 37));
        assert_eq!(model.letters.len(), 14_702);
        assert!(model.is_abbreviation("dr") && model.is_starter("however") && model.is_collocation("j", "aron"));
        assert_eq!(model.letters("board-room"), Some(Letters::Starter));
        assert_eq!(model.letters("springsteen"), None);
    }
}
