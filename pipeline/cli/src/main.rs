//! The program `pipeline`.

use std::process::ExitCode;

/// Stages make and drop many texts of all sizes at once on several threads; the allocator of the system is slower at it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pipeline_cli::main(&pipeline_cli::registry())
}
