//! Tells a text's language by its script. Chinese and English are all that the card names; a text of another script
//! counts for neither, and one in another Latin language counts as English, since only letters are looked at.

/// Letters and words of some text, by script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scripts {
    /// Han characters; one is about one word.
    han: u64,
    /// Latin words of two letters or more. Commands such as `\frac` are none.
    latin: u64,
    /// Words and syllables of other scripts, of two letters or more.
    other: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Han,
    Latin,
    Other,
    None,
}

impl Scripts {
    /// Counts a text.
    pub fn add(&mut self, text: &str) {
        let (mut run, mut length, mut command, mut previous) = (Script::None, 0_u64, false, ' ');
        for character in text.chars() {
            let script = script_of(character);
            if script == Script::Han {
                self.han += 1;
            }
            if script == run {
                length += 1;
            } else {
                self.end_word(run, length, command);
                (run, length, command) = (script, 1, previous == '\\');
            }
            previous = character;
        }
        self.end_word(run, length, command);
    }

    fn end_word(&mut self, script: Script, letters: u64, command: bool) {
        if letters < 2 || command {
            return;
        }
        match script {
            Script::Latin => self.latin += 1,
            Script::Other => self.other += 1,
            Script::Han | Script::None => {}
        }
    }

    /// `zh`, `en`, or none of the two. A tie of Han characters and Latin words goes to `zh`: such a text is a
    /// Chinese one that quotes names.
    pub fn language(self) -> Option<&'static str> {
        if self.han > 0 && self.han >= self.latin && self.han >= self.other {
            return Some("zh");
        }
        (self.latin > 0 && self.latin >= self.other).then_some("en")
    }
}

fn script_of(character: char) -> Script {
    match character {
        'a'..='z' | 'A'..='Z' | '\u{c0}'..='\u{24f}' if character.is_alphabetic() => Script::Latin,
        '\0'..='\u{7f}' => Script::None,
        '々'
        | '〇'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{323af}' => Script::Han,
        _ if character.is_alphabetic() => Script::Other,
        _ => Script::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(text: &str) -> Option<&'static str> {
        let mut scripts = Scripts::default();
        scripts.add(text);
        scripts.language()
    }

    #[test]
    fn script_decides_and_formulas_belong_to_no_language() {
        assert_eq!(language("What is 1 + 1?"), Some("en"));
        assert_eq!(language("求和：$\\frac{\\sqrt{x}}{\\alpha}$"), Some("zh"));
        assert_eq!(language("小明有 3 apples"), Some("zh"));
        assert_eq!(language("$\\frac{1}{2} + x$"), None);
        assert_eq!(language("12 + 7 = ?"), None);
        assert_eq!(language("Сколько будет два плюс два?"), None);
        assert_eq!(language("りんごをたべますか"), None);
        assert_eq!(language(""), None);
        assert_eq!(language("a"), None);
        assert_eq!(language("ab"), Some("en"));
    }
}
