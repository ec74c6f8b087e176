//! Random texts through shingles, sketches, bands and verification: no panic, and what must hold holds.
//!
//! ```sh
//! cargo run --release -p stage-text --example fuzz_dedup -- 1000000
//! ```

use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroUsize;

use stage_text::Symbols;
use stage_text::cluster::{Candidate, JoinRules, verify};
use stage_text::lsh::{band_hashes, bands_for};
use stage_text::minhash::{DEFAULT_COMPONENTS, SketchMethod};
use stage_text::ngram::mix;
use stage_text::shingle::{ShingleUnit, Shingler, Shingling};

/// Pieces of texts that have ended in trouble somewhere: marks without a letter, joiners, digits of other scripts.
const PIECES: [&str; 28] = [
    "a", "B", "word", "7", "12", "1,080", ".", "\\frac", "{", "}", "$", "\\,", "\n", " ", "\t", "数", "学", "ก",
    "\u{301}", "\u{200b}", "\u{feff}", "½", "²", "ß", "İ", "𝔘", "\u{0}", "_",
];

fn main() -> Result<(), Box<dyn Error>> {
    let inputs: u64 = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    let components = NonZeroUsize::new(DEFAULT_COMPONENTS).ok_or("no components")?;
    let bands = bands_for(0.8, DEFAULT_COMPONENTS)?;
    let mut sketchers = [SketchMethod::OnePermutation, SketchMethod::SuperMinHash].map(|it| it.sketcher(components, 1));
    let (mut last, mut text, mut sketch, mut hashes) = (Candidate::default(), String::new(), Vec::new(), Vec::new());
    let rules = JoinRules { threshold: 0.8, keeps_number_twins: true };
    let mut shinglers: Vec<Shingler> = Vec::new();
    for unit in [ShingleUnit::Word, ShingleUnit::Char] {
        for (size, symbols) in [(1, Symbols::Dropped), (5, Symbols::Operators), (9, Symbols::Kept)] {
            let shingling = Shingling { unit, size: NonZeroUsize::new(size).ok_or("no size")? };
            shinglers.extend([false, true].map(|is_masked| Shingler::new(shingling, symbols, is_masked)));
        }
    }
    for input in 0..inputs {
        let mut state = mix(input + 1);
        let mut draw = |below: u64| {
            state = mix(state ^ 0x9E37_79B9_7F4A_7C15);
            usize::try_from(state % below).unwrap_or(0)
        };
        text.clear();
        for _ in 0..draw(60) {
            if draw(8) == 0 {
                text.extend(char::from_u32(u32::try_from(draw(0x0011_0000))?));
            } else {
                text.push_str(PIECES[draw(PIECES.len() as u64)]);
            }
        }
        let shingler = draw(shinglers.len() as u64);
        let found = shinglers[shingler].shingles(&text);
        for sketcher in &mut sketchers {
            sketcher.sketch(found.hashes, &mut sketch);
            let expected = if found.hashes.is_empty() { 0 } else { DEFAULT_COMPONENTS };
            if sketch.len() != expected {
                return Err(format!("a sketch of {} components of {text:?}", sketch.len()).into());
            }
            hashes.clear();
            band_hashes(&sketch, bands, &mut hashes);
        }
        let mut shingles = found.hashes.to_vec();
        shingles.sort_unstable();
        shingles.dedup();
        let this = Candidate { shingles, numbers: found.numbers, label: None };
        let mut verified = verify(&[last, this.clone(), this.clone()], &[vec![0, 1, 2]], rules);
        let roots = verified.sets.roots();
        if roots[1] != roots[2] && !this.shingles.is_empty() {
            return Err(format!("a text is no duplicate of itself: {text:?}").into());
        }
        last = this;
    }
    writeln!(std::io::stdout(), "{inputs} texts, no panic")?;
    Ok(())
}
