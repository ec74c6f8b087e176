//! What the tests of programs stand on: a sandbox with the supervisor of this build.

use stage_verify::code::Toolchains;
use stage_verify::sandbox::{Cgroups, Isolation, Launch, Sandbox, Settings};
use std::path::PathBuf;

/// The supervisor: the one of this build, or a copy that another user may execute.
pub fn supervisor() -> PathBuf {
    std::env::var_os("CODE_TESTS_SUPERVISOR")
        .map_or_else(|| env!("CARGO_BIN_EXE_sandbox-supervisor").into(), PathBuf::from)
}

pub fn sandbox(toolchains: &Toolchains, cgroups: Cgroups) -> Sandbox {
    let settings = Settings {
        launch: Launch::Program(supervisor()),
        isolation: Isolation::Full,
        cgroups,
        roots: toolchains.roots(),
        workers: 2,
    };
    Sandbox::new(settings).unwrap()
}
