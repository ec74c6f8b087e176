//! What is valid by the grammar of JSON and yet breaks readers: lone surrogates, and nesting beyond what they follow.

/// Levels that JSON readers follow (`serde_json`: 128).
const DEPTH: usize = 120;

/// Refuses a JSON text that a reader would stumble over.
///
/// # Errors
/// What is wrong with it.
pub fn check(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut in_string) = (0, 0_usize, false);
    let may_nest = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).nth(DEPTH).is_some();
    if !may_nest && !text.contains("\\ud") && !text.contains("\\uD") {
        return Ok(());
    }
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                at += escape(bytes.get(at..).unwrap_or_default())?;
                continue;
            }
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH {
                    return Err("it is nested more than 120 levels deep");
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Length of the escape (or pair of surrogates) that `bytes` begins with.
fn escape(bytes: &[u8]) -> Result<usize, &'static str> {
    match unit(bytes) {
        Some(0xd800..=0xdbff) => match bytes.get(6..).and_then(unit) {
            Some(0xdc00..=0xdfff) => Ok(12),
            _ => Err("it holds half a character (a lone surrogate such as `\\ud83d`)"),
        },
        Some(0xdc00..=0xdfff) => Err("it holds half a character (a lone surrogate such as `\\udc00`)"),
        _ => Ok(2),
    }
}

fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn half_characters_and_endless_nesting_are_refused() {
        assert_eq!(check(r#"{"a":"\ud83d\ude00 \\ud83d"}"#), Ok(()));
        assert!(check(r#"{"a":"\ud83d"}"#).is_err());
        assert!(check(r#"{"a":"\uDE00"}"#).is_err());
        assert!(check(r#"{"a":"\ud83d\u0041"}"#).is_err());
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(check(&deep(120)), Ok(()));
        assert!(check(&deep(121)).is_err());
        assert_eq!(check(&format!("{{\"a\":\"{}\"}}", "[".repeat(500))), Ok(()));
    }
}
