//! Sentences as IFBench cuts them: by marks and a handful of abbreviations, not by a trained model.
//!
//! A full stop, a question mark and an exclamation mark end a sentence, also inside a word. Full stops of
//! titles, initials, decimals, web addresses and runs of dots are held back first. The rules run one
//! after the other over the whole text, since a stop that one rule holds is no stop to the next: that
//! order is what makes the cuts those of the benchmark.

use crate::instruct::characters::{is_space, strip};

/// Stands for a full stop that ends no sentence. No text holds this noncharacter.
const HELD: char = '\u{fdd0}';
/// Stands for the end of a sentence without a mark.
const END: char = '\u{fdd1}';

const TITLES: &[&str] = &["Mr", "St", "Mrs", "Ms", "Dr"];
const DOMAINS: &[&str] = &["com", "net", "org", "io", "gov", "edu", "me"];
const COMPANIES: &[&str] = &["Inc", "Ltd", "Jr", "Sr", "Co"];
/// Begins of a sentence after an acronym or a company: any continuation is fine.
const OPENERS: &[&str] = &["Mr", "Ms", "Dr", "Prof", "Capt", "Cpt", "Lt", "Wherever"];
/// Begins of a sentence that must be a whole word.
const OPENING_WORDS: &[&str] = &["He", "She", "It", "They", "Their", "Our", "We", "But", "However", "That", "This"];

/// The sentences of a text, without outer white space. A piece between two marks may be empty; the last
/// never is.
pub(crate) fn sentences(text: &str) -> Vec<String> {
    let mut marked = Marked::new(text);
    marked.hold_titles();
    marked.hold_domains();
    marked.hold_decimals();
    marked.hold_runs();
    marked.hold_doctorate();
    marked.hold_single_letters(true);
    marked.end_after_acronyms();
    marked.hold_initials(3);
    marked.hold_initials(2);
    marked.end_after_companies();
    marked.hold_single_letters(false);
    cut(&marked.finish())
}

/// What became of a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Plain,
    Held,
    /// A full stop that gave way to the end of a sentence.
    Dropped,
}

/// A text whose full stops are being sorted out.
struct Marked {
    text: String,
    /// Where the full stops stand, ascending.
    dots: Vec<usize>,
    /// One for each full stop.
    marks: Vec<Mark>,
    /// Full stops, by their place in `dots`, after which a sentence ends.
    ends: Vec<bool>,
}

impl Marked {
    fn new(text: &str) -> Self {
        let mut padded = String::with_capacity(text.len() + 3);
        padded.push(' ');
        padded.extend(text.chars().map(|character| match character {
            '\n' => ' ',
            HELD | END => char::REPLACEMENT_CHARACTER,
            other => other,
        }));
        padded.push_str("  ");
        let dots: Vec<usize> = padded.match_indices('.').map(|(at, _)| at).collect();
        let (marks, ends) = (vec![Mark::Plain; dots.len()], vec![false; dots.len()]);
        Self { text: padded, dots, marks, ends }
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or_default()
    }

    fn letter(&self, at: usize) -> bool {
        self.byte(at).is_ascii_alphabetic()
    }

    /// The full stop at a place, when it is one and still open.
    fn open(&self, at: usize) -> Option<usize> {
        let index = self.dots.binary_search(&at).ok()?;
        (self.marks[index] == Mark::Plain).then_some(index)
    }

    fn is_open(&self, at: usize) -> bool {
        self.open(at).is_some()
    }

    fn hold_where(&mut self, is_held: impl Fn(&Self, usize) -> bool) {
        for index in 0..self.dots.len() {
            if self.marks[index] == Mark::Plain && is_held(self, self.dots[index]) {
                self.marks[index] = Mark::Held;
            }
        }
    }

    fn hold_titles(&mut self) {
        self.hold_where(|marked, dot| TITLES.iter().any(|title| marked.text[..dot].ends_with(title)));
    }

    fn hold_domains(&mut self) {
        self.hold_where(|marked, dot| DOMAINS.iter().any(|domain| marked.text[dot + 1..].starts_with(domain)));
    }

