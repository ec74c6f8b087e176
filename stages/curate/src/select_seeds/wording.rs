//! What the words of a prompt give away: that it needs a figure, or that it only asks for a proof.
//!
//! Both are read from the text alone, so they are rules of thumb; their words stand in the evidence, and each can be
//! switched off. Words are matched whole and without regard to case; Chinese has no spaces, so its phrases match anywhere.

/// Drawing code and images.
const DRAWINGS: [&str; 6] = ["[asy]", "\\includegraphics", "\\begin{tikzpicture}", "<img", "<image", "!["];

/// Phrases that point to a figure.
const FIGURES: [&str; 8] = ["如图", "下图", "上图", "右图", "左图", "图中", "图示", "见图"];

/// What may be pointed to. The first two are figures wherever "the" stands before them.
const NOUNS: [&str; 7] = ["figure", "diagram", "graph", "picture", "image", "drawing", "sketch"];

/// Words before "the figure".
const BEFORE: [&str; 6] = ["in", "from", "on", "of", "to", "see"];

/// Words between "the" and "figure".
const ADJECTIVES: [&str; 6] = ["accompanying", "following", "adjoining", "attached", "given", "above"];

/// Words after a figure by which it is somewhere else on the page, or shows something.
const AFTER: [&str; 10] = [
    "below",
    "above",
    "shown",
    "is shown",
    "at right",
    "at the right",
    "on the right",
    "to the right",
    "shows",
    "illustrates",
];

/// Phrases that point to something that may stand in the text itself, and what it then would be.
const SHOWN: [&str; 4] = ["as shown", "as is shown", "as pictured", "as illustrated"];
/// Signs of rows, tables and arrays in a text.
const TABLES: [&str; 6] = ["\\begin{", "|", "```", "\n", "\\ldots", "..."];

/// Calls for a proof.
const PROOFS: [&str; 8] =
    ["prove", "disprove", "show that", "verify that", "demonstrate that", "establish that", "证明", "求证"];

/// Calls for anything else.
const ASKS: [&str; 24] = [
    "find",
    "determine",
    "compute",
    "evaluate",
    "calculate",
    "what",
    "how many",
    "how much",
    "how long",
    "how far",
    "which",
    "solve",
    "simplify",
    "express",
    "give",
    "list",
    "factor",
    "estimate",
    "计算",
    "多少",
    "是否",
    "确定",
    "写出",
    "化简",
];

/// The words by which a prompt points to a figure that the text does not hold.
pub fn figure(prompt: &str) -> Option<String> {
    let text = prompt.to_lowercase();
    if let Some(found) = DRAWINGS.iter().chain(&FIGURES).find(|phrase| text.contains(**phrase)) {
        return Some((*found).to_owned());
    }
    let words = words(&text);
    let pointed = (0..words.len()).find_map(|at| points_to_figure(&words, at));
    pointed.or_else(|| {
        let has_table = TABLES.iter().any(|sign| text.contains(sign));
        SHOWN.into_iter().find(|phrase| !has_table && has_phrase(&words, phrase)).map(str::to_owned)
    })
}

/// Whether the word at a place is a figure that is pointed to.
fn points_to_figure(words: &[&str], at: usize) -> Option<String> {
    let noun = *words.get(at)?;
    let place = NOUNS.iter().position(|known| noun == *known)?;
    let behind = &words[at + 1..];
    if let Some(after) = AFTER.into_iter().find(|phrase| starts_with(behind, phrase)) {
        return Some(format!("{noun} {after}"));
    }
    let before = &words[..at];
    let (adjective, before) = match before.split_last() {
        Some((last, rest)) if ADJECTIVES.contains(last) => (Some(*last), rest),
        _ => (None, before),
    };
    if let Some(adjective) = adjective.filter(|adjective| *adjective != "given") {
        return Some(format!("{adjective} {noun}"));
    }
    let is_figure = place < 2;
    if is_figure && before.last() == Some(&"see") {
        return Some(format!("see {noun}"));
    }
    match before {
        [.., preposition, "the"] if is_figure && BEFORE.contains(preposition) => {
            Some(format!("{preposition} the {noun}"))
        }
        _ => None,
    }
}

/// The words by which a prompt asks for a proof, where it asks for nothing else.
pub fn only_proof(prompt: &str) -> Option<&'static str> {
    let text = prompt.to_lowercase();
    let words = words(&text);
    let has = |phrase: &str| {
        if phrase.is_ascii() { has_phrase(&words, phrase) } else { text.contains(phrase) }
    };
    let proof = PROOFS.into_iter().find(|proof| has(proof))?;
    let asks_value = text.split('求').skip(1).any(|rest| !rest.starts_with('证'));
    let asks = text.contains(['?', '？']) || asks_value || ASKS.into_iter().any(has);
    (!asks).then_some(proof)
}

/// Runs of letters and digits.
fn words(text: &str) -> Vec<&str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

fn starts_with(words: &[&str], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase.split(' ').all(|part| words.next() == Some(&part))
}

fn has_phrase(words: &[&str], phrase: &str) -> bool {
    (0..words.len()).any(|at| starts_with(&words[at..], phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_points_to_a_figure_is_found_and_what_only_sounds_like_it_is_not() {
        for prompt in [
            "In the diagram, $AB = AC$. Find the angle.",
            "What is the area? [asy] draw((0,0)--(1,1)); [/asy]",
            "The graph below shows sales.",
            "Use the figure shown.",
            "From the accompanying figure, find $x$.",
            "\\includegraphics{a.png} How long is it?",
            "![](triangle.png) How long is it?",
            "如图，三角形 ABC 中，求角 A。",
            "Two circles are tangent, as shown. What is the radius?",
            "See Figure 3.",
        ] {
            assert!(figure(prompt).is_some(), "{prompt}");
        }
        for prompt in [
            "She could not figure out the sum of 3 and 4.",
            "A number with two-figure digits: the first figure is 3.",
            "The graph of $y = x^2$ passes through which points?",
            "What is the image of $f$?",
            "The numbers are arranged as shown: \n1 2 3\n4 5 6",
            "Draw a diagram of the states.",
            "The figure is identical to the original graph. Given that $f(0) = 1$, what is $f(2)$?",
            "他打算画一张图片，共多少元？",
            "小明试图计算 3+4。",
            "",
        ] {
            assert_eq!(figure(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn a_proof_with_a_question_beside_it_is_no_mere_proof() {
        for prompt in ["Prove that $\\sqrt 2$ is irrational.", "Show that $n^2 + n$ is even.", "求证：a+b>0。"] {
            assert!(only_proof(prompt).is_some(), "{prompt}");
        }
        for prompt in [
            "Find $x$ and prove that it is the only one.",
            "Show that there is one solution. What is it?",
            "Our observations show Pluto has",
            "证明并求 a 的值。",
            "How many ways are there to prove this?",
            "",
        ] {
            assert_eq!(only_proof(prompt), None, "{prompt}");
        }
    }
}
