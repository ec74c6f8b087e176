//! Laws of the verifier: it never panics, is reflexive and symmetric, and does not see layout.

use proptest::prelude::*;
use stage_verify::{Extraction, Verdict, cluster, extract, math, stem, verify};

/// Text made of the pieces that answers are made of, so that odd joints are met often.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\\frac",
        "\\sqrt",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\\left",
        "\\right",
        "\\{",
        "\\}",
        "1",
        "12",
        "0",
        "1,080",
        "3.5",
        ".",
        ",",
        ";",
        "^",
        "_",
        "x",
        "y",
        "i",
        "e",
        "\\pi",
        "π",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<",
        "\\le",
        "\\cup",
        "\\infty",
        "|",
        "!",
        "%",
        "\\%",
        "°",
        "\\text{",
        "cm",
        " and ",
        " or ",
        "\\pm",
        "\\sum_{k=1}^{10}",
        "\\binom",
        "\\log_",
        "\\ln ",
        "\\sin",
        "\\boxed{",
        "$",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "\\ldots",
        "答案是",
        "是",
        "½",
        "²",
        "−",
        ":",
        "p.m.",
        "\\overline{3}",
        "0.",
        "\\in ",
        "9^{9^9}",
        "10!",
        "mod",
        "\\to",
        "\n",
        "</think>",
        "The answer is ",
        "A",
        "(B)",
        "\\mathbb{R}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|parts| parts.concat())
}

/// Answers that can be read.
fn answers() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (-999i64..999).prop_map(|value| value.to_string()),
        (1u32..99, 1u32..99).prop_map(|(a, b)| format!("\\frac{{{a}}}{{{b}}}")),
        (0u32..99, 1u32..99).prop_map(|(a, b)| format!("{a}.{b}"))
    ];
    let leaf = prop_oneof![
        number,
        prop::sample::select(vec!["x", "n", "\\pi", "\\sqrt{2}", "\\sqrt{3}", "e"]).prop_map(String::from)
    ];
    let expression = leaf.prop_recursive(3, 12, 2, |inner| {
        (inner.clone(), inner, prop::sample::select(vec!["+", "-", "\\cdot "]))
            .prop_map(|(a, b, sign)| format!("\\left({a}{sign}{b}\\right)"))
    });
    (prop::collection::vec(expression, 1..4), prop::sample::select(vec![("", ""), ("(", ")"), ("\\{", "\\}")]))
        .prop_map(|(items, (open, close))| format!("{open}{}{close}", items.join(", ")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), more in any::<String>()) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = math::equivalent(&text, &more);
        let _ = math::verify(&more, &text, Extraction::Lenient);
        let _ = stem::verify(&more, &["one", "two"], &text, Extraction::Lenient);
        let _ = cluster(&[&text, &more]);
    }

    #[test]
    fn no_mixture_of_pieces_makes_it_panic(a in pieces(), b in pieces()) {
        let _ = math::equivalent(&a, &b);
        let _ = math::verify(&a, &b, Extraction::Lenient);
        let _ = verify("stem", "A", &["3", "4"], &b, Extraction::Lenient);
        if let Ok(found) = extract(&b, Extraction::Lenient) {
            prop_assert!(found.span.end <= b.len() && b.is_char_boundary(found.span.start) && b.is_char_boundary(found.span.end));
        }
        let _ = cluster(&[&a, &b, "1"]);
    }

    #[test]
    fn mixtures_are_compared_symmetrically(a in pieces(), b in pieces()) {
        let (there, back) = (math::equivalent(&a, &b), math::equivalent(&b, &a));
        prop_assert_eq!(there.is_correct(), back.is_correct(), "{:?} {:?}", there, back);
    }

    #[test]
    fn an_answer_equals_itself(answer in answers()) {
        prop_assert_eq!(math::equivalent(&answer, &answer).verdict, Verdict::Correct);
    }

    #[test]
    fn the_order_of_the_sides_does_not_matter(a in answers(), b in answers()) {
        prop_assert_eq!(math::equivalent(&a, &b).verdict, math::equivalent(&b, &a).verdict);
    }

    #[test]
    fn layout_is_not_seen(answer in answers()) {
        let spaced = answer.replace(", ", " ,\\, ").replace('+', " + ");
        let plain = answer.replace("\\left", "").replace("\\right", "");
        let tall = answer.replace("\\frac", "\\dfrac");
        for other in [spaced, plain, tall, format!("\\boxed{{{answer}}}"), format!("$ {answer} $")] {
            prop_assert_eq!(math::equivalent(&answer, &other).verdict, Verdict::Correct, "{} | {}", &answer, &other);
        }
    }

    #[test]
    fn one_more_is_never_equal(answer in answers()) {
        if !answer.contains(", ") {
            let more = format!("{answer}+1");
            prop_assert_ne!(math::equivalent(&answer, &more).verdict, Verdict::Correct);
        }
    }

    #[test]
    fn classes_do_not_depend_on_the_order(mut group in prop::collection::vec(answers(), 1..8)) {
        let of = |group: &[String]| {
            let texts: Vec<&str> = group.iter().map(String::as_str).collect();
            let classes = cluster(&texts);
            let mut content: Vec<Vec<String>> = vec![Vec::new(); classes.iter().max().map_or(0, |most| most + 1)];
            for (text, class) in group.iter().zip(classes) {
                content[class].push(text.clone());
            }
            for class in &mut content {
                class.sort();
            }
            content.sort();
            content
        };
        let before = of(&group);
        group.reverse();
        prop_assert_eq!(before, of(&group));
    }
}
