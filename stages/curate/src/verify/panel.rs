//! A judge model for what rules cannot settle (report section on evaluation: rules first, a model for the rest).
//!
//! The model sees question, reference answer and the answer to judge, and ends with one word. What it says counts only
//! when that word can be read: an unreadable answer never becomes a verdict. Several votes are counted; a tie, or no
//! readable vote, leaves the row undecided.

use std::sync::{Arc, Mutex, PoisonError};

use minijinja::context;
use pipeline_core::{External, ParamError, StageError};
use pipeline_models::{Message, Model, Recorded, Request, Sampling};
use stage_verify::{Judgement, Verdict};

use super::Verify;
use super::row::Row;
use crate::calls::{self, Used};
use crate::template::Template;

/// Raised when the same answers of a judge would give other verdicts.
const VERSION: u32 = 1;

/// What a judge is asked unless `judge_template` says otherwise.
const QUESTION: &str = "\
You compare a candidate answer with the reference answer of a question. Only the final result counts: the same value, \
object or choice in another form is correct; another value, a missing part or several contradicting results are not. Do \
not solve the question again, and trust the reference.

Question:
{{ prompt }}
{% for option in options %}
({{ \"ABCDEFGHIJKLMNOPQRSTUVWXYZ\"[loop.index0] }}) {{ option }}
{%- endfor %}

Reference answer:
{{ label }}

Candidate answer:
{{ answer }}

Give one sentence of reason. Then end with exactly one of these lines:
VERDICT: CORRECT
VERDICT: INCORRECT
VERDICT: UNSURE";

/// A judge model, ready to be asked.
pub struct Panel {
    pub(super) model: Arc<dyn Model>,
    template: Template,
    votes: u32,
    temperature: f64,
    max_tokens: u32,
    verifier: String,
    used: Mutex<Used>,
}

/// What came of a row's votes.
pub enum Vote {
    /// A verdict, which may be `undecided`.
    Given(Judgement),
    /// An answer is missing for a passing reason.
    Missing,
}

impl Panel {
    /// Makes the panel of a stage that names a judge.
    ///
    /// # Errors
    /// When the model cannot be opened or the template is wrong.
    pub(super) fn new(stage: &Verify, task: &pipeline_core::Task<'_>) -> Result<Option<Self>, StageError> {
        let Some(name) = &stage.judge else { return Ok(None) };
        let model = calls::model(task, name)?;
        let (text, file) = (stage.judge_template.as_deref(), stage.judge_template_file.as_deref());
        let template = match Template::given(task, text, file, "judge_template")? {
            Some(template) => template,
            None => Template::new(QUESTION, "judge_template")?,
        };
        Ok(Some(Self {
            verifier: format!("judge@{VERSION} {}", model.id()),
            model,
            template,
            votes: stage.judge_votes,
            temperature: stage.judge_temperature,
            max_tokens: stage.judge_max_tokens,
            used: Mutex::default(),
        }))
    }

    /// Name that is stored beside a verdict of the judge.
    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// What the calls used whose answers were read so far.
    pub fn used(&self) -> Used {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that a row needs. `answer` is what is judged.
    ///
    /// # Errors
    /// When the template names a variable that is not there.
    pub fn requests(&self, row: &Row<'_>, label: &str, answer: &str) -> Result<Vec<Request>, StageError> {
        let text = self.template.render(context! {
            prompt => row.prompt.unwrap_or_default(),
            domain => row.domain.unwrap_or_default(),
            options => row.options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>(),
            label => label,
            answer => answer,
            response => row.text,
        })?;
        let seed = |sample| (self.temperature > 0.0).then_some(u64::from(sample));
        let request = |sample| Request {
            messages: vec![Message::new("user", text.clone())],
            sampling: Sampling { seed: seed(sample), ..Sampling::full(self.temperature, self.max_tokens) },
            sample,
            salt: None,
            schema: None,
            attempt: 0,
        };
        Ok((0..self.votes).map(request).collect())
    }

    /// The verdict that the stored answers of a row's calls give.
    ///
    /// # Errors
    /// When the call store cannot be read.
    pub fn verdict(&self, requests: &[Request]) -> Result<Vote, StageError> {
        let (mut equal, mut different, mut unsure) = (0, 0, 0);
        for request in requests {
            let recorded = self.model.answer(request).map_err(|error| calls::model_error(&error))?;
            self.used.lock().unwrap_or_else(PoisonError::into_inner).add(&recorded);
            match recorded {
                Recorded::Answer(answer) if answer.finish_reason.as_deref() == Some("length") => {}
                Recorded::Answer(answer) => match said(&answer.answer_text) {
                    Some(Said::Correct) => equal += 1,
                    Some(Said::Incorrect) => different += 1,
                    Some(Said::Unsure) => unsure += 1,
                    None => {}
                },
                Recorded::RowError { .. } => {}
                Recorded::Missing => return Ok(Vote::Missing),
            }
        }
        let votes = requests.len();
        Ok(Vote::Given(if equal > different {
            Judgement::new(Verdict::Correct, format!("judged_equal: {equal} of {votes} votes"), "judge")
        } else if different > equal {
            Judgement::new(Verdict::Incorrect, format!("judged_different: {different} of {votes} votes"), "judge")
        } else if equal + unsure == 0 {
            Judgement::new(Verdict::Undecided, "judge_unreadable: no vote ends with a verdict", "judge")
        } else if equal == 0 {
            Judgement::new(Verdict::Undecided, format!("judge_unsure: {unsure} of {votes} votes"), "judge")
        } else {
            Judgement::new(Verdict::Undecided, format!("judge_split: {equal} of {votes} votes each"), "judge")
        }))
    }
}

/// What one answer of a judge says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Correct,
    Incorrect,
    Unsure,
}

/// The word after the last `VERDICT:`, else the last line if it is nothing but such a word.
fn said(answer: &str) -> Option<Said> {
    let upper = answer.to_uppercase();
    let after = ["VERDICT:", "VERDICT：", "判定：", "判定:", "结论：", "结论:"]
        .iter()
        .filter_map(|mark| upper.rfind(mark).map(|start| start + mark.len()))
        .max()
        .map(|start| upper[start..].trim_start_matches(is_ornament));
    let place = match after {
        Some(after) => after.lines().next().unwrap_or_default(),
        None => upper.lines().rev().find(|line| !line.trim().is_empty())?,
    };
    match place.trim_matches(is_ornament) {
        "CORRECT" | "YES" | "TRUE" | "EQUAL" | "正确" | "是" => Some(Said::Correct),
        "INCORRECT" | "NO" | "FALSE" | "DIFFERENT" | "WRONG" | "NOT CORRECT" | "错误" | "不正确" | "否" => {
            Some(Said::Incorrect)
        }
        "UNSURE" | "UNKNOWN" | "UNDECIDED" | "不确定" => Some(Said::Unsure),
        _ => None,
    }
}

/// What models put around a word.
fn is_ornament(letter: char) -> bool {
    letter.is_whitespace() || "*_`\"'“”[]()<>.!。！#\\{}$".contains(letter)
}

/// What decides a judge's verdicts beside its model and its template.
pub(super) fn external() -> External {
    External { name: "judge".to_owned(), digest: VERSION.to_string(), sliced: false }
}

/// Checks the parameters of a judge against each other.
///
/// # Errors
/// When they make no sense.
pub(super) fn validate(stage: &Verify) -> Result<(), ParamError> {
    let fail = |path: &str, message: &str| Err(ParamError::new(path, message));
    if stage.judge.is_none() {
        let given = [
            ("judge_template", stage.judge_template.is_some()),
            ("judge_template_file", stage.judge_template_file.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => fail(name, "names what a judge is asked, and there is no judge; add `judge = \"...\"`"),
            None => Ok(()),
        };
    }
    if stage.judge_votes == 0 || stage.judge_max_tokens == 0 {
        return fail("judge_votes", "`judge_votes` and `judge_max_tokens` must be at least 1");
    }
    if stage.judge_votes > 64 {
        return fail("judge_votes", "`judge_votes` must be at most 64");
    }
    if !(stage.judge_temperature >= 0.0 && stage.judge_temperature.is_finite()) {
        return fail("judge_temperature", "`judge_temperature` must be a number from 0");
    }
    if stage.judge_votes > 1 && stage.judge_temperature == 0.0 {
        return fail("judge_votes", "several votes at temperature 0 are one vote; set `judge_temperature`");
    }
    if stage.judge_template.is_some() && stage.judge_template_file.is_some() {
        return fail("judge_template_file", "give `judge_template` or `judge_template_file`, not both");
    }
    if let Some(text) = &stage.judge_template {
        Template::new(text, "judge_template")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Said, said};

    #[test]
    fn a_verdict_is_the_last_marked_word_or_a_line_of_its_own() {
        for (answer, expected) in [
            ("Both are 1/2.\nVERDICT: CORRECT", Some(Said::Correct)),
            ("VERDICT: CORRECT would need 3, so\n**VERDICT: INCORRECT**", Some(Said::Incorrect)),
            ("verdict: [[correct]].", Some(Said::Correct)),
            ("The same.\n\nYes.", Some(Said::Correct)),
            ("两者相等。\n判定：正确", Some(Said::Correct)),
            ("结论：**错误**。", Some(Said::Incorrect)),
            ("VERDICT: unsure", Some(Said::Unsure)),
            ("VERDICT: CORRECT or INCORRECT", None),
            ("The candidate is correct because it equals the reference.", None),
            ("VERDICT:", None),
            ("", None),
        ] {
            assert_eq!(said(answer), expected, "{answer:?}");
        }
    }
}
