//! The event stream on a terminal: a bar for the stage at work, lines for what is done.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use pipeline_core::{Event, EventSink};
use pipeline_engine::record;

use crate::output;

/// Plain lines, for a log.
#[derive(Debug, Default)]
pub struct Lines {
    calls: Mutex<Calls>,
}

/// Model calls of the stage at work.
#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    asked: u64,
    stored: u64,
    tokens: u64,
}

impl Calls {
    /// Takes in an event; the line of a finished stage then also tells of its calls.
    fn follow(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Started { .. } => *self = Self::default(),
            Event::Calls { asked, stored, tokens, .. } => {
                self.asked += asked;
                self.stored += stored;
                self.tokens += tokens;
            }
            _ => {}
        }
        let line = record::line(event)?;
        let is_end = matches!(event, Event::Finished { .. }) && self.asked + self.stored > 0;
        Some(if is_end { format!("{line} ({self})") } else { line })
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, stored, tokens } = self;
        write!(
            formatter,
            "{} answers asked for, {} at hand, {} tokens",
            HumanCount(*asked),
            HumanCount(*stored),
            HumanCount(*tokens)
        )
    }
}

impl EventSink for Lines {
    fn emit(&self, event: &Event) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = calls.follow(event) {
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
    calls: Calls,
}

impl Terminal {
    /// Begins without a bar.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { bar: ProgressBar::hidden(), calls: Calls::default() }) }
    }
}

fn style(is_known: bool) -> ProgressStyle {
    let template = if is_known {
        " {prefix:<14} [{bar:24}] {human_pos}/{human_len} rows, {per_sec}, {eta} left {msg}"
    } else {
        " {prefix:<14} {spinner} {human_pos} rows, {per_sec} {msg}"
    };
    let style = ProgressStyle::with_template(template);
    style.map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
}

impl EventSink for Terminal {
    fn emit(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = state.calls.follow(event);
        match event {
            Event::Started { .. } | Event::Finished { .. } | Event::Failed { .. } => state.bar.finish_and_clear(),
            Event::Progress { rows, .. } => state.bar.inc(*rows),
            Event::Calls { .. } => {
                let message = format!("· {}", state.calls);
                state.bar.set_message(message);
            }
            _ => {}
        }
        if let Some(line) = line {
            state.bar.suspend(|| output::note(line));
        }
        if let Event::Started { stage, rows, .. } = event {
            let bar = rows.map_or_else(ProgressBar::no_length, ProgressBar::new);
            bar.set_style(style(rows.is_some()));
            bar.set_prefix(stage.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            state.bar = bar;
        }
    }
}
