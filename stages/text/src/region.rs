//! Finds the parts of a text where repetition is ordinary: code fences, LaTeX arrays, drawings, table rows.

/// One line of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The line without white space at either end.
    pub(crate) text: &'a str,
    /// Byte position of the line's start in the whole text.
    pub(crate) start: usize,
    /// Byte position of the next line's start.
    pub(crate) next: usize,
    /// Whether the line belongs to code, an array, a drawing or a table.
    pub(crate) is_exempt: bool,
}

/// All lines of `text` in order.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut fence: Option<&str> = None;
    let mut depth = 0_usize;
    for piece in text.split_inclusive('\n') {
        let next = start + piece.len();
        let line = piece.trim();
        let mut is_exempt = fence.is_some() || depth > 0 || is_table_row(line);
        match fence {
            None => {
                fence = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
                is_exempt |= fence.is_some();
            }
            Some(mark) if line.starts_with(mark) => fence = None,
            Some(_) => {}
        }
        if fence.is_none() {
            let count = |marks: [&str; 2]| marks.into_iter().map(|mark| line.matches(mark).count()).sum::<usize>();
            let (begins, ends) = (count(["\\begin{", "[asy]"]), count(["\\end{", "[/asy]"]));
            is_exempt |= begins > 0 && begins > ends;
            depth = (depth + begins).saturating_sub(ends);
        }
        lines.push(Line { text: line, start, next, is_exempt });
        start = next;
    }
    lines
}

/// A row of a Markdown table, or of a LaTeX array that stands on one line.
fn is_table_row(line: &str) -> bool {
    line.starts_with('|') || line.matches('|').count() >= 3 || line.matches('&').count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_arrays_and_tables_are_exempt() {
        let text = "prose\n```python\nx = 1\n```\n\\begin{array}{cc}\n1 & 2 \\\\\n\\end{array}\nmore\n| a | b |\nend";
        let exempt: Vec<bool> = lines(text).iter().map(|line| line.is_exempt).collect();
        assert_eq!(exempt, [false, true, true, true, true, true, true, false, true, false]);
        assert_eq!(lines(text).last().map(|line| line.next), Some(text.len()));
    }
}
