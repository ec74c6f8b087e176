use serde::Deserialize;

use super::*;
use crate::dagfile::{
    PathSegment, key_place_of, nearest, param_error, parse_params, place_of, unknown_key, unknown_kind,
};

#[test]
fn a_wrong_parameter_is_shown_as_the_house_style_says() {
    let filler = "#\n".repeat(10);
    let text = format!("{filler}[stages.clean]\nkind = \"filter_language\"\ninputs = \"seeds\"\nmin_shares = 0.5\n");
    let dag = parse("datasets/math-sft/dag.toml", &text, &nothing).unwrap();
    let error = unknown_key(&dag.stages[0], "min_shares", &["scripts", "min_share"]);
    assert_eq!(
        error.render(&dag.sources),
        "\
error: unknown parameter `min_shares` of kind `filter_language`
  --> datasets/math-sft/dag.toml:14:1
   |
14 | min_shares = 0.5
   | ^^^^^^^^^^
hint: did you mean `min_share`?"
    );
}

#[test]
fn an_unknown_kind_section_and_key_name_the_nearest_one() {
    let dag = parsed("[stages.a]\nkind = \"filter_langage\"\n");
    let error = unknown_kind(&dag.stages[0], &["dedup", "filter_language"]);
    assert_eq!(
        error.render(&dag.sources),
        "\
error: unknown kind `filter_langage`
 --> dag.toml:2:8
  |
2 | kind = \"filter_langage\"
  |        ^^^^^^^^^^^^^^^^
hint: did you mean `filter_language`?"
    );
    assert_eq!(
        mistakes("[pipelin]\nname = \"x\"\n[run]\njosb = 2\nzzz = 1\n[budget]\ntoken = 3\n"),
        "\
error: unknown section `pipelin`
 --> dag.toml:1:2
  |
1 | [pipelin]
  |  ^^^^^^^
hint: did you mean `pipeline`?

error: unknown key `josb` in `[run]`
 --> dag.toml:4:1
  |
4 | josb = 2
  | ^^^^
hint: did you mean `jobs`?

error: unknown key `zzz` in `[run]`
 --> dag.toml:5:1
  |
5 | zzz = 1
  | ^^^

error: unknown key `token` in `[budget]`
 --> dag.toml:7:1
  |
7 | token = 3
  | ^^^^^
hint: did you mean `tokens`?"
    );
}

