//! The event stream on a terminal: a bar for the stage at work, lines for what is done.

use std::io::stderr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use pipeline_core::{Event, EventSink};
use pipeline_engine::record;

use crate::output;

/// Plain lines, for a log.
#[derive(Debug, Clone, Copy)]
pub struct Lines;

impl EventSink for Lines {
    fn emit(&self, event: &Event) {
        if let Some(line) = record::line(event) {
            output::note(line);
        }
    }
}

/// A bar with rows, rate, time left, calls and tokens, and the same lines above it.
#[derive(Debug)]
pub struct Terminal {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bar: ProgressBar,
    asked: u64,
    stored: u64,
    tokens: u64,
}

impl Terminal {
    /// Begins without a bar.
    pub fn new() -> Self {
        let _ = stderr();
        Self { state: Mutex::new(State { bar: ProgressBar::hidden(), asked: 0, stored: 0, tokens: 0 }) }
    }
}

fn style(is_known: bool) -> ProgressStyle {
    let template = if is_known {
        " {prefix:<14} [{bar:24}] {human_pos}/{human_len} rows, {per_sec}, {eta} left {msg}"
    } else {
        " {prefix:<14} {spinner} {human_pos} rows, {per_sec} {msg}"
    };
    ProgressStyle::with_template(template).map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
}

impl EventSink for Terminal {
    fn emit(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started { stage, rows, .. } => {
                state.bar.finish_and_clear();
                if let Some(line) = record::line(event) {
                    output::note(line);
                }
                let bar = rows.map_or_else(ProgressBar::no_length, ProgressBar::new);
                bar.set_style(style(rows.is_some()));
                bar.set_prefix(stage.clone());
                bar.enable_steady_tick(Duration::from_millis(200));
                *state = State { bar, asked: 0, stored: 0, tokens: 0 };
            }
            Event::Progress { rows, .. } => state.bar.inc(*rows),
            Event::Calls { asked, stored, tokens, .. } => {
                state.asked += asked;
                state.stored += stored;
                state.tokens += tokens;
                let message = format!(
                    "· {} answers asked, {} stored, {} tokens",
                    HumanCount(state.asked),
                    HumanCount(state.stored),
                    HumanCount(state.tokens)
                );
                state.bar.set_message(message);
            }
            Event::Finished { .. } | Event::Failed { .. } => {
                state.bar.finish_and_clear();
                state.bar = ProgressBar::hidden();
                if let Some(line) = record::line(event) {
                    output::note(line);
                }
            }
            _ => {
                if let Some(line) = record::line(event) {
                    state.bar.suspend(|| output::note(line));
                }
            }
        }
    }
}
