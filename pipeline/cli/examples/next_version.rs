//! The same program with the versions of some kinds raised: `NEXT_VERSION_OF=sample next_version run dag.toml`.
//!
//! Tests use it to see that a new version of a kind's code reruns its stages and asks no model again.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a test chooses the kind this way")]
    let raised = std::env::var("NEXT_VERSION_OF").unwrap_or_default();
    let mut registry = pipeline_cli::registry();
    for entry in registry.0.iter_mut().filter(|entry| entry.kind == raised) {
        entry.version += 1;
    }
    pipeline_cli::main(&registry)
}
