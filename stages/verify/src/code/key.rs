//! What decides the report on a program, as a key for stored reports.

use super::json::Json;
use super::tests::{Form, Tests, Text};
use super::toolchain::Toolchains;

/// Key of the report on `source`: its language and that toolchain's version, the tests with their limits and way of
/// comparing, the driver, and whether all tests are run. Spacing and order of keys in the JSON of the tests do not matter.
pub fn key(source: &str, language: &str, tests: &Tests, toolchains: &Toolchains, runs_all: bool) -> [u8; 32] {
    let mut hasher = Hasher(blake3::Hasher::new());
    let name = super::language(language);
    let version = toolchains.versions().get(name.as_str()).copied().unwrap_or_default().to_string();
    hasher.text(&format!("program {} {runs_all}", super::VERSION));
    hasher.text(&name);
    hasher.text(&version);
    hasher.0.update(super::drive::driver().as_bytes());
    hasher.text(&format!("{:?}", tests.limits));
    match &tests.form {
        Form::Stdin { cases, compare } => {
            hasher.text(&format!("stdin {compare:?} {}", cases.len()));
            for case in cases {
                hasher.made(&case.input);
                hasher.made(&case.output);
            }
        }
        Form::Function { entry, cases, tolerance } => {
            hasher.text(&format!("function {tolerance:?} {} {entry}", cases.len()));
            for case in cases {
                hasher.text(&case.arguments.text());
                hasher.text(&Json::List(case.expected.clone()).text());
            }
        }
        Form::Assert { setup, asserts, .. } => {
            hasher.text(&format!("assert {}", asserts.len()));
            hasher.text(setup);
            for statement in asserts {
                hasher.text(statement);
            }
        }
    }
    hasher.text(source);
    *hasher.0.finalize().as_bytes()
}

struct Hasher(blake3::Hasher);

impl Hasher {
    /// Length first, so that no two lists of texts read the same.
    fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    fn made(&mut self, text: &Text) {
        match text {
            Text::Plain(text) => {
                self.0.update(b"p");
                self.text(text);
            }
            Text::Repeated { prefix, repeat, times, suffix } => {
                self.0.update(b"r");
                self.0.update(&(*times as u64).to_le_bytes());
                for part in [prefix, repeat, suffix] {
                    self.text(part);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::key;
    use crate::code::{Tests, Toolchains};

    #[test]
    fn the_key_holds_all_that_decides_and_no_spelling() {
        let none = Toolchains::default();
        let of = |source: &str, language: &str, json: &str| {
            key(source, language, &Tests::parse(json).unwrap(), &none, false)
        };
        let tests = r#"{"type":"stdin","cases":[{"input":"1","output":"2"}]}"#;
        let same = r#"{ "cases": [ {"output": "2", "input": "1"} ], "type": "stdin", "limits": {} }"#;
        assert_eq!(of("a", "python", tests), of("a", "py", same));
        let others = [
            of("b", "python", tests),
            of("a", "cpp", tests),
            of("a", "python", r#"{"type":"stdin","cases":[{"input":"12","output":""}]}"#),
            of("a", "python", r#"{"type":"stdin","cases":[{"input":"1","output":"2"}],"compare":"exact"}"#),
            of("a", "python", r#"{"type":"stdin","cases":[{"input":"1","output":"2"}],"limits":{"time_s":2}}"#),
            of("a", "python", r#"{"type":"assert","asserts":["1","2"]}"#),
            key("a", "python", &Tests::parse(tests).unwrap(), &none, true),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(*other, of("a", "python", tests), "{index}");
            assert!(!others[..index].contains(other));
        }
    }
}
