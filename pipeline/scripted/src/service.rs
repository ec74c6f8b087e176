//! From a request to a plan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::answer::{Answer, choice, derive};
use crate::batch::Desk;
use crate::chat::{Chat, Told, UsageShape, half_of, room};
use crate::counts::{Arrival, Counts};
use crate::draw::{hash_of, mix};
use crate::fault::{Fault, FaultTable};
use crate::http::{Reply, Request};
use crate::limits::{Limiter, with_wait};
use crate::options::{Beyond, LogprobsMode, Options, ReasoningShape, SchemaMode};
use crate::plan::Plan;
use crate::schema::instance;
use crate::script::{Act, Decide, Rules, Ruling, Script, Seen};
use crate::server::StartError;

/// All that connections share.
pub(crate) struct Service {
    pub(crate) options: Options,
    faults: FaultTable,
    rules: Rules,
    decide: Option<Arc<Decide>>,
    pub(crate) counts: Counts,
    limiter: Limiter,
    /// Places of requests that are worked on, where they queue.
    pub(crate) places: Option<Semaphore>,
    desk: Desk,
}

impl Service {
    pub(crate) fn new(script: Script) -> Result<Self, StartError> {
        let Script { options, rules, decide } = script;
        let places = options.limits.concurrent.filter(|_| options.limits.beyond_concurrent == Beyond::Queue);
        Ok(Self {
            faults: FaultTable::new(options.faults.every, &options.faults.shares).map_err(StartError::Options)?,
            rules: Rules::new(options.answers.rules.as_deref(), &rules)?,
            decide,
            counts: Counts::new(options.limits.window_length.unwrap_or(Duration::from_mins(1))),
            limiter: Limiter::new(&options.limits),
            places: places.map(|places| Semaphore::new(places.max(1) as usize)),
            desk: Desk::default(),
            options,
        })
    }

    /// What happens to a chat request.
    pub(crate) fn chat(&self, request: &Request, hash: u64, arrival: &Arrival) -> Plan {
        if let Some(reply) = self.refused(request, Some(arrival.number)) {
            return Plan::of(reply, Duration::ZERO);
        }
        let limits = &self.options.limits;
        let beyond = limits.concurrent.is_some_and(|most| arrival.in_flight > u64::from(most));
        if beyond && limits.beyond_concurrent == Beyond::Refuse {
            let reply = self.error(request, 429, "rate_limit_error", "concurrency", "too many requests at one time");
            return Plan::of(with_wait(reply, limits.limit_wait, Duration::from_secs(1)), Duration::ZERO);
        }
        let act = self.decide.as_ref().map_or(Act::Usual, |decide| ask(decide.as_ref(), request, arrival));
        self.acted(request, hash, arrival, act)
    }

    fn acted(&self, request: &Request, hash: u64, arrival: &Arrival, act: Act) -> Plan {
        let delay = self.options.latency.delay.draw(mix(mix(self.options.seed, hash), u64::from(arrival.attempt)));
        let (fault, said) = match act {
            Act::After(more, act) => {
                let mut plan = self.acted(request, hash, arrival, *act);
                plan.delay += more;
                return plan;
            }
            Act::Send(reply) => return Plan::of(reply, delay),
            Act::Fail(fault) => (Some(fault), None),
            Act::Say(answer) => (None, Some(answer)),
            Act::Usual => (self.faults.passing(self.options.seed, hash, arrival.attempt), None),
        };
        let (passing, lasting) = match fault {
            Some(fault) if fault.is_lasting() => (None, Some(fault)),
            passing => (passing, None),
        };
        if let Some(fault) = passing {
            self.counts.fault(fault);
            if let Some(plan) = self.instead(request, fault, delay) {
                return plan;
            }
        }
        let lasting = lasting.or_else(|| self.faults.lasting(self.options.seed, hash).filter(|_| said.is_none()));
        let plan = self.answered(request, hash, delay, lasting, said.as_ref());
        match passing {
            Some(fault) if plan.reply.status == 200 => self.spoiled(plan, fault, request),
            _ => plan,
        }
    }

    /// The plan for everything that is no chat request.
    pub(crate) fn other(&self, request: &Request) -> Plan {
        let hash = hash_of(&format!("{} {}", request.method, request.path), &[]);
        let attempt = self.counts.arrive_other(hash);
        if let Some(reply) = self.refused(request, None) {
            return Plan::of(reply, Duration::ZERO);
        }
        let fault = self.faults.passing(self.options.seed, hash, attempt);
        if let Some(fault) = fault {
            self.counts.fault(fault);
            if let Some(plan) = self.instead(request, fault, Duration::ZERO) {
                return plan;
            }
        }
        let plan = Plan::of(self.route(request), Duration::ZERO);
        match fault {
            Some(fault) if plan.reply.status == 200 => self.spoiled(plan, fault, request),
            _ => plan,
        }
    }

