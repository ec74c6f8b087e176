//! What is done about a reply: stored, counted, waited for, or the end of the pass.

use std::time::{Duration, Instant};

use super::Outcome;
use super::abilities::{Abilities, Ability};
use super::ask::{Failure, Job, Sent, Server, Step};
use super::choices;
use super::classify::Meaning;
use super::exchange::HttpReply;
use super::pass::{Pass, Stopped};
use crate::answer::Answer;
use crate::error::ModelError;
use crate::key::CallKey;
use crate::model::Note;
use crate::request::{Asked, Request};
use crate::store::{Reply, StoredCall, now_ms};

/// Statuses that say that the server has too much to do.
const OVERLOAD: [u16; 3] = [429, 503, 529];

impl Server {
    /// Does what a reply calls for.
    pub(super) fn act(
        &self,
        pass: &Pass,
        job: &mut Job,
        sent: &Sent<'_>,
        reply: HttpReply,
        meaning: Meaning,
    ) -> Result<Step, Stopped> {
        let status = reply.status;
        if OVERLOAD.contains(&status) || matches!(meaning, Meaning::Wait(_)) {
            sent.entry.refused();
        }
        if !matches!(meaning, Meaning::Wait(_))
            && let Some(rate) = self.pace.taken(Instant::now(), sent.taken)
        {
            pass.note(rate_note(rate));
        }
        match meaning {
            Meaning::Answer(answer) if sent.shape.samples <= 1 => {
                self.keep_answers(pass, job, sent, vec![(reply.body, *answer)], reply.latency)
            }
            Meaning::Answer(_) => {
                let parts = choices::split(&reply.body, sent.shape.samples as usize);
                self.keep_answers(pass, job, sent, parts, reply.latency)
            }
            Meaning::Wait(asked) => self.wait(pass, sent, asked),
            Meaning::RowError { code, message } => self.end_rows(pass, job, sent, code, &message),
            Meaning::KeyRefused(message) => Err(pass.stop(ModelError::KeyRefused {
                model: self.name.clone(),
                host: self.host.clone(),
                status,
                message: self.redact(&message),
            })),
            Meaning::Refused(message) => Err(pass.stop(self.refused(status, &message))),
            Meaning::Again { message, kind } => {
                if status == 501 && self.do_without(pass, sent, status, &reply.body, &message)? {
                    return Ok(Step::Again);
                }
                Ok(Step::Failed(Failure { message: self.redact(&message), kind }))
            }
            Meaning::BadRequest(message) => {
                if self.do_without(pass, sent, status, &reply.body, &message)? {
                    return Ok(Step::Again);
                }
                self.bad_request(pass, job, sent, status, &message)
            }
        }
    }

    /// A request refused as malformed: the row's fault if others were answered.
    fn bad_request(
        &self,
        pass: &Pass,
        job: &mut Job,
        sent: &Sent<'_>,
        status: u16,
        message: &str,
    ) -> Result<Step, Stopped> {
        match self.breaker.refused() {
            Ok(true) => self.end_rows(pass, job, sent, "bad_request", message),
            Ok(false) => {
                if let Some((key, _)) = job.take() {
                    job.tell(Outcome::Transient(key, format!("status {status}: {}", self.redact(message))));
                }
                Ok(Step::Done)
            }
            Err(_) => Err(pass.stop(self.refused(status, message))),
        }
    }

    /// Whether a refusal is about something that can be done without: then it is from now on.
    fn do_without(
        &self,
        pass: &Pass,
        sent: &Sent<'_>,
        status: u16,
        body: &str,
        message: &str,
    ) -> Result<bool, Stopped> {
        let Some(ability) = Abilities::concerned(sent.shape, body) else {
            return Ok(false);
        };
        if ability == Ability::Schema && self.abilities.is_schema_required() {
            let message = format!(
                "{message} (`structured_output = \"server\"` asks it to enforce a JSON schema; `auto` or `prompt` does without)"
            );
            return Err(pass.stop(self.refused(status, &message)));
        }
        if let Some(note) = self.abilities.do_without(ability, self.redact(message)) {
            pass.note(note);
        }
        Ok(true)
    }

    /// Begins or lengthens the shared wait, unless patience is at its end.
    fn wait(&self, pass: &Pass, sent: &Sent<'_>, asked: Option<Duration>) -> Result<Step, Stopped> {
        match self.pace.refused(Instant::now(), sent.taken, asked, sent.jitter) {
            Ok(started) => {
                if let Some(wait) = started {
                    pass.note(Note::RateLimited { wait_seconds: wait.as_secs() });
                }
                Ok(Step::Again)
            }
            Err(impatient) => Err(pass.stop(ModelError::RateLimited {
                model: self.name.clone(),
                host: self.host.clone(),
                wait_seconds: impatient.wait.as_secs(),
            })),
        }
    }

