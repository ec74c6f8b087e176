//! Whether what a program gave is what its test expects.
//!
//! Everything here runs outside the sandbox. Tolerances are written as "within", so that `nan` and
//! infinite values fail; whole numbers never pass through a double.

use super::json::Json;
use super::line::shortened;

/// How the output of a `stdin` test is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Compare {
    /// Byte for byte; line ends at the very end do not matter.
    Exact,
    /// White space separates tokens; tokens are compared byte for byte.
    Tokens,
    /// Tokens; two that both read as numbers may differ by this, absolute or relative.
    Float(f64),
    /// As `Float`, but two whole numbers must be the same text.
    Decimals(f64),
}

/// Tolerance where a test states none: answers of real problems are printed with six digits or more.
pub(super) const TOLERANCE: f64 = 1e-6;

/// The first difference between an output and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) got: String,
    pub(super) expected: String,
    /// Where, for instance `token 3`; empty for the whole.
    pub(super) place: String,
}

impl Compare {
    /// `exact`, `tokens`, `float:TOL` or `decimals:TOL`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let tolerance = |text: &str| text.trim().parse::<f64>().ok().filter(|tol| tol.is_finite() && *tol >= 0.0);
        match text.split_once(':') {
            None if text == "exact" => Some(Self::Exact),
            None if text == "tokens" => Some(Self::Tokens),
            Some(("float", tol)) => tolerance(tol).map(Self::Float),
            Some(("decimals", tol)) => tolerance(tol).map(Self::Decimals),
            _ => None,
        }
    }

    /// The first difference, if there is one.
    pub(super) fn difference(self, got: &[u8], expected: &str) -> Option<Difference> {
        match self {
            Self::Exact => exact(got, expected.as_bytes()),
            Self::Tokens | Self::Float(_) | Self::Decimals(_) => self.tokens(got, expected),
        }
    }

    fn tokens(self, got: &[u8], expected: &str) -> Option<Difference> {
        let mut found = words(got);
        let mut wanted = words(expected.as_bytes());
        let mut at = 0_usize;
        loop {
            at += 1;
            let (found, wanted) = match (found.next(), wanted.next()) {
                (None, None) => return None,
                (Some(found), Some(wanted)) if self.same(found, wanted) => continue,
                pair => pair,
            };
            let show = |word: Option<&[u8]>| {
                word.map_or_else(|| "nothing".to_string(), |word| shortened(&String::from_utf8_lossy(word)))
            };
            return Some(Difference { got: show(found), expected: show(wanted), place: format!("token {at}") });
        }
    }

    fn same(self, got: &[u8], expected: &[u8]) -> bool {
        let (tolerance, whole_numbers_are_exact) = match self {
            _ if got == expected => return true,
            Self::Exact | Self::Tokens => return false,
            Self::Float(tolerance) => (tolerance, false),
            Self::Decimals(tolerance) => (tolerance, true),
        };
        let (Ok(got), Ok(expected)) = (std::str::from_utf8(got), std::str::from_utf8(expected)) else {
            return false;
        };
        let whole = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit() || b"+-".contains(&letter));
        if whole_numbers_are_exact && whole(expected) {
            return !whole(got) && near_whole(got, expected, tolerance);
        }
        within(got, expected, tolerance)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    bytes.split(space).filter(|word| !word.is_empty())
}

fn exact(got: &[u8], expected: &[u8]) -> Option<Difference> {
    let got = trimmed(got);
    let expected = trimmed(expected);
    if got == expected {
        return None;
    }
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (got, expected) = (lines(got), lines(expected));
    let same = got.iter().zip(&expected).take_while(|(left, right)| left == right).count();
    let show = |lines: &[Vec<u8>]| {
        lines.get(same).map_or_else(|| "nothing".to_string(), |line| shortened(&String::from_utf8_lossy(line)))
    };
    Some(Difference { got: show(&got), expected: show(&expected), place: format!("line {}", same + 1) })
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Whether two texts read as finite numbers at most `tolerance` apart, absolute or relative to the second.
fn within(got: &str, expected: &str, tolerance: f64) -> bool {
    let (Ok(got), Ok(expected)) = (got.parse::<f64>(), expected.parse::<f64>()) else {
        return false;
    };
    got.is_finite() && expected.is_finite() && (got - expected).abs() <= tolerance * expected.abs().max(1.0)
}

/// Whether a number with decimals stands for an expected whole one: the difference is absolute, since a share of a large
/// whole number is another number; and from 16 digits on nothing but the same value will do.
fn near_whole(got: &str, expected: &str, tolerance: f64) -> bool {
    let (Some(left), Some(right)) = (Decimal::read(got), Decimal::read(expected.trim_start_matches('+'))) else {
        return false;
    };
    if left == right {
        return true;
    }
    let is_small = expected.bytes().filter(u8::is_ascii_digit).count() < 16;
    let difference = |left: f64, right: f64| (left - right).abs();
    is_small
        && matches!((got.parse::<f64>(), expected.parse::<f64>()), (Ok(left), Ok(right)) if difference(left, right) <= tolerance)
}

/// Whether a returned value equals the expected one: same kind, lists item by item, maps by key,
/// numbers by value. Numbers of which at least one has a fraction or an exponent may differ by
/// `tolerance`; whole numbers may not.
pub(super) fn equal(got: &Json, expected: &Json, tolerance: f64) -> bool {
    match (got, expected) {
        (Json::Number(got), Json::Number(expected)) => same_number(got, expected, tolerance),
        (Json::List(got), Json::List(expected)) => {
            got.len() == expected.len() && got.iter().zip(expected).all(|(got, want)| equal(got, want, tolerance))
        }
        (Json::Map(got), Json::Map(expected)) => {
            let got = got.iter().map(|(key, value)| (key, value)).collect::<std::collections::BTreeMap<_, _>>();
            got.len() == expected.len()
                && expected.iter().all(|(key, want)| got.get(key).is_some_and(|got| equal(got, want, tolerance)))
        }
        (got, expected) => got == expected,
    }
}

fn same_number(got: &str, expected: &str, tolerance: f64) -> bool {
    let (Some(left), Some(right)) = (Decimal::read(got), Decimal::read(expected)) else {
        return false;
    };
    let whole = |text: &str| !text.contains(['.', 'e', 'E']);
    match (whole(got), whole(expected)) {
        _ if left == right => true,
        (true, true) => false,
        (false, true) => near_whole(got, expected, tolerance),
        (_, false) => within(got, expected, tolerance),
    }
}

/// A decimal number in its one normal form: 0.`digits` * 10^`exponent`, no zero at either end.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (is_negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (number, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let leading = digits.len() - digits.trim_start_matches('0').len();
        let digits = digits.trim_matches('0').to_string();
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        let place = i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(leading).ok()?)?;
        Some(Self { is_negative, digits, exponent: exponent.parse::<i64>().ok()?.checked_add(place)? })
    }
}

