//! What a server tells of its limits in the headers of a reply.
//!
//! Read are `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of `OpenAI` and those who follow it,
//! `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`, `ratelimit-{limit,remaining,reset}` of the earlier
//! drafts of the IETF's `RateLimit` header fields, also with `x-`, and `ratelimit` of its later drafts (`r` and `t`, or
//! `remaining` and `reset`). Times come as seconds, as `6m0s`, as seconds since 1970 or as a date.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderMap;

/// One limit as a reply tells it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    /// Allowed in a window, whose length is seldom told.
    pub(super) allowed: Option<f64>,
    /// Still allowed, this request counted.
    pub(super) remaining: f64,
    /// Time until all, or some, are allowed again.
    pub(super) reset: Duration,
}

/// The limits that a reply tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) requests: Option<Limit>,
    pub(super) tokens: Option<Limit>,
}

impl Limits {
    /// Whether nothing is told.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_none() && self.tokens.is_none()
    }
}

/// A limit that is renewed later than this is told by mistake.
const FARTHEST: Duration = Duration::from_hours(24 * 366);

/// Names of limit, remaining and reset, for requests.
const REQUESTS: [[&str; 3]; 4] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
];
/// The same for tokens.
const TOKENS: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ["anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"],
];

/// Reads the limits; `now` is what dates are compared with.
pub(super) fn limits(headers: &HeaderMap, now: SystemTime) -> Limits {
    if !headers.keys().any(|name| name.as_str().contains("ratelimit")) {
        return Limits::default();
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let find = |names: &[[&str; 3]]| {
        names.iter().find_map(|[limit, remaining, reset]| {
            let remaining = leading_number(text(remaining)?)?;
            let reset = parse_time(text(reset)?, now).filter(|reset| *reset <= FARTHEST)?;
            Some(Limit { allowed: text(limit).and_then(leading_number), remaining, reset })
        })
    };
    Limits { requests: find(&REQUESTS).or_else(|| structured(headers)), tokens: find(&TOKENS) }
}

/// The `ratelimit` field: `"default";r=50;t=30`, or `limit=100, remaining=50, reset=30`.
fn structured(headers: &HeaderMap) -> Option<Limit> {
    let text = headers.get("ratelimit")?.to_str().ok()?;
    let policy = headers.get("ratelimit-policy").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let remaining = parameter(text, &["r", "remaining"])?;
    let reset =
        Duration::try_from_secs_f64(parameter(text, &["t", "reset"])?).ok().filter(|reset| *reset <= FARTHEST)?;
    let allowed = parameter(text, &["limit"]).or_else(|| parameter(policy, &["q"])).or_else(|| leading_number(policy));
    Some(Limit { allowed, remaining, reset })
}

/// The number of the first parameter with one of these names.
fn parameter(text: &str, names: &[&str]) -> Option<f64> {
    text.split([';', ',']).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        names.contains(&name.trim()).then(|| value.trim().parse().ok())?
    })
}

/// The number that a text begins with: limits may carry policies behind a comma or semicolon.
fn leading_number(text: &str) -> Option<f64> {
    let number: f64 = text.split([',', ';']).next()?.trim().parse().ok()?;
    Some(number).filter(|number| number.is_finite())
}

/// A time to come: seconds, units as `1h2m3.5s` or `20ms`, seconds or milliseconds since 1970, or a date.
fn parse_time(text: &str, now: SystemTime) -> Option<Duration> {
    /// More seconds than this are a point in time.
    const POINT: f64 = 1e9;
    let text = text.trim();
    let until = |point: SystemTime| point.duration_since(now).unwrap_or_default();
    if let Some(number) = leading_number(text) {
        return match number {
            _ if number >= POINT * 1e3 => since_1970(number / 1e3).map(until),
            _ if number >= POINT => since_1970(number).map(until),
            _ => Duration::try_from_secs_f64(number).ok(),
        };
    }
    parse_units(text)
        .or_else(|| parse_date(text).map(until))
        .or_else(|| httpdate::parse_http_date(text).ok().map(until))
}

