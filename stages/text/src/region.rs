//! Finds the parts of a text where repetition is ordinary: code fences, LaTeX arrays, drawings, table rows.

/// One line of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// Byte span of the line without white space at either end.
    pub(crate) text: (usize, usize),
    /// Byte position of the line's start in the whole text.
    pub(crate) start: usize,
    /// Byte position of the next line's start.
    pub(crate) next: usize,
    /// Whether the line belongs to code, an array, a drawing or a table.
    pub(crate) is_exempt: bool,
}

/// Writes all lines of `text`, in order, into `lines`.
pub(crate) fn lines(text: &str, lines: &mut Vec<Line>) {
    lines.clear();
    let mut start = 0;
    let mut fence: Option<&str> = None;
    let mut depth = 0_usize;
    for piece in text.split_inclusive('\n') {
        let next = start + piece.len();
        let line = piece.trim();
        let from = start + (piece.len() - piece.trim_start().len()).min(piece.len() - line.len());
        let mut is_exempt = fence.is_some() || depth > 0 || is_table_row(line);
        match fence {
            None => {
                fence = match line.as_bytes() {
                    [b'`', b'`', b'`', ..] => Some("```"),
                    [b'~', b'~', b'~', ..] => Some("~~~"),
                    _ => None,
                };
                is_exempt |= fence.is_some();
            }
            Some(mark) if line.starts_with(mark) => fence = None,
            Some(_) => {}
        }
        if fence.is_none() {
            let (begins, ends) = environments(line.as_bytes());
            is_exempt |= begins > 0 && begins > ends;
            depth = (depth + begins).saturating_sub(ends);
        }
        lines.push(Line { text: (from, from + line.len()), start, next, is_exempt });
        start = next;
    }
}

/// A row of a Markdown table, or of a LaTeX array that stands on one line.
fn is_table_row(line: &str) -> bool {
    line.starts_with('|') || count(line, b'|') >= 3 || count(line, b'&') >= 2
}

/// How many arrays and drawings begin and end in a line.
fn environments(line: &[u8]) -> (usize, usize) {
    let (mut begins, mut ends) = (0, 0);
    for at in memchr::memchr2_iter(b'\\', b'[', line) {
        let rest = &line[at..];
        begins += usize::from(rest.starts_with(b"\\begin{") || rest.starts_with(b"[asy]"));
        ends += usize::from(rest.starts_with(b"\\end{") || rest.starts_with(b"[/asy]"));
    }
    (begins, ends)
}

/// How often an ASCII byte stands in a line.
fn count(line: &str, byte: u8) -> usize {
    line.as_bytes()
        .chunks(255)
        .map(|piece| usize::from(piece.iter().map(|other| u8::from(*other == byte)).sum::<u8>()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_arrays_and_tables_are_exempt() {
        let text = "prose\n```python\nx = 1\n```\n\\begin{array}{cc}\n1 & 2 \\\\\n\\end{array}\nmore\n| a | b |\n end ";
        let mut found = Vec::new();
        lines(text, &mut found);
        let exempt: Vec<bool> = found.iter().map(|line| line.is_exempt).collect();
        assert_eq!(exempt, [false, true, true, true, true, true, true, false, true, false]);
        assert_eq!(found.last().map(|line| (line.next, &text[line.text.0..line.text.1])), Some((text.len(), "end")));
    }

    #[test]
    fn bytes_of_long_lines_are_counted() {
        assert_eq!((count(&"&".repeat(1000), b'&'), count("", b'&')), (1000, 0));
    }
}
