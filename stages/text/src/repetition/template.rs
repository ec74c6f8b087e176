//! Finds answers that are a template and nothing else: empty ones, a reasoning block that never closes, and
//! boilerplate refusals in English and Chinese.

use super::{Finding, RepetitionRules};

/// Marks that open and close the reasoning of a trace.
const THINK_MARKS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<|begin_of_thought|>", "<|end_of_thought|>")];

/// Longest answer, in bytes, that can be nothing but a refusal; a longer one gives reasons or an answer besides.
const REFUSAL_BYTES: usize = 600;

/// Bytes from its start in which a refusal says that it is one.
const REFUSAL_WITHIN: usize = 200;

/// Bytes behind a denial in which the denied verb stands.
const VERB_WITHIN: usize = 40;

/// How a refusal apologises or presents itself.
const OPENINGS: [&str; 20] = [
    "sorry",
    "apologize",
    "apologise",
    "apologies",
    "unfortunately",
    "as an ai",
    "as a language model",
    "as a large language model",
    "i cannot",
    "i can't",
    "i can’t",
    "i'm unable",
    "i’m unable",
    "i am unable",
    "抱歉",
    "对不起",
    "很遗憾",
    "不好意思",
    "作为一个",
    "作为人工智能",
];

/// Openings that say no more than that something is a pity.
const REGRETS: [&str; 2] = ["unfortunately", "很遗憾"];

/// How it denies ...
const DENIALS: [&str; 24] = [
    "i cannot",
    "i can not",
    "i can't",
    "i can’t",
    "i am unable to",
    "i'm unable to",
    "i’m unable to",
    "i am not able to",
    "i'm not able to",
    "i’m not able to",
    "i won't be able to",
    "i will not be able to",
    "i won’t be able to",
    "i do not have the ability to",
    "i don't have the ability to",
    "i must decline to",
    "cannot",
    "无法",
    "不能",
    "没办法",
    "没法",
    "不可以",
    "难以",
    "不便",
];

/// ... and what.
const VERBS: [&str; 42] = [
    "assist", "help", "fulfill", "fulfil", "comply", "answer", "provide", "complete", "engage", "create", "generate",
    "continue", "support", "discuss", "do that", "respond", "process", "solve", "write", "access", "browse", "offer",
    "回答", "提供", "帮助", "帮您", "帮你", "协助", "满足", "完成", "处理", "讨论", "生成", "执行", "继续", "解答",
    "给出", "回复", "参与", "支持", "访问", "创作",
];

/// Where the marks of reasoning stand in a text.
#[derive(Default)]
struct Marks {
    /// Last opening mark of each kind that its closing mark does not follow.
    open: [Option<usize>; THINK_MARKS.len()],
    /// Behind the last closing mark of any kind; 0 without one.
    answer: usize,
}

impl Marks {
    /// All marks begin with one byte, so that one pass finds them.
    fn of(text: &str) -> Self {
        let mut marks = Self::default();
        for at in memchr::memchr_iter(b'<', text.as_bytes()) {
            let rest = &text.as_bytes()[at..];
            for (last, (open, close)) in marks.open.iter_mut().zip(THINK_MARKS) {
                if rest.starts_with(close.as_bytes()) {
                    (*last, marks.answer) = (None, at + close.len());
                } else if rest.starts_with(open.as_bytes()) {
                    *last = Some(at);
                }
            }
        }
        marks
    }
}

/// The first of these rules that `text` breaks.
pub(super) fn find(text: &str, rules: &RepetitionRules) -> Option<Finding> {
    let marks = Marks::of(text);
    if let Some(finding) = empty_response(text, marks.answer) {
        return Some(finding);
    }
    let unfinished = rules.reject_unfinished_think.then(|| unfinished_think(text, &marks)).flatten();
    unfinished.or_else(|| rules.reject_refusals.then(|| refusal(text, marks.answer)).flatten())
}

fn empty_response(text: &str, start: usize) -> Option<Finding> {
    let is_empty = !text[start..].chars().any(|character| !character.is_whitespace() && !character.is_control());
    is_empty.then_some(Finding { rule: "empty_response", span: (0, text.len()), figure: 1.0 })
}

/// A reasoning block opened at the start of a line and never closed.
fn unfinished_think(text: &str, marks: &Marks) -> Option<Finding> {
    let begins_line = |at: &&usize| {
        let line = text[..**at].rfind('\n').map_or(0, |newline| newline + 1);
        text[line..**at].trim().is_empty()
    };
    let at = *marks.open.iter().flatten().find(begins_line)?;
    let figure = (text.len() - at) as f64 / text.len() as f64;
    Some(Finding { rule: "unfinished_think", span: (at, text.len()), figure })
}

/// A short answer that opens as refusals do and then denies to do what was asked.
fn refusal(text: &str, start: usize) -> Option<Finding> {
    let answer = text[start..].trim();
    if answer.len() > REFUSAL_BYTES || answer.contains("\\boxed") {
        return None;
    }
    let lower = answer[..answer.floor_char_boundary(REFUSAL_WITHIN)].to_ascii_lowercase();
    let opening =
        OPENINGS.iter().filter_map(|opening| lower.find(opening)).min().filter(|at| *at < REFUSAL_WITHIN / 2)?;
    // what cannot be done may be the answer, unless it is excused
    let is_excused = !REGRETS.iter().any(|regret| lower[opening..].starts_with(regret));
    let end = DENIALS.iter().filter(|denial| is_excused || **denial != "cannot").find_map(|denial| {
        let end = opening + lower[opening..].find(denial)? + denial.len();
        let behind = &lower[end..lower.floor_char_boundary(end + VERB_WITHIN)];
        let verbs = VERBS.iter().filter_map(|verb| behind.find(verb).map(|at| end + at + verb.len()));
        verbs.min()
    })?;
    let from = start + text[start..].find(answer).unwrap_or(0);
    let span = (from + opening, from + end);
    Some(Finding { rule: "refusal", span, figure: (end - opening) as f64 / answer.len() as f64 })
}
