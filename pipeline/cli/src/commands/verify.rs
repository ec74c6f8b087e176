//! `pipeline verify`: one verdict with its reason in one line, to try things out.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};
use stage_verify::instruct::{self, Constraint};
use stage_verify::stem::Stem;
use stage_verify::{Extraction, Judgement, Label, Verdict, Verifier as _, math};

use super::verify_code;
use crate::args::{self, Domain, Verify};
use crate::exit::{Exit, Failure};
use crate::output;

/// A verdict and what `--json` shows beside it.
pub struct Shown {
    /// The verdict.
    pub judgement: Judgement,
    /// What was compared, in words, for the line of a verdict; empty where the reason says it all.
    pub compared: String,
    /// More for `--json`.
    pub details: Value,
}

/// Runs the command.
pub fn verify(arguments: &Verify) -> Result<Exit, Failure> {
    let shown = match arguments.domain {
        Domain::Math | Domain::Stem => answer(arguments)?,
        Domain::Instruct => instructions(arguments)?,
        Domain::Code => verify_code::verify(arguments)?,
    };
    let Shown { judgement, compared, details } = shown;
    if arguments.json {
        let mut object = json!({
            "verdict": judgement.verdict.as_str(), "reason": judgement.reason, "answer": judgement.answer,
            "tier": judgement.tier, "weak": judgement.weak,
        });
        if let (Value::Object(object), Value::Object(details)) = (&mut object, details) {
            object.extend(details);
        }
        output::json(&object);
        return Ok(Exit::Done);
    }
    let mut line = format!("{}: ", judgement.verdict.as_str());
    let reason = judgement.reason.trim_start_matches(&line);
    let said = if compared.is_empty() { reason.to_owned() } else { compared };
    line.push_str(&said);
    let mut marks = Vec::new();
    if !judgement.tier.is_empty() {
        let by = match arguments.domain {
            Domain::Math | Domain::Stem => "tier ",
            Domain::Code => "tests: ",
            Domain::Instruct => "scoring: ",
        };
        marks.push(format!("{by}{}", judgement.tier));
    }
    if judgement.weak && arguments.answer.is_none() {
        marks.push("the answer is not marked as one".to_owned());
    }
    if !marks.is_empty() {
        line.push_str(&format!(" [{}]", marks.join("; ")));
    }
    output::line(line);
    Ok(Exit::Done)
}

/// Which answers of a response count.
pub fn extraction(arguments: &Verify) -> Extraction {
    match arguments.extraction {
        args::Extraction::Strict => Extraction::Strict,
        args::Extraction::Lenient => Extraction::Lenient,
    }
}

/// Text of a file, or of stdin for `-`.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", path.display())))
}

/// Refuses arguments that another domain takes.
pub fn refuse(domain: &str, given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => {
            let way_out = match *name {
                "--program" | "--tests" | "--language" => "; programs are judged with `--domain code`",
                "--constraint" | "--loose" => "; constraints are checked with `--domain instruct`",
                _ => "",
            };
            Err(Failure::usage(format!("`{name}` means nothing for `--domain {domain}`{way_out}")))
        }
        None => Ok(()),
    }
}

