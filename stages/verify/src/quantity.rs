//! Numbers with units: `9.81 m/s^2`, `3.0\times10^{8}\ \mathrm{m\,s^{-1}}`, `5 kJ`.
//!
//! A unit is a product of powers of base units and a scale, so that `2 km` equals `2000 m` and `5 N`
//! is no energy. Scales are exact: those of SI by definition, the others by the definitions of NIST SP
//! 811, appendix B. Degrees Celsius and Fahrenheit stay as they are, since they are no multiples of a
//! kelvin.

use crate::math::decimal;
use dashu::rational::RBig;
use std::collections::BTreeMap;

/// A number and the unit behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The number as written, in its unit.
    pub number: RBig,
    /// Its unit; `None` when nothing stands behind the number.
    pub unit: Option<Unit>,
}

/// A product of powers of base units.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Base units and their powers, none of them zero.
    pub powers: BTreeMap<&'static str, i32>,
    /// What one of this unit is in base units.
    pub scale: RBig,
}

/// Longest text that is read, in bytes.
const LONGEST: usize = 160;
/// Largest power of a unit.
const MAX_POWER: i32 = 12;

/// Name, scale in base units, base units with their powers, and whether prefixes may stand before it.
type Named = (&'static str, &'static str, &'static [(&'static str, i32)], bool);

const UNITS: &[Named] = &[
    ("m", "1", &[("m", 1)], true),
    ("g", "1", &[("g", 1)], true),
    ("s", "1", &[("s", 1)], true),
    ("A", "1", &[("A", 1)], true),
    ("K", "1", &[("K", 1)], true),
    ("mol", "1", &[("mol", 1)], true),
    ("N", "1000", &[("g", 1), ("m", 1), ("s", -2)], true),
    ("J", "1000", &[("g", 1), ("m", 2), ("s", -2)], true),
    ("W", "1000", &[("g", 1), ("m", 2), ("s", -3)], true),
    ("Pa", "1000", &[("g", 1), ("m", -1), ("s", -2)], true),
    ("C", "1", &[("A", 1), ("s", 1)], true),
    ("V", "1000", &[("g", 1), ("m", 2), ("s", -3), ("A", -1)], true),
    ("Ω", "1000", &[("g", 1), ("m", 2), ("s", -3), ("A", -2)], true),
    ("ohm", "1000", &[("g", 1), ("m", 2), ("s", -3), ("A", -2)], true),
    ("ohms", "1000", &[("g", 1), ("m", 2), ("s", -3), ("A", -2)], false),
    ("F", "0.001", &[("g", -1), ("m", -2), ("s", 4), ("A", 2)], true),
    ("T", "1000", &[("g", 1), ("s", -2), ("A", -1)], true),
    ("H", "1000", &[("g", 1), ("m", 2), ("s", -2), ("A", -2)], true),
    ("Wb", "1000", &[("g", 1), ("m", 2), ("s", -2), ("A", -1)], true),
    ("Hz", "1", &[("s", -1)], true),
    ("Bq", "1", &[("s", -1)], true),
    ("L", "0.001", &[("m", 3)], true),
    ("l", "0.001", &[("m", 3)], true),
    ("liter", "0.001", &[("m", 3)], false),
    ("liters", "0.001", &[("m", 3)], false),
    ("bar", "100000000", &[("g", 1), ("m", -1), ("s", -2)], true),
    ("atm", "101325000", &[("g", 1), ("m", -1), ("s", -2)], false),
    ("eV", "0.0000000000000001602176634", &[("g", 1), ("m", 2), ("s", -2)], true),
    ("cal", "4184", &[("g", 1), ("m", 2), ("s", -2)], true),
    ("Å", "0.0000000001", &[("m", 1)], false),
    ("t", "1000000", &[("g", 1)], false),
    ("min", "60", &[("s", 1)], false),
    ("minute", "60", &[("s", 1)], false),
    ("minutes", "60", &[("s", 1)], false),
    ("h", "3600", &[("s", 1)], false),
    ("hr", "3600", &[("s", 1)], false),
    ("hour", "3600", &[("s", 1)], false),
    ("hours", "3600", &[("s", 1)], false),
    ("second", "1", &[("s", 1)], false),
    ("seconds", "1", &[("s", 1)], false),
    ("sec", "1", &[("s", 1)], false),
    ("d", "86400", &[("s", 1)], false),
    ("day", "86400", &[("s", 1)], false),
    ("days", "86400", &[("s", 1)], false),
    ("meter", "1", &[("m", 1)], false),
    ("meters", "1", &[("m", 1)], false),
    ("metre", "1", &[("m", 1)], false),
    ("metres", "1", &[("m", 1)], false),
    ("gram", "1", &[("g", 1)], false),
    ("grams", "1", &[("g", 1)], false),
    ("joule", "1000", &[("g", 1), ("m", 2), ("s", -2)], false),
    ("joules", "1000", &[("g", 1), ("m", 2), ("s", -2)], false),
    ("newton", "1000", &[("g", 1), ("m", 1), ("s", -2)], false),
    ("newtons", "1000", &[("g", 1), ("m", 1), ("s", -2)], false),
    ("ft", "0.3048", &[("m", 1)], false),
    ("in", "0.0254", &[("m", 1)], false),
    ("yd", "0.9144", &[("m", 1)], false),
    ("mi", "1609.344", &[("m", 1)], false),
    ("lb", "453.59237", &[("g", 1)], false),
    ("lbs", "453.59237", &[("g", 1)], false),
    ("rad", "1", &[("rad", 1)], false),
    ("°", "1", &[("°", 1)], false),
    ("°C", "1", &[("°C", 1)], false),
    ("°F", "1", &[("°F", 1)], false),
    ("%", "1", &[("%", 1)], false),
];

