//! The YAML header of a dataset card, and merging it key by key with one that is there.
//!
//! A header is edited by hand as often as the text below it, so keys, comments and forms that are not ours stay as
//! they are to the byte. What an export wrote last is kept in the card; a key that still reads so is ours and is
//! replaced, another one was changed by hand: lists then get our items added, data files our split, and what only we
//! can know (the size) is replaced.

use std::fmt::Write;

/// Keys whose value is a fact of the rows.
const FACTS: [&str; 1] = ["size_categories"];
/// Keys whose value is a list, or one item.
const LISTS: [&str; 3] = ["license", "language", "task_categories"];
/// Files of the split that an export writes.
pub const DATA_FILES: &str = "data/train-*";

/// What the header says about the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Licence ids, see [`crate::license::header_ids`].
    pub licenses: Vec<String>,
    /// Language codes.
    pub languages: Vec<String>,
    /// Rows.
    pub rows: u64,
}

impl Facts {
    /// The header as it would be written anew.
    pub fn yaml(&self) -> String {
        let mut text = list_block("license", &self.licenses);
        text += &list_block("task_categories", &["text-generation".to_owned()]);
        text += &list_block("language", &self.languages);
        text += &list_block("size_categories", &[size_category(self.rows)]);
        text += "configs:\n";
        text + &default_config("")
    }
}

fn default_config(indent: &str) -> String {
    format!("{indent}- config_name: default\n{indent}  data_files:\n{}", train_split(&format!("{indent}  ")))
}

fn train_split(indent: &str) -> String {
    format!("{indent}- split: train\n{indent}  path: {DATA_FILES}\n")
}

fn list_block(key: &str, items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] if key == "license" => format!("{key}: {only}\n"),
        items => items.iter().fold(format!("{key}:\n"), |mut text, item| {
            let _ = writeln!(text, "- {item}");
            text
        }),
    }
}

fn size_category(rows: u64) -> String {
    let edges = [
        (1_000, "n<1K"),
        (10_000, "1K<n<10K"),
        (100_000, "10K<n<100K"),
        (1_000_000, "100K<n<1M"),
        (10_000_000, "1M<n<10M"),
        (100_000_000, "10M<n<100M"),
        (1_000_000_000, "100M<n<1B"),
    ];
    edges.iter().find(|(edge, _)| rows < *edge).map_or("n>1B", |(_, name)| name).to_owned()
}

/// A top-level key with all lines of its value; without a key: what stands before the first one.
struct Block<'a> {
    key: Option<&'a str>,
    text: &'a str,
}

fn blocks(yaml: &str) -> Vec<Block<'_>> {
    let mut starts = vec![(0, None)];
    let mut at = 0;
    for line in yaml.split_inclusive('\n') {
        if let Some(key) = top_level_key(line) {
            starts.push((at, Some(key)));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([yaml.len()]).collect::<Vec<_>>();
    let parts = starts.iter().zip(ends);
    parts.map(|((start, key), end)| Block { key: *key, text: &yaml[*start..end] }).collect()
}

fn top_level_key(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t', '#', '-', '\n', '\r']) {
        return None;
    }
    let (key, value) = line.split_once(':')?;
    (value.is_empty() || value.starts_with([' ', '\t', '\n', '\r'])).then(|| key.trim().trim_matches(['"', '\'']))
}

/// Merges `ours` into `existing`; `last` is what the last export wrote, empty if there was none.
///
/// # Errors
/// In words, when `configs` was written in a form that our split cannot be added to.
pub fn merge(existing: &str, last: &str, ours: &str) -> Result<String, String> {
    let (last, ours) = (blocks(last), blocks(ours));
    let find = |blocks: &[Block<'_>], key| -> Option<String> {
        blocks.iter().find(|block| block.key == Some(key)).map(|block| block.text.to_owned())
    };
    let mut merged = String::with_capacity(existing.len() + 256);
    let mut seen = Vec::new();
    for block in blocks(existing) {
        let Some(key) = block.key else {
            merged += block.text;
            continue;
        };
        seen.push(key);
        let before = find(&last, key);
        match find(&ours, key) {
            Some(new) => merged += &merge_block(key, block.text, before.as_deref(), &new)?,
            // a key that only the last export had, such as languages that are no longer there
            None if before.as_deref().is_some_and(|before| is_same(before, block.text)) => {}
            None => merged += block.text,
        }
    }
    if !merged.is_empty() && !merged.ends_with('\n') {
        merged.push('\n');
    }
    for block in ours {
        if block.key.is_some_and(|key| !seen.contains(&key)) {
            merged += block.text;
        }
    }
    Ok(merged)
}

