//! LaTeX commands: signs, symbols, functions, text groups, environments.

use super::{
    lexer::{LexError, Lexer, Token, closing_brace},
    tables::{FUNCTIONS, LAYOUT, SIGNS, SYMBOLS, TEXT_COMMANDS},
    word::number_set,
};

const MAX_NESTED_TEXT: usize = 8;

impl<'a> Lexer<'a> {
    pub(super) fn command(&mut self, depth: usize) -> Result<(), LexError> {
        self.at += 1;
        let Some(letter) = self.peek() else {
            return Ok(());
        };
        if letter == '\\' {
            // `\\frac` is `\frac` that was escaped once too often, unless rows are being separated
            let after = self.text.get(self.at + 1..).unwrap_or("");
            let name = command_name(after);
            let brace = self.environments == 0 && after.starts_with(['{', '}']);
            if self.environments == 0 && (is_known(name) || brace) {
                return Ok(());
            }
            self.at += 1;
            if !(self.environments == 0 && after.starts_with([',', ';', '!', ' '])) {
                self.push(Token::Sign('⏎'));
            }
            return Ok(());
        }
        if !letter.is_ascii_alphabetic() {
            self.at += letter.len_utf8();
            match letter {
                '{' => self.push(Token::Sign('⦃')),
                '}' => self.push(Token::Sign('⦄')),
                '%' => self.push(Token::Sign('%')),
                '|' => self.push(Token::Sign('|')),
                '_' | '&' => self.push(Token::Sign(letter)),
                _ => {}
            }
            return Ok(());
        }
        let name = command_name(self.rest());
        self.at += name.len();
        self.named(name, depth)
    }

