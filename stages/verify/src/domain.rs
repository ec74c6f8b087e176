//! One door for all domains: picks the verifier by the row's domain.

use crate::{
    code,
    extract::Extraction,
    instruct,
    math::Math,
    stem::Stem,
    verdict::{Judgement, Label, Verdict, Verifier},
};

/// Judges the answer in `text` against `label` with the verifier of `domain`: `math` or `stem`.
///
/// Programs and instructions have no label: see [`crate::code::verify`] and [`crate::instruct::verify`]. A domain whose
/// answers cannot be compared gives `undecided`, never a pass.
///
/// ```
/// use stage_verify::{Extraction, Verdict, verify};
/// let judgement = verify("math", "18", &[], "So she pays \\boxed{\\$18}.", Extraction::Strict);
/// assert_eq!((judgement.verdict, judgement.answer.as_deref()), (Verdict::Correct, Some("\\$18")));
/// assert_eq!(verify("code", "", &[], "print(1)", Extraction::Strict).verdict, Verdict::Undecided);
/// ```
pub fn verify(domain: &str, label: &str, options: &[&str], text: &str, extraction: Extraction) -> Judgement {
    let label = Label { text: label, options };
    match domain {
        "math" if options.is_empty() => Math { extraction, ..Math::default() }.verify(&label, text),
        "math" | "stem" => Stem { extraction, ..Stem::default() }.verify(&label, text),
        other => Judgement::new(Verdict::Undecided, format!("no_verifier: domain `{other}`"), ""),
    }
}

/// Name and version of the verifier of `domain`, as stored beside the verdict.
pub fn verifier(domain: &str) -> (&'static str, u32) {
    match domain {
        "math" => (Math::NAME, Math::VERSION),
        "stem" => (Stem::NAME, Stem::VERSION),
        "code" => ("code", code::VERSION),
        "instruct" => ("instruct", instruct::VERSION),
        _ => ("none", 0),
    }
}