fn answer(arguments: &Verify) -> Result<Shown, Failure> {
    let is_math = arguments.domain == Domain::Math;
    let domain = if is_math { "math" } else { "stem" };
    refuse(
        domain,
        &[
            ("--program", arguments.program.is_some()),
            ("--tests", arguments.tests.is_some()),
            ("--constraint", !arguments.constraints.is_empty()),
            ("--language", arguments.language.is_some()),
            ("--loose", arguments.loose),
            ("--tolerance", is_math && arguments.tolerance.is_some()),
        ],
    )?;
    if arguments.tolerance.is_some_and(|tolerance| !(0.0..=0.5).contains(&tolerance)) {
        return Err(Failure::usage("`--tolerance` must lie between 0 and 0.5".to_owned()));
    }
    let Some(label) = &arguments.label else {
        return Err(Failure::usage(format!("`--domain {domain}` compares with a label; give `--label`")));
    };
    let options: Vec<&str> = arguments.options.iter().map(String::as_str).collect();
    let is_open = is_math && options.is_empty();
    let judgement = match (&arguments.answer, &arguments.response) {
        (Some(answer), _) if is_open => math::equivalent(label, answer).with_answer(answer.as_str(), false),
        (Some(answer), _) => bare_choice(arguments, label, &options, answer),
        (None, Some(file)) => {
            let text = text_of(file)?;
            if is_open {
                math::verify(label, &text, extraction(arguments))
            } else {
                choice(arguments, label, &options, &text, extraction(arguments))
            }
        }
        (None, None) => return Err(Failure::usage("give `--answer` or `--response`".to_owned())),
    };
    let given = judgement.answer.clone().unwrap_or_default();
    let compared = match judgement.verdict {
        Verdict::Correct => format!("the answer {given} equals the label {label}"),
        Verdict::Incorrect if judgement.reason == "different" => {
            format!("the answer {given} differs from the label {label}")
        }
        Verdict::Incorrect | Verdict::Undecided => format!("{}, answer {given}, label {label}", judgement.reason),
        Verdict::NoAnswer | Verdict::LabelUnparsable => String::new(),
    };
    Ok(Shown { judgement, compared, details: json!({ "label": label }) })
}

/// An answer by itself: where nothing in it marks the choice, all of it is the choice.
fn bare_choice(arguments: &Verify, label: &str, options: &[&str], answer: &str) -> Judgement {
    let judgement = choice(arguments, label, options, answer, Extraction::Strict);
    if judgement.verdict != Verdict::NoAnswer {
        return judgement;
    }
    choice(arguments, label, options, &format!("\\boxed{{{answer}}}"), Extraction::Strict)
}

fn choice(arguments: &Verify, label: &str, options: &[&str], text: &str, extraction: Extraction) -> Judgement {
    Stem { extraction, tolerance: arguments.tolerance }.verify(&Label { text: label, options }, text)
}

fn instructions(arguments: &Verify) -> Result<Shown, Failure> {
    refuse(
        "instruct",
        &[
            ("--program", arguments.program.is_some()),
            ("--tests", arguments.tests.is_some()),
            ("--label", arguments.label.is_some()),
            ("--options", !arguments.options.is_empty()),
        ],
    )?;
    let constraints = arguments.constraints.iter().map(|text| constraint(text)).collect::<Result<Vec<_>, _>>()?;
    if constraints.is_empty() {
        let hint = r#"give `--constraint 'length_constraints:number_words {"num_words": 40, "relation": "at least"}'`"#;
        return Err(Failure::usage(format!("`--domain instruct` checks constraints; {hint}")));
    }
    let text = match (&arguments.answer, &arguments.response) {
        (Some(answer), _) => answer.clone(),
        (None, Some(file)) => text_of(file)?,
        (None, None) => return Err(Failure::usage("give `--answer` or `--response`".to_owned())),
    };
    let scoring = if arguments.loose { instruct::Scoring::Loose } else { instruct::Scoring::Strict };
    let (judgement, checks) = match stage_verify::answer_part(&text) {
        Ok(part) => (instruct::verify(&constraints, part, scoring), instruct::checks(&constraints, part, scoring)),
        Err(missing) => (Judgement::new(Verdict::NoAnswer, missing.as_str(), ""), Vec::new()),
    };
    let each = constraints.iter().zip(&checks);
    let each = each.map(|(constraint, check)| json!({ "id": constraint.id(), "holds": check.holds, "why": check.why }));
    let details = json!({ "constraints": each.collect::<Vec<_>>() });
    let compared = match (judgement.verdict, checks.as_slice()) {
        (Verdict::Correct, [one]) => one.why.to_string(),
        (Verdict::Correct, all) => format!("all {} constraints hold", all.len()),
        _ => String::new(),
    };
    Ok(Shown { judgement, compared, details })
}

/// `ID {...}`, the parameters being optional.
fn constraint(text: &str) -> Result<Constraint, Failure> {
    let (id, kwargs) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "{}"));
    let kwargs: Value = serde_json::from_str(kwargs)
        .map_err(|error| Failure::usage(format!("the parameters of `{id}` are no JSON object: {error}")))?;
    Constraint::parse(id, &kwargs).map_err(|error| Failure::usage(error.to_string()))
}
