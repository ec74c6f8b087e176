//! Made-up answers: pieces of notation joined at random, and real answers changed at random.

use stage_verify::{Extraction, cluster, extract, math, stem};
use std::fs;

const PIECES: &[&str] = &[
    "\\frac",
    "\\dfrac",
    "\\sqrt",
    "\\sqrt[3]",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\\left(",
    "\\right)",
    "\\left\\{",
    "\\right.",
    "\\{",
    "\\}",
    "0",
    "1",
    "2",
    "7",
    "12",
    "1,080",
    "3.5",
    "2,74",
    ".5",
    "0.333...",
    "0.\\overline{3}",
    "10^",
    "9^{9^9}",
    "10!",
    "1e9",
    "1e-300",
    "99999999999",
    ".",
    ",",
    ";",
    "^",
    "_",
    "^{",
    "_{",
    "x",
    "y",
    "n",
    "i",
    "e",
    "k",
    "a_1",
    "f(x)",
    "\\pi",
    "π",
    "\\theta",
    "+",
    "-",
    "*",
    "/",
    "\\cdot ",
    "\\times ",
    "=",
    "<",
    ">",
    "\\le ",
    "\\ge ",
    "\\ne ",
    "\\in ",
    "\\approx ",
    "\\equiv ",
    "\\pmod ",
    "\\cup ",
    "\\cap ",
    "\\setminus ",
    "\\infty",
    "\\mathbb{R}",
    "|",
    "!",
    "!!",
    "%",
    "\\%",
    "°",
    "^\\circ",
    "'",
    "\\text{",
    "\\text{ cm}",
    "\\mathrm{m}",
    " m/s",
    " and ",
    " or ",
    "\\pm ",
    "\\mp ",
    "\\sum_{k=1}^{100}",
    "\\prod_{k=1}^",
    "\\binom",
    "\\log_",
    "\\ln ",
    "\\sin",
    "\\arctan",
    "\\lfloor ",
    "\\rfloor ",
    "\\gcd(",
    "\\boxed{",
    "$",
    "$$",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "\\begin{cases}",
    "\\end{cases}",
    "&",
    "\\\\",
    "\\ldots",
    "答案是",
    "是",
    "选",
    "½",
    "²",
    "⁻¹",
    "−",
    "×",
    "√",
    "∪",
    "：",
    ":",
    " p.m.",
    "\\overline{",
    "mod",
    "\\to ",
    "\n",
    "\n\n",
    "</think>",
    "<think>",
    "The answer is ",
    "Answer: ",
    "A",
    "(B)",
    "C, D",
    "no solution",
    "yes",
    "five",
    "all real numbers except ",
    "½",
    "\u{1d465}",
    "\u{ff11}",
    "é",
    "\u{0}",
    "🙂",
];

/// Real answers, one or more of every kind.
const ANSWERS: &[&str] = &[
    "42",
    "-\\frac{3}{4}",
    "1,234,567",
    "2\\sqrt{6}",
    "\\frac{1+\\sqrt{5}}{2}",
    "x^2+2x+1",
    "(x-1)(x+3)",
    "\\{1,2,3\\}",
    "(1,-2,3)",
    "[1,2)\\cup(3,\\infty)",
    "x\\le 3",
    "-2<x\\le 5",
    "2x+4y=6",
    "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
    "28\\%",
    "30^\\circ",
    "772\\text{ cm}",
    "3\\times 10^{8}",
    "14056_8",
    "3:2",
    "4:30\\text{ p.m.}",
    "2-3i",
    "B",
    "\\text{even}",
    "2\\pm\\sqrt{3}",
    "\\log_2 3",
    "\\binom{10}{3}",
    "\\frac{1}{2004!}",
    "\\sum_{k=1}^{n} k",
    "|x-2|<3",
    "\\mathbb{R}\\setminus\\{0\\}",
    "e^{i\\pi}",
    "n\\equiv 3\\pmod{7}",
    "0.1\\overline{6}",
    "\\lfloor n/2\\rfloor",
    "\\tan^{-1} 2",
    "\\begin{cases}x&x>0\\\\-x&x\\le 0\\end{cases}",
    "The answer is \\boxed{\\frac{1}{2}}.",
    "x=1,\\ y=2",
    "9.81 m/s^2",
    "\\sqrt[3]{2}",
    "f(x)=x^2",
    "all real numbers",
    "10^{10^{10}}",
    "(a+b+c)^{50}",
    "2^{1000}-1",
];

/// A stream of strings that a seed fixes.
pub struct Source {
    state: u64,
    answers: Vec<String>,
}

impl Source {
    /// With the answers of the shared cases, where they are.
    pub fn new(seed: u64) -> Self {
        let mut answers: Vec<String> = ANSWERS.iter().map(|answer| (*answer).to_string()).collect();
        #[expect(clippy::disallowed_methods, reason = "set by cargo for the run")]
        let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
        for set in ["math_variants", "math_equivalence"] {
            let text = fs::read_to_string(format!("{root}/../../../shared/cases/{set}.jsonl")).unwrap_or_default();
            for row in text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
                answers.extend(["gold", "pred"].iter().filter_map(|side| row[*side].as_str().map(str::to_string)));
            }
        }
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, answers }
    }

    /// A number below `below`.
    fn draw(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from((self.state >> 11) % below.max(1) as u64).unwrap_or(0)
    }

    fn answer(&mut self) -> String {
        let at = self.draw(self.answers.len());
        self.answers[at].clone()
    }

    fn mixture(&mut self) -> String {
        let count = self.draw(18);
        (0..count).map(|_| PIECES[self.draw(PIECES.len())]).collect()
    }

    fn cut(&mut self, text: &str) -> usize {
        let mut at = self.draw(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn mutated(&mut self, mut text: String) -> String {
        for _ in 0..=self.draw(3) {
            let (from, to) = (self.cut(&text), self.cut(&text));
            let (from, to) = (from.min(to), from.max(to));
            match self.draw(8) {
                0 => text.replace_range(from..to, ""),
                1 => text.insert_str(from, PIECES[self.draw(PIECES.len())]),
                2 => {
                    let part = text[from..to].to_string();
                    text.insert_str(to, &part);
                }
                3 => {
                    let other = self.answer();
                    let (a, b) = (self.cut(&other), self.cut(&other));
                    text.replace_range(from..to, &other[a.min(b)..a.max(b)]);
                }
                4 => text = format!("\\frac{{{text}}}{{{}}}", self.answer()),
                5 => text = format!("\\left({text}\\right)^{{{}}}", self.draw(2000)),
                6 => text = text.repeat(1 + self.draw(3)),
                _ => {
                    let pair = [("(", ")"), ("{", "}"), ("|", "|"), ("\\sqrt{", "}"), ("\\boxed{", "}"), ("$", "$")]
                        [self.draw(6)];
                    text = format!("{}{}{}", pair.0, text, pair.1);
                }
            }
            if text.len() > 4000 {
                text.truncate(text.floor_char_boundary(4000));
            }
        }
        text
    }

    fn string(&mut self) -> String {
        match self.draw(4) {
            0 => self.mixture(),
            1 => self.answer(),
            _ => {
                let base = if self.draw(4) == 0 { self.mixture() } else { self.answer() };
                self.mutated(base)
            }
        }
    }

    /// Two strings, often related.
    pub fn pair(&mut self) -> (String, String) {
        let first = self.string();
        let second = match self.draw(3) {
            0 => self.mutated(first.clone()),
            _ => self.string(),
        };
        (first, second)
    }
}

/// Calls every door with a pair.
///
/// # Errors
/// What does not hold: symmetry of acceptance, the same verdict twice, spans inside the text.
pub fn trial(a: &str, b: &str, index: u64) -> Result<(), &'static str> {
    let there = math::equivalent(a, b);
    let back = math::equivalent(b, a);
    if there.is_correct() != back.is_correct()
        && there.verdict != stage_verify::Verdict::LabelUnparsable
        && back.verdict != stage_verify::Verdict::LabelUnparsable
    {
        return Err("asymmetric");
    }
    if index.is_multiple_of(64) && math::equivalent(a, b) != there {
        return Err("not the same twice");
    }
    let extraction = if index.is_multiple_of(2) { Extraction::Strict } else { Extraction::Lenient };
    let _ = math::verify(a, b, extraction);
    if let Ok(found) = extract(b, extraction)
        && b.get(found.span.clone()).is_none()
    {
        return Err("a span outside the text");
    }
    let options = ["3", a, "x+1", "5 m/s"];
    let _ = stem::verify(a, if index.is_multiple_of(3) { &[] } else { &options }, b, extraction);
    let classes = cluster(&[a, b, a]);
    if classes.len() != 3 || classes[0] != classes[2] {
        return Err("an answer outside its own class");
    }
    Ok(())
}
