//! Comma- and tab-separated tables, read as Python's `csv` reads them.
//!
//! The details decide verdicts: a blank line is a row without fields, a quote inside an unquoted field is
//! an ordinary character, and what follows a closing quote is added to the field.

/// Longest field in characters, the default limit of the original.
const LONGEST: usize = 131_072;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    RowStart,
    FieldStart,
    Field,
    Quoted,
    /// After a quote inside a quoted field: its end, or the first of a doubled quote.
    QuoteSeen,
    RowEnd,
}

/// Reads a table.
pub(super) struct Reader {
    separator: char,
    state: State,
    field: String,
    row: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Reader {
    /// The rows of a text; `None` where a row ends inside a line or a field is too long.
    pub fn rows(text: &str, separator: char) -> Option<Vec<Vec<String>>> {
        let mut reader =
            Self { separator, state: State::RowStart, field: String::new(), row: Vec::new(), rows: Vec::new() };
        for line in text.split_inclusive('\n') {
            for character in line.chars() {
                reader.take(character)?;
            }
            reader.end_line();
        }
        // A quoted field that is never closed still counts.
        if reader.state == State::Quoted {
            reader.end_field();
            reader.end_row();
        }
        Some(reader.rows)
    }

    fn take(&mut self, character: char) -> Option<()> {
        let is_line_end = matches!(character, '\n' | '\r');
        match self.state {
            State::RowEnd if is_line_end => {}
            State::RowEnd => return None,
            State::RowStart if is_line_end => self.state = State::RowEnd,
            State::Quoted if character == '"' => self.state = State::QuoteSeen,
            State::QuoteSeen if character == '"' => self.add(character, State::Quoted)?,
            State::Quoted => self.add(character, State::Quoted)?,
            _ if is_line_end => {
                self.end_field();
                self.state = State::RowEnd;
            }
            _ if character == self.separator => self.end_field(),
            State::RowStart | State::FieldStart if character == '"' => self.state = State::Quoted,
            _ => self.add(character, State::Field)?,
        }
        Some(())
    }

    fn add(&mut self, character: char, state: State) -> Option<()> {
        self.field.push(character);
        self.state = state;
        (self.field.len() <= LONGEST || self.field.chars().count() <= LONGEST).then_some(())
    }

    fn end_field(&mut self) {
        self.row.push(std::mem::take(&mut self.field));
        self.state = State::FieldStart;
    }

    fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
        self.state = State::RowStart;
    }

    fn end_line(&mut self) {
        match self.state {
            State::Quoted => {}
            State::RowStart | State::RowEnd => self.end_row(),
            State::FieldStart | State::Field | State::QuoteSeen => {
                self.end_field();
                self.end_row();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Vec<String>> {
        Reader::rows(text, ',').unwrap_or_default()
    }

    #[test]
    fn a_blank_line_is_a_row_without_fields() {
        assert_eq!(read("a,b\n\nc,"), [vec!["a", "b"], vec![], vec!["c", ""]]);
        assert_eq!(read("\n"), [Vec::<String>::new()]);
        assert!(read("").is_empty());
    }

    #[test]
    fn quoted_fields_hold_separators_line_ends_and_doubled_quotes() {
        assert_eq!(read("a,\"b\nc\",\"d\"\"e,\"\n"), [["a", "b\nc", "d\"e,"]]);
        assert_eq!(read("a,\"b"), [["a", "b"]]);
    }

    #[test]
    fn a_quote_inside_a_field_is_an_ordinary_character() {
        assert_eq!(read("a,b\"c\"d"), [["a", "b\"c\"d"]]);
        assert_eq!(read("\"a\"b,c"), [["ab", "c"]]);
    }

    #[test]
    fn a_return_ends_a_row_only_at_the_end_of_its_line() {
        assert_eq!(read("a,b\r\nc,d\r"), [["a", "b"], ["c", "d"]]);
        assert!(Reader::rows("a\rb", ',').is_none());
    }
}
