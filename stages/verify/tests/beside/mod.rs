//! Files that lie beside the repository; a test without them says so and ends.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "what is missing is printed, and a broken file must stop the test"
)]

use serde_json::Value;
use std::{fs, path::PathBuf};

/// The text of a file under `../shared`.
pub fn text(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "set by cargo for the run; the one of the build may be that of another checkout"
    )]
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let text = fs::read_to_string(root.join("../../../shared").join(name)).ok();
    if text.is_none() {
        println!("skipped: `{name}` is not beside the repository");
    }
    text
}

/// The rows of a file of JSON lines.
pub fn lines(name: &str) -> Option<Vec<Value>> {
    Some(text(name)?.lines().map(|line| serde_json::from_str(line).expect("a row a line")).collect())
}
