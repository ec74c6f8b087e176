//! Claims about contamination: what is found, what is a twin, and what is only ordinary wording.

use super::*;
use proptest::prelude::*;

fn item(id: &str, question: &str) -> EvalItem {
    EvalItem { set: "bench".to_owned(), id: id.to_owned(), question: question.to_owned(), answer: None }
}

fn index(questions: &[&str]) -> ContaminationIndex {
    let items = questions.iter().enumerate().map(|(id, question)| item(&id.to_string(), question)).collect();
    ContaminationIndex::build(items, ContaminationRules::default()).unwrap()
}

const QUESTION: &str = "A farmer keeps 36 sheep and 14 goats on a meadow. In spring each sheep gives 3 kilograms \
of wool and each goat gives 2 kilograms. How many kilograms of wool does the farmer get in spring?";

#[test]
fn a_question_in_lines_of_eight_words_is_found_whole() {
    let words: Vec<&str> = QUESTION.split_whitespace().collect();
    let wrapped = words.chunks(8).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n> ");
    let found = index(&[QUESTION]).find(&wrapped);
    let best = found.best().unwrap();
    assert!(best.score >= 1.0 && best.kind == MatchKind::Ngram && !best.numbers_differ);
}

#[test]
fn a_question_in_a_long_paragraph_is_found_with_its_span() {
    let before = "Here is some unrelated text about boats, harbours and winds. ".repeat(40);
    let document = format!("{before}{}. And more of it follows.", QUESTION.to_uppercase());
    let found = index(&[QUESTION]).find(&document);
    let best = found.best().unwrap();
    assert!(best.score >= 1.0);
    assert_eq!(best.span.0, before.len());
}

#[test]
fn half_of_a_long_question_is_found_and_a_shared_sentence_is_not() {
    let long = format!("{QUESTION} {}", QUESTION.replace("sheep", "cows").replace("goat", "horse"));
    let index = index(&[&long]);
    assert!(index.find(QUESTION).is_contaminated());
    let other =
        "In a village there are 5 wells. How many kilograms of wool does the farmer get in spring? Nobody knows.";
    assert!(!index.find(other).is_contaminated());
}

#[test]
fn other_numbers_make_a_twin_and_no_contamination() {
    let twin = QUESTION.replace("36", "48").replace("14", "9");
    let found = index(&[QUESTION]).find(&twin);
    assert!(!found.is_contaminated());
    assert_eq!(found.twins.len(), 1);
    assert!(found.twins[0].numbers_differ && found.twins[0].score >= 1.0);
    let both = format!("{twin}\n\n{QUESTION}");
    assert!(index(&[QUESTION]).find(&both).is_contaminated());
}

#[test]
fn a_chinese_question_is_found() {
    let question = "妈妈带了30元，买了一条鱼，剩6元，这条鱼多少钱？";
    let index = index(&[question]);
    assert!(index.find("请看下面的题目：妈妈带了30元,买了一条鱼,剩6元,这条鱼多少钱?请回答。").is_contaminated());
    let twin = index.find("妈妈带了50元，买了一条鱼，剩8元，这条鱼多少钱？");
    assert!(!twin.is_contaminated() && twin.twins.len() == 1);
    assert!(!index.find("妈妈带了一条鱼。").is_contaminated());
}

#[test]
fn short_items_match_whole_and_only_longer_ones_inside_text() {
    let index = index(&["What is the sum $12 + 7$?", "Compute $2^3$.", "鱼多少钱", QUESTION]);
    assert_eq!(index.counts().by_exact_match, 3);
    assert_eq!(index.find("what is the sum 12+7").best().unwrap().kind, MatchKind::Exact);
    assert!(index.find("Compute 2^3").is_contaminated());
    assert!(index.find("First tell me: what is the sum 12 + 7? Then rest.").is_contaminated());
    assert!(!index.find("First compute 2^3, then add one.").is_contaminated());
    assert!(!index.find("这条鱼多少钱呢").is_contaminated());
}

#[test]
fn another_operator_is_another_short_item() {
    let index = index(&["What is the sum 12 + 7?", QUESTION]);
    assert!(!index.find("What is the sum 12 - 7?").is_contaminated());
}

#[test]
fn an_index_that_can_find_nothing_is_an_error() {
    let build = |items| ContaminationIndex::build(items, ContaminationRules::default());
    assert!(matches!(build(vec![]), Err(TextError::EmptyIndex { items: 0, .. })));
    assert!(matches!(build(vec![item("1", " ?! ")]), Err(TextError::EmptyIndex { empty: 1, .. })));
    let short = build(vec![item("1", "What is 12 + 7?")]).unwrap_err();
    assert!(short.to_string().contains("set `ngram`"), "{short}");
    let other = EvalItem { set: "other".to_owned(), ..item("2", "") };
    assert!(matches!(build(vec![item("1", QUESTION), other]), Err(TextError::EmptySet { set }) if set == "other"));
    let rules = ContaminationRules { parts: Parts::Answer, ..ContaminationRules::default() };
    let short = EvalItem { answer: Some("42".to_owned()), ..item("1", QUESTION) };
    assert!(matches!(
        ContaminationIndex::build(vec![short], rules),
        Err(TextError::EmptyIndex { short_answers: 1, .. })
    ));
    let rules = ContaminationRules { min_coverage: 0.0, ..ContaminationRules::default() };
    assert!(matches!(ContaminationIndex::build(vec![item("1", QUESTION)], rules), Err(TextError::Parameter { .. })));
}

