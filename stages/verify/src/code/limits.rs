//! What a program may use, as a test states it.

use super::json::Json;
use super::tests::TestsError;
use std::time::Duration;

/// Limits of one run of a program; a test that states none gets the defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestLimits {
    /// CPU seconds of a case, above 0, at most 600; default 10. By the clock a case may take three times that and 2 s.
    pub time_s: f64,
    /// Memory of a case in MiB, 1 to 65,536; default 512.
    pub memory_mb: f64,
    /// Output that is kept of a case in MiB, at most 256; more ends it. Default 16.
    pub output_mb: f64,
    /// Processes and threads at once, 1 to 4,096; default 32.
    pub processes: u32,
    /// What a case may write to files, in MiB, at most 65,536; default 64.
    pub disk_mb: f64,
    /// CPU seconds of the compiler, at most 600; default 20.
    pub compile_s: f64,
    /// Memory of the compiler in MiB; default 1,024.
    pub compile_memory_mb: f64,
}

impl Default for TestLimits {
    fn default() -> Self {
        Self {
            time_s: 10.0,
            memory_mb: 512.0,
            output_mb: 16.0,
            processes: 32,
            disk_mb: 64.0,
            compile_s: 20.0,
            compile_memory_mb: 1024.0,
        }
    }
}

const KEYS: [&str; 7] = ["time_s", "memory_mb", "output_mb", "processes", "disk_mb", "compile_s", "compile_memory_mb"];

impl TestLimits {
    /// From the object `limits` of a test.
    pub(super) fn read(value: &Json) -> Result<Self, TestsError> {
        let Json::Map(entries) = value else {
            return Err(TestsError::wrong("limits", format!("an object was expected, here is {}", value.kind())));
        };
        let mut limits = Self::default();
        for (key, value) in entries {
            let (slot, most): (&mut f64, f64) = match key.as_str() {
                "time_s" => (&mut limits.time_s, 600.0),
                "memory_mb" => (&mut limits.memory_mb, 65_536.0),
                "output_mb" => (&mut limits.output_mb, 256.0),
                "disk_mb" => (&mut limits.disk_mb, 65_536.0),
                "compile_s" => (&mut limits.compile_s, 600.0),
                "compile_memory_mb" => (&mut limits.compile_memory_mb, 65_536.0),
                "processes" => {
                    limits.processes = whole(value).filter(|count| (1..=4096).contains(count)).ok_or_else(|| {
                        TestsError::wrong("limits.processes", "a whole number from 1 to 4096 was expected")
                    })?;
                    continue;
                }
                other => return Err(TestsError::unknown("limits", other, &KEYS)),
            };
            *slot = number(value).filter(|amount| *amount > 0.0 && *amount <= most).ok_or_else(|| {
                TestsError::wrong(format!("limits.{key}"), format!("a number above 0 and at most {most} was expected"))
            })?;
        }
        Ok(limits)
    }

    /// CPU time of a case.
    pub fn cpu(&self) -> Duration {
        Duration::from_secs_f64(self.time_s)
    }

    /// Time by the clock that goes with so much CPU time: a busy machine must not turn a right program into a slow one.
    pub fn wall(cpu: Duration) -> Duration {
        3 * cpu + Duration::from_secs(2)
    }
}

/// Bytes of so many MiB.
pub(super) fn bytes(mebibytes: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be positive and below 2^37"
    )]
    let bytes = (mebibytes * 1_048_576.0) as u64;
    bytes.max(1)
}

fn number(value: &Json) -> Option<f64> {
    match value {
        Json::Number(text) => text.parse::<f64>().ok(),
        _ => None,
    }
}

fn whole(value: &Json) -> Option<u32> {
    match value {
        Json::Number(text) => text.parse::<u32>().ok(),
        _ => None,
    }
}