const PREFIXES: &[(&str, i32)] = &[
    ("da", 1),
    ("Y", 24),
    ("Z", 21),
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("h", 2),
    ("d", -1),
    ("c", -2),
    ("m", -3),
    ("μ", -6),
    ("µ", -6),
    ("u", -6),
    ("n", -9),
    ("p", -12),
    ("f", -15),
    ("a", -18),
];

/// Reads a number with a unit, or a number alone; `None` for everything else.
pub fn quantity(text: &str) -> Option<Quantity> {
    if text.len() > LONGEST {
        return None;
    }
    let plain = spelled(text);
    let plain = plain.trim().trim_end_matches(['.', ',', ';']).trim_end();
    let (number, length) = numeral(plain)?;
    let rest = plain[length..].trim();
    if rest.is_empty() {
        return Some(Quantity { number, unit: None });
    }
    Some(Quantity { number, unit: Some(unit(rest)?) })
}

/// The text with LaTeX layout replaced by spaces and Unicode signs.
fn spelled(text: &str) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("\\mathrm", " "),
        ("\\text", " "),
        ("\\textrm", " "),
        ("\\rm", " "),
        ("\\times", "×"),
        ("\\cdot", "·"),
        ("\\mu", "μ"),
        ("\\Omega", "Ω"),
        ("\\circ", "°"),
        ("\\degree", "°"),
        ("\\%", "%"),
        ("\\,", " "),
        ("\\;", " "),
        ("\\ ", " "),
        ("\\!", ""),
        ("\\left", ""),
        ("\\right", ""),
        ("\\approx", ""),
        ("~", " "),
        ("$", ""),
        ("−", "-"),
        ("⋅", "·"),
        ("*", "·"),
        ("²", "^2"),
        ("³", "^3"),
        ("⁻¹", "^-1"),
        ("⁻²", "^-2"),
        ("⁻³", "^-3"),
        ("^{°}", "°"),
        ("^°", "°"),
        ("{ }", ""),
        ("{}", ""),
    ];
    let mut plain = text.replace("\\textrm", "\\text");
    for (word, sign) in WORDS {
        if plain.contains(word) {
            plain = plain.replace(word, sign);
        }
    }
    for (word, sign) in [("° ", "°"), ("°{", "°"), ("μ ", "μ"), ("μ{", "μ")] {
        while plain.contains(word) {
            plain = plain.replace(word, sign);
        }
    }
    plain
}

