//! Single rules of extraction, comparison, options and classes, each stated as a claim.

use stage_verify::{Extraction, Verdict, cluster, extract, math, stem, verifier, verify};

fn equal(a: &str, b: &str) -> Verdict {
    math::equivalent(a, b).verdict
}

#[test]
fn tiny_and_huge_differences_are_differences() {
    for (a, b) in [
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("2^{-99}", "2^{-98}"),
        ("\\sqrt{10^{20}+1}", "10^{10}"),
        ("9^{9^9}", "9^{9^8}"),
        ("10^{10^{10}}", "10^{10^{9}}"),
    ] {
        assert_eq!(equal(a, b), Verdict::Incorrect, "{a} {b}");
    }
}

#[test]
fn what_exceeds_the_budget_is_undecided() {
    for (a, b) in [
        ("10^{10^{10}}+1", "10^{10^{10}}"),
        ("(10^9)!", "(10^9+1)!"),
        ("10^{10^{10^{10}}}", "10"),
        ("\\sum_{k=1}^{1000000000} k", "5"),
    ] {
        let judgement = math::equivalent(a, b);
        assert_eq!((judgement.verdict, judgement.reason.as_ref()), (Verdict::Undecided, "budget"), "{a} {b}");
    }
    let chain = vec!["7"; 2000].join("\\bmod ");
    assert_eq!(math::equivalent(&chain, "2").verdict, Verdict::Undecided);
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(math::equivalent(&deep, "2").verdict, Verdict::Undecided);
}

#[test]
fn reasoning_before_its_end_mark_does_not_count() {
    let trace = "<think>The answer is \\boxed{42}</think>The answer is \\boxed{43}.";
    assert_eq!(math::verify("42", trace, Extraction::Strict).verdict, Verdict::Incorrect);
    assert_eq!(math::verify("42", "<think>so \\boxed{42}", Extraction::Strict).verdict, Verdict::NoAnswer);
}

#[test]
fn a_box_that_was_cut_is_no_answer() {
    let judgement = math::verify("12", "First \\boxed{12}. Then \\boxed{12", Extraction::Lenient);
    assert_eq!((judgement.verdict, judgement.reason.as_ref()), (Verdict::NoAnswer, "truncated"));
}

#[test]
fn an_unmarked_number_is_no_answer_in_strict_mode() {
    assert_eq!(math::verify("12", "It could be 12, or so.", Extraction::Strict).verdict, Verdict::NoAnswer);
    let lenient = math::verify("12", "That makes 12", Extraction::Lenient);
    assert!(lenient.is_correct() && lenient.weak);
}

#[test]
fn a_long_box_keeps_its_opening_brace() {
    let long = vec!["x^{2}"; 400].join("+");
    let found = extract(&format!("so \\boxed{{{long}}}."), Extraction::Strict).expect("a box");
    assert_eq!((found.text, found.method), (long, "box"));
}

#[test]
fn the_last_box_wins_for_one_part_and_all_count_for_several() {
    assert!(math::verify("7", "We get \\boxed{3}.\n\nFinally \\boxed{7}.", Extraction::Strict).is_correct());
    assert_eq!(math::verify("7", "\\boxed{3} or \\boxed{7}", Extraction::Strict).verdict, Verdict::Incorrect);
    assert!(math::verify("3,7", "the roots are \\boxed{3} and \\boxed{7}.", Extraction::Strict).is_correct());
}

#[test]
fn final_lines_of_several_languages_are_found() {
    for (trace, text) in [
        ("A: 18", "18"),
        ("9 * 2 = 18\nA: 18", "18"),
        ("so\n#### 1,800", "1,800"),
        ("因此，答案是 12。", "12"),
        ("答案：$\\frac{2}{5}$", "$\\frac{2}{5}$"),
        ("The final answer is $(0, 1)$. I hope it is correct.", "$(0, 1)$"),
        ("**Answer:** 5", "5"),
    ] {
        assert_eq!(extract(trace, Extraction::Strict).map(|found| found.text).as_deref(), Ok(text), "{trace}");
    }
}

#[test]
fn a_label_that_cannot_be_read_is_at_fault() {
    for label in ["", "  ", "\\frac{1}{", "$$", "(1,2", "+"] {
        assert_eq!(
            math::verify(label, "\\boxed{1}", Extraction::Strict).verdict,
            Verdict::LabelUnparsable,
            "{label:?}"
        );
    }
}

