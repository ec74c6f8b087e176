//! The rules against servers that count in different ways, in simulated time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::limits::{Limit, Limits};
use super::super::window::{Entry, Window};
use super::{Pace, Taken};

/// How a server counts a minute.
#[derive(Debug, Clone, Copy)]
enum Counting {
    /// Anew at each full minute.
    Fixed,
    /// The last sixty seconds.
    Sliding,
    /// The same, but told that it is renewed in sixty seconds whatever was used.
    Vague,
    /// A bucket that fills steadily and holds a minute's requests.
    Bucket,
}

/// What a client knows of the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Knowledge {
    Configured,
    Headers,
    /// Only the time to wait, with each refusal.
    RetryAfter,
    Nothing,
}

struct Server {
    counting: Counting,
    limit: u64,
    /// Times of accepted requests, in seconds.
    accepted: Vec<f64>,
    recent: VecDeque<f64>,
    bucket: f64,
    filled: f64,
}

impl Server {
    fn new(counting: Counting, limit: u64) -> Self {
        let bucket = limit as f64;
        Self { counting, limit, accepted: Vec::new(), recent: VecDeque::new(), bucket, filled: 0.0 }
    }

    /// Whether a request is accepted, and what the reply says.
    fn ask(&mut self, second: f64) -> (bool, Limit) {
        let limit = self.limit as f64;
        // the server's minutes began before the client came
        let begin = |second: f64| ((second + 23.0) / 60.0).floor();
        self.bucket = (self.bucket + (second - self.filled) * limit / 60.0).min(limit);
        self.filled = second;
        while self.recent.front().is_some_and(|first| match self.counting {
            Counting::Fixed => begin(*first) < begin(second),
            _ => *first + 60.0 <= second,
        }) {
            self.recent.pop_front();
        }
        let room = match self.counting {
            Counting::Bucket => self.bucket,
            _ => limit - self.recent.len() as f64,
        };
        let is_accepted = room >= 1.0;
        if is_accepted {
            self.accepted.push(second);
            self.recent.push_back(second);
            self.bucket -= 1.0;
        }
        let remaining = if is_accepted { (room - 1.0).floor() } else { 0.0 };
        let reset = match self.counting {
            Counting::Fixed => (begin(second) + 1.0) * 60.0 - 23.0 - second,
            Counting::Sliding => self.recent.front().map_or(0.0, |first| first + 60.0 - second),
            Counting::Vague => 60.0,
            Counting::Bucket if is_accepted => (limit - self.bucket) * 60.0 / limit,
            Counting::Bucket => (1.0 - self.bucket) * 60.0 / limit,
        };
        (is_accepted, Limit { allowed: Some(limit), remaining, reset: Duration::from_secs_f64(reset) })
    }

    /// Accepted requests of each minute after the first.
    fn served(&self, minutes: usize) -> Vec<u64> {
        let mut served = vec![0; minutes];
        for second in &self.accepted {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are small and positive")]
            let minute = (second / 60.0) as usize;
            if let Some(count) = served.get_mut(minute) {
                *count += 1;
            }
        }
        served
    }
}

/// Accepted requests a minute, and refusals of all, in so many minutes.
fn run(counting: Counting, knowledge: Knowledge, limit: u32, minutes: usize) -> (Vec<u64>, usize) {
    const STEP: Duration = Duration::from_millis(2);
    const LATENCY: Duration = Duration::from_millis(300);
    const REFUSAL: Duration = Duration::from_millis(10);
    let start = Instant::now();
    let configured = (knowledge == Knowledge::Configured).then_some(limit);
    let pace = Pace::new(configured, None, Duration::from_mins(30), start);
    let window = Window::new(256);
    let mut server = Server::new(counting, u64::from(limit));
    let mut refusals = 0;
    let mut queued: Option<Entry<'_>> = None;
    let mut in_flight: Vec<(Instant, Entry<'_>, Taken, bool, Limit)> = Vec::new();
    let steps = minutes * 60_000 / 2;
    for step in 0..steps {
        let now = start + STEP * u32::try_from(step).unwrap();
        let (ready, waiting): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(|request| request.0 <= now);
        in_flight = waiting;
        for (_, entry, taken, is_accepted, limit) in ready {
            if knowledge == Knowledge::Headers {
                pace.tell(now, taken, &Limits { requests: Some(limit), tokens: None });
            }
            if is_accepted {
                pace.taken(now, taken);
                pace.correct(taken, 10);
                entry.answered();
            } else {
                refusals += 1;
                let asked = matches!(knowledge, Knowledge::RetryAfter | Knowledge::Headers).then_some(limit.reset);
                pace.refused(now, taken, asked, 0.5).unwrap();
                entry.refused();
            }
        }
        window.look(now);
        while let Some(entry) = queued.take().or_else(|| window.try_enter(now)) {
            let Ok(taken) = pace.try_take(now, 10) else {
                queued = Some(entry);
                break;
            };
            let (is_accepted, limit) = server.ask((now - start).as_secs_f64());
            let reply = now + if is_accepted { LATENCY } else { REFUSAL };
            in_flight.push((reply, entry, taken, is_accepted, limit));
        }
    }
    (server.served(minutes), refusals)
}

const COUNTINGS: [Counting; 4] = [Counting::Fixed, Counting::Sliding, Counting::Bucket, Counting::Vague];

fn check(knowledge: Knowledge, limit: u32, most_refused: f64) {
    const MINUTES: usize = 6;
    for counting in COUNTINGS {
        if matches!(counting, Counting::Vague) && knowledge != Knowledge::Headers {
            continue;
        }
        let (served, refusals) = run(counting, knowledge, limit, MINUTES);
        let all: u64 = served.iter().sum();
        let share = all as f64 / (MINUTES as f64 * f64::from(limit));
        let refused = refusals as f64 / (all as f64 + refusals as f64);
        println!(
            "{counting:?} {knowledge:?} {limit}: {share:.3} of the limit, {refusals} refusals ({refused:.4}), {served:?}"
        );
        assert!(share >= 0.95, "{counting:?} {knowledge:?} {limit}: only {share:.3} of the limit, {served:?}");
        assert!(refused < most_refused, "{counting:?} {knowledge:?} {limit}: {refusals} refusals, {served:?}");
    }
}

#[test]
fn a_configured_limit_is_used_and_not_exceeded() {
    for limit in [60, 600, 3000] {
        check(Knowledge::Configured, limit, 0.001);
    }
}

#[test]
fn a_limit_told_in_headers_is_used_and_hardly_exceeded() {
    for limit in [60, 600, 3000] {
        check(Knowledge::Headers, limit, 0.02);
    }
}

#[test]
fn a_limit_told_by_waits_alone_is_learned() {
    for limit in [600, 3000] {
        check(Knowledge::RetryAfter, limit, 0.05);
    }
}

#[test]
fn a_limit_that_nobody_tells_is_learned() {
    for limit in [600, 3000] {
        check(Knowledge::Nothing, limit, 0.05);
    }
}