fn since_1970(seconds: f64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

fn parse_units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end =
            rest[digits..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        seconds += number
            * match &rest[digits..unit_end] {
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty())
}

/// Days from the first of March of the year 0 to 1970.
const DAYS_TO_1970: u64 = 719_468;

/// A date as RFC 3339 has it, such as `2026-11-30T12:00:07Z`; the fraction of a second is not looked at.
fn parse_date(text: &str) -> Option<SystemTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let bytes = text.as_bytes();
    if !text.is_ascii() || separators.iter().any(|(at, separator)| bytes.get(*at) != Some(separator)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the day that comes every four years is the last of one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds = (days - DAYS_TO_1970) * 86_400 + hour * 3600 + minute * 60 + second;
    let zone = text.get(19..)?.trim_start_matches(|letter: char| letter == '.' || letter.is_ascii_digit());
    let shift = match zone.as_bytes() {
        [b'Z' | b'z'] | [] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let shift = zone.get(1..3)?.parse::<i64>().ok()? * 3600 + zone.get(4..6)?.parse::<i64>().ok()? * 60;
            if *sign == b'+' { shift } else { -shift }
        }
        _ => return None,
    };
    Some(UNIX_EPOCH + Duration::from_secs(seconds.checked_add_signed(-shift)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_hours(498_900)
    }

    fn read(headers: &[(&'static str, &str)]) -> Limits {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        limits(&map, now())
    }

    fn limit(allowed: f64, remaining: f64, milliseconds: u64) -> Limit {
        Limit { allowed: Some(allowed), remaining, reset: Duration::from_millis(milliseconds) }
    }

    #[test]
    fn nonsense_is_no_limit_and_no_panic() {
        for reset in ["200000000000000d", "9900000000000000000000", "1e300", "-5", "inf", "99999999999999", "400d"] {
            let mut headers = HeaderMap::new();
            for kind in ["requests", "tokens"] {
                let mut put = |what: &str, value: &str| {
                    let name = format!("x-ratelimit-{what}-{kind}");
                    headers.insert(
                        reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                        value.parse().unwrap(),
                    );
                };
                put("limit", "10");
                put("remaining", "5");
                put("reset", reset);
            }
            assert!(limits(&headers, SystemTime::now()).is_empty(), "{reset}");
        }
    }

    #[test]
    fn limits_are_found_under_all_the_names_in_use() {
        let openai = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let expected =
            Limits { requests: Some(limit(60.0, 59.0, 1000)), tokens: Some(limit(150_000.0, 149_984.0, 360_000)) };
        assert_eq!(openai, expected);
        let anthropic = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T12:00:07Z"),
        ]);
        assert_eq!(anthropic.requests, Some(limit(50.0, 49.0, 7000)));
        let drafts = [
            vec![("ratelimit-limit", "100, 100;w=60"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "30")],
            vec![("ratelimit", "limit=100, remaining=50, reset=30")],
            vec![("ratelimit", "\"default\";r=50;t=30"), ("ratelimit-policy", "\"default\";q=100;w=60")],
            vec![("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "50"), ("x-ratelimit-reset", "1796040030")],
        ];
        for headers in drafts {
            assert_eq!(read(&headers).requests, Some(limit(100.0, 50.0, 30_000)), "{headers:?}");
        }
        assert!(read(&[("content-type", "application/json")]).is_empty());
        assert!(read(&[("x-ratelimit-remaining", "many"), ("x-ratelimit-reset", "1s")]).is_empty());
    }

    #[test]
    fn times_are_read_in_all_the_forms_in_use() {
        let cases = [
            ("20ms", Some(20)),
            ("1h2m3.5s", Some(3_723_500)),
            ("17", Some(17_000)),
            ("0.5", Some(500)),
            ("1796040001", Some(1000)),
            ("1796040001000", Some(1000)),
            ("2026-11-30T12:00:01.5Z", Some(1000)),
            ("2026-11-30T14:00:01+02:00", Some(1000)),
            ("2024-02-29T00:00:00Z", Some(0)),
            ("Mon, 30 Nov 2026 12:00:02 GMT", Some(2000)),
            ("", None),
            ("soon", None),
            ("1x", None),
            ("-3", None),
            ("2026-13-30T12:00:01Z", None),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(parse_time(text, now()), milliseconds.map(Duration::from_millis), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in any::<String>(), date in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}.{0,8}") {
            let _ = parse_time(&text, now());
            let _ = parse_time(&date, now());
        }
    }
}