#[test]
fn carets_stand_under_wide_characters_and_tabs() {
    assert_eq!(
        mistakes("[stages.a]\nkind = \"x\"\n\tinputs = [ '种子', '数据集' ]\n[stages.'种子']\nkind = 'import'\n"),
        "\
error: unknown stage `数据集`
 --> dag.toml:3:19
  |
3 |     inputs = [ '种子', '数据集' ]
  |                        ^^^^^^^^"
    );
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_no_place() {
    let plain = "[run]\njobs = 0\n[pipeline]\nseed = -1\n";
    let windows = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    assert_eq!(mistakes(&windows), mistakes(plain));
    assert_eq!(
        mistakes(&windows),
        "\
error: `jobs` in `[run]` must be a whole number from 1 on
 --> dag.toml:2:8
  |
2 | jobs = 0
  |        ^

error: `seed` in `[pipeline]` must be a whole number from 0 on
 --> dag.toml:4:8
  |
4 | seed = -1
  |        ^^"
    );
}

#[test]
fn wrong_syntax_has_the_same_form() {
    assert_eq!(
        mistakes("[pipeline]\nname = math\nseed = 1\nseed = 2\n\n[stages.清洗]\n"),
        "\
error: not valid TOML: string values must be quoted, expected literal string
 --> dag.toml:2:8
  |
2 | name = math
  |        ^^^^

error: this key or table is defined twice
 --> dag.toml:4:1
  |
4 | seed = 2
  | ^^^^

error: not valid TOML: invalid unquoted key, expected letters, numbers, `-`, `_`
 --> dag.toml:6:9
  |
6 | [stages.清洗]
  |         ^^^^
hint: a key with other characters than a-z, A-Z, 0-9, `_` and `-` is written in quotes"
    );
    assert_eq!(
        mistakes("[stages.x"),
        "\
error: not valid TOML: unclosed table, expected `]`
 --> dag.toml:1:10
  |
1 | [stages.x
  |          ^"
    );
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_at_its_first_wrong_byte() {
    let files = Texts([("dag.toml".into(), b"[pipeline]\nname = \"caf\xe9\"\n".to_vec())].into());
    let Reading { dag, errors } = read(Path::new("dag.toml"), &files, &nothing);
    assert_eq!(
        errors.render(&dag.sources),
        "\
error: `dag.toml` is not UTF-8 text
 --> dag.toml:2:12
  |
2 | name = \"caf\u{fffd}\"
  |            ^
hint: save the file as UTF-8"
    );
}

#[test]
fn a_variable_that_is_not_set_is_shown_where_it_stands() {
    assert_eq!(
        mistakes("[models.m]\nbase_url = \"http://${TEACHER_HOST}/v1\"\n"),
        "\
error: variable `TEACHER_HOST` is not set
 --> dag.toml:2:20
  |
2 | base_url = \"http://${TEACHER_HOST}/v1\"
  |                    ^^^^^^^^^^^^^^^
hint: set it, or give a default: `${TEACHER_HOST:-…}`"
    );
}

#[test]
fn numbers_that_are_none_and_numbers_too_large_are_refused() {
    let text = "[stages.a]\nkind = \"x\"\na = nan\nb = -inf\nc = 1e999\nd = 18446744073709551616\n";
    let errors = parse("dag.toml", text, &nothing).unwrap_err().errors;
    let lines: Vec<usize> = errors.0.iter().filter_map(|error| error.place.as_ref()).map(|place| place.line).collect();
    assert_eq!(lines, [3, 4, 5, 6]);
    let dag = parsed("[stages.a]\nkind = \"x\"\nd = 18446744073709551615\ne = -9223372036854775808\n");
    assert_eq!(dag.stages[0].params, serde_json::json!({ "d": u64::MAX, "e": i64::MIN }));
}

#[test]
fn a_long_line_is_cut_around_the_place() {
    let text = format!("a = {{ b = \"{}\", inputs = nan, c = \"{}\" }}", "前".repeat(300), "z".repeat(300));
    let message = mistakes(&format!("[stages.x]\nkind = 'k'\n{text}\n"));
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines[1], " --> dag.toml:3:324");
    assert!(lines[3].chars().count() < 140, "{message}");
    assert!(lines[3].starts_with("3 | …前") && lines[3].ends_with("z…"), "{message}");
    let (shown, marks) = (lines[3].replace('前', "xx"), lines[4]);
    let marked: String = shown.chars().zip(marks.chars()).filter(|(_, mark)| *mark == '^').map(|(c, _)| c).collect();
    assert_eq!(marked, "nan", "{message}");
}

#[test]
fn characters_that_steer_a_terminal_are_not_repeated() {
    let message = mistakes("[\"\\u001b[31mx\\n\"]\n# \u{202e}\n");
    assert!(message.starts_with("error: unknown section `\\u{1b}[31mx\\n`"), "{message}");
    assert!(!message.contains('\u{1b}'));
}

#[test]
fn stage_names_fit_into_the_output_folder() {
    for name in ["a b", "a/b", ".store", "report.html", "a.b", "", "-x", "calls", "Runs", "try", "x\u{7}"] {
        let message = mistakes(&format!("[stages.{}]\nkind = 'x'\n", serde_json::json!(name)));
        assert!(message.contains("cannot name a stage"), "{name}: {message}");
    }
    for name in ["a", "清洗", "A-1_ß", "été"] {
        assert_eq!(mistakes(&format!("[stages.\"{name}\"]\nkind = 'x'\n")), "", "{name}");
    }
    assert_eq!(
        mistakes("[stages.\"a/b\"]\nkind = 'x'\n"),
        "\
error: `a/b` cannot name a stage: `/` is no letter, digit, `_` or `-`
 --> dag.toml:1:9
  |
1 | [stages.\"a/b\"]
  |         ^^^^^"
    );
}

#[test]
fn what_is_wrong_with_a_stage_is_all_reported_at_once() {
    assert_eq!(
        mistakes("[stages]\na = 3\n[stages.b]\ninputs = [1, 'x.']\nmax_errors = 2\n"),
        "\
error: `stages.a` must be a table, not a whole number
 --> dag.toml:2:1
  |
2 | a = 3
  | ^

error: stage `b` has no `kind`
 --> dag.toml:3:9
  |
3 | [stages.b]
  |         ^
hint: `pipeline kinds` lists them

error: an input must be the name of a stage, not a whole number
 --> dag.toml:4:11
  |
4 | inputs = [1, 'x.']
  |           ^

error: `x.` names no stage
 --> dag.toml:4:14
  |
4 | inputs = [1, 'x.']
  |              ^^^^
hint: an input is `stage` or `stage.output`

error: `max_errors` must be a share of rows from 0 to 1
 --> dag.toml:5:14
  |
5 | max_errors = 2
  |              ^"
    );
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the parsing is looked at")]
struct Params {
    min_share: f64,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the parsing is looked at")]
struct Rule {
    script: Script,
    weight: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Script {
    Latin,
    Han,
}

fn param_mistake(params: &str) -> String {
    let dag = parsed(&format!("[stages.a]\nkind = 'k'\n{params}"));
    let problem = parse_params::<Params>(&dag.stages[0].params).unwrap_err();
    param_error(&dag.stages[0], &problem).render(&dag.sources)
}

#[test]
fn problems_of_serde_are_put_back_to_their_place() {
    let head = |line: &str| line.lines().take(2).collect::<Vec<_>>().join("\n");
    let hint = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    let message = param_mistake("min_share = '0.5'\n");
    assert_eq!(
        head(&message),
        "error: parameter `min_share` of kind `k`: invalid type: string \"0.5\", expected f64\n --> dag.toml:3:13"
    );
    let message = param_mistake("");
    assert_eq!(head(&message), "error: missing parameter `min_share` of kind `k`\n --> dag.toml:1:9");
    let message = param_mistake("min_shar = 1\n");
    assert_eq!(head(&message), "error: unknown parameter `min_shar` of kind `k`\n --> dag.toml:3:1");
    assert_eq!(hint(&message), "hint: did you mean `min_share`?");
    let message = param_mistake("min_share = 1\nrules = [{ script = 'han', wieght = 1 }]\n");
    assert_eq!(head(&message), "error: unknown key `wieght` in `rules[0]`\n --> dag.toml:4:28");
    assert_eq!(hint(&message), "hint: did you mean `weight`?");
    let message = param_mistake("min_share = 1\n[[stages.a.rules]]\nscript = 'latn'\n");
    assert_eq!(
        head(&message),
        "error: parameter `rules[0].script` of kind `k`: unknown variant `latn`, expected `latin` or `han`\n \
         --> dag.toml:5:10"
    );
    assert_eq!(hint(&message), "hint: did you mean `latin`?");
    let message = param_mistake("min_share = 1\n[[stages.a.rules]]\nweight = 1\n");
    assert_eq!(head(&message), "error: missing parameter `rules[0].script` of kind `k`\n --> dag.toml:4:1");
    assert!(parse_params::<Params>(&serde_json::json!({ "min_share": 1 })).is_ok());
}

#[test]
fn a_path_that_is_not_written_falls_back_to_its_nearest_parent() {
    let dag = parsed("[stages.a]\nkind = 'k'\nx.y = [1, { z = 2 }]\n");
    let key = |name: &str| PathSegment::Key(name.into());
    let def = &dag.stages[0];
    let at = |path: &[PathSegment]| {
        let place = place_of(def, path);
        (place.line, place.column)
    };
    assert_eq!(at(&[key("x"), key("y"), PathSegment::Index(1), key("z")]), (3, 17));
    assert_eq!(at(&[key("x"), key("y"), PathSegment::Index(1), key("q")]), (3, 11));
    assert_eq!(at(&[key("x"), key("y"), PathSegment::Index(7)]), (3, 7));
    assert_eq!(at(&[key("x"), PathSegment::Index(0)]), (3, 1));
    assert_eq!(at(&[key("q")]), (1, 9));
    assert_eq!(at(&[]), (1, 9));
    assert_eq!(key_place_of(def, &[key("x"), key("y")]).column, 3);
}

#[test]
fn only_a_slip_of_the_pen_is_taken_for_another_name() {
    let known = ["temperature", "top_p", "n", "seed"];
    assert_eq!(nearest("temprature", &known), Some("temperature"));
    assert_eq!(nearest("Seed", &known), Some("seed"));
    assert_eq!(nearest("top-p", &known), Some("top_p"));
    assert_eq!(nearest("sede", &known), Some("seed"));
    for word in ["", "x", "max_tokens", &"t".repeat(1000)] {
        assert_eq!(nearest(word, &known), None, "{word}");
    }
}
