//! Merges the card with a README that is there: the marked section is replaced, the header merged key by key, and all
//! else is kept to the byte.

use crate::header;

const BEGIN: &str = "<!-- pipeline:begin -->";
const END: &str = "<!-- pipeline:end -->";
const HEADER: &str = "<!-- pipeline:header\n";
const HEADER_END: &str = "-->\n";

/// The README with our header (`yaml`) and section (`body`, Markdown). A new one begins with `title`.
///
/// # Errors
/// In words, when marks or header of the existing README cannot be made out.
pub fn merge(existing: Option<&str>, title: &str, yaml: &str, body: &str) -> Result<String, String> {
    let section = format!("{BEGIN}\n{HEADER}{yaml}{HEADER_END}\n{body}{END}\n");
    let Some(existing) = existing.filter(|text| !text.trim().is_empty()) else {
        return Ok(format!("---\n{yaml}---\n\n# {title}\n\n{section}"));
    };
    let (header, rest) = split_header(existing)?;
    let (before, last, after) = split_section(rest)?;
    let last = last.and_then(last_header).unwrap_or_default();
    let header = header::merge(header, last, yaml)?;
    let gap = match before {
        before if before.ends_with("\n\n") || before.is_empty() => "",
        before if before.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    Ok(format!("---\n{header}---\n{before}{gap}{section}{after}"))
}

/// Header and the rest.
fn split_header(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Ok(("", text));
    }
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            return Ok((&text[first.len()..at], &text[at + line.len()..]));
        }
        at += line.len();
    }
    Err("its header has no closing `---`".to_owned())
}

/// What stands before our section, the section, and what stands after it.
fn split_section(text: &str) -> Result<(&str, Option<&str>, &str), String> {
    let Some(begin) = text.find(BEGIN) else {
        if text.contains(END) {
            return Err(format!("`{END}` stands without `{BEGIN}`; remove it or add the other"));
        }
        return Ok((text, None, ""));
    };
    let inside = begin + BEGIN.len();
    let Some(length) = text[inside..].find(END) else {
        return Err(format!("`{BEGIN}` stands without `{END}` after it; remove it or add the other"));
    };
    let after = &text[inside + length + END.len()..];
    let after = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or(after);
    Ok((&text[..begin], Some(&text[inside..inside + length]), after))
}

fn last_header(section: &str) -> Option<&str> {
    let start = section.find(HEADER)? + HEADER.len();
    let length = section[start..].find(HEADER_END)?;
    Some(&section[start..start + length])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const YAML: &str = "license: mit\n";

    #[test]
    fn a_section_is_replaced_and_the_text_around_it_stays() {
        let first = merge(None, "a", YAML, "## Old\n\n").unwrap();
        assert!(first.starts_with("---\nlicense: mit\n---\n\n# a\n\n<!-- pipeline:begin -->\n"));
        let hand =
            first.replace("# a\n", "# A better title\n\nWritten by hand: 手写。\n") + "\n## Citation\n\nNobody yet.";
        let second = merge(Some(&hand), "a", "license: cc0-1.0\n", "## New\n\n").unwrap();
        assert!(
            second.starts_with("---\nlicense: cc0-1.0\n---\n\n# A better title\n\nWritten by hand: 手写。\n\n<!--")
        );
        assert!(second.ends_with("<!-- pipeline:end -->\n\n## Citation\n\nNobody yet."));
        assert!(second.contains("## New") && !second.contains("## Old"));
    }

    #[test]
    fn a_readme_without_header_or_section_gets_both() {
        let merged = merge(Some("# Mine\nText"), "a", YAML, "body\n").unwrap();
        assert_eq!(
            merged,
            "---\nlicense: mit\n---\n# Mine\nText\n\n<!-- pipeline:begin -->\n<!-- pipeline:header\nlicense: mit\n-->\n\nbody\n<!-- pipeline:end -->\n"
        );
    }

    #[test]
    fn broken_marks_are_refused() {
        for broken in ["<!-- pipeline:begin -->\ntext", "text\n<!-- pipeline:end -->", "---\nlicense: mit\n# no end"] {
            assert!(merge(Some(broken), "a", YAML, "body\n").is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn merging_twice_changes_nothing_more(hand in "(---\n|tags:\n|- x\n|license: y\n|# T\n|文字|\n|\r\n|<!-- pipeline:begin -->|<!-- pipeline:end -->\n){0,10}") {
            if let Ok(once) = merge(Some(&hand), "a", YAML, "body\n") {
                prop_assert_eq!(merge(Some(&once), "a", YAML, "body\n"), Ok(once.clone()));
            }
        }

        #[test]
        fn hand_written_text_is_never_lost(before in "[a-z\n#文 ]{0,30}", after in "[a-z\n#文 ]{0,30}") {
            let first = merge(Some(&before), "a", YAML, "one\n").unwrap();
            let edited = first + &after;
            let second = merge(Some(&edited), "a", "license: isc\n", "two\n").unwrap();
            prop_assert!(second.ends_with(&after));
            prop_assert!(before.trim().is_empty() || second.contains(&before));
        }
    }
}