    /// `3.14`. The digit after one stop is not the digit before the next, so `1.2.3` ends after the `2`.
    fn hold_decimals(&mut self) {
        let mut taken = 0;
        for index in 0..self.dots.len() {
            let dot = self.dots[index];
            let is_decimal = self.byte(dot - 1).is_ascii_digit() && self.byte(dot + 1).is_ascii_digit();
            if self.marks[index] == Mark::Plain && dot > taken && is_decimal {
                self.marks[index] = Mark::Held;
                taken = dot + 2;
            }
        }
    }

    /// Two and more dots in a row end one sentence.
    fn hold_runs(&mut self) {
        let mut index = 0;
        while index < self.dots.len() {
            let mut last = index;
            let is_open = |index: usize| self.marks[index] == Mark::Plain;
            while is_open(index)
                && last + 1 < self.dots.len()
                && self.dots[last + 1] == self.dots[last] + 1
                && is_open(last + 1)
            {
                last += 1;
            }
            if last > index {
                self.marks[index..=last].fill(Mark::Held);
                self.ends[last] = true;
            }
            index = last + 1;
        }
    }

    fn hold_doctorate(&mut self) {
        for index in 0..self.dots.len() {
            let dot = self.dots[index];
            let second = self.open(dot + 2);
            if let (true, Some(second), true) = (self.is_open(dot), second, self.text[..dot].ends_with("Ph"))
                && self.byte(dot + 1) == b'D'
            {
                self.marks[index] = Mark::Held;
                self.marks[second] = Mark::Held;
            }
        }
    }

    /// A letter that stands alone: after white space and before a space, or after a space.
    fn hold_single_letters(&mut self, is_strict: bool) {
        self.hold_where(|marked, dot| {
            if !marked.letter(dot - 1) {
                return false;
            }
            let before = marked.text[..dot - 1].chars().next_back();
            if is_strict { before.is_some_and(is_space) && marked.byte(dot + 1) == b' ' } else { before == Some(' ') }
        });
    }

    /// `U.S. He`: the sentence ends with the acronym.
    fn end_after_acronyms(&mut self) {
        for index in 0..self.dots.len() {
            let dot = self.dots[index];
            let is_acronym = dot >= 4
                && self.byte(dot - 1).is_ascii_uppercase()
                && self.is_open(dot - 2)
                && self.byte(dot - 3).is_ascii_uppercase();
            if self.marks[index] == Mark::Plain
                && is_acronym
                && self.byte(dot + 1) == b' '
                && opener(&self.text[dot + 2..]).is_some()
            {
                self.ends[index] = true;
            }
        }
    }

    /// `a.m.`, `U.S.A.`: so many letters, each with its stop.
    fn hold_initials(&mut self, letters: usize) {
        let mut taken = 0;
        for index in 0..self.dots.len() {
            let dot = self.dots[index];
            let is_initial = |stop: usize| self.is_open(stop) && self.letter(stop - 1);
            if dot > taken && (0..letters).all(|nth| is_initial(dot + 2 * nth)) {
                // Only letters stand between, so these are the next full stops.
                self.marks[index..index + letters].fill(Mark::Held);
                taken = dot + 2 * (letters - 1) + 1;
            }
        }
    }

    /// `Acme Inc. He`: the sentence ends and loses its stop. Any other `Inc.` ends nothing.
    fn end_after_companies(&mut self) {
        let mut taken = 0;
        for index in 0..self.dots.len() {
            let dot = self.dots[index];
            let Some(_) = self.company(dot).filter(|start| *start >= taken && self.is_open(dot)) else { continue };
            let opened = if self.byte(dot + 1) == b' ' { opener(&self.text[dot + 2..]) } else { None };
            if let Some(length) = opened {
                self.marks[index] = Mark::Dropped;
                self.ends[index] = true;
                taken = dot + 2 + length;
            }
        }
        self.hold_where(|marked, dot| marked.company(dot).is_some());
    }

    /// Where the space before a company's abbreviation stands.
    fn company(&self, dot: usize) -> Option<usize> {
        let before = &self.text[..dot];
        COMPANIES.iter().find_map(|company| before.strip_suffix(company)?.strip_suffix(' ').map(str::len))
    }