fn merge_block(key: &str, existing: &str, before: Option<&str>, new: &str) -> Result<String, String> {
    if is_same(existing, new) {
        return Ok(existing.to_owned());
    }
    if FACTS.contains(&key) || before.is_some_and(|before| is_same(before, existing)) {
        return Ok(new.to_owned());
    }
    if key == "configs" {
        return merge_configs(existing);
    }
    if !LISTS.contains(&key) {
        return Ok(existing.to_owned());
    }
    let (mine, new) = (items(existing), items(new));
    let before = before.map(items).unwrap_or_default();
    let mut all: Vec<String> =
        mine.iter().filter(|item| !before.contains(item) || new.contains(item)).cloned().collect();
    for item in new {
        // a licence that a person named says more than that ours is not known
        let is_answered = item == "unknown" && !all.is_empty();
        if !all.contains(&item) && !is_answered {
            all.push(item);
        }
    }
    Ok(if all == mine { existing.to_owned() } else { list_block(key, &all) })
}

fn is_same(one: &str, other: &str) -> bool {
    let lines = |text: &'_ str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    lines(one) == lines(other)
}

/// Items of a list in either form, or the one value.
fn items(block: &str) -> Vec<String> {
    let clean = |text: &str| {
        let text = text.split_once(" #").map_or(text, |(text, _)| text);
        text.trim().trim_matches(['"', '\'']).to_owned()
    };
    let (_, inline) = block.lines().next().unwrap_or_default().split_once(':').unwrap_or_default();
    let inline = inline.trim();
    let found: Vec<String> = if let Some(list) = inline.strip_prefix('[') {
        list.split(']').next().unwrap_or_default().split(',').map(clean).collect()
    } else if inline.is_empty() || inline.starts_with('#') {
        block.lines().skip(1).filter_map(|line| line.trim_start().strip_prefix("- ")).map(clean).collect()
    } else {
        vec![clean(inline)]
    };
    found.into_iter().filter(|item| !item.is_empty()).collect()
}

/// Adds the split that an export writes to configurations made by hand.
fn merge_configs(existing: &str) -> Result<String, String> {
    let lines: Vec<&str> = existing.lines().collect();
    if lines.iter().any(|line| is_key(line, "path") && value_of(line) == DATA_FILES) {
        return Ok(existing.to_owned());
    }
    let by_hand = format!("give `path: {DATA_FILES}` to a split `train` of `configs` by hand");
    if !value_of(lines.first().unwrap_or(&"")).is_empty() {
        return Err(format!("`configs` is not written one entry a line; {by_hand}"));
    }
    let outer = lines.iter().skip(1).find(|line| is_item(line)).map_or(0, |line| indent_of(line));
    let Some((start, end)) = default_entry(&lines, outer) else {
        let gap = if existing.ends_with('\n') { "" } else { "\n" };
        let entry = default_config(&" ".repeat(outer));
        return Ok(format!("{existing}{gap}{entry}"));
    };
    let files = (start..end).find(|at| is_key(lines[*at], "data_files"));
    let Some(files) = files.filter(|at| value_of(lines[*at]).is_empty()) else {
        return Err(format!("`data_files` of the default configuration is not a list of splits; {by_hand}"));
    };
    if lines[files..end].iter().any(|line| is_key(line, "split") && value_of(line) == "train") {
        return Err(format!("split `train` of the default configuration has other files; {by_hand}"));
    }
    let first = lines[files + 1..end].iter().find(|line| is_item(line));
    let indent = first.map_or(outer + 2, |line| indent_of(line));
    let mut merged = String::new();
    for (at, line) in lines.iter().enumerate() {
        merged += line;
        merged.push('\n');
        if at == files {
            merged += &train_split(&" ".repeat(indent));
        }
    }
    Ok(merged)
}