#[test]
fn the_policy_on_units_percent_order_and_names_holds() {
    for (a, b) in [
        ("31", "31cm"),
        ("772\\text{ cm}", "772"),
        ("190\\mathrm{~m/s}", "190"),
        ("\\$1,080", "1080"),
        ("10,\\!080", "10080"),
        ("28\\%", "0.28"),
        ("28\\%", "28"),
        ("30^\\circ", "\\frac{\\pi}{6}"),
        ("1,2", "2,1"),
        ("\\{1,2,2\\}", "1,2"),
        ("x=5", "5"),
        ("(1,3)", "1 < x < 3"),
        ("2x+4y=6", "x+2y-3=0"),
        ("x>1", "-x<-1"),
        ("−3", "-3"),
        ("1\\frac{1}{2}", "1.5"),
        ("\\frac12", "0.5"),
        ("\\text{east}", "East"),
        ("6:4", "3:2"),
        ("\\mathbb{R}", "(-\\infty,\\infty)"),
        ("x=1,y=2", "(1,2)"),
        ("2\\pm\\sqrt3", "2+\\sqrt3, 2-\\sqrt3"),
        ("５", "5"),
        ("\\sqrt[3]{8}", "2"),
        ("100, 101", "100,101"),
    ] {
        assert_eq!(equal(a, b), Verdict::Correct, "{a} {b}");
    }
    for (a, b) in [
        ("(1,2)", "(2,1)"),
        ("[1,2)", "[1,2]"),
        ("x>1", "x<1"),
        ("58", "58x"),
        ("28\\%", "2.8"),
        ("5", "5,6"),
        ("\\{1,2\\}", "[1,2]"),
        ("7=11a+c", "11a+c"),
        ("a+3z=0", "0"),
        ("12:00", "1:00"),
        ("\\text{east}", "west"),
        ("\\pm 3", "3"),
        ("3\\sqrt{10}", "9.49"),
        ("\\frac{1}{3}", "0.33"),
        ("\\sqrt{x^2}", "x"),
        ("x=5", "x=6"),
        ("z=2-3i", "z=2-3ik"),
        ("w=1+ai", "w=1+bi"),
        ("1,2,\\ldots,n", "1,3,\\ldots,n"),
    ] {
        assert_ne!(equal(a, b), Verdict::Correct, "{a} {b}");
    }
}

fn choice(label: &str, options: &[&str], trace: &str) -> Verdict {
    stem::verify(label, options, trace, Extraction::Strict).verdict
}

#[test]
fn letters_are_taken_only_where_they_are_offered() {
    let five = ["1 m", "2 m", "3 m", "4 m", "5 m"];
    for (label, trace) in [
        ("B", "The answer is B."),
        ("B", "The answer is (B)."),
        ("B", "So \\boxed{B}"),
        ("B", "\\boxed{\\text{(B)}}"),
        ("B", "Option B"),
        ("B", "B. 2 m"),
        ("B", "**B**"),
        ("B", "答案：B"),
        ("B", "答案选B。"),
        ("B", "故选B"),
        ("B", "The answer is B. Note that A is too small."),
        ("D", "The energy is \\boxed{E = mc^2}.\nThe answer is D."),
        ("A", "The answer seems to be A"),
        ("B", "The answer is \\boxed{2 m}"),
        ("2 m", "The answer is B"),
        ("(B) 2 m", "\\boxed{B}"),
        ("B", "Answer: B"),
        ("B", "The correct answer is **B**"),
        ("B", "B。不是 A"),
    ] {
        assert_eq!(choice(label, &five, trace), Verdict::Correct, "{label} {trace}");
    }
    for (label, trace) in [
        ("A", "The answer is A or B."),
        ("A", "\\boxed{AB}"),
        ("A", "\\boxed{A, C}"),
        ("A", "The answer is B."),
        ("B", "B. 3 m"),
        ("A", "The answer is \\boxed{4 m}"),
    ] {
        assert_eq!(choice(label, &five, trace), Verdict::Incorrect, "{label} {trace}");
    }
    for trace in ["A is not what I want to say", "I think so", "The answer is a mystery", "The answer is (J)", ""] {
        assert_eq!(choice("A", &five, trace), Verdict::NoAnswer, "{trace}");
    }
    assert_eq!(choice("Z", &five, "The answer is B"), Verdict::LabelUnparsable);
}

#[test]
fn a_domain_without_verifier_never_passes() {
    for domain in ["code", "instruct", "poetry"] {
        let judgement = verify(domain, "1", &[], "\\boxed{1}", Extraction::Strict);
        assert_eq!(judgement.verdict, Verdict::Undecided);
        assert!(judgement.reason.starts_with("no_verifier: "));
    }
    assert_eq!(["code", "instruct", "poetry"].map(|domain| verifier(domain).0), ["code", "instruct", "none"]);
}

#[test]
fn equal_answers_share_a_class() {
    assert_eq!(cluster(&["\\sqrt{24}", "2\\sqrt6", "3", "x=3", "(x+1)^2", "x^2+2x+1", "4"]), [0, 0, 1, 1, 2, 2, 3]);
    assert_eq!(cluster(&[]), Vec::<usize>::new());
}
