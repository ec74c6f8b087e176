//! Plants evaluation items into documents and looks for them, so that a broken set-up cannot pass for clean data.

use std::collections::BTreeMap;

use super::{ContaminationIndex, Entry};
use crate::error::TextError;
use crate::view::{TokenKind, View};

/// Items planted a set.
const ITEMS_PER_SET: usize = 3;

/// Text around a planted item, without any question in it.
const FILLER: &str = "The harbour was quiet that morning, and nobody on the pier had yet seen the two grey boats \
that came back from the north with their nets half empty and their lamps still burning.";

/// Number of documents that were planted and found.
pub(super) fn run(index: &ContaminationIndex) -> Result<usize, TextError> {
    let mut planted: BTreeMap<&str, usize> = BTreeMap::new();
    let mut searched = 0;
    let mut searcher = index.searcher();
    for (id, entry) in (0..).zip(&index.entries) {
        let Some(item) = index.items.get(entry.item as usize) else {
            continue;
        };
        let count = planted.entry(&item.set).or_default();
        if *count >= ITEMS_PER_SET {
            continue;
        }
        *count += 1;
        let text = index.text(entry);
        for (disguise, document) in disguises(index, id, entry, text) {
            searched += 1;
            let found = searcher.find(&document);
            if !found.hits.iter().any(|hit| hit.set == item.set && hit.item_id == item.id) {
                return Err(TextError::SelfTest { set: item.set.clone(), item_id: item.id.clone(), disguise });
            }
        }
    }
    Ok(searched)
}

fn disguises(index: &ContaminationIndex, id: u32, entry: &Entry, text: &str) -> Vec<(&'static str, String)> {
    let mut documents =
        vec![("re-wrapped into lines of eight tokens", rewrap(text)), ("upper-cased", text.to_ascii_uppercase())];
    if entry.counted > 0 || index.wholes.is_containable(id) {
        documents.push(("embedded in other text", format!("{FILLER} {FILLER}\n\n{text}\n\n{FILLER}")));
    }
    documents
}

/// Starts a new line after every eighth token, at white space or between two characters of an unspaced script.
fn rewrap(text: &str) -> String {
    let view = View::new(text);
    let mut wrapped = String::with_capacity(text.len() + view.len() / 8);
    let (mut done, mut tokens) = (0, 0);
    let next_starts = view.spans().iter().skip(1).map(|span| span.0).chain([u32::MAX]);
    for ((kind, (_, end)), next) in view.kinds().iter().zip(view.spans()).zip(next_starts) {
        tokens += 1;
        let is_between = *kind == TokenKind::Single && next == *end;
        let end = *end as usize;
        let may_break = is_between || text.get(end..).is_some_and(|rest| rest.starts_with([' ', '\n', '\t']));
        if tokens >= 8 && may_break {
            wrapped.push_str(text.get(done..end).unwrap_or_default());
            wrapped.push('\n');
            (done, tokens) = (end, 0);
        }
    }
    wrapped.push_str(text.get(done..).unwrap_or_default());
    wrapped
}
