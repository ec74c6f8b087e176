//! A small JSON reader and writer that keep numbers as they are written.
//!
//! Integers above 2^64 and long decimals must reach the program, and be compared, digit for digit;
//! a reader that turns them into doubles would call different numbers equal. The reader also serves
//! what comes back from the sandbox, so it trusts nothing: depth is bounded and no input makes it
//! panic. `NaN` and `Infinity`, which Python writes, are numbers that equal nothing.

use std::fmt::Write;

/// Lists and maps inside each other, at most.
const DEPTH: usize = 200;

/// A JSON value; numbers as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// The number as written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// Entries in order; no key stands twice.
    Map(Vec<(String, Json)>),
}

/// What is wrong with a text that should be JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Byte offset.
    pub(super) at: usize,
    pub(super) what: &'static str,
}

impl Json {
    /// Reads one value and nothing after it.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.blanks();
        if reader.at < text.len() { Err(reader.wrong("text after the end")) } else { Ok(value) }
    }

    /// What the value is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }

    /// The value as compact JSON.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(number),
            Self::Text(text) => quote(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    quote(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// `text` as a JSON string.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if u32::from(control) < 0x20 || control == '\x7f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, Malformed> {
        if depth > DEPTH {
            return Err(self.wrong("nested too deep (200 at most)"));
        }
        self.blanks();
        match self.peek() {
            None => Err(self.wrong("the text ends early")),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.map(depth),
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => self.number(),
            Some(_) if self.takes("true") => Ok(Json::Bool(true)),
            Some(_) if self.takes("false") => Ok(Json::Bool(false)),
            Some(_) if self.takes("null") => Ok(Json::Null),
            Some(_) => Err(self.wrong("a value was expected")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, Malformed> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.takes("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.takes("]") {
                return Ok(Json::List(items));
            }
            if !self.takes(",") {
                return Err(self.wrong("`,` or `]` was expected"));
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Json, Malformed> {
        self.at += 1;
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut keys = std::collections::BTreeSet::new();
        self.blanks();
        if self.takes("}") {
            return Ok(Json::Map(entries));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in double quotes was expected"));
            }
            let key = self.string()?;
            if !keys.insert(key.clone()) {
                return Err(self.wrong("the key before this stands twice"));
            }
            self.blanks();
            if !self.takes(":") {
                return Err(self.wrong("`:` was expected"));
            }
            let value = self.value(depth + 1)?;
            entries.push((key, value));
            self.blanks();
            if self.takes("}") {
                return Ok(Json::Map(entries));
            }
            if !self.takes(",") {
                return Err(self.wrong("`,` or `}` was expected"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, Malformed> {
        for word in ["NaN", "Infinity", "-Infinity"] {
            if self.takes(word) {
                return Ok(Json::Number(word.to_string()));
            }
        }
        let start = self.at;
        self.takes("-");
        if !self.takes("0") {
            self.digits()?;
        }
        if self.takes(".") {
            self.digits()?;
        }
        if self.takes("e") || self.takes("E") {
            let _ = self.takes("+") || self.takes("-");
            self.digits()?;
        }
        Ok(Json::Number(self.text[start..self.at].to_string()))
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("a digit was expected")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<String, Malformed> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.wrong("a control character inside a string (write it as an escape)")),
                None => return Err(self.wrong("a string without end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        let letter = self.peek().ok_or_else(|| self.wrong("a string without end"))?;
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&high) && self.takes("\\u") {
                    let low = self.unit()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.wrong("half of a surrogate pair"));
                    }
                    0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(code).ok_or_else(|| self.wrong("half of a surrogate pair"))?
            }
            _ => return Err(self.wrong("an escape that JSON does not have")),
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, Malformed> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let code = digits.iter().try_fold(0_u32, |code, &digit| Some(code * 16 + char::from(digit).to_digit(16)?));
        match code {
            Some(code) if digits.len() == 4 => {
                self.at += 4;
                Ok(code)
            }
            _ => Err(self.wrong("four hexadecimal digits were expected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn numbers_keep_every_digit() {
        let text = "[1267650600228229401496703205376,0.10000000000000000000000000001,-1e400,NaN,-Infinity]";
        assert_eq!(Json::parse(text).unwrap().text(), text);
    }

    #[test]
    fn text_survives_the_way_there_and_back() {
        let text = "\"a\\\"\\\\\\n\\u0001 数学 🙂\"";
        assert_eq!(Json::parse(text).unwrap().text(), text);
        assert_eq!(Json::parse(r#""🙂""#).unwrap(), Json::Text("🙂".to_string()));
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for bad in [
            "",
            "[1,]",
            "{\"a\":1,\"a\":2}",
            "01",
            "1.",
            "\"\\ud800\"",
            "\"a",
            "[",
            "{1:2}",
            "nul",
            "1 2",
            "\"\\uzzzz\"",
            "\"\\u12",
            "\"\u{1}\"",
            "'a'",
        ] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Json::parse("[1, 2, x]").unwrap_err().at, 7);
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,40}") {
            let _ = Json::parse(&text);
        }

        #[test]
        fn text_of_json_alphabet_makes_no_panic_either(text in "[\\[\\]{}\",:0-9eE+.\\\\ud8-]{0,30}") {
            if let Ok(value) = Json::parse(&text) {
                proptest::prop_assert_eq!(Json::parse(&value.text()), Ok(value));
            }
        }
    }
}