#[cfg(test)]
mod tests {
    use super::{Compare, equal};
    use crate::code::json::Json;

    fn same(mode: &str, got: &str, expected: &str) -> bool {
        Compare::parse(mode).unwrap().difference(got.as_bytes(), expected).is_none()
    }

    #[test]
    fn each_mode_forgives_what_it_says() {
        assert!(same("exact", "a  b\n", "a  b") && same("exact", "a\r\n\n", "a") && !same("exact", "a b", "a  b"));
        assert!(!same("exact", " a", "a") && !same("exact", "a\r\nb", "a\nb"));
        assert!(same("tokens", " a \t b\r\n\n", "a b") && !same("tokens", "A", "a") && !same("tokens", "a", "a b"));
        assert!(!same("tokens", "5.0", "5") && !same("tokens", "", "a") && same("tokens", "\n", ""));
        assert!(
            same("float:1e-6", "0.33333333 x", "0.333333333333 x") && !same("float:1e-6", "0.333", "0.333333333333")
        );
        assert!(same("float:1e-6", "1000000.9", "1000000") && !same("float:1e-6", "x", "y"));
        assert!(same("decimals:1e-6", "5.0", "5") && !same("decimals:1e-6", "1000001", "1000000"));
        assert!(same("decimals:1e-6", "1.9999999999", "2") && same("decimals:1e-6", "1e3", "1000"));
        for (got, expected) in
            [("1000000500.0", "1000000007"), ("9007199254740992.0", "9007199254740993"), ("nan", "5")]
        {
            assert!(!same("decimals:1e-6", got, expected), "{got} for {expected}");
        }
    }

    #[test]
    fn nan_and_infinity_pass_no_tolerance() {
        for got in ["nan", "inf", "-inf", "1e999"] {
            assert!(!same("float:1e-6", got, "1e300") && !same("float:1e300", got, "1"), "{got}");
        }
        assert!(!same("float:1e-6", "1", "nan") && !same("float:1e-6", "1e308", "-1e308"));
    }

    #[test]
    fn an_unknown_mode_is_refused() {
        for bad in ["", "float", "float:", "float:-1", "float:nan", "float:inf", "token", "Tokens", "decimals:x"] {
            assert!(Compare::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_difference_names_its_place_on_one_line() {
        let difference = Compare::Tokens.difference(b"1 2\x07 3\n", "1 2 4").unwrap();
        assert_eq!((difference.got.as_str(), difference.place.as_str()), ("`2\\u{7}`", "token 2"));
        let difference = Compare::Exact.difference(b"a\nb\n", "a\nb\nc\n").unwrap();
        assert_eq!((difference.got.as_str(), difference.expected.as_str()), ("nothing", "`c`"));
    }

    #[test]
    fn values_are_compared_exactly_and_by_kind() {
        let same =
            |got: &str, want: &str, tol: f64| equal(&Json::parse(got).unwrap(), &Json::parse(want).unwrap(), tol);
        assert!(same("1267650600228229401496703205376", "1267650600228229401496703205376", 0.0));
        assert!(!same("1267650600228229401496703205377", "1267650600228229401496703205376", 1e-6));
        assert!(same("5.0", "5", 0.0) && same("1e2", "100", 0.0) && same("-0.0", "0", 0.0) && same("0.50", "0.5", 0.0));
        assert!(same("0.30000000000000004", "0.3", 1e-9) && !same("0.30000000000000004", "0.3", 0.0));
        assert!(
            !same("true", "1", 0.0)
                && !same("\"1\"", "1", 0.0)
                && !same("null", "0", 0.0)
                && !same("null", "false", 1.0)
        );
        assert!(
            same("{\"a\":[1,2],\"b\":{}}", "{\"b\":{},\"a\":[1,2]}", 0.0)
                && !same("{\"a\":1}", "{\"a\":1,\"b\":1}", 0.0)
        );
        assert!(!same("[1,2]", "[2,1]", 0.0) && !same("[1]", "[1,1]", 0.0) && !same("[]", "{}", 0.0));
        assert!(
            !same("NaN", "NaN", 1.0)
                && !same("Infinity", "Infinity", 1.0)
                && !same("1e999999999999999999999", "1", 1e9)
        );
    }
}
