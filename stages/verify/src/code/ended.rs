//! What the end of a process says of the program.

use super::line::{cut, last};
use super::report::{Ran, Usage};
use crate::sandbox::{End, Limits, Outcome};

/// Why a process did not end well; `None` for exit status 0.
pub(super) fn fault(outcome: &Outcome, limits: &Limits) -> Option<(Ran, String)> {
    let said = last(&outcome.stderr);
    Some(match outcome.end {
        End::Exited(0) => return None,
        End::CpuLimit => (Ran::TimeLimit, format!("more than {} s of CPU time", limits.cpu.as_secs_f64())),
        End::WallLimit => (Ran::TimeLimit, format!("more than {} s by the clock", limits.wall.as_secs_f64())),
        End::MemoryLimit => (Ran::MemoryLimit, memory(limits)),
        End::OutputLimit => (Ran::OutputLimit, format!("more than {} of output", mebibytes(limits.stdout_bytes))),
        End::Exited(_) | End::Signaled(_) if is_out_of_memory(&outcome.stderr, &said) => {
            (Ran::MemoryLimit, format!("{}: {said}", memory(limits)))
        }
        End::Exited(_) if is_syntax_error(&outcome.stderr, &said) => (Ran::CompileError, said),
        End::Exited(status) if said.is_empty() => (Ran::RuntimeError, format!("exit status {status}")),
        End::Exited(status) => (Ran::RuntimeError, format!("exit status {status}: {said}")),
        End::Signaled(signal) => (Ran::RuntimeError, format!("ended by signal {signal}{}", name(signal))),
    })
}

/// Whether the clock ended it.
pub(super) fn by_clock(outcome: &Outcome) -> bool {
    outcome.end == End::WallLimit
}

pub(super) fn usage(outcome: &Outcome) -> Usage {
    Usage { cpu: outcome.cpu, wall: outcome.wall, peak_memory_bytes: outcome.peak_memory_bytes }
}

/// Whether an error that a program raised is one of memory.
pub(super) fn is_memory_error(text: &str) -> bool {
    text == "MemoryError" || text.starts_with("MemoryError:") || text.contains("std::bad_alloc")
}

fn is_out_of_memory(stderr: &[u8], said: &str) -> bool {
    is_memory_error(said) || stderr.windows(14).rev().take(2_000).any(|part| part == b"std::bad_alloc")
}

/// Whether Python refused the program itself: it then shows the line without a traceback, or complains of the source.
fn is_syntax_error(stderr: &[u8], said: &str) -> bool {
    let has = |part: &[u8]| stderr.windows(part.len()).any(|found| found == part);
    let refuses = ["SyntaxError: source code", "ValueError: source code"].iter().any(|kind| said.starts_with(kind));
    let shows = ["SyntaxError:", "IndentationError:", "TabError:"].iter().any(|kind| said.starts_with(kind));
    (refuses || shows && has(b"  File \"") && has(b"\", line ")) && !has(b"Traceback")
}

fn memory(limits: &Limits) -> String {
    format!("more than {} of memory", mebibytes(limits.memory_bytes))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", (bytes as f64 / 1_048_576.0 * 100.0).round() / 100.0)
}

fn name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic)",
        9 => " (kill)",
        11 => " (segmentation fault)",
        31 => " (forbidden system call)",
        _ => "",
    }
}

/// The first error of a compiler's diagnostics, else the last line.
pub(super) fn diagnostic(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let error = text.lines().find(|line| line.contains("error:") || line.contains("undefined reference"));
    error.map_or_else(|| last(stderr), |line| cut(line.trim(), 200))
}

#[cfg(test)]
mod tests {
    use super::{diagnostic, fault};
    use crate::code::Ran;
    use crate::sandbox::{End, Limits, Outcome};
    use std::time::Duration;

    fn ran(end: End, stderr: &str) -> Option<(Ran, String)> {
        let none = Duration::ZERO;
        let outcome = Outcome {
            end,
            cpu: none,
            wall: none,
            peak_memory_bytes: 0,
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
            report: Vec::new(),
            artifact: None,
        };
        let limits = Limits {
            cpu: Duration::from_millis(1500),
            wall: none,
            memory_bytes: 256 << 20,
            processes: 1,
            stdout_bytes: 1 << 20,
            stderr_bytes: 0,
            disk_bytes: 0,
        };
        fault(&outcome, &limits)
    }

    #[test]
    fn the_exit_status_counts_and_its_last_line_is_told() {
        assert_eq!(ran(End::Exited(0), "warning"), None);
        let said = |end, stderr: &str| ran(end, stderr).unwrap();
        assert_eq!(said(End::Exited(3), ""), (Ran::RuntimeError, "exit status 3".to_string()));
        assert_eq!(said(End::Exited(1), "Traceback\nValueError: x\n").1, "exit status 1: ValueError: x");
        assert_eq!(said(End::Signaled(11), "").1, "ended by signal 11 (segmentation fault)");
        assert_eq!(said(End::CpuLimit, "").1, "more than 1.5 s of CPU time");
        assert_eq!(said(End::OutputLimit, ""), (Ran::OutputLimit, "more than 1 MiB of output".to_string()));
    }

    #[test]
    fn failing_for_lack_of_memory_is_a_memory_limit() {
        assert_eq!(ran(End::Exited(1), "Traceback\n  x\nMemoryError\n").unwrap().0, Ran::MemoryLimit);
        let thrown = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n";
        assert_eq!(ran(End::Signaled(6), thrown).unwrap().0, Ran::MemoryLimit);
        assert_eq!(ran(End::Exited(0), "MemoryError\n"), None);
    }

    #[test]
    fn a_program_that_python_refuses_did_not_compile() {
        let refused = "  File \"main.py\", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n";
        assert_eq!(ran(End::Exited(1), refused), Some((Ran::CompileError, "SyntaxError: invalid syntax".to_string())));
        let raised = format!("Traceback (most recent call last):\n{refused}");
        assert_eq!(ran(End::Exited(1), &raised).unwrap().0, Ran::RuntimeError);
    }

    #[test]
    fn the_first_error_of_a_compiler_is_told() {
        let said =
            "main.cpp: In function 'int main()':\nmain.cpp:2:27: error: 'x' was not declared\nmain.cpp:3:1: error: y\n";
        assert_eq!(diagnostic(said.as_bytes()), "main.cpp:2:27: error: 'x' was not declared");
        assert_eq!(diagnostic(b"Killed\n"), "Killed");
    }
}
