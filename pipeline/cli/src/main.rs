//! The program `pipeline`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipeline_cli::main(&pipeline_cli::registry())
}
