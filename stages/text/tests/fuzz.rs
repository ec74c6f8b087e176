//! No input makes a function of this crate panic, and what they say of any input holds together.
//!
//! The ordinary test run takes a few thousand inputs; `PIPELINE_FUZZ` says how many else, and `make fuzz` takes a
//! million.

#![expect(clippy::unwrap_used, reason = "these are tests, and functions outside test functions are not seen as such")]

use stage_text::contamination::{ContaminationIndex, ContaminationRules, EvalItem, Parts};
use stage_text::repetition::{Finder, RULES, RepetitionRules};
use stage_text::{FoldedView, Symbols, View, ViewBuilder};

/// A reproducible stream of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        stage_text::ngram::mix(self.0)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// Pieces that mean something to some function, and letters of many scripts.
const PIECES: [&str; 64] = [
    " ",
    "\n",
    "\t",
    "\r\n",
    "a",
    "B",
    "the ",
    "word ",
    "_",
    "snake_case",
    "0",
    "7",
    "1,080",
    "3.14",
    "10,\\!000",
    "{,}",
    "\\",
    "\\frac",
    "\\frac12",
    "\\dfrac{1}{2}",
    "\\left(",
    "\\right)",
    "\\,",
    "\\begin{array}",
    "\\end{array}",
    "[asy]",
    "[/asy]",
    "&",
    "|",
    "| a | b |\n",
    "```",
    "~~~",
    "$",
    "+",
    "-",
    "*",
    "=",
    "(",
    ")",
    "<think>",
    "</think>",
    "<|begin_of_thought|>",
    "I'm sorry, but I can't help",
    "抱歉，我无法回答",
    "数",
    "学",
    "题",
    "，",
    "。",
    "が",
    "か\u{3099}",
    "ｶﾞ",
    "ก",
    "é",
    "e\u{301}",
    "\u{302}\u{323}",
    "ß",
    "İ",
    "½",
    "x²",
    "\u{200b}",
    "\u{FEFF}",
    "사과",
    "🦀",
];

fn input(numbers: &mut Numbers) -> String {
    match numbers.below(4) {
        0 => {
            let bytes: Vec<u8> = (0..numbers.below(80)).map(|_| numbers.next().to_le_bytes()[0]).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        1 => (0..numbers.below(40))
            .filter_map(|_| char::from_u32(u32::try_from(numbers.below(0x3_0000)).unwrap()))
            .collect(),
        2 => {
            let piece = PIECES[numbers.below(PIECES.len())].to_owned() + PIECES[numbers.below(PIECES.len())];
            piece.repeat(numbers.below(80)) + PIECES[numbers.below(PIECES.len())]
        }
        _ => (0..numbers.below(60)).map(|_| PIECES[numbers.below(PIECES.len())]).collect(),
    }
}

fn check_views(text: &str, builders: &mut [ViewBuilder; 3]) {
    for (symbols, builder) in [Symbols::Dropped, Symbols::Operators, Symbols::Kept].into_iter().zip(builders) {
        let folded = FoldedView::with_symbols(text, symbols);
        let view = builder.build(text);
        assert_eq!((view.tokens(), view.spans()), (folded.view().tokens(), folded.view().spans()), "{text:?}");
        let mut last = 0;
        for (start, end) in view.spans() {
            assert!(start < end && *start >= last && text.get(*start as usize..*end as usize).is_some(), "{text:?}");
            last = *start;
        }
    }
    let folded = FoldedView::new(text);
    assert_eq!(View::new(folded.text()).tokens(), folded.view().tokens(), "{text:?}");
}

fn check_repetition(text: &str, prompt: &str, finder: &mut Finder<'_>, rules: &RepetitionRules) {
    let finding = finder.find(text, Some(prompt));
    assert_eq!(finding, Finder::new(rules).find(text, Some(prompt)), "{text:?}");
    if let Some(finding) = finding {
        assert!(RULES.contains(&finding.rule) && (0.0..=1.0).contains(&finding.figure), "{finding:?} {text:?}");
        assert!(text.get(finding.span.0..finding.span.1).is_some(), "{finding:?} {text:?}");
    }
}

fn check_contamination(items: &[String], document: &str, ngram: usize) {
    let items = (0..).zip(items).map(|(id, question): (usize, _)| EvalItem {
        set: if id == 0 { "one" } else { "two" }.to_owned(),
        id: id.to_string(),
        question: question.clone(),
        answer: Some(document.to_owned()),
    });
    let parts = Parts::QuestionAndAnswer;
    let rules = ContaminationRules { ngram: ngram.try_into().unwrap(), parts, ..ContaminationRules::default() };
    let Ok(index) = ContaminationIndex::build(items.collect(), rules) else { return };
    assert!(index.self_test().is_ok(), "{:?} {ngram} {:#?}", index.self_test(), index.items());
    let found = index.find(document);
    for hit in found.hits.iter().chain(&found.twins) {
        assert!(document.get(hit.span.0..hit.span.1).is_some(), "{hit:?} {document:?}");
        assert!(hit.score > 0.0 && hit.score <= 1.0, "{hit:?} {document:?}");
    }
}

fn fuzz(inputs: u64, seed: u64) {
    let mut numbers = Numbers(seed);
    let mut builders = [Symbols::Dropped, Symbols::Operators, Symbols::Kept].map(ViewBuilder::new);
    let rules = RepetitionRules {
        ngram: 5.try_into().unwrap(),
        min_ngrams: 1,
        min_lines: 1,
        min_line_bytes: 1,
        tail_short_tokens: 4,
        min_prompt_repeat_tokens: 2,
        ..RepetitionRules::default()
    };
    let mut finder = Finder::new(&rules);
    let mut texts = vec![String::new()];
    for _ in 0..inputs {
        let text = input(&mut numbers);
        check_views(&text, &mut builders);
        check_repetition(&text, &texts[numbers.below(texts.len())], &mut finder, &rules);
        texts.push(text);
        if texts.len() == 8 {
            let document = texts.concat();
            check_contamination(&texts[..6], &document, 1 + numbers.below(12));
            check_repetition(&document, &texts[1], &mut finder, &rules);
            texts.clear();
            texts.push(String::new());
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how many inputs is a choice of who runs the tests")]
fn any_input_is_handled() {
    let inputs = std::env::var("PIPELINE_FUZZ").map_or(3_000, |count| count.parse().unwrap());
    fuzz(inputs, 1);
}
