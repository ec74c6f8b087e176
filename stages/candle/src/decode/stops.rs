//! From the bytes of tokens to settled text: whole characters, cut before the first stop string.
//!
//! A stop string may span tokens and may begin inside one, and so may a character. What could still become either is held
//! back. After each token the text is searched for all stop strings; the one that begins first cuts it. Bytes that are no
//! UTF-8 become U+FFFD exactly as [`String::from_utf8_lossy`] replaces them in the whole text.

/// The text of one answer as it grows.
#[derive(Debug)]
pub struct TextCutter {
    stops: Vec<String>,
    /// Bytes that are not settled.
    held: Vec<u8>,
    /// Bytes before `held`.
    settled: usize,
    is_stopped: bool,
}

impl TextCutter {
    /// A text that ends before the first of `stops`; an empty stop string never matches.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self { stops, held: Vec::new(), settled: 0, is_stopped: false }
    }

    /// Appends a token's bytes; returns the text that they settle. Nothing more settles after a stop string.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        if self.is_stopped {
            return String::new();
        }
        let old = self.held.len();
        self.held.extend_from_slice(bytes);
        let found = self.stops.iter().filter_map(|stop| position(&self.held, stop.as_bytes(), old)).min();
        if let Some(start) = found {
            self.is_stopped = true;
            self.held.truncate(start);
            return self.settle(start);
        }
        let open = self.stops.iter().map(|stop| open_end(&self.held, stop.as_bytes())).max().unwrap_or(0);
        let end = self.held.len() - open.max(unfinished(&self.held));
        self.settle(end)
    }

    /// The text that was held back, when no token follows.
    pub fn finish(&mut self) -> String {
        self.settle(self.held.len())
    }

    /// Whether a stop string was reached.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Bytes that have been pushed and are settled.
    pub fn settled(&self) -> usize {
        self.settled
    }

    fn settle(&mut self, end: usize) -> String {
        let text = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end);
        self.settled += end;
        text
    }
}

/// Where `stop` begins in `text`, if it ends after the first `old` bytes (what ended before was searched before).
fn position(text: &[u8], stop: &[u8], old: usize) -> Option<usize> {
    let from = (old + 1).saturating_sub(stop.len());
    text.get(from..)?.windows(stop.len()).position(|window| window == stop).map(|place| from + place)
}

/// Length of the longest end of `text` that is a proper beginning of `stop`.
fn open_end(text: &[u8], stop: &[u8]) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest).rev().find(|length| text.ends_with(&stop[..*length])).unwrap_or(0)
}

/// Length of an unfinished character at the end.
fn unfinished(text: &[u8]) -> usize {
    // A character has at most four bytes, so at most its last three are looked at together with one before.
    let tail = &text[text.len().saturating_sub(3)..];
    (1..=tail.len()).rev().find(|length| is_unfinished(&tail[tail.len() - length..])).unwrap_or(0)
}

/// Whether more bytes could make these one character.
fn is_unfinished(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text after all tokens up to the one that completes a stop string, and their number.
    fn naive(tokens: &[Vec<u8>], stops: &[String]) -> (String, usize) {
        let mut bytes = Vec::new();
        for (count, token) in tokens.iter().enumerate() {
            bytes.extend_from_slice(token);
            let starts = stops
                .iter()
                .filter_map(|stop| (0..bytes.len()).find(|start| bytes[*start..].starts_with(stop.as_bytes())));
            if let Some(start) = starts.min() {
                return (String::from_utf8_lossy(&bytes[..start]).into_owned(), count + 1);
            }
        }
        (String::from_utf8_lossy(&bytes).into_owned(), tokens.len())
    }

    fn cut(tokens: &[Vec<u8>], stops: &[String]) -> (Vec<String>, usize) {
        let mut cutter = TextCutter::new(stops.to_vec());
        let mut pieces = Vec::new();
        for (count, token) in tokens.iter().enumerate() {
            pieces.push(cutter.push(token));
            if cutter.is_stopped() {
                pieces.push(cutter.finish());
                return (pieces, count + 1);
            }
        }
        pieces.push(cutter.finish());
        (pieces, tokens.len())
    }

    fn tokens(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_stop_string_may_span_tokens_and_begin_inside_one() {
        let stops = ["\n\nQ:".to_owned()];
        let (pieces, used) = cut(&tokens(&["four", ".\n", "\n", "Q", ": five", " never"]), &stops);
        assert_eq!((pieces.concat().as_str(), used), ("four.", 5));
        assert_eq!(pieces, ["four", ".", "", "", "", ""]);
        let (pieces, used) = cut(&tokens(&["a\n", "\nQ", "! b"]), &stops);
        assert_eq!((pieces.concat().as_str(), used), ("a\n\nQ! b", 3));
    }

    #[test]
    fn characters_come_whole_and_broken_ones_are_replaced() {
        let bytes = "é二😀".as_bytes();
        let single: Vec<Vec<u8>> = bytes.iter().map(|byte| vec![*byte]).collect();
        let (pieces, _) = cut(&single, &[]);
        assert_eq!(pieces, ["", "é", "", "", "二", "", "", "", "😀", ""]);
        let (pieces, _) = cut(&[vec![0xE4, 0xBA], vec![b'x'], vec![0xF0, 0x9F]], &[]);
        assert_eq!(pieces, ["", "\u{FFFD}x", "", "\u{FFFD}"]);
    }

    #[test]
    fn the_stop_string_that_begins_first_cuts() {
        let stops = ["bcd".to_owned(), "c".to_owned()];
        assert_eq!(cut(&tokens(&["abcd"]), &stops).0.concat(), "a");
        assert_eq!(cut(&tokens(&["ab", "cd"]), &stops).0.concat(), "a");
        assert_eq!(cut(&tokens(&["ab", "c", "d"]), &stops).0.concat(), "ab");
    }

    proptest! {
        #[test]
        fn text_is_cut_as_the_whole_text_would_be(
            tokens in prop::collection::vec(
                prop::collection::vec(prop::sample::select(b"aab\xC3\xA9\xF0\x9F\x98\x80\xE4".to_vec()), 0..4), 0..20),
            stops in prop::collection::vec("[abé😀]{1,4}", 0..4),
        ) {
            let (pieces, used) = cut(&tokens, &stops);
            let (text, expected_used) = naive(&tokens, &stops);
            prop_assert_eq!(pieces.concat(), text);
            prop_assert_eq!(used, expected_used);
        }

        #[test]
        fn text_without_stop_strings_settles_with_its_last_byte(text in "\\PC{0,20}") {
            let mut cutter = TextCutter::new(Vec::new());
            for character in text.chars() {
                prop_assert_eq!(cutter.push(character.to_string().as_bytes()), character.to_string());
            }
            prop_assert_eq!(cutter.settled(), text.len());
            prop_assert_eq!(cutter.finish(), "");
        }
    }
}
