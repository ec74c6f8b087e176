//! Limits on tokens and money of one run, shared by all its models.
//!
//! Checked before each request is sent. What a request will cost is known only afterwards, so those in
//! flight count with the mean of the requests so far: near the limit requests go out more and more
//! singly, and the limit is passed by less than one request's deviation from the mean. Reaching it
//! stops further requests; those in flight still arrive and are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::error::ModelError;

/// `[budget]` of the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Most tokens of a run, read and written, over all models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Most money of a run, in the currency of the models' prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub money: Option<f64>,
}

/// Price of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Price of a million tokens read.
    #[schemars(range(min = 0.0))]
    pub input: f64,
    /// Price of a million tokens read that were in the server's prompt cache; `input` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0))]
    pub cached_input: Option<f64>,
    /// Price of a million tokens written.
    #[schemars(range(min = 0.0))]
    pub output: f64,
    /// Currency, such as `USD`.
    #[serde(default = "default_currency")]
    pub currency: String,
    /// Day on which the price was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

fn default_currency() -> String {
    "USD".to_owned()
}

impl Price {
    /// Cost of one request, in `currency`. `cached_tokens` are those of the prompt that were in the server's cache.
    pub fn cost(&self, prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64) -> f64 {
        const UNIT: f64 = 1e6;
        let cached = cached_tokens.min(prompt_tokens);
        let read =
            (prompt_tokens - cached) as f64 * self.input + cached as f64 * self.cached_input.unwrap_or(self.input);
        (read + completion_tokens as f64 * self.output) / UNIT
    }
}

/// What a run has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Tokens read and written.
    pub tokens: u64,
    /// Money in the currency of the prices.
    pub money: f64,
    /// Answers paid for.
    pub answers: u64,
}

/// The budget of one run.
#[derive(Debug, Default)]
pub struct Budget {
    limits: BudgetConfig,
    state: Mutex<State>,
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: Usage,
    /// Least cost of batches that are not answered yet.
    committed: Usage,
    in_flight: u64,
    currency: Option<String>,
}

/// A request's place in the budget; gives it back when dropped.
pub(crate) struct Reservation<'a>(&'a Budget);

impl Budget {
    /// A fresh budget with these limits.
    pub fn new(limits: BudgetConfig) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What has been used so far.
    pub fn used(&self) -> Usage {
        self.state().used
    }

    /// Checks that all priced models of a run share one currency.
    pub(crate) fn agree_on_currency(&self, model: &str, price: &Price) -> Result<(), ModelError> {
        let mut state = self.state();
        match &state.currency {
            Some(first) if *first != price.currency && self.limits.money.is_some() => Err(ModelError::config(
                model,
                format!(
                    "`price.currency` is `{}`, another model's is `{first}`: one `budget.money` cannot hold both",
                    price.currency
                ),
            )),
            _ => {
                state.currency = Some(price.currency.clone());
                Ok(())
            }
        }
    }

    /// Books what an answer cost.
    pub(crate) fn spend(&self, tokens: u64, money: f64) {
        let mut state = self.state();
        state.used.tokens += tokens;
        state.used.money += money;
        state.used.answers += 1;
    }