#[test]
fn answers_are_looked_for_when_asked() {
    let solution = "All sheep give 108 kilograms, all goats give 28 kilograms, and so the farmer gets 136 kilograms.";
    let eval = EvalItem { answer: Some(solution.to_owned()), ..item("1", QUESTION) };
    let rules = ContaminationRules { parts: Parts::QuestionAndAnswer, ..ContaminationRules::default() };
    let index = ContaminationIndex::build(vec![eval], rules).unwrap();
    assert_eq!(index.find(solution).best().unwrap().part, Part::Answer);
    assert_eq!(index.find(QUESTION).best().unwrap().part, Part::Question);
}

#[test]
fn the_self_test_finds_every_planted_item() {
    let planted = index(&[QUESTION, "妈妈带了30元，买了一条鱼，剩6元，这条鱼多少钱？", "Compute $2^3$."]);
    assert_eq!(planted.self_test().unwrap(), 8);
}

#[test]
fn an_instruction_behind_every_item_counts_for_none() {
    let suffix = "Let us think step by step and then write the final answer inside a box at the very end.";
    let subjects = ["sheep", "goats", "geese", "horses", "rabbits", "pigeons", "donkeys", "turkeys"];
    let bare = |subject: &str| {
        format!(
            "A farmer counts {subject} and {subject} feed while the {subject} keeper sells {subject} wool and {subject} milk"
        )
    };
    let questions: Vec<String> = subjects.iter().map(|subject| format!("{}. {suffix}", bare(subject))).collect();
    let index = index(&questions.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(index.counts().common_ngrams > 5 && index.counts().by_ngrams == 8, "{:?}", index.counts());
    let found = index.find(&format!("Answer this! {}?", bare("geese")));
    assert_eq!(found.best().map(|hit| (hit.item_id.as_str(), hit.score)), Some(("2", 1.0)));
    assert!(!index.find(&format!("How many stars are there? {suffix}")).is_contaminated());
    index.self_test().unwrap();
}

#[test]
fn items_of_one_template_are_matched_whole() {
    let question =
        |number: usize| format!("Find the greatest common divisor of the two numbers {number} and {}.", number * 3 + 6);
    let questions: Vec<String> = (20..60).map(question).collect();
    let index = index(&questions.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((index.counts().by_exact_match, index.counts().ngrams), (40, 0));
    let found = index.find(&format!("Hard one. {} Good luck!", question(33)));
    assert_eq!(found.hits.iter().map(|hit| hit.item_id.as_str()).collect::<Vec<_>>(), ["13"]);
    assert!(!index.find(&question(99)).is_contaminated());
    index.self_test().unwrap();
}

#[test]
fn numbers_and_symbols_alone_are_no_evidence() {
    let matrix = |first: &str| {
        format!("\\begin{{pmatrix}} {first} {} \\end{{pmatrix}}", "& 0 & 1 & 0 & 0 \\\\ 1 & 1 ".repeat(5))
    };
    let question = format!("Find the rank of {}", matrix("1"));
    let index = index(&[&question, "Continue the sequence 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0", QUESTION]);
    assert!(!index.find(&format!("Consider {} and 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0", matrix("0"))).is_contaminated());
    assert!(index.find(&format!("Today: {question}")).is_contaminated());
    index.self_test().unwrap();
}

#[test]
fn the_beginning_of_an_item_is_enough_and_its_end_is_not() {
    let words: Vec<&str> = QUESTION.split_whitespace().collect();
    let (beginning, end) = (words[..words.len() * 6 / 10].join(" "), words[words.len() * 4 / 10..].join(" "));
    let index = index(&[QUESTION]);
    assert!(index.find(&format!("{beginning} and here it stops.")).is_contaminated());
    assert!(!index.find(&format!("Here it starts, {end}")).is_contaminated());
}

#[test]
fn an_item_of_equal_words_and_a_text_of_the_same_word_take_no_time() {
    let index = index(&[&"word ".repeat(5_000), &"a b c ".repeat(3_000), QUESTION]);
    assert!(index.find(&"word ".repeat(200_000)).is_contaminated());
    assert!(!index.find(&"word + ".repeat(4_000)).is_contaminated());
    let found = index.find(&"a b c ".repeat(60_000));
    assert!(found.is_contaminated());
}

#[test]
fn an_item_between_many_of_its_twins_is_found() {
    let twin = |number: usize| QUESTION.replace("36", &number.to_string());
    let mut texts: Vec<String> = (100..300).map(twin).collect();
    let index = index(&[QUESTION]);
    let found = index.find(&texts.join("\n"));
    assert!(!found.is_contaminated() && found.twins.len() == 1);
    texts.insert(150, QUESTION.to_owned());
    assert!(index.find(&texts.join("\n")).is_contaminated());
}

#[test]
fn one_index_serves_many_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&index(&[QUESTION]));
}

proptest! {
    #[test]
    fn an_item_is_found_in_itself_and_spans_are_valid(
        question in "(\\PC|[a-z]{1,6} |[0-9]{1,3} |数|\\\\frac){1,60}",
        before in "\\PC{0,40}",
    ) {
        if View::new(&question).is_empty() {
            return Ok(());
        }
        let index = index(&[&question, QUESTION]);
        let itself = index.find(&question);
        prop_assert!(itself.best().is_some_and(|hit| hit.score >= 1.0 && hit.item_id == "0"));
        let document = format!("{before}\n{question}");
        let found = index.find(&document);
        for hit in found.hits.iter().chain(&found.twins) {
            prop_assert!(document.get(hit.span.0..hit.span.1).is_some());
            prop_assert!(hit.score > 0.0 && hit.score <= 1.0);
        }
        prop_assert!(index.self_test().is_ok());
    }
}