    pub(super) fn named(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
        if TEXT_COMMANDS.contains(&name) {
            return self.text_group(name, depth);
        }
        if name == "begin" || name == "end" {
            let kind = self.group().unwrap_or("");
            if name == "begin" {
                self.environments += 1;
                let rows = is_row_environment(kind) || self.opens_system(kind);
                let columns = self.rest().trim_start();
                if columns.starts_with('{')
                    && columns.get(1..).is_some_and(|inner| {
                        inner.split('}').next().is_some_and(|spec| spec.chars().all(|mark| "lcr|@ ".contains(mark)))
                    })
                {
                    self.group();
                }
                self.push(Token::Sign(if rows { '⦗' } else { '⟦' }));
            } else {
                self.environments = self.environments.saturating_sub(1);
                self.push(Token::Sign('⟧'));
            }
        } else if LAYOUT.contains(&name) {
            if matches!(name, "hspace" | "vspace" | "phantom" | "hphantom" | "color") {
                self.group();
            }
            if matches!(name, "left" | "right") && self.rest().trim_start().starts_with('.') {
                self.at = self.text.len() - self.rest().trim_start().len() + 1;
            }
        } else if let Some((_, sign)) = SIGNS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Sign(*sign));
        } else if let Some((_, symbol)) = SYMBOLS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Symbol((*symbol).into()));
        } else if let Some((_, function)) = FUNCTIONS.iter().find(|(command, _)| *command == name) {
            self.push(Token::Function((*function).into()));
        } else {
            self.push(Token::Symbol(format!("\\{name}")));
        }
        Ok(())
    }

    /// Whether an array stands behind a brace that nothing closes, as systems of equations are often set.
    fn opens_system(&mut self, kind: &str) -> bool {
        let opens = kind == "array"
            && self.tokens.last() == Some(&Token::Sign('⦃'))
            && self.rest().contains("\\right.")
            && !self.rest().contains("\\}");
        if opens {
            self.tokens.pop();
            self.brackets = self.brackets.saturating_sub(1);
        }
        opens
    }

    pub(super) fn text_group(&mut self, name: &str, depth: usize) -> Result<(), LexError> {
        let Some(content) = self.group() else {
            return if self.rest().trim_start().starts_with('{') { Err(LexError::Unbalanced) } else { Ok(()) };
        };
        let content = content.trim();
        let doubled = matches!(name, "mathbb" | "mathbf" | "Bbb");
        if let Some(symbol) =
            Some(content).filter(|_| doubled).and_then(number_set).filter(|_| name != "mathbf" || content != "C")
        {
            self.push(Token::Symbol(symbol.into()));
            return Ok(());
        }
        if depth >= MAX_NESTED_TEXT {
            return Err(LexError::Unbalanced);
        }
        let mut single = content.chars();
        if matches!(name, "mathbf" | "boldsymbol" | "bm") && matches!(content, "i" | "j" | "k") {
            self.push(Token::Symbol(format!("hat({content})")));
            return Ok(());
        }
        if let (Some(letter), None) = (single.next(), single.next())
            && letter.is_alphabetic()
            && (matches!(letter, 'i' | 'e' | 'x' | 'y' | 'j' | 'k' | 'n') || !self.measures())
        {
            self.push(Token::Symbol(letter.to_string()));
            return Ok(());
        }
        let mut inner = Lexer::new(content, self.reading, self.environments);
        inner.run(!matches!(name, "boxed" | "fbox" | "ensuremath" | "underline"), depth + 1)?;
        if matches!(name, "mathrm" | "mathit") {
            // upright `i` and `e` are the constants wherever they stand
            for token in &mut inner.tokens {
                if let Token::Word(word) = token
                    && matches!(word.as_str(), "i" | "e" | "d" | "x" | "y")
                {
                    *token = Token::Symbol(word.clone());
                }
            }
        }
        self.doubts.commas |= inner.doubts.commas;
        for token in inner.tokens {
            self.push(token);
        }
        Ok(())
    }

    /// Whether a unit may stand here: behind a number, or behind another unit with its power.
    fn measures(&self) -> bool {
        let mut raised = false;
        for token in self.tokens.iter().rev().take(8) {
            match token {
                Token::Word(word) => {
                    return super::tables::UNITS.contains(&word.to_ascii_lowercase().as_str())
                        || word.chars().nth(1).is_none();
                }
                Token::Number(_) if !raised && matches!(self.tokens.last(), Some(Token::Number(_))) => return true,
                Token::Sign('}') => raised = true,
                Token::Sign('/' | '*' | '^' | '{' | '-') | Token::Number(_) => {}
                _ => return false,
            }
        }
        false
    }

    /// Takes a `{…}` group that starts here and gives its content.
    pub(super) fn group(&mut self) -> Option<&'a str> {
        let trimmed = self.rest().trim_start();
        let start = self.text.len() - trimmed.len();
        let end = closing_brace(self.text, start)?;
        self.at = end + 1;
        self.text.get(start + 1..end)
    }
}

fn command_name(text: &str) -> &str {
    let end = text.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    let run = &text[..end];
    // `\quadx` and `\cdotx`: a known command glued to a letter
    if !is_known(run) {
        for known in ["quad", "qquad", "cdot", "times", "pi", "in", "le", "ge"] {
            if run.len() == known.len() + 1 && run.starts_with(known) {
                return &text[..known.len()];
            }
        }
    }
    run
}

fn is_known(name: &str) -> bool {
    TEXT_COMMANDS.contains(&name)
        || LAYOUT.contains(&name)
        || matches!(name, "begin" | "end")
        || SIGNS.iter().any(|(known, _)| *known == name)
        || SYMBOLS.iter().any(|(known, _)| *known == name)
        || FUNCTIONS.iter().any(|(known, _)| *known == name)
}

/// Environments whose rows are a list and not a matrix.
fn is_row_environment(kind: &str) -> bool {
    matches!(
        kind.trim_end_matches('*'),
        "cases" | "dcases" | "rcases" | "aligned" | "align" | "gather" | "gathered" | "split" | "eqnarray"
    )
}
