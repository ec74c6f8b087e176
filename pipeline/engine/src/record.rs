//! Readers of the event stream that need no terminal: the run's record, and lines for a log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pipeline_core::{Event, EventSink, Spent, StageError};

/// Writes each event as a line of JSON. Progress is left out of the run's record, and calls stand in it as one sum a
/// stage.
pub struct JsonLines<W: Write + Send> {
    out: Mutex<W>,
    with_progress: bool,
    /// Calls of stages at work, where each by itself is left out.
    calls: Mutex<BTreeMap<String, Spent>>,
}

impl<W: Write + Send> std::fmt::Debug for JsonLines<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JsonLines")
    }
}

impl<W: Write + Send> JsonLines<W> {
    /// Writes to `out`.
    pub fn new(out: W, with_progress: bool) -> Self {
        Self { out: Mutex::new(out), with_progress, calls: Mutex::default() }
    }
}

impl JsonLines<File> {
    /// The record of a run, in `folder`, named by its time.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn record(folder: &Path, time: &str) -> Result<(Self, PathBuf), StageError> {
        std::fs::create_dir_all(folder).map_err(StageError::io("create", folder))?;
        for count in 0..1000 {
            let name = if count == 0 { format!("{time}.jsonl") } else { format!("{time}-{count}.jsonl") };
            let path = folder.join(name);
            match File::create_new(&path) {
                Ok(file) => return Ok((Self::new(file, false), path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StageError::io("write", path)(error)),
            }
        }
        Err(StageError::Internal("too many runs in one second".to_owned()))
    }
}

impl<W: Write + Send> EventSink for JsonLines<W> {
    fn emit(&self, event: &Event) {
        if !self.with_progress {
            match event {
                Event::Progress { .. } => return,
                Event::Calls { stage, spent } => {
                    let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
                    calls.entry(stage.clone()).or_default().add(spent);
                    return;
                }
                Event::Finished { stage, .. } | Event::Failed { stage, .. } => self.write_calls(stage),
                _ => {}
            }
        }
        self.write(event);
    }
}

impl<W: Write + Send> JsonLines<W> {
    fn write_calls(&self, stage: &str) {
        let spent = self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(stage);
        if let Some(spent) = spent {
            self.write(&Event::Calls { stage: stage.to_owned(), spent });
        }
    }

    fn write(&self, event: &Event) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // a log that cannot be written must not end the run
        if let Ok(line) = serde_json::to_string(event) {
            let _ = writeln!(out, "{line}");
            let _ = out.flush();
        }
    }
}

/// Hands each event to several readers.
pub struct Several<'a>(pub Vec<&'a dyn EventSink>);

impl std::fmt::Debug for Several<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Several({})", self.0.len())
    }
}

impl EventSink for Several<'_> {
    fn emit(&self, event: &Event) {
        for sink in &self.0 {
            sink.emit(event);
        }
    }
}

/// The line that a person reads for an event; `None` for those that only move a progress bar.
pub fn line(event: &Event) -> Option<String> {
    let line = match event {
        Event::RunStarted { .. }
        | Event::Progress { .. }
        | Event::Calls { .. }
        | Event::Trained { .. }
        | Event::TaskCommitted { .. } => return None,
        Event::RunFinished { complete, seconds } => {
            format!(" {}  {seconds:.1} s", if *complete { "complete" } else { "incomplete" })
        }
        Event::Reused { stage, kind, reason, rows } => {
            format!(" reuse  {kind:<17} {stage:<14} {} rows ({reason})", grouped(*rows))
        }
        Event::Started { stage, kind, reason, tasks, reused_tasks, .. } => {
            let reused =
                if *reused_tasks > 0 { format!(", {reused_tasks} of {tasks} tasks reused") } else { String::new() };
            format!(" run    {kind:<17} {stage:<14} {reason}{reused}")
        }
        Event::Finished { stage, kind, read, kept, written, rejected, transient, seconds } => {
            let mut line = format!(" done   {kind:<17} {stage:<14} {} read, {} kept", grouped(*read), grouped(*kept));
            if written != kept {
                line += &format!(" -> {} written", grouped(*written));
            }
            let total: u64 = rejected.values().sum();
            line += &format!(", {} rejected{}", grouped(total), reasons(rejected));
            if *transient > 0 {
                line += &format!(", {} transient", grouped(*transient));
            }
            format!("{line}, {seconds:.1} s")
        }
        Event::Printed { stage, text } => format!("{stage:<14} | {}", text.replace('\n', &format!("\n{stage:<14} | "))),
        Event::Failed { stage, message } => format!(" failed {:<17} {stage:<14} {message}", ""),
        Event::Warning { stage, message } => match stage {
            Some(stage) => format!("warning: {stage}: {message}"),
            None => format!("warning: {message}"),
        },
    };
    Some(line)
}

/// `(script 468, length 2)`, or nothing.
pub fn reasons(rejected: &BTreeMap<String, u64>) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = rejected.iter().map(|(reason, rows)| format!("{reason} {}", grouped(*rows))).collect();
    format!(" ({})", parts.join(", "))
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
