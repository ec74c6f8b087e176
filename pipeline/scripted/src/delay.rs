//! How long an answer takes: durations as people write them, and distributions of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::draw::{mix, share_of};

/// Nothing waits longer: a guard against the far end of a long tail.
const LONGEST: f64 = 86_400.0;

/// A distribution of delays, written as `KIND:NUMBERS`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Always the same: `100ms` or `fixed:100ms`.
    Fixed(Duration),
    /// Evenly between two: `uniform:50ms,150ms`.
    Uniform(Duration, Duration),
    /// Median, and the standard deviation of the natural logarithm: `lognormal:100ms,0.5`.
    Lognormal(Duration, f64),
    /// Mostly the first; the given share waits for a Pareto tail (exponent 1.5) that begins at the second:
    /// `tail:100ms,0.01,2s`.
    Tail(Duration, f64, Duration),
}

impl Default for Delay {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

impl Delay {
    /// The delay for one number of a draw.
    pub(crate) fn draw(self, number: u64) -> Duration {
        let share = share_of(number);
        match self {
            Self::Fixed(duration) => duration,
            Self::Uniform(from, to) => from + to.saturating_sub(from).mul_f64(share),
            Self::Lognormal(median, sigma) => {
                // Box and Muller, from two even draws of which the first is never 0
                let (first, second) = (1.0 - share, share_of(mix(number, 1)));
                let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
                seconds(median.as_secs_f64() * (sigma * normal).exp())
            }
            Self::Tail(base, tail, from) if share < tail => {
                let rest = 1.0 - share_of(mix(number, 2));
                seconds(base.max(from).as_secs_f64() * rest.powf(-1.0 / 1.5))
            }
            Self::Tail(base, ..) => base,
        }
    }
}

fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(value.clamp(0.0, LONGEST))
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or(("fixed", text));
        let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
        match (kind, parts.as_slice()) {
            ("fixed", [duration]) => Ok(Self::Fixed(parse_duration(duration)?)),
            ("uniform", [from, to]) => {
                let (from, to) = (parse_duration(from)?, parse_duration(to)?);
                if from > to {
                    return Err(format!("`{text}` begins after its end"));
                }
                Ok(Self::Uniform(from, to))
            }
            ("lognormal", [median, sigma]) => {
                let sigma: f64 = sigma.parse().map_err(|_| format!("`{sigma}` is no number"))?;
                if !(0.0..=10.0).contains(&sigma) {
                    return Err(format!("a deviation of {sigma} is not between 0 and 10"));
                }
                Ok(Self::Lognormal(parse_duration(median)?, sigma))
            }
            ("tail", [base, share, from]) => {
                Ok(Self::Tail(parse_duration(base)?, parse_share(share)?, parse_duration(from)?))
            }
            _ => Err(format!(
                "`{text}` is no delay: write `100ms`, `uniform:50ms,150ms`, `lognormal:100ms,0.5` or `tail:100ms,0.01,2s`"
            )),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(Duration::ZERO) => write!(formatter, "0s"),
            Self::Fixed(duration) => write!(formatter, "{duration:?}"),
            Self::Uniform(from, to) => write!(formatter, "uniform:{from:?},{to:?}"),
            Self::Lognormal(median, sigma) => write!(formatter, "lognormal:{median:?},{sigma}"),
            Self::Tail(base, share, from) => write!(formatter, "tail:{base:?},{share},{from:?}"),
        }
    }
}

/// `250ms`, `1.5s`, `2m` or `1h`; a bare number counts seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time: write ms, s, m or h")),
    };
    let number: f64 = number.trim().parse().map_err(|_| format!("`{text}` is no duration: write `250ms` or `2s`"))?;
    let value = number * scale;
    if !(0.0..=LONGEST).contains(&value) {
        return Err(format!("`{text}` is not between 0 and a day"));
    }
    Ok(Duration::from_secs_f64(value))
}

/// A share from 0 to 1.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.trim().parse().map_err(|_| format!("`{text}` is no share: write a number from 0 to 1"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("a share of {share} is not between 0 and 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str) -> Vec<f64> {
        let delay: Delay = text.parse().unwrap();
        let mut all: Vec<f64> = (0..4000).map(|number| delay.draw(mix(number, 9)).as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn delays_follow_their_distributions() {
        assert!(drawn("100ms").iter().all(|value| (value - 0.1).abs() < 1e-9));
        let uniform = drawn("uniform:50ms,150ms");
        assert!(uniform[0] >= 0.05 && uniform[3999] <= 0.15 && (uniform[2000] - 0.1).abs() < 0.01);
        let lognormal = drawn("lognormal:100ms,0.5");
        assert!((lognormal[2000] - 0.1).abs() < 0.01);
        // the 84th percentile lies one deviation above the median
        assert!((lognormal[3365] / 0.1 - 0.5_f64.exp()).abs() < 0.15);
        let tail = drawn("tail:100ms,0.05,2s");
        let beyond = tail.iter().filter(|value| **value >= 2.0).count();
        assert!((120..280).contains(&beyond), "{beyond}");
    }

    #[test]
    fn what_is_no_delay_is_refused_with_a_way_out() {
        for text in ["", "fast", "uniform:2s,1s", "lognormal:1s", "tail:1s,2,3s", "-1s", "3 days", "nan"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
        assert!("gamma:1,2".parse::<Delay>().unwrap_err().contains("lognormal:100ms,0.5"));
    }

    #[test]
    fn a_delay_is_printed_as_it_is_read() {
        for text in ["0s", "100ms", "3us", "uniform:50ms,150ms", "lognormal:100ms,0.5", "tail:100ms,0.01,2s"] {
            let delay: Delay = text.parse().unwrap();
            assert_eq!(delay.to_string().parse::<Delay>().unwrap(), delay);
        }
    }
}