    fn route(&self, request: &Request) -> Reply {
        let path = bare(&request.path);
        if path == "/models" {
            let names = &self.options.models;
            let names = if names.is_empty() { vec!["scripted"] } else { names.iter().map(String::as_str).collect() };
            let data: Vec<_> = names
                .iter()
                .map(|name| serde_json::json!({"id": name, "object": "model", "created": 0, "owned_by": "scripted"}))
                .collect();
            return Reply::json(200, serde_json::json!({"object": "list", "data": data}).to_string());
        }
        self.desk.route(self, request, path).unwrap_or_else(|| {
            self.error(request, 404, "invalid_request_error", "not_found", "there is nothing at this path")
        })
    }

    /// An error object; repeats the key where that is asked for.
    pub(crate) fn error(&self, request: &Request, status: u16, kind: &str, code: &str, message: &str) -> Reply {
        match &request.authorization {
            Some(sent) if self.options.access.echo_key => {
                Reply::error(status, kind, code, &format!("{message} (you sent `authorization: {sent}`)"))
            }
            _ => Reply::error(status, kind, code, message),
        }
    }

    fn refused(&self, request: &Request, number: Option<u64>) -> Option<Reply> {
        let access = &self.options.access;
        if let Some(key) = &access.api_key {
            let sent = request.authorization.as_deref().and_then(|sent| sent.strip_prefix("Bearer "));
            if sent != Some(key) {
                return Some(self.error(request, 401, "authentication_error", "invalid_api_key", "invalid API key"));
            }
        }
        let after = access.refuse_after?;
        number.filter(|number| *number >= after.count)?;
        let (kind, code, message) = match after.status {
            402 => ("billing_error", "insufficient_balance", "insufficient balance"),
            403 => ("permission_error", "forbidden", "this account may not use the model"),
            _ => ("authentication_error", "invalid_api_key", "the API key is no longer valid"),
        };
        Some(self.error(request, after.status, kind, code, message))
    }

    /// The plan of an answer.
    fn answered(
        &self,
        request: &Request,
        hash: u64,
        delay: Duration,
        lasting: Option<Fault>,
        said: Option<&Answer>,
    ) -> Plan {
        let chat = match Chat::parse(&request.body) {
            Ok(chat) => chat,
            Err(message) => {
                let reply = self.error(request, 400, "invalid_request_error", "invalid_json", &message);
                return Plan::of(reply, Duration::ZERO);
            }
        };
        match self.told(request, &chat, hash, lasting, said) {
            Err(reply) => {
                let delay = if reply.status < 500 { Duration::ZERO } else { delay };
                Plan::of(reply, delay)
            }
            Ok(told) => {
                let mut reply = told.reply(&chat);
                if self.limiter.is_on() {
                    let tokens = chat.prompt_tokens + told.completion_tokens();
                    let admission = self.limiter.admit(Instant::now(), tokens);
                    if !admission.is_admitted {
                        return Plan::of(self.limiter.refusal(&admission), Duration::ZERO);
                    }
                    reply = self.limiter.with_headers(reply, &admission);
                }
                let mut plan = Plan::of(reply, delay);
                let per_token = self.options.latency.per_token;
                if chat.is_stream {
                    plan.pace = per_token;
                } else {
                    let tokens = u32::try_from(told.completion_tokens()).unwrap_or(u32::MAX);
                    plan.delay += per_token.saturating_mul(tokens);
                }
                plan
            }
        }
    }

    /// What is told, or the error instead.
    pub(crate) fn told(
        &self,
        request: &Request,
        chat: &Chat,
        hash: u64,
        lasting: Option<Fault>,
        said: Option<&Answer>,
    ) -> Result<Told, Reply> {
        let options = &self.options.answers;
        self.check(request, chat)?;
        if let Some(fault) = lasting {
            self.counts.fault(fault);
        }
        match lasting {
            Some(Fault::Always500) => {
                return Err(self.error(request, 500, "server_error", "server_error", "the server had an error"));
            }
            Some(Fault::RefusedContent) => {
                let message = "the prompt was refused by the content management policy";
                return Err(self.error(request, 400, "invalid_request_error", "content_filter", message));
            }
            _ => {}
        }
        let base = mix(mix(self.options.seed, hash_of(&chat.model, chat.text.as_bytes())), chat.seed);
        let mut choices = Vec::new();
        for place in 0..chat.choices {
            let number = mix(base, u64::from(place));
            let answer = match said {
                Some(answer) => answer.clone(),
                None => self.answer(request, chat, number)?,
            };
            let room = room(options.context, chat);
            choices.push(self.shaped(answer, number, room, lasting));
        }
        let usage = match lasting {
            Some(Fault::UsageMissing) => UsageShape::Missing,
            Some(Fault::UsageWrong) => UsageShape::Wrong,
            Some(Fault::UsageFloat) => UsageShape::Float,
            _ => UsageShape::Right,
        };
        let cached = (options.cached_share > 0.0).then(|| share_of_tokens(chat.prompt_tokens, options.cached_share));
        let gives_logprobs = chat.logprobs
            && match options.logprobs {
                LogprobsMode::Asked => true,
                LogprobsMode::NeedsTop => chat.top_logprobs > 0,
                LogprobsMode::Never => false,
            };
        Ok(Told { choices, usage, counts_one: options.usage_of_one, cached, gives_logprobs, number: hash })
    }

