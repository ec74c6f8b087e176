//! Claims about repetition: what must be found, and what only looks like it.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn rule(text: &str) -> Option<&'static str> {
    find(text, None, &RepetitionRules::default()).map(|finding| finding.rule)
}

const PROSE: &str = "We are asked for the number of ways to seat five people around a round table so that two \
of them are never neighbours. First count all arrangements up to rotation, which gives twenty four. Then treat \
the two people as one block, which leaves four objects and six rotations, times two for the order inside. \
Subtracting leaves twelve arrangements, and that is the number we were looking for. ";

#[test]
fn ordinary_prose_passes() {
    assert_eq!(rule(PROSE), None);
}

#[test]
fn a_loop_at_the_end_of_a_long_trace_is_found_and_its_span_starts_there() {
    let mut text = String::new();
    for step in 0..400 {
        write!(text, "Step {step}: the value {} leads to another value {}. ", step * 17 + 3, step * step).unwrap();
    }
    let start = text.len();
    text.push_str(&"Wait, let me check this once more. ".repeat(60));
    let finding = find(&text, None, &RepetitionRules::default()).unwrap();
    assert_eq!(finding.rule, "tail_loop");
    assert!(finding.span.0 >= start - 12 && finding.span.0 <= start + 40, "{finding:?} {start}");
}

#[test]
fn a_loop_cut_inside_a_word_is_found() {
    let text = format!("{PROSE}{}Therefore the num", "Therefore the number is twelve. ".repeat(30));
    assert_eq!(rule(&text), Some("tail_loop"));
}

#[test]
fn a_chinese_loop_without_spaces_is_found() {
    let text =
        format!("小明有三十元，买了一条鱼，剩下六元。{}", "所以这条鱼的价格是二十四元，我们再检查一遍。".repeat(12));
    assert_eq!(rule(&text), Some("tail_loop"));
}

#[test]
fn a_loop_of_symbols_or_line_breaks_with_symbols_is_found() {
    assert_eq!(rule(&format!("{PROSE}{}", "!".repeat(4000))), Some("tail_loop"));
    assert_eq!(rule(&format!("{PROSE}{}", "\n> =".repeat(200))), Some("tail_loop"));
}

#[test]
fn a_repeated_paragraph_with_another_end_is_found_by_its_ngrams() {
    let text = format!("{PROSE}{PROSE}{PROSE}Something else stands at the very end of it.");
    assert_eq!(rule(&text), Some("ngram_repetition"));
}

#[test]
fn repeated_lines_between_others_are_found() {
    let mut text = String::new();
    for step in 0..20 {
        writeln!(text, "Let us think about it again.\nNow number {step} gives {}, a new value.", step * step).unwrap();
    }
    assert_eq!(rule(&text), Some("duplicate_lines"));
}

#[test]
fn careful_case_analysis_passes() {
    let mut text = String::from("We go through all residues modulo thirteen.\n\n");
    for case in 0..13 {
        writeln!(
            text,
            "Case {case}: if $n \\equiv {case} \\pmod{{13}}$, then $n^2 \\equiv {} \\pmod{{13}}$, so this case {}.\n",
            case * case % 13,
            if case * case % 13 == 4 { "is possible" } else { "is impossible" }
        )
        .unwrap();
    }
    assert_eq!(rule(&text), None);
}

#[test]
fn tables_arrays_and_code_pass() {
    let mut table = String::from("The truth table:\n\n| p | q | r | value |\n|---|---|---|---|\n");
    for row in 0..64 {
        writeln!(table, "| {} | {} | {} | {} |", row & 1, row >> 1 & 1, row >> 2 & 1, row >> 3 & 1).unwrap();
    }
    table.push_str("\nSo the formula is satisfiable, but not a tautology.");
    assert_eq!(rule(&table), None);

    let rows = "0 & 0 & 0 & 0 & 0 \\\\\n".repeat(12);
    let array = format!("{PROSE}\n\\[\n\\begin{{pmatrix}}\n{rows}\\end{{pmatrix}}\n\\]\nSo its rank is zero.\n{PROSE}");
    let array = array.replacen(PROSE, "Consider this matrix.", 1);
    assert_eq!(rule(&array), None);

    let code =
        "    for row in range(len(grid)):\n        for column in range(len(grid[0])):\n            pass\n".repeat(6);
    assert_eq!(rule(&format!("Here is the program.\n```python\n{code}print(grid)\n```\nIt prints the grid.")), None);
}

#[test]
fn an_open_reasoning_block_is_unfinished() {
    assert_eq!(rule("<think>\nLet me see, the first"), Some("unfinished_think"));
    assert_eq!(rule("<think>\nOne and one.\n</think>\nThe answer is 2."), None);
    assert_eq!(rule("The tag `<think>` opens a block of reasoning."), None);
}

#[test]
fn nothing_behind_the_reasoning_is_an_empty_response() {
    assert_eq!(rule(""), Some("empty_response"));
    assert_eq!(rule(" \n\t"), Some("empty_response"));
    assert_eq!(rule("<think>\nIt is 2.\n</think>\n\n"), Some("empty_response"));
    assert_eq!(rule("2"), None);
}

#[test]
fn a_response_that_only_repeats_its_prompt_is_found() {
    let prompt = PROSE;
    let found = find(PROSE, Some(prompt), &RepetitionRules::default()).map(|finding| finding.rule);
    assert_eq!(found, Some("prompt_repeat"));
    let answered = format!("{PROSE} {}", PROSE.replace("the", "some").replace("two", "three"));
    assert_eq!(find(&answered, Some(prompt), &RepetitionRules::default()), None);
    assert_eq!(find("12", Some("12"), &RepetitionRules::default()), None);
}

