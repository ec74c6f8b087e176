//! Which page of the cache belongs to whom, and which prefixes are there already.
//!
//! A full page is known by its own tokens and by the page before it, up to the beginning of the sequence; both are compared
//! as they are, not by hashes, so a page that is found holds exactly that prefix. Pages are counted: several sequences may
//! hold one. A page that nobody holds keeps its prefix until another needs the room, the longest unheld first.

use std::collections::{BTreeMap, HashMap};

use crate::PAGE;

/// The page before the first one.
pub(super) const ROOT: Name = Name(0);

/// A prefix of whole pages; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Name(u64);

/// Content of a full page: the prefix before it and its own tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Content {
    before: Name,
    tokens: [u32; PAGE],
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Sequences that hold the page.
    holders: u32,
    /// Its content and name, once it is full and known.
    known: Option<(Content, Name)>,
    /// When it was let go last; key into `idle`.
    let_go: u64,
}

/// The pages of one cache.
#[derive(Debug)]
pub(super) struct Pages {
    entries: Vec<Entry>,
    /// Without content.
    free: Vec<u32>,
    /// With content, held by nobody, by the time they were let go.
    idle: BTreeMap<u64, u32>,
    known: HashMap<Content, u32>,
    clock: u64,
    names: u64,
}

impl Pages {
    /// So many pages without content.
    pub fn new(count: u32) -> Self {
        Self {
            entries: vec![Entry::default(); count as usize],
            free: (0..count).rev().collect(),
            idle: BTreeMap::new(),
            known: HashMap::new(),
            clock: 0,
            names: ROOT.0,
        }
    }

    /// Pages that nobody holds.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// A page for new content, held once; `None` when all are held.
    pub fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.evict()?,
        };
        self.entries[page as usize].holders = 1;
        Some(page)
    }

    /// The page that holds `tokens` after the prefix `before`, and the name of the prefix that it ends.
    pub fn find(&self, before: Name, tokens: &[u32]) -> Option<(u32, Name)> {
        let content = Content { before, tokens: tokens.try_into().ok()? };
        let page = *self.known.get(&content)?;
        self.entries[page as usize].known.map(|(_, name)| (page, name))
    }

    /// One more sequence holds the page.
    pub fn hold(&mut self, page: u32) {
        let entry = &mut self.entries[page as usize];
        if entry.holders == 0 {
            self.idle.remove(&entry.let_go);
        }
        entry.holders += 1;
    }

    /// Makes a full page known; returns the name of the prefix that it ends. Where another page has the same content, that
    /// one stays the known one.
    pub fn publish(&mut self, page: u32, before: Name, tokens: &[u32]) -> Option<Name> {
        if let Some((_, name)) = self.find(before, tokens) {
            return Some(name);
        }
        let content = Content { before, tokens: tokens.try_into().ok()? };
        self.names += 1;
        let name = Name(self.names);
        self.entries[page as usize].known = Some((content, name));
        self.known.insert(content, page);
        Some(name)
    }

    /// A sequence lets all its pages go and `pages` becomes empty. The last ones are let go first and so leave first: a
    /// page without those before it is of no use.
    pub fn let_go(&mut self, pages: &mut Vec<u32>) {
        for page in pages.drain(..).rev() {
            let entry = &mut self.entries[page as usize];
            entry.holders = entry.holders.saturating_sub(1);
            if entry.holders > 0 {
                continue;
            }
            if entry.known.is_some() {
                self.clock += 1;
                entry.let_go = self.clock;
                self.idle.insert(self.clock, page);
            } else {
                self.free.push(page);
            }
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, page) = self.idle.pop_first()?;
        if let Some((content, _)) = self.entries[page as usize].known.take() {
            self.known.remove(&content);
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(first: u32) -> [u32; PAGE] {
        std::array::from_fn(|index| first + u32::try_from(index).unwrap())
    }

    #[test]
    fn a_page_is_found_only_after_its_own_prefix() {
        let mut pages = Pages::new(4);
        let (first, second) = (pages.take().unwrap(), pages.take().unwrap());
        let name = pages.publish(first, ROOT, &tokens(0)).unwrap();
        let longer = pages.publish(second, name, &tokens(7)).unwrap();
        assert_eq!(pages.find(ROOT, &tokens(0)), Some((first, name)));
        assert_eq!(pages.find(name, &tokens(7)), Some((second, longer)));
        assert_eq!(pages.find(ROOT, &tokens(7)), None);
        assert_eq!(pages.find(name, &tokens(0)), None);
        assert_eq!(pages.find(ROOT, &tokens(0)[1..]), None);
    }

    #[test]
    fn unheld_pages_keep_their_content_until_room_is_needed_and_the_last_of_a_prefix_leaves_first() {
        let mut pages = Pages::new(3);
        let mut held = vec![pages.take().unwrap(), pages.take().unwrap()];
        let (first, second) = (held[0], held[1]);
        let name = pages.publish(first, ROOT, &tokens(0)).unwrap();
        pages.publish(second, name, &tokens(7)).unwrap();
        pages.let_go(&mut held);
        assert_eq!((pages.available(), held.len()), (3, 0));
        let mut other = vec![pages.take().unwrap()];
        assert!(pages.find(name, &tokens(7)).is_some(), "a page without content is taken first");
        other.push(pages.take().unwrap());
        assert_eq!(other[1], second);
        assert_eq!(pages.find(name, &tokens(7)), None);
        assert_eq!(pages.find(ROOT, &tokens(0)), Some((first, name)));
        pages.hold(first);
        assert_eq!((pages.available(), pages.take()), (0, None));
    }

    #[test]
    fn a_page_held_twice_is_let_go_twice() {
        let mut pages = Pages::new(1);
        let page = pages.take().unwrap();
        pages.hold(page);
        pages.let_go(&mut vec![page]);
        assert_eq!(pages.available(), 0);
        pages.let_go(&mut vec![page]);
        assert_eq!(pages.available(), 1);
    }

    #[test]
    fn the_same_content_twice_is_one_prefix() {
        let mut pages = Pages::new(2);
        let mut held = vec![pages.take().unwrap(), pages.take().unwrap()];
        let name = pages.publish(held[0], ROOT, &tokens(3)).unwrap();
        assert_eq!(pages.publish(held[1], ROOT, &tokens(3)), Some(name));
        pages.let_go(&mut held);
        assert_eq!(pages.available(), 2);
        assert!(pages.find(ROOT, &tokens(3)).is_some());
    }
}
