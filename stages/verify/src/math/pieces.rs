//! Unions of intervals: brought to normal form, cut, complemented. Every step needs the order of two
//! ends; where that is not proved (symbolic ends), there is no result.

use super::{
    evaluate::Budget,
    region::compare_ends,
    shape::{infinity, is_infinite},
    value::Node,
};
use std::cmp::Ordering;

/// One interval of a region.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Lower end.
    pub low: Node,
    /// Upper end.
    pub high: Node,
    /// Whether the lower end belongs to it.
    pub low_closed: bool,
    /// Whether the upper end belongs to it.
    pub high_closed: bool,
}

/// Pieces beyond this are not worked on.
const MAX_PIECES: usize = 24;

impl Piece {
    /// An interval; infinite ends never belong to it.
    pub fn new(low: &Node, high: &Node, low_closed: bool, high_closed: bool) -> Self {
        Self {
            low: low.clone(),
            high: high.clone(),
            low_closed: low_closed && !is_infinite(low),
            high_closed: high_closed && !is_infinite(high),
        }
    }

    /// A single point.
    pub fn point(at: &Node) -> Self {
        Self::new(at, at, true, true)
    }

    /// All reals.
    pub fn all() -> Self {
        Self::new(&infinity(false), &infinity(true), false, false)
    }
}

/// Sorted, disjoint, joined where they touch, without empty ones; `None` when an order is not known.
pub fn sorted(pieces: &[Piece], budget: &Budget) -> Option<Vec<Piece>> {
    if pieces.len() > MAX_PIECES {
        return None;
    }
    let mut kept: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match compare_ends(&piece.low, &piece.high, budget)? {
            Ordering::Greater => continue,
            Ordering::Equal if !(piece.low_closed && piece.high_closed) => continue,
            _ => {}
        }
        let mut at = kept.len();
        while at > 0 {
            let before = &kept[at - 1];
            let order = compare_ends(&before.low, &piece.low, budget)?;
            if order == Ordering::Greater || order == Ordering::Equal && !before.low_closed && piece.low_closed {
                at -= 1;
            } else {
                break;
            }
        }
        kept.insert(at, piece.clone());
    }
    let mut joined: Vec<Piece> = Vec::with_capacity(kept.len());
    for piece in kept {
        if let Some(last) = joined.last_mut() {
            let order = compare_ends(&last.high, &piece.low, budget)?;
            if order == Ordering::Greater || order == Ordering::Equal && (last.high_closed || piece.low_closed) {
                match compare_ends(&last.high, &piece.high, budget)? {
                    Ordering::Less => (last.high, last.high_closed) = (piece.high, piece.high_closed),
                    Ordering::Equal => last.high_closed |= piece.high_closed,
                    Ordering::Greater => {}
                }
                continue;
            }
        }
        joined.push(piece);
    }
    Some(joined)
}

/// What both have; `None` when an order is not known.
pub fn intersection(x: &[Piece], y: &[Piece], budget: &Budget) -> Option<Vec<Piece>> {
    if x.len() * y.len() > MAX_PIECES * 4 {
        return None;
    }
    let mut found = Vec::new();
    for a in x {
        for b in y {
            let (low, low_closed) = match compare_ends(&a.low, &b.low, budget)? {
                Ordering::Less => (&b.low, b.low_closed),
                Ordering::Equal => (&a.low, a.low_closed && b.low_closed),
                Ordering::Greater => (&a.low, a.low_closed),
            };
            let (high, high_closed) = match compare_ends(&a.high, &b.high, budget)? {
                Ordering::Less => (&a.high, a.high_closed),
                Ordering::Equal => (&a.high, a.high_closed && b.high_closed),
                Ordering::Greater => (&b.high, b.high_closed),
            };
            match compare_ends(low, high, budget)? {
                Ordering::Greater => {}
                Ordering::Equal if !(low_closed && high_closed) => {}
                _ => found.push(Piece::new(low, high, low_closed, high_closed)),
            }
        }
    }
    Some(found)
}

/// The reals outside.
pub fn complement(pieces: &[Piece], budget: &Budget) -> Option<Vec<Piece>> {
    let mut found = Vec::new();
    let (mut from, mut from_closed) = (infinity(false), false);
    for piece in sorted(pieces, budget)? {
        if !is_infinite(&piece.low) {
            found.push(Piece::new(&from, &piece.low, from_closed, !piece.low_closed));
        }
        (from, from_closed) = (piece.high, !piece.high_closed);
    }
    if !matches!(&from, Node::Symbol(_)) || !is_infinite(&from) {
        found.push(Piece::new(&from, &infinity(true), from_closed, false));
    }
    Some(found)
}