#[test]
fn boilerplate_refusals_are_found_in_english_and_chinese() {
    for text in [
        "I'm sorry, but I can't assist with that request.",
        "I’m sorry, but I can’t help with that.",
        "<think>\nIs it allowed?\n</think>\n\nI apologize, but as an AI language model, I am not able to provide medical advice.",
        "As an AI language model, I cannot browse the internet.",
        "I cannot fulfill this request.",
        "很抱歉，我无法回答这个问题。",
        "作为一个人工智能语言模型，我不能提供这方面的帮助。",
    ] {
        let finding = find(text, None, &RepetitionRules::default());
        assert_eq!(finding.map(|finding| finding.rule), Some("refusal"), "{text}");
    }
    for text in [
        "Dear Anna, I am sorry that I missed your birthday. I was on a ship and could not call.",
        "The sum cannot be negative, so the answer is 4.",
        "Sorry for the confusion above: the product is 12, since we cannot divide by zero. The answer is \\boxed{12}.",
        "抱歉，上面算错了，正确答案是24元。",
        "这个数不能被3整除，所以答案是7。",
    ] {
        assert_eq!(rule(text), None, "{text}");
    }
    let rules = RepetitionRules { reject_refusals: false, ..RepetitionRules::default() };
    assert_eq!(find("I cannot fulfill this request.", None, &rules), None);
}

#[test]
fn a_finder_forgets_the_text_before() {
    let rules = RepetitionRules::default();
    let mut finder = Finder::new(&rules);
    let many =
        [PROSE.to_owned(), PROSE.repeat(3) + "An end.", PROSE.to_owned(), format!("{PROSE}{}", "x y z ".repeat(99))];
    let found: Vec<Option<&str>> =
        many.iter().map(|text| finder.find(text, None).map(|finding| finding.rule)).collect();
    assert_eq!(found, [None, Some("ngram_repetition"), None, Some("tail_loop")]);
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let wrong = RepetitionRules { max_repeated_share: 1.5, ..RepetitionRules::default() };
    assert!(wrong.validate().unwrap_err().to_string().contains("max_repeated_share"));
    assert!(RepetitionRules::default().validate().is_ok());
    let parsed: RepetitionRules = serde_json::from_str("{\"ngram\": 8}").unwrap();
    assert_eq!(parsed.ngram.get(), 8);
    assert!(serde_json::from_str::<RepetitionRules>("{\"n_gram\": 8}").is_err());
}

proptest! {
    #[test]
    fn any_text_gets_a_verdict_with_a_valid_span(
        text in "(\\PC|\n|ab ab |</?think>|```\n|\\\\begin\\{|&|0 ){0,200}",
        prompt in "\\PC{0,60}",
    ) {
        let rules =
            RepetitionRules { min_ngrams: 1, min_lines: 1, tail_short_tokens: 4, ..RepetitionRules::default() };
        if let Some(finding) = find(&text, Some(&prompt), &rules) {
            prop_assert!(RULES.contains(&finding.rule));
            prop_assert!(text.get(finding.span.0..finding.span.1).is_some());
            prop_assert!((0.0..=1.0).contains(&finding.figure));
        }
    }

    #[test]
    fn the_longest_periodic_suffix_is_the_one_a_search_finds(tokens in prop::collection::vec(0_u64..3, 0..24)) {
        let mut longest = 0;
        for length in 1..=tokens.len() {
            let suffix = &tokens[tokens.len() - length..];
            for period in 1..=length / 3 {
                if (period..length).all(|at| suffix[at] == suffix[at - period]) {
                    longest = longest.max(length);
                }
            }
        }
        prop_assert_eq!(tail::periodic_suffix(&tokens, 3, &mut Vec::new()), longest);
    }
}

#[test]
fn a_word_without_end_is_a_loop_and_a_long_key_is_none() {
    for ending in
        ["ha".repeat(300), "0".repeat(1_000), "а".repeat(400), format!("{}.", "no".repeat(200)), "a".repeat(50_000)]
    {
        let text = format!("So the answer is {ending}");
        let finding = find(&text, None, &RepetitionRules::default()).unwrap();
        assert_eq!(finding.rule, "tail_loop", "{ending}");
        assert!(text.get(finding.span.0..finding.span.1).is_some_and(|loops| ending.contains(loops)), "{finding:?}");
    }
    let letter =
        |at: u64| char::from(b"abcdefghijklmnopqrstuvwxyz"[usize::try_from(crate::ngram::mix(at) % 26).unwrap()]);
    assert_eq!(rule(&format!("The key is {}", (0..400).map(letter).collect::<String>())), None);
    assert_eq!(rule(&format!("One and a hundred and fifty zeros is the number 1{}", "0".repeat(150))), None);
}

#[test]
fn a_short_answer_that_says_what_cannot_be_is_no_refusal() {
    for answer in [
        "Unfortunately, we cannot write 7 as a sum of two squares, so the answer is 0.",
        "Unfortunately the equation cannot be solved over the reals. There are 0 solutions.",
    ] {
        assert_eq!(rule(answer), None, "{answer}");
    }
    assert_eq!(rule("Unfortunately, I cannot help with that."), Some("refusal"));
    assert_eq!(rule("I'm sorry, but this request cannot be completed."), Some("refusal"));
}
