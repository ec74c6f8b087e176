//! Whether a text is one JSON value.
//!
//! As Python's parser has it, which the original asks: `NaN`, `Infinity` and `-Infinity` are values, and a
//! lone surrogate escape is fine. Nothing is built and nothing recurses, so depth costs no stack.

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// A value or the end of an empty list.
    FirstItem,
    /// A name or the end of an empty object.
    FirstName,
    Name,
    /// A comma, or the end of what is open.
    Next,
}

/// Whether `text` is one JSON value with white space around it.
pub(super) fn is_json(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    let mut expect = Expect::Value;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            at += 1;
            continue;
        }
        let step = match (expect, byte) {
            (Expect::Value | Expect::FirstItem, b'[' | b'{') => {
                open.push(byte + 2);
                expect = if byte == b'[' { Expect::FirstItem } else { Expect::FirstName };
                Some(1)
            }
            (Expect::FirstItem, b']') | (Expect::FirstName, b'}') => {
                open.pop();
                expect = Expect::Next;
                Some(1)
            }
            (Expect::Value | Expect::FirstItem, _) => {
                expect = Expect::Next;
                scalar(&bytes[at..])
            }
            (Expect::Name | Expect::FirstName, b'"') => {
                expect = Expect::Value;
                name(&bytes[at..])
            }
            (Expect::Next, b',') => {
                expect = match open.last() {
                    Some(b'}') => Expect::Name,
                    Some(_) => Expect::Value,
                    None => return false,
                };
                Some(1)
            }
            (Expect::Next, closing) if open.last() == Some(&closing) => {
                open.pop();
                Some(1)
            }
            _ => None,
        };
        match step {
            Some(step) => at += step,
            None => return false,
        }
    }
    expect == Expect::Next && open.is_empty()
}

/// The length of a name, its colon included.
fn name(bytes: &[u8]) -> Option<usize> {
    let end = string(bytes)?;
    let space = bytes[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    (bytes.get(end + space) == Some(&b':')).then_some(end + space + 1)
}

/// The length of a text, number or word.
fn scalar(bytes: &[u8]) -> Option<usize> {
    const WORDS: [&[u8]; 6] = [b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity"];
    if bytes.first() == Some(&b'"') {
        return string(bytes);
    }
    WORDS.iter().find(|word| bytes.starts_with(word)).map(|word| word.len()).or_else(|| number(bytes))
}

/// The length of a quoted text: no raw control characters, known escapes only.
fn string(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            0..=0x1f => return None,
            _ => at += 1,
        }
    }
}

/// The length of a number.
fn number(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at += match bytes.get(at)? {
        b'0' => 1,
        b'1'..=b'9' => digits(at),
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') && digits(at + 1) > 0 {
        at += 1 + digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + sign);
        if exponent > 0 {
            at += 1 + sign + exponent;
        }
    }
    Some(at)
}