    /// The text with held stops and ends written into it, and marks moved out of quotes.
    fn finish(self) -> String {
        let mut text = String::with_capacity(self.text.len() + 2 * self.dots.len());
        let mut from = 0;
        for (index, &dot) in self.dots.iter().enumerate() {
            text.push_str(&self.text[from..dot]);
            match self.marks[index] {
                Mark::Plain => text.push('.'),
                Mark::Held => text.push(HELD),
                Mark::Dropped => {}
            }
            if self.ends[index] {
                text.push(END);
            }
            from = dot + 1;
        }
        text.push_str(&self.text[from..]);
        for (inside, outside) in [(".”", "”."), (".\"", "\"."), ("!\"", "\"!"), ("?\"", "\"?")] {
            if text.contains(inside) {
                text = text.replace(inside, outside);
            }
        }
        text
    }
}

/// How long the opener at the begin of a text is, white space after a whole word included.
fn opener(text: &str) -> Option<usize> {
    let word = |word: &&str| {
        let space = text.strip_prefix(*word)?.chars().next().filter(|character| is_space(*character))?;
        Some(word.len() + space.len_utf8())
    };
    let open = OPENERS.iter().find(|opener| text.starts_with(**opener)).map(|opener| opener.len());
    open.or_else(|| OPENING_WORDS.iter().find_map(word))
}

fn cut(marked: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sentence = String::new();
    for character in marked.chars() {
        match character {
            HELD => sentence.push('.'),
            END => found.push(strip(&std::mem::take(&mut sentence)).to_owned()),
            '.' | '?' | '!' => {
                sentence.push(character);
                found.push(strip(&std::mem::take(&mut sentence)).to_owned());
            }
            other => sentence.push(other),
        }
    }
    let rest = strip(&sentence);
    if !rest.is_empty() {
        found.push(rest.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_domains_initials_and_doctorates_hold_their_stops() {
        assert_eq!(sentences("Dr. Who met Mrs. Jones. They left."), ["Dr. Who met Mrs. Jones.", "They left."]);
        assert_eq!(sentences("See example.com now. Done."), ["See example.com now.", "Done."]);
        assert_eq!(sentences("It is 5 p.m. now. At a.m. too."), ["It is 5 p.m. now.", "At a.m. too."]);
        assert_eq!(sentences("Mr. T. is here. A. B. C."), ["Mr. T. is here.", "A. B. C."]);
        assert_eq!(sentences("She has a Ph.D. in math. Good"), ["She has a Ph.D. in math.", "Good"]);
    }

    #[test]
    fn a_digit_belongs_to_one_decimal_alone() {
        assert_eq!(sentences("Pi is 3.14. Not 1.2.3."), ["Pi is 3.14.", "Not 1.2.", "3."]);
    }

    #[test]
    fn acronyms_and_companies_end_before_a_pronoun() {
        assert_eq!(sentences("The U.S. He left. The U.S. army."), ["The U.S.", "He left.", "The U.S. army."]);
        assert_eq!(sentences("Acme Inc. He left. Acme Inc. stock."), ["Acme Inc", "He left.", "Acme Inc. stock."]);
    }

    #[test]
    fn dots_in_a_row_end_one_sentence_and_other_marks_each_their_own() {
        assert_eq!(sentences("Wait... what? Hi!? Ok"), ["Wait...", "what?", "Hi!", "?", "Ok"]);
        assert_eq!(sentences("..."), ["..."]);
    }

    #[test]
    fn marks_move_out_of_quotes() {
        assert_eq!(sentences("He said \"no.\" Then \"go!\""), ["He said \"no\".", "Then \"go\"!"]);
        assert_eq!(sentences("“Yes.” he said."), ["“Yes”.", "he said."]);
    }

    #[test]
    fn lines_run_on_and_blank_text_has_no_sentence() {
        assert_eq!(sentences("one\ntwo.\n\nthree"), ["one two.", "three"]);
        assert!(sentences("").is_empty() && sentences(" \n").is_empty());
    }
}
