//! A model for tests that says what it was told to, and remembers what it was asked.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use pipeline_core::Services;
use pipeline_models::{Ensured, Model, ModelError, ModelId, ModelSet, Progress, Recorded, Request, parse_answer};
use serde_json::json;

/// What a model does with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Does {
    /// Answers, and stops by itself.
    Says(String),
    /// Is cut at the token cap after this text.
    IsCut(String),
    /// Refuses the row for good with this code.
    Refuses(&'static str),
    /// Fails for a passing reason.
    Fails,
}

/// Says a text.
pub fn says(text: impl Into<String>) -> Does {
    Does::Says(text.into())
}

/// A model that answers by a function of the request, and answers nothing that it was not asked.
pub struct Scripted {
    id: ModelId,
    does: Box<dyn Fn(&Request) -> Does + Send + Sync>,
    asked: Mutex<Vec<Request>>,
}

impl Scripted {
    /// A model of this name.
    pub fn new(name: &str, does: impl Fn(&Request) -> Does + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { id: ModelId::named(name, None), does: Box::new(does), asked: Mutex::default() })
    }

    /// Every request it was asked, in order.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

impl Model for Scripted {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn ensure(
        &self,
        requests: &mut dyn Iterator<Item = Request>,
        _: &dyn Progress,
        _: &AtomicBool,
    ) -> Result<Ensured, ModelError> {
        for request in requests {
            let mut asked = self.asked.lock().unwrap();
            if !asked.contains(&request) {
                asked.push(request);
            }
        }
        Ok(Ensured::default())
    }

    fn answer(&self, request: &Request) -> Result<Recorded, ModelError> {
        if !self.asked.lock().unwrap().contains(request) {
            return Ok(Recorded::Missing);
        }
        let answer = |text: &str, reason: &str| {
            let body = json!({
                "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": reason }],
                "usage": { "prompt_tokens": 10, "completion_tokens": 3 },
            });
            Recorded::Answer(parse_answer(&body.to_string()).unwrap())
        };
        Ok(match (self.does)(request) {
            Does::Says(text) => answer(&text, "stop"),
            Does::IsCut(text) => answer(&text, "length"),
            Does::Refuses(code) => Recorded::RowError { code: code.to_owned(), message: "no".to_owned() },
            Does::Fails => Recorded::Missing,
        })
    }
}

/// These models, each under its name.
pub fn services(models: &[&Arc<Scripted>]) -> Services {
    let models: Vec<Arc<Scripted>> = models.iter().map(|model| Arc::clone(model)).collect();
    let mut services = Services::default();
    let open = move |name: &str| {
        let model = models.iter().find(|model| model.id.model == name);
        let model = model.ok_or_else(|| ModelError::config(name, "is not there"))?;
        Ok(Arc::clone(model) as Arc<dyn Model>)
    };
    services.insert(Arc::new(ModelSet::new(open)));
    services
}