/// Lines of the entry named `default`, the last one excluded; entries are indented by `outer`.
fn default_entry(lines: &[&str], outer: usize) -> Option<(usize, usize)> {
    let is_entry = |line: &str| is_item(line) && indent_of(line) == outer;
    let named = lines.iter().position(|line| is_key(line, "config_name") && value_of(line) == "default")?;
    let start = lines[..=named].iter().rposition(|line| is_entry(line))?;
    let next = lines[start + 1..].iter().position(|line| is_entry(line));
    Some((start, next.map_or(lines.len(), |at| start + 1 + at)))
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_item(line: &str) -> bool {
    line.trim_start().starts_with("- ")
}

/// Whether a line, inside a list or not, gives a value to `key`.
fn is_key(line: &str, key: &str) -> bool {
    let line = line.trim_start().trim_start_matches("- ");
    line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
}

fn value_of(line: &str) -> &str {
    let value = line.split_once(':').map_or("", |(_, value)| value);
    value.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(licenses: &[&str], languages: &[&str], rows: u64) -> String {
        let texts = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Facts { licenses: texts(licenses), languages: texts(languages), rows }.yaml()
    }

    #[test]
    fn an_untouched_header_is_replaced_by_the_new_one() {
        let (old, new) = (ours(&["mit"], &["en"], 3), ours(&["mit", "cc-by-4.0"], &["en", "zh"], 3_000));
        assert_eq!(merge(&old, &old, &new).unwrap(), new);
        assert_eq!(merge(&new, &new, &new).unwrap(), new);
        assert_eq!(merge("", "", &new).unwrap(), new);
        assert_eq!(merge(&old, &old, &ours(&["mit"], &[], 3)).unwrap(), ours(&["mit"], &[], 3));
    }

    #[test]
    fn keys_and_comments_of_a_person_stay_to_the_byte() {
        let hand = "# my notes\npretty_name: \"Grade  school\"\nlicense: [cc-by-4.0] # chosen\ntags:\n  - math\nlanguage: fr\n";
        let merged = merge(hand, "", &ours(&["mit"], &["en"], 5)).unwrap();
        assert!(merged.starts_with(
            "# my notes\npretty_name: \"Grade  school\"\nlicense:\n- cc-by-4.0\n- mit\ntags:\n  - math\n"
        ));
        assert!(merged.contains("language:\n- fr\n- en\n"));
        assert!(merged.contains("size_categories:\n- n<1K\n"));
        assert!(merged.contains(DATA_FILES));
    }

    #[test]
    fn a_licence_named_by_hand_answers_an_unknown_one() {
        let last = ours(&["unknown"], &["en"], 5);
        let hand = last.replace("license: unknown", "license: cc0-1.0");
        assert_eq!(merge(&hand, &last, &last).unwrap(), hand);
    }

    #[test]
    fn splits_and_configurations_of_a_person_stay() {
        let hand = "configs:\n  - config_name: default\n    data_files:\n      - split: test\n        path: data/test-*\n  - config_name: hard\n    data_files: hard.jsonl\n";
        let merged = merge(hand, "", &ours(&["mit"], &["en"], 5)).unwrap();
        let wanted = "    data_files:\n      - split: train\n        path: data/train-*\n      - split: test\n        path: data/test-*\n  - config_name: hard\n    data_files: hard.jsonl\n";
        assert!(merged.contains(wanted), "{merged}");
        let again = merge(&merged, &ours(&["mit"], &["en"], 5), &ours(&["mit"], &["en"], 5)).unwrap();
        assert_eq!(again, merged);
        let hand = "configs:\n- config_name: hard\n  data_files: hard.jsonl\n";
        assert!(
            merge(hand, "", &ours(&["mit"], &[], 5))
                .unwrap()
                .contains("hard.jsonl\n- config_name: default\n  data_files:\n")
        );
    }

    #[test]
    fn a_form_that_cannot_be_merged_is_refused() {
        for hand in [
            "configs: [{config_name: default, data_files: x}]\n",
            "configs:\n- config_name: default\n  data_files: x.parquet\n",
            "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: x.parquet\n",
        ] {
            let message = merge(hand, "", &ours(&["mit"], &[], 5)).unwrap_err();
            assert!(message.contains("by hand"), "{message}");
        }
    }
}