    /// Waits for room for one more request.
    pub(crate) async fn reserve(&self) -> Result<Reservation<'_>, ModelError> {
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            returned.as_mut().enable();
            if let Some(place) = self.try_reserve()? {
                return Ok(place);
            }
            returned.await;
        }
    }

    /// Takes room for one more request, if there is some now.
    pub(crate) fn try_reserve(&self) -> Result<Option<Reservation<'_>>, ModelError> {
        let mut state = self.state();
        self.check(&state)?;
        if state.in_flight > 0 && !self.has_room(&state) {
            return Ok(None);
        }
        state.in_flight += 1;
        Ok(Some(Reservation(self)))
    }

    fn check(&self, state: &State) -> Result<(), ModelError> {
        let used = state.used;
        if let Some(limit) = self.limits.tokens.filter(|limit| used.tokens >= *limit) {
            return Err(ModelError::BudgetSpent {
                what: "tokens".to_owned(),
                used: used.tokens.to_string(),
                limit: limit.to_string(),
            });
        }
        if let Some(limit) = self.limits.money.filter(|limit| used.money >= *limit) {
            return Err(ModelError::BudgetSpent {
                what: state.currency.clone().unwrap_or_else(|| "money".to_owned()),
                used: format!("{:.4}", used.money),
                limit: format!("{limit:.4}"),
            });
        }
        Ok(())
    }

    fn has_room(&self, state: &State) -> bool {
        if self.limits.tokens.is_none() && self.limits.money.is_none() {
            return true;
        }
        if state.used.answers == 0 {
            // Nothing is known yet: one request alone tells what they cost.
            return false;
        }
        let share = (state.in_flight + 1) as f64 / state.used.answers as f64;
        let tokens = state.used.tokens as f64 * (1.0 + share);
        let money = state.used.money * (1.0 + share);
        self.limits.tokens.is_none_or(|limit| tokens <= limit as f64)
            && self.limits.money.is_none_or(|limit| money <= limit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Books what the request cost.
    pub(crate) fn spend(&self, tokens: u64, money: f64) {
        self.0.spend(tokens, money);
    }
}

/// What the requests of one batch cost at least, counted until it is dropped.
pub(crate) struct Commitment {
    budget: Arc<Budget>,
    tokens: u64,
    money: f64,
}

impl Commitment {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), tokens: 0, money: 0.0 }
    }

    /// Takes one more request in, unless the budget is spent or would be by what is known to be under way. Its cost is
    /// that of its prompt, or the mean of the answers so far where that is more.
    pub(crate) fn extend(&mut self, tokens: u64, money: f64) -> Result<(), ModelError> {
        let limits = self.budget.limits;
        let mut state = self.budget.state();
        self.budget.check(&state)?;
        let answers = state.used.answers.max(1);
        let tokens = tokens.max(state.used.tokens / answers);
        let money = money.max(state.used.money / answers as f64);
        let all_tokens = state.used.tokens + state.committed.tokens + tokens;
        let all_money = state.used.money + state.committed.money + money;
        if let Some(limit) = limits.tokens.filter(|limit| all_tokens > *limit) {
            return Err(ModelError::BudgetSpent {
                what: "tokens".to_owned(),
                used: format!("{all_tokens} (batches under way included)"),
                limit: limit.to_string(),
            });
        }
        if let Some(limit) = limits.money.filter(|limit| all_money > *limit) {
            return Err(ModelError::BudgetSpent {
                what: state.currency.clone().unwrap_or_else(|| "money".to_owned()),
                used: format!("{all_money:.4} (batches under way included)"),
                limit: format!("{limit:.4}"),
            });
        }
        state.committed.tokens += tokens;
        state.committed.money += money;
        self.tokens += tokens;
        self.money += money;
        Ok(())
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.committed.tokens = state.committed.tokens.saturating_sub(self.tokens);
        state.committed.money = (state.committed.money - self.money).max(0.0);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
        self.0.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_limit_is_passed_by_less_than_one_answer() {
        run(async {
            let budget = Budget::new(BudgetConfig { tokens: Some(100), money: None });
            let mut sent = 0;
            while let Ok(place) = budget.reserve().await {
                place.spend(30, 0.0);
                sent += 1;
            }
            assert_eq!(sent, 4);
            assert_eq!(budget.used().tokens, 120);
        });
    }

    #[test]
    fn requests_in_flight_count_with_the_mean_so_far() {
        run(async {
            let budget = Budget::new(BudgetConfig { tokens: Some(100), money: None });
            let first = budget.reserve().await.unwrap();
            assert!(!budget.has_room(&budget.state()), "the first request goes alone");
            first.spend(30, 0.0);
            drop(first);
            let held = [budget.reserve().await.unwrap(), budget.reserve().await.unwrap()];
            assert!(!budget.has_room(&budget.state()), "30 used and 2 x 30 expected leave no room");
            drop(held);
            assert!(budget.has_room(&budget.state()));
        });
    }

    #[test]
    fn money_is_limited_in_the_currency_of_the_prices() {
        let price = Price { input: 0.5, cached_input: Some(0.1), output: 2.0, currency: "EUR".to_owned(), as_of: None };
        assert!((price.cost(2_000_000, 0, 500_000) - 2.0).abs() < 1e-12);
        assert!((price.cost(2_000_000, 1_000_000, 500_000) - 1.6).abs() < 1e-12);
        run(async {
            let budget = Budget::new(BudgetConfig { tokens: None, money: Some(1.0) });
            budget.agree_on_currency("a", &price).unwrap();
            let other = Price { currency: "USD".to_owned(), ..price.clone() };
            assert!(budget.agree_on_currency("b", &other).is_err());
            budget.reserve().await.unwrap().spend(10, 1.5);
            let error = budget.reserve().await.err().unwrap();
            assert!(error.to_string().starts_with("budget spent: 1.5000 of 1.0000 EUR used; "), "{error}");
        });
    }
}
