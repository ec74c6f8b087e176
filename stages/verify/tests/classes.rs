//! Classes of equal answers: they agree with the comparison, do not depend on the order, and take time
//! that grows with the number of answers.

use proptest::prelude::*;
use stage_verify::{cluster, math};
use std::collections::BTreeMap;

fn contents(group: &[&str]) -> Vec<Vec<String>> {
    let mut content: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (text, class) in group.iter().zip(cluster(group)) {
        content.entry(class).or_default().push((*text).to_string());
    }
    let mut content: Vec<Vec<String>> = content.into_values().collect();
    for class in &mut content {
        class.sort();
    }
    content.sort();
    content
}

#[test]
fn spellings_of_one_answer_share_a_class_in_every_order() {
    let classes: [&[&str]; 13] = [
        &["\\sqrt{24}", "2\\sqrt6", "2*sqrt(6)", "\\frac{12}{\\sqrt6}"],
        &["(1,3]", "1<x\\le 3", "x\\in(1,3]", "x>1 \\text{ and } x\\le3"],
        &["\\mathbb{R}\\setminus\\{0\\}", "x\\ne 0", "(-\\infty,0)\\cup(0,\\infty)"],
        &["(x+1)^2", "x^2+2x+1"],
        &["\\sin^2 x", "1-\\cos^2 x"],
        &["2x+4y=6", "x+2y-3=0"],
        &["5", "x=5", "\\{5\\}", "5.0", "\\frac{10}{2}"],
        &["\\pm 3", "3, -3", "\\{-3,3\\}"],
        &["\\text{no solution}", "\\emptyset", "No solutions"],
        &["\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{bmatrix}1\\\\2\\end{bmatrix}"],
        &["B", "(B)", "\\text{B}"],
        &["1:2:3", "2:4:6"],
        &["\\frac{1+\\sqrt5}{2}", "(1+sqrt(5))/2"],
    ];
    let mut group: Vec<&str> = classes.iter().flat_map(|class| class.iter().copied()).collect();
    let forwards = contents(&group);
    assert_eq!(forwards.len(), classes.len(), "{forwards:?}");
    group.reverse();
    assert_eq!(contents(&group), forwards);
}

#[test]
fn answers_that_cannot_be_read_form_no_class_together() {
    assert_eq!(cluster(&["\\frac{1}{", "(1,2", "+", "\\frac{1}{", ""]), [0, 1, 2, 0, 3]);
}

#[test]
fn an_answer_that_differs_in_the_last_digit_votes_for_itself() {
    let near = [
        "2^{1000}",
        "2^{1000}+1",
        "\\sqrt{2}",
        "1.41421356237309504880168872420969807",
        "\\frac{1}{2004!}",
        "\\frac{1}{2006!}",
    ];
    assert_eq!(contents(&near).len(), near.len());
}

#[test]
fn ten_thousand_answers_of_two_hundred_classes_are_sorted_out() {
    let spell = |class: usize, form: usize| match (class % 4, form % 3) {
        (0, 0) => format!("{class}\\sqrt{{3}}"),
        (0, 1) => format!("\\sqrt{{{}}}", class * class * 3),
        (0, _) => format!("{class}*3^(1/2)"),
        (1, 0) => format!("({class},{}]", class + 7),
        (1, 1) => format!("{class}<x\\le {}", class + 7),
        (1, _) => format!("x\\in({class}, {}.0]", class + 7),
        (2, 0) => format!("\\text{{name {class}}}"),
        (2, 1) => format!("Name {class}"),
        (2, _) => format!("name {class}."),
        (_, 0) => format!("\\frac{{{class}}}{{7}}"),
        (_, 1) => format!("{}/14", 2 * class),
        _ => format!("x={class}/7"),
    };
    let answers: Vec<String> = (0..10_000).map(|index| spell(1 + (index * 7919) % 200, index / 200)).collect();
    let texts: Vec<&str> = answers.iter().map(String::as_str).collect();
    let classes = cluster(&texts);
    assert_eq!(classes.iter().max(), Some(&199));
    for (index, class) in classes.iter().enumerate() {
        assert_eq!(*class, classes[index % 200], "{}", answers[index]);
    }
}

#[test]
fn an_equation_meets_the_value_that_solves_it() {
    for (one, two) in [("x=2x+1", "x=-1"), ("x=-1", "2x+2=0"), ("y=\\frac{1}{2}", "2y-1=0"), ("x=3x-4", "x=2")] {
        assert!(math::equivalent(one, two).is_correct() && math::equivalent(two, one).is_correct(), "{one} | {two}");
        assert_eq!(cluster(&[one, two]), [0, 0], "{one} | {two}");
    }
}

fn answer() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (-9i64..9).prop_map(|value| value.to_string()),
        (1u32..6, 1u32..6).prop_map(|(a, b)| format!("\\frac{{{a}}}{{{b}}}")),
        (1u32..5, 2u32..9).prop_map(|(a, b)| format!("{a}\\sqrt{{{b}}}")),
        (1u32..5).prop_map(|a| format!("{a}x+1")),
    ];
    let pair = (number.clone(), number.clone());
    prop_oneof![
        number.clone(),
        number.prop_map(|value| format!("x={value}")),
        pair.clone().prop_map(|(a, b)| format!("\\{{{a},{b}\\}}")),
        pair.clone().prop_map(|(a, b)| format!("[{a},{b})")),
        pair.prop_map(|(a, b)| format!("{a}\\le x<{b}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn classes_say_what_the_comparison_says(group in prop::collection::vec(answer(), 2..10)) {
        let texts: Vec<&str> = group.iter().map(String::as_str).collect();
        let classes = cluster(&texts);
        for (a, one) in texts.iter().zip(&classes) {
            for (b, two) in texts.iter().zip(&classes) {
                prop_assert_eq!(one == two, math::equivalent(a, b).is_correct(), "{} | {}", a, b);
            }
        }
    }
}
