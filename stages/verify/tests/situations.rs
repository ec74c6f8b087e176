//! Situations that users of other verifiers reported, each a test named after what must hold.

use stage_verify::{Extraction, Verdict, cluster, extract, math, stem};
use std::time::Duration;

fn strict(label: &str, trace: &str) -> Verdict {
    math::verify(label, trace, Extraction::Strict).verdict
}

#[test]
fn b052_tiny_differences_signs_and_clocks_are_not_rounded_away() {
    for (label, answer) in [
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("2^{-99}", "2^{-98}"),
        ("\\pm 2021", "2021"),
        ("12:00", "1:00"),
        ("0", "10^{-300}"),
        ("1", "0.99999999999999999999"),
        ("a+3z=0", "0"),
        ("1,2,\\ldots,n", "1,3,5,\\ldots,2n-1"),
    ] {
        assert_eq!(math::equivalent(label, answer).verdict, Verdict::Incorrect, "{label} | {answer}");
        assert_eq!(math::equivalent(answer, label).verdict, Verdict::Incorrect, "{answer} | {label}");
    }
}

#[test]
fn b053_the_last_box_wins_and_all_boxes_of_the_last_statement_count_for_several_parts() {
    assert_eq!(strict("7", "First \\boxed{3}.\n\nSo the result is \\boxed{7}."), Verdict::Correct);
    assert_eq!(strict("3", "First \\boxed{3}.\n\nSo the result is \\boxed{7}."), Verdict::Incorrect);
    assert_eq!(strict("3, 7", "We find \\boxed{3} and \\boxed{7}."), Verdict::Correct);
    assert_eq!(strict("(1,1),(3,3)", "\\boxed{(3, 3)} for part (a) and \\boxed{(1, 1)}"), Verdict::Correct);
}

#[test]
fn b055_pathological_answers_end_undecided_with_the_budget_as_reason_in_any_thread() {
    let towers =
        ["10^{10^{10^{10}}}+1", "(10^{9})!", "9^{9^{9^{9}}}-1", "\\sum_{k=1}^{10^{12}} k", "\\binom{10^{12}}{10^{11}}"];
    let work: Vec<_> = towers
        .into_iter()
        .map(|tower: &'static str| {
            std::thread::Builder::new()
                .stack_size(2 << 20)
                .spawn(move || (math::equivalent(tower, "7"), math::equivalent("7", tower)))
                .expect("a thread")
        })
        .collect();
    for (tower, work) in towers.iter().zip(work) {
        for judgement in <[_; 2]>::from(work.join().expect("no panic")) {
            assert_eq!((judgement.verdict, judgement.reason.as_ref()), (Verdict::Undecided, "budget"), "{tower}");
        }
    }
}

#[test]
fn b055_huge_answers_are_bounded_by_counters() {
    let long = "1+".repeat(500_000);
    let deep = format!("{}x{}", "\\sqrt{".repeat(3000), "}".repeat(3000));
    let boxes = "\\boxed{1} ".repeat(20_000);
    let open = "\\frac{".repeat(20_000);
    let powers = "x^{".repeat(5000) + "2" + &"}".repeat(5000);
    let matrices = "\\begin{pmatrix}x&2&3\\\\4&y&6\\\\7&8&9\\end{pmatrix}".repeat(60);
    let minus = "-".repeat(100_000) + "1";
    let bars = "|".repeat(4000);
    let product = (1..900).map(|factor| format!("(x+{factor})")).collect::<Vec<_>>().concat();
    let digits = "9".repeat(1_000_000);
    let commas = "1,".repeat(500_000);
    let primes = format!("f{}(x)=2", "'".repeat(100_000));
    let dollars = "$".repeat(300_000);
    let answers = "the answer is \n".repeat(50_000);
    let begin = std::time::Instant::now();
    for text in [
        &long,
        &deep,
        &boxes,
        &open,
        &powers,
        &matrices,
        &minus,
        &bars,
        &product,
        &digits,
        &commas,
        &primes,
        &dollars,
        &answers,
        &"(a+b+c)^{50}".to_string(),
        &"(a+b+c)^{50000000}-1".to_string(),
        &"0.1".repeat(50_000),
        &"\\text{".repeat(50_000),
    ] {
        for extraction in [Extraction::Strict, Extraction::Lenient] {
            let _ = math::verify("7", text, extraction);
            let _ = math::verify(text, "\\boxed{7}", extraction);
            let _ = stem::verify("A", &["1", "2"], text, extraction);
        }
        let _ = math::equivalent("(a+b+c)^{50}", text);
        let _ = cluster(&[text.as_str(), "1"]);
    }
    // linear work: minutes would mean that something is quadratic
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
}