/// A decimal with a power of ten, and its length in bytes.
fn numeral(text: &str) -> Option<(RBig, usize)> {
    let bytes = text.as_bytes();
    let mut digits = String::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let next_is_digit = bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'+' | b'-' if at == 0 => {
                if *byte == b'-' {
                    digits.push('-');
                }
            }
            b'0'..=b'9' => digits.push(char::from(*byte)),
            b'.' if !digits.contains('.')
                && (next_is_digit || digits.ends_with(|last: char| last.is_ascii_digit())) =>
            {
                digits.push('.');
            }
            b',' if next_is_digit && bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count() == 3 => {}
            _ => break,
        }
        at += 1;
    }
    let mut value = decimal(digits.trim_end_matches('.'))?;
    let mut length = at;
    if let Some(power) = text[at..].strip_prefix(['e', 'E']) {
        let sign = usize::from(power.starts_with(['-', '+']));
        let count = power[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if count > 0 && count < 4 {
            value *= ten_to(power[..sign + count].parse().ok()?)?;
            length = at + 1 + sign + count;
        }
    }
    let rest = text[length..].trim_start();
    let rest = rest.strip_prefix(['×', '·', 'x']).unwrap_or(rest).trim_start();
    if let Some(power) = rest.strip_prefix("10^") {
        let inner = power.trim_start_matches(['{', '(']);
        let sign = usize::from(inner.starts_with(['-', '+']));
        let count = inner[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 || count > 3 {
            return None;
        }
        value *= ten_to(inner[..sign + count].parse().ok()?)?;
        let after = inner[sign + count..].trim_start_matches(['}', ')']);
        length = text.len() - after.len();
    }
    Some((value, length))
}

fn ten_to(power: i32) -> Option<RBig> {
    let scale = RBig::from(dashu::integer::UBig::from(10u8).pow(usize::try_from(power.unsigned_abs()).ok()?));
    (power.abs() < 1000).then(|| if power < 0 { RBig::ONE / scale } else { scale })
}

/// A product and quotient of units.
fn unit(text: &str) -> Option<Unit> {
    let mut found = Unit { powers: BTreeMap::new(), scale: RBig::ONE };
    let mut at = 0;
    let (mut below, mut bracket) = (false, false);
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '/' => {
                below = true;
                at += 1;
                continue;
            }
            '(' if below => bracket = true,
            ')' => (below, bracket) = (false, false),
            ' ' | '·' | '-' | '{' | '}' | '(' => {}
            _ => {
                let name_length = text[at..]
                    .find(|mark: char| !(mark.is_alphabetic() || matches!(mark, '°' | '%')))
                    .unwrap_or(text.len() - at);
                if name_length == 0 {
                    return None;
                }
                let name = &text[at..at + name_length];
                at += name_length;
                if name == "per" {
                    below = true;
                    continue;
                }
                let (power, length) = power(&text[at..])?;
                at += length;
                found.multiply(name, if below { -power } else { power })?;
                below &= bracket;
                continue;
            }
        }
        at += letter.len_utf8();
    }
    found.powers.retain(|_, power| *power != 0);
    Some(found)
}

/// The power behind a unit, 1 if there is none, and its length.
fn power(text: &str) -> Option<(i32, usize)> {
    let inner = text.trim_start_matches(['}', ' ']);
    let Some(raised) = inner.strip_prefix('^') else {
        return Some((1, 0));
    };
    let raised = raised.trim_start_matches(['{', '(', ' ']);
    let sign = usize::from(raised.starts_with(['-', '+']));
    let count = raised[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let value: i32 = raised[..sign + count].parse().ok()?;
    let after = raised[sign + count..].trim_start_matches(['}', ')']);
    (value.abs() <= MAX_POWER).then_some((value, text.len() - after.len()))
}

impl Unit {
    fn multiply(&mut self, name: &str, power: i32) -> Option<()> {
        let named = |name: &str| UNITS.iter().find(|(known, ..)| *known == name);
        let (found, prefix) = match named(name) {
            Some(found) => (found, 0),
            None => PREFIXES.iter().find_map(|(prefix, tens)| {
                let found = named(name.strip_prefix(prefix)?)?;
                found.3.then_some((found, *tens))
            })?,
        };
        let (_, scale, bases, _) = found;
        let scale = decimal(scale)? * ten_to(prefix)?;
        for _ in 0..power.abs() {
            if power > 0 {
                self.scale *= &scale;
            } else {
                self.scale /= &scale;
            }
        }
        for (base, count) in *bases {
            *self.powers.entry(base).or_default() += count * power;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> (RBig, BTreeMap<&'static str, i32>) {
        let found = quantity(text).unwrap();
        let unit = found.unit.unwrap();
        (found.number * unit.scale, unit.powers)
    }

    #[test]
    fn one_quantity_has_many_spellings() {
        for (a, b) in [
            ("2 km", "2000 m"),
            ("9.81 m/s^2", "9.81\\,\\mathrm{m\\cdot s^{-2}}"),
            ("5 kJ", "5000 J"),
            ("1 kg", "1000 g"),
            ("36 km/h", "10 m/s"),
            ("1 N m", "1 J"),
            ("3.0\\times 10^{8} \\mathrm{~m} / \\mathrm{s}", "3e8 m s^-1"),
            ("25 \\mu \\mathrm{C}", "0.000025 C"),
            ("8.314 \\mathrm{J} \\mathrm{K}^{-1} \\mathrm{~mol}^{-1}", "8.314 J/(mol K)"),
            ("1,000 mL", "1 L"),
            ("50 ^{\\circ} \\mathrm{C}", "50 °C"),
        ] {
            assert_eq!(base(a), base(b), "{a} | {b}");
        }
    }

    #[test]
    fn what_is_no_unit_is_no_quantity() {
        for text in ["", "x", "5 apples", "1/2", "(1,2)", "m/s", "5 m^99", "2+3", "5 m, 6 m"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
