//! Verdicts on traces: equality of mathematical answers, option letters, classes of equal answers.
//!
//! Plain functions on text, without Arrow, clocks, threads or global state: the same inputs give the
//! same verdict on any machine, and no input makes them panic. Report sections 2.2.1 (mathematics)
//! and 2.2.3 (STEM).
//!
//! Policy: units, degree signs, currency and words are ignored when the number agrees; `28\%` equals
//! 28, 28% and 0.28; a bare comma list is unordered, a tuple in round brackets is ordered, a set
//! ignores repeats; `x = 5` equals 5; an interval equals its inequality; equations and inequalities
//! are equal up to a non-zero factor; several letters or numbers where one is asked are wrong;
//! arithmetic is exact.

mod anchor;
mod cluster;
pub mod code;
mod domain;
mod extract;
mod formula;
pub mod instruct;
mod letter;
pub mod math;
pub mod quantity;
pub mod sandbox;
pub mod stem;
mod verdict;

pub use cluster::cluster;
pub use domain::{verifier, verify};
pub use extract::{Extracted, Extraction, Missing, answer_part, extract};
pub use verdict::{Judgement, Label, Verdict, Verifier};