#[test]
fn b056_a_label_that_cannot_be_read_is_neither_a_pass_nor_a_zero() {
    for label in ["", "\\frac{1}{", "$$", "4:30p..", "))", "see figure:"] {
        let judgement = math::verify(label, "\\boxed{1}", Extraction::Strict);
        assert_eq!(judgement.verdict, Verdict::LabelUnparsable, "{label:?} {judgement:?}");
        assert!(judgement.reason.starts_with("label_unparsable: "));
    }
    assert_eq!(stem::verify("Q", &["1", "2"], "The answer is A", Extraction::Strict).verdict, Verdict::LabelUnparsable);
}

#[test]
fn b058_a_number_somewhere_in_the_text_is_no_answer() {
    for trace in ["It may be 12, or 13.", "12", "We get 12.\nThen we stop", "\\(x = 12\\)"] {
        assert_eq!(strict("12", trace), Verdict::NoAnswer, "{trace}");
    }
}

#[test]
fn b064_letters_come_from_the_final_line_then_from_a_box_and_never_from_words_or_formulas() {
    let ten = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for (label, trace) in [
        ("D", "The energy is \\boxed{E = mc^2}.\nThe answer is D."),
        ("A", "Answer seems to be A"),
        ("B", "The answer is B. Note that A is too small."),
        ("C", "I think it is hard. I would say so. The answer is (C)."),
        ("I", "The answer is I."),
        ("J", "\\boxed{J}"),
        ("C", "Answer: **C**"),
        ("C", "答案：C"),
        ("C", "因此选C。"),
        ("B", "Final answer: B\n"),
        ("D", "D) d"),
        ("D", "\\boxed{\\text{(D)}}"),
    ] {
        assert_eq!(stem::verify(label, &ten, trace, Extraction::Strict).verdict, Verdict::Correct, "{trace}");
    }
    for trace in [
        "I think that it is hard.",
        "A is not what I want.",
        "The answer is a mystery.",
        "The answer is Z.",
        "Well, I do not know",
    ] {
        assert_ne!(stem::verify("A", &ten, trace, Extraction::Strict).verdict, Verdict::Correct, "{trace}");
        assert_ne!(stem::verify("I", &ten, trace, Extraction::Strict).verdict, Verdict::Correct, "{trace}");
    }
    assert_eq!(
        stem::verify("A", &["5 m/s", "5 km/h"], "So \\boxed{5\\ \\mathrm{m/s}}", Extraction::Strict).verdict,
        Verdict::Correct
    );
}

#[test]
fn b065_unreadable_answers_never_win_by_being_alike() {
    assert_eq!(cluster(&["\\frac{", "((", "[[", "12", "12.0"]), [0, 1, 2, 3, 3]);
}

#[test]
fn b068_an_answer_of_any_length_keeps_its_opening_brace() {
    let long = (1..3000).map(|index| format!("x_{{{index}}}")).collect::<Vec<_>>().join("+");
    let trace = format!("so \\boxed{{{long}}}. {}", "And that is all there is to say. ".repeat(100));
    assert_eq!(extract(&trace, Extraction::Strict).map(|found| found.text), Ok(long));
}
