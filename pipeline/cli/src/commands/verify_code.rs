//! `pipeline verify --domain code`: a program against tests, in the sandbox.

use std::borrow::Cow;
use std::path::PathBuf;

use serde_json::json;
use stage_verify::code::{self, Judge, Tests, Toolchains, language};
use stage_verify::sandbox::{Cgroups, Isolation, Launch, Sandbox, Settings};

use super::verify::{Shown, extraction, refuse, text_of};
use crate::args::Verify;
use crate::exit::Failure;
use crate::output;

/// Judges a program file, or the program of a response.
pub fn verify(arguments: &Verify) -> Result<Shown, Failure> {
    refuse(
        "code",
        &[
            ("--label", arguments.label.is_some()),
            ("--options", !arguments.options.is_empty()),
            ("--constraint", !arguments.constraints.is_empty()),
            ("--loose", arguments.loose),
            ("--tolerance", arguments.tolerance.is_some()),
        ],
    )?;
    let Some(file) = &arguments.tests else {
        let forms = r#"{"type": "stdin", "cases": [{"input": "2 3\n", "output": "5\n"}]}"#;
        return Err(Failure::usage(format!("`--domain code` runs tests; give `--tests FILE` such as {forms}")));
    };
    let tests =
        Tests::parse(&text_of(file)?).map_err(|error| Failure::usage(format!("`{}`: {error}", file.display())))?;
    let toolchains = Toolchains::found();
    let isolation = if arguments.unsafe_no_sandbox { Isolation::Off } else { Isolation::Full };
    let settings =
        Settings { launch: Launch::Itself, isolation, cgroups: Cgroups::Auto, roots: toolchains.roots(), workers: 1 };
    let sandbox = Sandbox::new(settings).map_err(|error| Failure::stage(error.to_string()))?;
    output::note(format!("sandbox: {}", sandbox.layers().lines().join("; ")));
    let mut judge = Judge::new(&sandbox, &toolchains);
    if arguments.all_tests {
        judge = judge.all_tests();
    }
    let failed = |error: code::CodeError| Failure::stage(error.to_string());
    let text = match (&arguments.program, &arguments.answer, &arguments.response) {
        (Some(file), ..) | (None, None, Some(file)) => text_of(file)?,
        (None, Some(text), _) => text.clone(),
        (None, None, None) => return Err(Failure::usage("give `--program`, `--answer` or `--response`".to_owned())),
    };
    let by_name = |file: &PathBuf| file.extension().and_then(|name| name.to_str()).map(language);
    let (source, found) = match &arguments.program {
        Some(file) => (Cow::Borrowed(text.as_str()), by_name(file)),
        None => match code::chosen(&judge, &tests, &text, extraction(arguments)) {
            Ok(program) => (program.source, Some(program.language)),
            Err(judgement) => return Ok(Shown { judgement, compared: String::new(), details: json!({}) }),
        },
    };
    let named = arguments.language.as_deref().map(language).or(found).or_else(|| tests.language().map(language));
    let language = named.unwrap_or_else(|| "python".to_owned());
    let report = judge.run(&language, &source, &tests).map_err(failed)?;
    let judgement = code::judgement(&report, &tests);
    let most = |value: fn(&code::TestReport) -> u128| report.tests.iter().map(value).max().unwrap_or(0);
    let compared = format!(
        "{}: {} of {} tests passed{}{} ({language}, at most {} ms CPU and {} MiB a test{})",
        report.overall.as_str(),
        report.passed(),
        report.count,
        if report.detail.is_empty() { "" } else { "; " },
        report.detail,
        most(|test| test.usage.cpu.as_millis()),
        most(|test| u128::from(test.usage.peak_memory_bytes >> 20)),
        if report.in_process { "; asserted in the program's own process" } else { "" },
    );
    let details =
        json!({ "language": language, "report": report, "toolchain": toolchains.versions().get(language.as_str()) });
    Ok(Shown { judgement, compared, details })
}
