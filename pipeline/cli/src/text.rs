//! Small pieces of text that several commands need.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time as `20261130T120000Z`, for names of records.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The time in milliseconds since 1970, for ages of stored calls.
pub fn now_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Year, month and day of a day counted from 1970, by the rule of the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Bytes in a unit that a person reads.
pub fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

/// The first line of a text, shortened to `limit` characters.
pub fn brief(text: &str, limit: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let is_longer = line.chars().count() > limit || text.trim().lines().count() > 1;
    let short: String = line.chars().take(limit).collect();
    if is_longer { format!("{short} …") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(59), (1970, 3, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_787), (2026, 11, 30));
    }

    #[test]
    fn a_long_text_is_cut_by_characters() {
        assert_eq!(brief("一二三四五", 3), "一二三 …");
        assert_eq!(brief(" short\n", 10), "short");
    }
}
