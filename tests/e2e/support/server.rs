//! A model server for the sums of the tests: its answer depends on the request alone, and it counts what it is asked.

use std::time::Duration;

use scripted_server::{Act, Script, Seen};

/// A server that lives as long as this value.
pub struct Server(scripted_server::Server);

impl Server {
    /// Starts a server that waits `delay` before each answer.
    pub fn start(delay: Duration) -> Self {
        let script = Script::of(move |seen| Act::After(delay, Box::new(Act::say(answer(seen)))));
        Self(scripted_server::Server::start(script).unwrap())
    }

    /// `base_url` of the server.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Number of requests that reached the server.
    pub fn calls(&self) -> u64 {
        self.0.stats().requests
    }

    /// Number of requests beyond the first of each.
    pub fn asked_again(&self) -> u64 {
        self.0.stats().asked_again
    }
}

/// Reads the numbers of the question and adds them; every third seed is off by one.
fn answer(seen: &Seen<'_>) -> String {
    let parts = seen.text.split(|character: char| !character.is_ascii_digit());
    let numbers: Vec<u64> = parts.filter_map(|part| part.parse().ok()).collect();
    let seed = seen.body["seed"].as_u64().unwrap_or(0);
    let sum = numbers.iter().sum::<u64>() + u64::from(seed.is_multiple_of(3));
    // "at length" asks for an answer whose length differs from question to question and from sample to sample
    let sentences = if seen.text.contains("at length") { (sum * 7919 + seed % 1_000_003) % 60 } else { 0 };
    let text = "One number is added to the other. ".repeat(usize::try_from(sentences).unwrap());
    format!("{text}Adding the numbers gives {sum}. The answer is \\boxed{{{sum}}}.")
}
