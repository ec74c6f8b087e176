//! The event stream on a terminal or in a log: a bar for the stage at work, lines for what is done, and what models cost.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use pipeline_core::{Event, EventSink, Spent};
use pipeline_engine::record;

use crate::estimate::amount;
use crate::output;

/// Time between two lines of a log about the calls of a stage at work.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// Plain lines, for a log.
#[derive(Debug)]
pub struct Lines {
    calls: Mutex<Calls>,
}

impl Lines {
    /// Lines with money in this currency.
    pub fn new(currency: Option<String>) -> Self {
        Self { calls: Mutex::new(Calls::new(currency)) }
    }
}

/// Model calls of the stage at work.
#[derive(Debug)]
struct Calls {
    spent: Spent,
    begun: Instant,
    told: Instant,
    currency: Option<String>,
}

impl Calls {
    fn new(currency: Option<String>) -> Self {
        Self { spent: Spent::default(), begun: Instant::now(), told: Instant::now(), currency }
    }

    /// Takes in an event; the line of a finished stage then also tells of its calls.
    fn follow(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Started { .. } => {
                (self.spent, self.begun, self.told) = (Spent::default(), Instant::now(), Instant::now());
            }
            Event::Calls { spent, .. } => self.spent.add(spent),
            _ => {}
        }
        let line = record::line(event)?;
        let is_end = matches!(event, Event::Finished { .. } | Event::Failed { .. }) && !self.spent.is_nothing();
        Some(if is_end { format!("{line} ({})", self.text()) } else { line })
    }

    fn text(&self) -> String {
        spent(&self.spent, self.currency.as_deref())
    }

    /// The figures with the rate of answers.
    fn live(&self) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = if seconds > 1.0 { self.spent.asked as f64 / seconds } else { 0.0 };
        format!("{} · {rate:.1} answers/s", self.text())
    }

    /// A line about a stage that has been at work for a while.
    fn in_between(&mut self, event: &Event) -> Option<String> {
        let (stage, figures) = match event {
            Event::Calls { stage, .. } => (stage, None),
            Event::Trained { stage, .. } => (stage, trained(event)),
            _ => return None,
        };
        if self.told.elapsed() < BETWEEN_LINES {
            return None;
        }
        self.told = Instant::now();
        Some(format!(" at work{:<11} {stage:<14} {}", "", figures.unwrap_or_else(|| self.live())))
    }
}

/// A step of training in words.
fn trained(event: &Event) -> Option<String> {
    let Event::Trained { step, steps, loss, learning_rate, gradient_norm, tokens_per_second, seconds_left, .. } = event
    else {
        return None;
    };
    let left = HumanDuration(Duration::from_secs_f64(seconds_left.clamp(0.0, 1e9)));
    Some(format!(
        "step {step} of {steps}, loss {loss:.4}, gradient {gradient_norm:.3}, rate {learning_rate:.2e}, {tokens_per_second:.0} tokens/s, {left} left"
    ))
}

/// What calls cost, in words: `12 answers asked for, 3 at hand, 1,234 tokens in (500 cached), 567 out, 0.0123 USD`.
pub fn spent(spent: &Spent, currency: Option<&str>) -> String {
    let Spent { asked, stored, prompt_tokens, cached_tokens, completion_tokens, money } = *spent;
    let cached = if cached_tokens > 0 { format!(" ({} cached)", HumanCount(cached_tokens)) } else { String::new() };
    let money = currency.map_or_else(String::new, |currency| format!(", {} {currency}", amount(money)));
    format!(
        "{} answers asked for, {} at hand, {} tokens in{cached}, {} out{money}",
        HumanCount(asked),
        HumanCount(stored),
        HumanCount(prompt_tokens),
        HumanCount(completion_tokens)
    )
}

impl EventSink for Lines {
    fn emit(&self, event: &Event) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = calls.follow(event).or_else(|| calls.in_between(event)) {
            output::note(line);
        }
    }
}

/// Adds up what all stages of a run spend.
#[derive(Debug, Default)]
pub struct Totals(Mutex<Spent>);

impl Totals {
    /// What was spent so far.
    pub fn spent(&self) -> Spent {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Totals {
    fn emit(&self, event: &Event) {
        if let Event::Calls { spent, .. } = event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).add(spent);
        }
    }
}

/// A bar with rows, rate, time left, calls, tokens and money, and the same lines above it.
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
    /// Begins without a bar; money is shown in this currency.
    pub fn new(currency: Option<String>) -> Self {
        Self { state: Mutex::new(State { bar: ProgressBar::hidden(), calls: Calls::new(currency) }) }
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
                let message = format!("· {}", state.calls.live());
                state.bar.set_message(message);
            }
            Event::Trained { .. } => {
                state.bar.set_message(trained(event).map_or_else(String::new, |it| format!("· {it}")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_cost_is_said_in_words() {
        let some = Spent { asked: 1200, stored: 3, prompt_tokens: 5000, completion_tokens: 70, ..Spent::default() };
        assert_eq!(spent(&some, None), "1,200 answers asked for, 3 at hand, 5,000 tokens in, 70 out");
        let priced = Spent { cached_tokens: 4000, money: 0.01234, ..some };
        let words = "1,200 answers asked for, 3 at hand, 5,000 tokens in (4,000 cached), 70 out, 0.0123 USD";
        assert_eq!(spent(&priced, Some("USD")), words);
    }

    #[test]
    fn totals_are_those_of_all_stages() {
        let totals = Totals::default();
        for stage in ["one", "two"] {
            let spent = Spent { asked: 2, money: 0.5, ..Spent::default() };
            totals.emit(&Event::Calls { stage: stage.to_owned(), spent });
        }
        assert_eq!(totals.spent(), Spent { asked: 4, money: 1.0, ..Spent::default() });
    }
}