    /// Stores the answers that one reply gave to the first requests of a job. The prompt was read once for all of them.
    fn keep_answers(
        &self,
        pass: &Pass,
        job: &mut Job,
        sent: &Sent<'_>,
        answers: Vec<(String, Answer)>,
        latency: Duration,
    ) -> Result<Step, Stopped> {
        let (Some((_, first)), Some((_, request))) = (answers.first(), job.first()) else {
            let message = "unreadable reply: it holds no choice that can be read".to_owned();
            return Ok(Step::Failed(Failure { message, kind: Some("unreadable".to_owned()) }));
        };
        let prompt = first.prompt_tokens.unwrap_or_else(|| estimated_prompt(request));
        let cached = first.cached_tokens.unwrap_or(0).min(prompt);
        let counts: Vec<u64> = answers
            .iter()
            .map(|(_, answer)| answer.completion_tokens.unwrap_or_else(|| estimated_completion(answer)))
            .collect();
        let tokens = prompt + counts.iter().sum::<u64>();
        let money =
            |prompt, cached, written| self.price.as_ref().map_or(0.0, |price| price.cost(prompt, cached, written));
        sent.place.spend(tokens, money(prompt, cached, tokens - prompt));
        self.pace.correct(sent.taken, tokens);
        sent.entry.answered();
        self.breaker.answered(Instant::now());
        self.tell_of(pass, request, first);
        let (mut prompt, mut cached) = (prompt, cached);
        for ((body, _), completion_tokens) in answers.into_iter().zip(counts) {
            let Some((key, request)) = job.take() else { break };
            self.append(pass, job, (key, request), Reply::Answer(body), latency)?;
            job.tell(Outcome::Answered {
                prompt_tokens: prompt,
                cached_tokens: cached,
                completion_tokens,
                money: money(prompt, cached, completion_tokens),
            });
            (prompt, cached) = (0, 0);
        }
        Ok(Step::Done)
    }

    /// Tells once what is odd about an answer.
    fn tell_of(&self, pass: &Pass, request: &Request, answer: &Answer) {
        match &answer.model {
            Some(answered) if *answered != self.id.model => pass.note_name(&self.redact(answered)),
            _ => {}
        }
        if !request.sampling.logprobs {
            return;
        }
        let note = if answer.tokens_incomplete {
            self.abilities.tokens_incomplete(request)
        } else if answer.token_logprobs.is_none() {
            self.abilities.no_logprobs()
        } else {
            None
        };
        if let Some(note) = note {
            pass.note(note);
        }
    }

    /// Stores that the requests which went out together can never be answered.
    fn end_rows(
        &self,
        pass: &Pass,
        job: &mut Job,
        sent: &Sent<'_>,
        code: &str,
        message: &str,
    ) -> Result<Step, Stopped> {
        for _ in 0..sent.shape.samples {
            let Some(row) = job.take() else { break };
            self.keep_row_error(pass, job, row, code, message)?;
        }
        Ok(Step::Done)
    }

    /// Stores that a request can never be answered.
    pub(super) fn keep_row_error(
        &self,
        pass: &Pass,
        job: &Job,
        row: (CallKey, Request),
        code: &str,
        message: &str,
    ) -> Result<(), Stopped> {
        let reply = Reply::RowError { code: code.to_owned(), message: self.redact(message) };
        self.append(pass, job, row, reply, Duration::ZERO)?;
        job.tell(Outcome::RowError);
        Ok(())
    }

    fn append(
        &self,
        pass: &Pass,
        job: &Job,
        (key, request): (CallKey, Request),
        reply: Reply,
        latency: Duration,
    ) -> Result<(), Stopped> {
        let call = StoredCall {
            model: self.id.clone(),
            request: Asked::Answer(request),
            reply,
            stage: pass.stage.clone(),
            host: self.host.clone(),
            time_ms: now_ms(),
            latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
        };
        self.calls.append(&key, &call).map_err(|error| {
            job.tell(Outcome::Stopped);
            pass.stop(error)
        })
    }

    pub(super) fn unreachable(&self, failures: u32, message: &str) -> ModelError {
        ModelError::Unreachable {
            model: self.name.clone(),
            host: self.host.clone(),
            failures,
            message: message.to_owned(),
        }
    }

    fn refused(&self, status: u16, message: &str) -> ModelError {
        ModelError::Refused { model: self.name.clone(), host: self.host.clone(), status, message: self.redact(message) }
    }

    /// Text of a server or the network, fit to be shown: without the key, on one line, without steering characters, and
    /// shortened.
    pub(super) fn redact(&self, text: &str) -> String {
        let text = self.secret.as_ref().map_or_else(|| text.to_owned(), |secret| secret.redact(text));
        shown(&text)
    }
}

/// Characters of a server's words that are shown.
const SHOWN: usize = 500;

/// A text of unknown origin as part of a line.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(SHOWN));
    for letter in text.chars().take(SHOWN) {
        match letter {
            '\n' | '\r' | '\t' => out.push(' '),
            // what turns or hides text counts as well
            _ if letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                out.extend(letter.escape_unicode());
            }
            _ => out.push(letter),
        }
    }
    out
}

fn rate_note(rate: f64) -> Note {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^52"
    )]
    let requests_per_minute = rate.round() as u64;
    Note::RateLearned { requests_per_minute }
}

/// Tokens of a request, roughly: three bytes a token fit Chinese, and overrate English.
pub(super) fn estimated_prompt(request: &Request) -> u64 {
    request.messages.iter().map(|message| message.content.len() as u64 / 3 + 4).sum()
}

/// The same for an answer.
pub(super) fn estimated_completion(answer: &Answer) -> u64 {
    let reasoning = answer.reasoning.as_ref().map_or(0, String::len);
    (answer.text.len().max(reasoning + answer.answer_text.len()) as u64).div_ceil(3)
}
