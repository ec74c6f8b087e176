//! `pipeline verify`: one verdict with its reason, to try things out.

use serde_json::json;
use stage_verify::Extraction;

use crate::args::{self, Verify};
use crate::exit::Exit;
use crate::output;

/// Runs the command.
pub fn verify(arguments: &Verify) -> Exit {
    let options: Vec<&str> = arguments.options.iter().map(String::as_str).collect();
    let extraction = match arguments.extraction {
        args::Extraction::Strict => Extraction::Strict,
        args::Extraction::Lenient => Extraction::Lenient,
    };
    let judged = stage_verify::verify(&arguments.domain, &arguments.label, &options, &arguments.answer, extraction);
    if arguments.json {
        output::json(&json!({
            "verdict": judged.verdict.as_str(), "reason": judged.reason, "answer": judged.answer, "tier": judged.tier,
            "weak": judged.weak,
        }));
    } else {
        output::line(format!("verdict  {}", judged.verdict.as_str()));
        output::line(format!("reason   {}", judged.reason));
        if let Some(answer) = &judged.answer {
            output::line(format!("answer   {answer}"));
        }
        output::line(format!("decided  {}", judged.tier));
    }
    Exit::Done
}
