//! Licences of rows as the header of a card names them.
//!
//! Rows carry SPDX expressions; the header wants ids of a fixed list in lower case. What the list does not have is
//! `other`, what is not known is `unknown`; the card's body always shows the expression itself.

/// Ids that the header knows.
const KNOWN: [&str; 72] = [
    "afl-3.0",
    "agpl-3.0",
    "apache-2.0",
    "apple-ascl",
    "artistic-2.0",
    "bigcode-openrail-m",
    "bigscience-bloom-rail-1.0",
    "bigscience-openrail-m",
    "bsd",
    "bsd-2-clause",
    "bsd-3-clause",
    "bsd-3-clause-clear",
    "bsl-1.0",
    "c-uda",
    "cc",
    "cc-by-2.0",
    "cc-by-2.5",
    "cc-by-3.0",
    "cc-by-4.0",
    "cc-by-nc-2.0",
    "cc-by-nc-3.0",
    "cc-by-nc-4.0",
    "cc-by-nc-nd-3.0",
    "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-2.0",
    "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0",
    "cc-by-nd-4.0",
    "cc-by-sa-3.0",
    "cc-by-sa-4.0",
    "cc0-1.0",
    "cdla-permissive-1.0",
    "cdla-permissive-2.0",
    "cdla-sharing-1.0",
    "creativeml-openrail-m",
    "ecl-2.0",
    "epl-1.0",
    "epl-2.0",
    "etalab-2.0",
    "eupl-1.1",
    "eupl-1.2",
    "gemma",
    "gfdl",
    "gpl",
    "gpl-2.0",
    "gpl-3.0",
    "isc",
    "lgpl",
    "lgpl-2.1",
    "lgpl-3.0",
    "llama2",
    "llama3",
    "llama3.1",
    "llama3.2",
    "llama3.3",
    "llama4",
    "lppl-1.3c",
    "mit",
    "mpl-2.0",
    "ms-pl",
    "ncsa",
    "odbl",
    "odc-by",
    "ofl-1.1",
    "openrail",
    "osl-3.0",
    "pddl",
    "postgresql",
    "unknown",
    "unlicense",
    "wtfpl",
    "zlib",
];

/// Ids for the header of one expression, `AND` and `OR` taken apart; an empty expression is not known.
pub fn header_ids(expression: &str) -> Vec<String> {
    let words: Vec<&str> = expression
        .split(|character: char| character.is_whitespace() || "()".contains(character))
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return vec!["unknown".to_owned()];
    }
    if words.iter().any(|word| word.eq_ignore_ascii_case("with")) {
        return vec!["other".to_owned()];
    }
    let licenses =
        words.into_iter().filter(|word| !(word.eq_ignore_ascii_case("and") || word.eq_ignore_ascii_case("or")));
    let mut ids: Vec<String> = licenses.map(header_id).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn header_id(license: &str) -> String {
    let lower = license.to_ascii_lowercase();
    let bare = lower.strip_suffix("-only").or_else(|| lower.strip_suffix("-or-later")).unwrap_or(&lower);
    let bare = match bare {
        "odc-by-1.0" => "odc-by",
        "odbl-1.0" => "odbl",
        "pddl-1.0" => "pddl",
        "gfdl-1.1" | "gfdl-1.2" | "gfdl-1.3" => "gfdl",
        other => other,
    };
    if KNOWN.contains(&bare) { bare.to_owned() } else { "other".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_ids_of_the_header() {
        assert_eq!(header_ids("MIT"), ["mit"]);
        assert_eq!(header_ids("MIT AND (CC-BY-4.0 OR Apache-2.0)"), ["apache-2.0", "cc-by-4.0", "mit"]);
        assert_eq!(header_ids("GPL-3.0-or-later"), ["gpl-3.0"]);
        assert_eq!(header_ids("LicenseRef-house"), ["other"]);
        assert_eq!(header_ids("GPL-2.0-only WITH Classpath-exception-2.0"), ["other"]);
        assert_eq!(header_ids(" "), ["unknown"]);
    }
}
