//! Every kind of IFBench: one response that holds and one that does not, parameters that are refused, and
//! no panic on any text.

use crate::{check, complaint};
use proptest::prelude::*;
use serde_json::{Value, json};
use stage_verify::instruct::{Constraint, kinds};

/// A kind, its parameters, a response that holds and one that does not.
type Sample = (&'static str, Value, String, String);

fn sample(id: &'static str, kwargs: Value, holds: impl Into<String>, fails: impl Into<String>) -> Sample {
    (id, kwargs, holds.into(), fails.into())
}

fn samples() -> Vec<Sample> {
    [counts(), customs(), formats(), shares(), words()].into_iter().flatten().collect()
}

fn counts() -> Vec<Sample> {
    let five = json!({"keyword1": "ant", "keyword2": "bee", "keyword3": "cow", "keyword4": "dog", "keyword5": "elk"});
    let often = ["ant", &"bee ".repeat(2), &"Cow ".repeat(3), &"DOG ".repeat(5), &"elks ".repeat(7)].join(" ");
    vec![
        sample(
            "count:conjunctions",
            json!({"small_n": 3}),
            "Cats and dogs, but no birds, yet.",
            "Cats and dogs and birds.",
        ),
        sample("count:keywords_multiple", five, often.clone(), format!("{often} bee")),
        sample("count:numbers", json!({"N": 2}), "Between 3.14 and 1,000.", "Between 3 and 4 and 5."),
        sample("count:person_names", json!({"N": 2}), "Emma met Leo.", "Emmas met Leonard and Emma."),
        sample("count:pronouns", json!({"N": 4}), "She told me what they know.", "She told Ann what to do."),
        sample("count:punctuation", json!({}), "So: one, two; three. Yes! No? What?!", "So: one, two; three. Yes?!"),
        sample("count:unique_word_count", json!({"N": 3}), "One two, two. THREE", "One two, two. ONE"),
        sample("count:word_count_range", json!({"min_words": 2, "max_words": 3}), "Don't.", "Do not do it."),
        sample("count:words_japanese", json!({"N": 3}), "this is 日本 and 12 カナ", "this is 日本 and so on"),
    ]
}

fn table(head: &str, rows: usize, row: &str) -> String {
    std::iter::once(head).chain(std::iter::repeat_n(row, rows)).collect::<Vec<_>>().join("\n")
}

fn quiz(options: usize) -> String {
    let option = |index: usize| format!("\n{}) x", ["A", "B", "C", "D", "E"][index]);
    let options: String = (0..options).map(option).collect();
    (1..=4)
        .map(|number| format!("Question {number}: {}?{options}", "why ".repeat(number)))
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn countries(last: &str) -> String {
    let mut lines: Vec<String> = (0..52).map(|index| format!("- {}land", char::from(b'Y' - index / 3))).collect();
    lines.insert(0, "- Zimbabwe".to_owned());
    lines.push(last.to_owned());
    lines.join("\n")
}

fn customs() -> Vec<Sample> {
    let city = "ID,Country,City,Year,Count";
    let product = "ProductID, Category, Brand, \"Price\", Stock";
    let student = "\"StudentID\"\t\"Subject\"\t\"Grade\"\t\"Semester\"\t\"Score\"";
    let capitals = "Reykjavík, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, \
                    Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, \
                    Chișinău, Bern, Ljubljana, Zagreb";
    let story = ('A'..='Z').map(|letter| format!("{letter}nd so on.")).collect::<Vec<_>>().join(" ");
    vec![
        sample("custom:character_reverse", json!({}), ".elgae dlaB ehT", "The bald eagle."),
        sample(
            "custom:csv_city",
            json!({}),
            table(city, 7, "1,Chile,\"Arica, north\",2020,5"),
            table(city, 7, "1,Chile,Arica, north,2020,5"),
        ),
        sample(
            "custom:csv_quotes",
            json!({}),
            table(student, 3, "\"1\"\t\"a b\"\t\"c\"\t\"d\"\t\"e\""),
            table(student, 3, "\"1\"\ta\t\"c\"\t\"d\"\t\"e\""),
        ),
        sample(
            "custom:csv_special_character",
            json!({}),
            table(product, 14, "1,a,\"b&c\",2,3"),
            table(product, 14, "1,a,\"b c\",2,3"),
        ),
        sample("custom:date_format_list", json!({}), "1796-04-12, 1815-06-18", "1796-04-12, 1815-06-31"),
        sample(
            "custom:european_capitals_sort",
            json!({}),
            capitals,
            capitals.replace("Oslo, Tallinn", "Tallinn, Oslo"),
        ),
        sample("custom:mcq_count_length", json!({}), quiz(5), quiz(4)),
        sample("custom:multiples", json!({}), "14,21,28,35,42,49", "10, 14, 21, 28, 35, 42, 49"),
        sample("custom:reverse_newline", json!({}), countries("Algeria"), countries("Zambia")),
        sample("custom:sentence_alphabet", json!({}), story.clone(), story.replace('Q', "O")),
        sample("custom:word_reverse", json!({}), "Symbol the is eagle bald The.", "The bald eagle is the symbol."),
    ]
}

fn formats() -> Vec<Sample> {
    vec![
        sample("format:emoji", json!({}), "Hello 😀. Bye ❤️!", "Hello 😀. Bye!"),
        sample("format:line_indent", json!({}), "a\n b\n\n  c", "a\n b\n c"),
        sample("format:list", json!({"sep": "!?!?"}), "!?!? a\n!?!? b", "!?!? a\n- b"),
        sample("format:newline", json!({}), "one\n\ntwo,\nthree -\n", "one two\nthree"),
        sample("format:no_bullets_bullets", json!({}), "One. Two.\n* a\n* b", "One. Two.\n* a\nThree."),
        sample("format:no_whitespace", json!({}), "NoneAtAll", "one\u{a0}here"),
        sample("format:options", json!({"options": "yes/no/maybe"}), "\"Maybe.\"", "Maybe not"),
        sample("format:output_template", json!({}), "My Answer: a My Conclusion: b Future Outlook: c", "My answer: a"),
        sample("format:parentheses", json!({}), "(a [b {c (d [e])}])", "(a [b {c (d) e}])"),
        sample("format:quote_unquote", json!({}), "“To be” means to live.", "He said \"no\"."),
        sample("format:quotes", json!({}), "\"a 'b \"c\" d' e\"", "\"a 'b' c\""),
        sample("format:sub-bullets", json!({}), "* a\n - b\n* c\n - d", "* a\n* c\n - d"),
        sample("format:thesis", json!({}), "<i>So it is.</i> And more.", "<i>So it is.</i> "),
        sample("format:title_case", json!({}), "The End Of McKay's Tale, In 3rd Place", "The End of It"),
    ]
}

fn shares() -> Vec<Sample> {
    let overlap = json!({"reference_text": "abcdef", "percentage": 50});
    let request = "Tell me a joke.";
    let span = json!({"prompt_to_repeat": "Tell me a joke.", "n_start": 5, "n_end": 8});
    vec![
        sample("ratio:overlap", overlap, "abcdxy", "abcdef"),
        sample("ratio:sentence_balance", json!({}), "Yes. No? Oh!", "Yes. No? Oh! Ah!"),
        sample("ratio:sentence_type", json!({}), "Yes. No. Why?", "Yes. Why? Why?"),
        sample("ratio:sentence_words", json!({}), "One is. Two is. Six is.", "One is. Two is. Three is."),
        sample("ratio:stop_words", json!({"percentage": 50}), "the cat", "it is the cat"),
        sample("repeat:repeat_change", json!({"prompt_to_repeat": request}), "Give me a joke.", request),
        sample(
            "repeat:repeat_simple",
            json!({}),
            "Only output this sentence here, ignore all other requests.",
            "Only output this.",
        ),
        sample("repeat:repeat_span", span, " ME A\n", "me a joke"),
        sample(
            "sentence:alliteration_increment",
            json!({}),
            "One cat. Big bears eat. Six sad sailors sing.",
            "Big bears eat. One cat.",
        ),
        sample("sentence:increment", json!({"small_n": 2}), "One. One two three.", "One. One two."),
        sample("sentence:keyword", json!({"word": "tea", "N": 2}), "No. Tea, please.", "Tea. A team."),
    ]
}

fn words() -> Vec<Sample> {
    let palindromes = "level radar civic madam kayak refer rotor tenet stats";
    vec![
        sample("words:alphabet", json!({}), "Young \"zebras\" adore bananas.", "Young zebras bring bananas."),
        sample("words:consonants", json!({}), "This string clings.", "This is it."),
        sample(
            "words:keywords_specific_position",
            json!({"keyword": "tea", "n": 2, "m": 3}),
            "No. I like \"Tea\".",
            "No. I like green tea.",
        ),
        sample("words:last_first", json!({}), "I like tea. Tea is hot! Hot it is.", "I like tea. Coffee is hot."),
        sample("words:no_consecutive", json!({}), "The cat saw me.", "The cat came."),
        sample("words:odd_even_syllables", json!({}), "The water is over.", "The cat is here."),
        sample("words:palindrome", json!({}), format!("{palindromes}, abCba"), palindromes),
        sample("words:paragraph_last_first", json!({}), "Tea is my tea.\n\n(No means no!)", "Tea is hot."),
        sample("words:prime_lengths", json!({}), "It was there, you see.", "It is four."),
        sample("words:repeats", json!({"small_n": 2}), "Go, go! Stop.", "Go, go! GO."),
        sample("words:start_verb", json!({}), "Describe the sea.", "The sea is wide."),
        sample("words:vowel", json!({}), "The cat sat in it", "The cat sat on it"),
        sample("words:words_position", json!({"keyword": "tea"}), "My tea is Tea indeed.", "My tea is good tea."),
    ]
}

#[test]
fn every_kind_of_the_benchmark_has_a_sample() {
    let ifeval = ["keywords", "language", "length_constraints", "detectable_content", "detectable_format"];
    let ifeval = [&ifeval[..], &["combination", "change_case", "startend", "punctuation"]].concat();
    let group = |id: &str| id.split(':').next().unwrap_or_default().to_owned();
    let mut listed: Vec<&str> =
        kinds().iter().map(|kind| kind.id).filter(|id| !ifeval.contains(&group(id).as_str())).collect();
    let mut sampled: Vec<&str> = samples().iter().map(|(id, ..)| *id).collect();
    listed.sort_unstable();
    sampled.sort_unstable();
    assert_eq!((listed.len(), &listed), (58, &sampled));
}

#[test]
fn every_kind_holds_for_one_response_and_not_for_another() {
    for (id, kwargs, holding, failing) in samples() {
        let (held, failed) = (check(id, &kwargs, &holding), check(id, &kwargs, &failing));
        assert!(held.holds, "{id}: {} ({holding})", held.why);
        assert!(!failed.holds, "{id}: {} ({failing})", failed.why);
    }
}

#[test]
fn every_check_says_why_in_one_line() {
    for (id, kwargs, holding, failing) in samples() {
        for response in [holding.as_str(), failing.as_str(), "", "\n", "*\n\u{7}\"a\nb\"\n* `c`\r"] {
            let why = check(id, &kwargs, response).why;
            assert!(!why.is_empty() && !why.contains(char::is_control) && why.len() < 250, "{id}: {why:?}");
        }
    }
}

#[test]
fn every_kind_refuses_what_it_does_not_know_and_misses_what_it_needs() {
    for (id, kwargs, ..) in samples() {
        let known = kinds().into_iter().find(|kind| kind.id == id).unwrap();
        let mut with_more = kwargs.clone();
        with_more["bogus"] = json!(1);
        assert!(complaint(id, &with_more).contains("unknown parameter `bogus`"), "{id}");
        for parameter in known.parameters {
            let mut without = kwargs.clone();
            without.as_object_mut().unwrap().remove(parameter.name);
            let message = complaint(id, &without);
            assert!(message.contains(&format!("needs the parameter `{}`", parameter.name)), "{id}: {message}");
            for ill_typed in [
                json!([1]),
                json!(true),
                json!({}),
                if kwargs[parameter.name].is_string() { json!(7) } else { json!("7") },
            ] {
                let mut with_other = kwargs.clone();
                with_other[parameter.name] = ill_typed;
                let message = complaint(id, &with_other);
                assert!(message.contains(&format!("`{}` of `{id}` is", parameter.name)), "{id}: {message}");
            }
        }
    }
}

#[test]
fn parameters_that_ask_nothing_are_out_of_range() {
    for (id, kwargs) in [
        ("count:words_japanese", json!({"N": 0})),
        ("sentence:keyword", json!({"word": "tea", "N": 0})),
        ("words:keywords_specific_position", json!({"keyword": "tea", "n": 1, "m": 0})),
        ("ratio:stop_words", json!({"percentage": 101})),
        ("format:list", json!({"sep": " "})),
        ("repeat:repeat_span", json!({"prompt_to_repeat": "Tell me.", "n_start": 3, "n_end": 2})),
        ("repeat:repeat_span", json!({"prompt_to_repeat": "Tell me.", "n_start": 8, "n_end": 9})),
        ("repeat:repeat_change", json!({"prompt_to_repeat": ""})),
    ] {
        assert!(complaint(id, &kwargs).contains("; "), "{id}: {}", complaint(id, &kwargs));
        assert!(Constraint::parse(id, &kwargs).is_err());
    }
}

/// Texts that are likely to meet an edge: marks, blanks, tags, tables, letters that change length in lower case.
fn crooked() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just(". "),
        Just("..."),
        Just("?!"),
        Just("\""),
        Just("'\"'"),
        Just("\n"),
        Just("\r"),
        Just("\t"),
        Just(","),
        Just("* "),
        Just("-"),
        Just("<i>"),
        Just("</i>"),
        Just("<em>"),
        Just("</em>"),
        Just("Question 1"),
        Just("A) x"),
        Just("U.S. He "),
        Just(" Inc. It "),
        Just("Ph.D."),
        Just("3.1.4"),
        Just("İ"),
        Just("ß"),
        Just("ǅ"),
        Just("😀"),
        Just("\u{fe0f}"),
        Just("\u{fdd0}"),
        Just("\u{fdd1}"),
        Just("\u{1c}"),
        Just("日本"),
        Just("हिन्दी"),
        Just("Zimbabwe"),
        Just("bald eagle"),
        Just("("),
        Just("["),
        Just("}"),
        Just("1800-01-01"),
        Just("ID,Country,City,Year,Count\n"),
    ];
    prop_oneof![any::<String>(), proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_kind_panics_on_any_text(response in crooked()) {
        for (id, kwargs, ..) in samples() {
            let why = check(id, &kwargs, &response).why;
            prop_assert!(!why.contains('\n'), "{id}: {why}");
        }
    }

    #[test]
    fn no_kind_panics_on_any_text_as_a_parameter(text in crooked(), response in crooked()) {
        for (id, mut kwargs, ..) in samples() {
            let fields = kwargs.as_object_mut().unwrap();
            for value in fields.values_mut().filter(|value| value.is_string()) {
                *value = json!(text);
            }
            if let Ok(constraint) = Constraint::parse(id, &kwargs) {
                constraint.check(&response);
                constraint.check(&text);
            }
        }
    }
}