    fn shaped(&self, mut answer: Answer, number: u64, room: u64, lasting: Option<Fault>) -> crate::answer::Choice {
        let mut shape = self.options.answers.reasoning;
        if shape == ReasoningShape::None && answer.reasoning.is_some() {
            shape = ReasoningShape::ReasoningContent;
        }
        let mut room = room;
        match lasting {
            Some(Fault::Length) => room = room.min(half_of(answer.text.as_deref().unwrap_or_default())),
            Some(Fault::Empty) => answer = Answer::text(""),
            Some(Fault::NullContent) => answer = Answer::default(),
            Some(Fault::ContentFilter) => {
                answer = Answer { finish_reason: Some("content_filter".to_owned()), ..Answer::default() };
            }
            _ => {}
        }
        choice(answer, shape, number, room)
    }

    fn check(&self, request: &Request, chat: &Chat) -> Result<(), Reply> {
        let refuse = |status, code: &str, message: &str| {
            Err(self.error(request, status, "invalid_request_error", code, message))
        };
        let names = &self.options.models;
        if !names.is_empty() && !names.contains(&chat.model) {
            return refuse(404, "model_not_found", &format!("the model `{}` does not exist", chat.model));
        }
        if self.options.faults.failing_text.as_ref().is_some_and(|text| chat.text.contains(text)) {
            return Err(self.error(request, 500, "server_error", "server_error", "the server had an error"));
        }
        let most = self.options.answers.most_choices.unwrap_or(128);
        if chat.choices == 0 || chat.choices > most {
            return refuse(400, "invalid_value", &format!("`n` must be between 1 and {most}, not {}", chat.choices));
        }
        if let Some(context) = self.options.answers.context.filter(|context| chat.prompt_tokens >= u64::from(*context))
        {
            let message = format!(
                "request ({} tokens) exceeds the available context size ({context} tokens)",
                chat.prompt_tokens
            );
            let error = serde_json::json!({"error": {
                "code": 400, "message": message, "type": "exceed_context_size_error",
                "n_prompt_tokens": chat.prompt_tokens, "n_ctx": context,
            }});
            return Err(Reply::json(400, error.to_string()));
        }
        if chat.schema.is_some() && self.options.answers.schema == SchemaMode::Refuse {
            return refuse(400, "unsupported_parameter", "`response_format` with a JSON schema is not supported");
        }
        Ok(())
    }

    fn answer(&self, request: &Request, chat: &Chat, number: u64) -> Result<Answer, Reply> {
        match self.rules.find(&chat.text, number) {
            Some(Ruling::Answer(answer)) => return Ok(answer),
            Some(Ruling::Error(status, message)) => {
                return Err(self.error(request, status, "scripted", "scripted", &message));
            }
            None => {}
        }
        let options = &self.options.answers;
        let enforced = chat.schema.as_ref().filter(|_| options.schema == SchemaMode::Enforce);
        let made = enforced.or(chat.written_schema.as_ref()).map(|schema| instance(schema, number));
        match made {
            Some(Ok(value)) => Ok(Answer::text(value.to_string())),
            Some(Err(message)) => Err(self.error(request, 400, "invalid_request_error", "invalid_schema", &message)),
            None => Ok(derive(options, &chat.text, number)),
        }
    }

    /// The lasting fault of a request, for batches.
    pub(crate) fn lasting(&self, hash: u64) -> Option<Fault> {
        self.faults.lasting(self.options.seed, hash)
    }
}

fn ask(decide: &Decide, request: &Request, arrival: &Arrival) -> Act {
    let Ok(body) = serde_json::from_slice(&request.body) else {
        return Act::Usual;
    };
    let text = Chat::parse(&request.body).map(|chat| chat.text).unwrap_or_default();
    decide(&Seen {
        number: arrival.number,
        attempt: arrival.attempt,
        path: &request.path,
        authorization: request.authorization.as_deref(),
        body: &body,
        text: &text,
    })
}

/// A path without the version before it.
pub(crate) fn bare(path: &str) -> &str {
    path.strip_prefix("/v1").unwrap_or(path)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is no larger than it")]
fn share_of_tokens(tokens: u64, share: f64) -> u64 {
    (tokens as f64 * share.clamp(0.0, 1.0)) as u64
}
