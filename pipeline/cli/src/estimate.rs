//! What a run would ask of its models: calls, tokens and money of each stage that is not made yet.
//!
//! The best witness is a try-out: `pipeline run --limit 20` leaves versions whose counters say how many calls and tokens
//! so many rows took; they are scaled to the rows that are to come. An earlier version of a stage serves as well. Without
//! either, `max_tokens` gives an upper bound, which is said to be one. Rows of stages that are themselves to be made are
//! chained through the shares that the try-out kept.

use std::collections::{BTreeMap, BTreeSet};

use pipeline_core::port::Cardinality;
use pipeline_core::{Recipe, StageError};
use pipeline_engine::decide::{self, Outcome};
use pipeline_engine::record::grouped;
use pipeline_engine::records::Success;
use pipeline_engine::run::Planned;
use pipeline_engine::store::Version;
use pipeline_engine::{Node, Store};
use pipeline_models::{BudgetConfig, Engine};
use serde_json::{Value, json};

use crate::session::Session;

/// Counters that kinds on models keep.
const CALLS: &str = "calls";
const PROMPT_TOKENS: &str = "prompt_tokens";
const CACHED_TOKENS: &str = "cached_tokens";
const COMPLETION_TOKENS: &str = "completion_tokens";

/// Digits of a fingerprint in the name of a version.
const SHORT_FINGERPRINT: usize = 12;

/// Where figures come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// A try-out of so many rows, whose answers are at hand.
    TryOut(u64),
    /// An earlier version of so many rows.
    Earlier(u64),
    /// Answers of a version with other parameters, so many calls of it.
    OtherParameters(u64),
    /// `max_tokens`: an upper bound.
    MaxTokens,
}

impl Basis {
    /// The word that JSON has for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TryOut(_) => "try_out",
            Self::Earlier(_) => "earlier_version",
            Self::OtherParameters(_) => "other_parameters",
            Self::MaxTokens => "max_tokens",
        }
    }
}

impl std::fmt::Display for Basis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TryOut(rows) => write!(formatter, "estimated from a try-out of {} rows", grouped(*rows)),
            Self::Earlier(rows) => write!(formatter, "estimated from an earlier version of {} rows", grouped(*rows)),
            Self::OtherParameters(calls) => {
                write!(formatter, "estimated from {} answers under other parameters", grouped(*calls))
            }
            Self::MaxTokens => formatter.write_str("at most, from `max_tokens`"),
        }
    }
}

/// What a stage, or a whole run, would ask of models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Need {
    /// Answers or scores.
    pub calls: u64,
    /// Tokens read, as far as something tells.
    pub prompt_tokens: u64,
    /// More tokens are read than `prompt_tokens`, nobody knows how many.
    pub reads_more: bool,
    /// Tokens written.
    pub completion_tokens: u64,
    /// Money by the prices of the models, with its currency; `None` where a price is not known.
    pub money: Option<(f64, String)>,
}

impl Need {
    /// Adds what another stage needs. Unknown stays unknown.
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.completion_tokens += other.completion_tokens;
        self.prompt_tokens += other.prompt_tokens;
        self.reads_more |= other.reads_more;
        self.money = match (self.money.take(), &other.money) {
            (Some((one, currency)), Some((two, other))) if currency == *other => Some((one + two, currency)),
            // nothing costs nothing in any currency
            (Some((0.0, _)), Some((two, other))) => Some((*two, other.clone())),
            (Some((one, currency)), Some((0.0, _))) => Some((one, currency)),
            _ => None,
        };
    }

    /// All tokens that are known of.
    pub fn tokens(&self) -> u64 {
        self.completion_tokens + self.prompt_tokens
    }

    /// The figures as JSON.
    pub fn document(&self) -> Value {
        json!({
            "calls": self.calls, "prompt_tokens": (!self.reads_more).then_some(self.prompt_tokens),
            "completion_tokens": self.completion_tokens,
            "money": self.money.as_ref().map(|(money, _)| money),
            "currency": self.money.as_ref().map(|(_, currency)| currency).filter(|currency| !currency.is_empty()),
        })
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} calls", grouped(self.calls))?;
        let (read, written) = (grouped(self.prompt_tokens), grouped(self.completion_tokens));
        match (self.reads_more, self.prompt_tokens) {
            (false, _) => write!(formatter, ", {read} tokens in, {written} out")?,
            (true, 0) => write!(formatter, ", {written} tokens of answers")?,
            (true, _) => {
                write!(formatter, ", {written} tokens of answers, {read} in and those of prompts not known yet")?;
            }
        }
        match &self.money {
            Some((money, currency)) if !currency.is_empty() => {
                let of = match (self.reads_more, self.prompt_tokens) {
                    (false, _) => "",
                    (true, 0) => " for answers",
                    (true, _) => " without those prompts",
                };
                write!(formatter, ", {} {currency}{of}", amount(*money))
            }
            _ => Ok(()),
        }
    }
}

/// Money with as many places as a small sum needs.
pub fn amount(money: f64) -> String {
    if money == 0.0 || money.abs() >= 1.0 { format!("{money:.2}") } else { format!("{money:.4}") }
}

/// What a stage would ask of models.
#[derive(Debug, Clone, PartialEq)]
pub struct StageNeed {
    /// Rows that it would read.
    pub rows: u64,
    /// Calls, tokens and money.
    pub need: Need,
    /// Where the figures come from.
    pub basis: Basis,
}

/// What a run would ask of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// By index of the stage: those that would call a model.
    pub stages: BTreeMap<usize, StageNeed>,
    /// Stages on models that nothing can be said about yet.
    pub unknown: Vec<String>,
    /// The sum.
    pub total: Need,
}

impl Outlook {
    /// Looks ahead over all that is planned.
    ///
    /// # Errors
    /// When a user's file cannot be read.
    pub fn new(session: &Session, planned: &[Planned]) -> Result<Self, StageError> {
        let tries = Store::new(&session.out, session.out.join("try"));
        let mut looking = Looking { session, tries, rows: BTreeMap::new() };
        let total = Need { money: Some((0.0, String::new())), ..Need::default() };
        let mut outlook = Self { stages: BTreeMap::new(), unknown: Vec::new(), total };
        for planned in planned {
            let node = &session.project.nodes[planned.stage];
            let is_known = looking.look(planned, &mut outlook)?;
            if !is_known && !node.models.is_empty() {
                outlook.unknown.push(node.name.clone());
            }
        }
        Ok(outlook)
    }

    /// Whether some figure is only an upper bound.
    pub fn is_bound(&self) -> bool {
        self.stages.values().any(|stage| stage.basis == Basis::MaxTokens)
    }

    /// What a person should know before a run with this budget.
    pub fn warning(&self, budget: &BudgetConfig) -> Option<String> {
        let may = if self.is_bound() { "may take up to" } else { "will take about" };
        let tokens = budget.tokens.filter(|limit| self.total.tokens() > *limit).map(|limit| {
            format!("the run {may} {} tokens, and `[budget]` allows {}", grouped(self.total.tokens()), grouped(limit))
        });
        let money = budget.money.zip(self.total.money.as_ref()).filter(|(limit, (money, _))| money > limit);
        let money = money.map(|(limit, (money, currency))| {
            format!("the run {may} {} {currency}, and `[budget]` allows {}", amount(*money), amount(limit))
        });
        let warning = tokens.or(money)?;
        Some(format!(
            "{warning}; it stops there with all answers kept, and the next run goes on, with a budget of its own"
        ))
    }
}

/// A version that tells what rows cost.
struct Witness {
    success: Success,
    is_try_out: bool,
    has_same_params: bool,
}

struct Looking<'a> {
    session: &'a Session,
    tries: Store,
    /// Rows that outputs will have, by stage and output.
    rows: BTreeMap<(usize, usize), u64>,
}

impl Looking<'_> {
    /// Looks at one stage; says whether its calls are known (or none).
    fn look(&mut self, planned: &Planned, outlook: &mut Outlook) -> Result<bool, StageError> {
        let node = &self.session.project.nodes[planned.stage];
        if let Some(Outcome::Reuse { success, .. }) = planned.decision.as_ref().map(|decision| &decision.outcome) {
            for (index, output) in node.outputs.iter().enumerate() {
                let rows = success.outputs.get(output.name).map(|record| record.rows);
                self.rows.extend(rows.map(|rows| ((planned.stage, index), rows)));
            }
            return Ok(true);
        }
        let Some(rows) = self.rows_in(node, planned)? else { return Ok(false) };
        let witness = self.witness(node);
        self.expect_rows(planned.stage, node, rows, witness.as_ref());
        let need = witness.as_ref().and_then(|witness| self.witnessed(node, rows, witness));
        let Some(need) = need.or_else(|| self.bound(node, rows)) else { return Ok(false) };
        outlook.total.add(&need.need);
        outlook.stages.insert(planned.stage, need);
        Ok(true)
    }

    /// Rows that the stage will read: counted where they are there, else chained from the stages before.
    fn rows_in(&self, node: &Node, planned: &Planned) -> Result<Option<u64>, StageError> {
        if planned.rows.is_some() {
            return Ok(planned.rows);
        }
        let Some(port) = node.rows_port() else { return node.stage.source_rows(&self.session.env) };
        let sources = node.edges.get(port).map_or(&[][..], Vec::as_slice);
        Ok(sources.iter().map(|source| self.rows.get(source).copied()).sum())
    }

    /// The version that knows best what the rows of a stage cost: the same parameters before others, then more rows.
    fn witness(&self, node: &Node) -> Option<Witness> {
        let wanted = decide::recipe(&self.session.project, node, &self.session.env, BTreeMap::new()).ok()?;
        let store = &self.session.store;
        let is_of_node = |name: &String| {
            let rest = name.strip_prefix(&node.name).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|fingerprint| fingerprint.len() == SHORT_FINGERPRINT)
        };
        let tried = self.tries.current(&node.name).map(|version| version.name);
        let mut names: BTreeSet<String> = store.names().into_iter().filter(is_of_node).collect();
        names.extend(tried.clone());
        let witnesses = names.into_iter().filter_map(|name| {
            let is_try_out = tried.as_ref() == Some(&name);
            let version = Version { folder: store.root().join(&name), name };
            let (recipe, success) = (version.recipe()?, version.success().ok()??);
            let is_of_use = is_akin(&recipe, &wanted) && success.counts.read > 0;
            is_of_use.then(|| Witness { success, is_try_out, has_same_params: recipe.params == wanted.params })
        });
        witnesses.max_by_key(rank)
    }

    /// Rows of the outputs, as the witness's shares have it; without one, as many as go in or are asked for.
    fn expect_rows(&mut self, stage: usize, node: &Node, rows: u64, witness: Option<&Witness>) {
        for (index, output) in node.outputs.iter().enumerate() {
            let seen = witness.filter(|witness| witness.has_same_params);
            let written = seen.and_then(|witness| {
                let written = witness.success.outputs.get(output.name)?.rows;
                Some(scaled(written, rows, witness.success.counts.read))
            });
            let most = || match output.cardinality {
                Cardinality::OneToOne => Some(rows),
                Cardinality::Counted => node.stage.estimate(rows).map(|estimate| estimate.rows.unwrap_or(rows)),
            };
            self.rows.extend(written.or_else(most).map(|rows| ((stage, index), rows)));
        }
    }

    /// What the rows will need by what the witness's rows needed.
    fn witnessed(&self, node: &Node, rows: u64, witness: &Witness) -> Option<StageNeed> {
        let Success { counts, .. } = &witness.success;
        let calls = *counts.counters.get(CALLS).filter(|calls| **calls > 0)?;
        let (of, per, basis) = if witness.has_same_params {
            // the first rows of a run are those of its try-out, whose answers are there
            let at_hand = if witness.is_try_out { counts.read.min(rows) } else { 0 };
            let basis = if witness.is_try_out { Basis::TryOut(counts.read) } else { Basis::Earlier(counts.read) };
            (rows - at_hand, counts.read, basis)
        } else {
            (node.stage.estimate(rows)?.calls, calls, Basis::OtherParameters(calls))
        };
        let tokens = |name: &str| scaled(counts.counters.get(name).copied().unwrap_or(0), of, per);
        let need = Need {
            calls: scaled(calls, of, per),
            prompt_tokens: tokens(PROMPT_TOKENS),
            reads_more: false,
            completion_tokens: tokens(COMPLETION_TOKENS),
            money: self.money(node, tokens(PROMPT_TOKENS), tokens(CACHED_TOKENS), tokens(COMPLETION_TOKENS)),
        };
        Some(StageNeed { rows, need, basis })
    }

    /// The upper bound that `max_tokens` gives.
    fn bound(&self, node: &Node, rows: u64) -> Option<StageNeed> {
        let estimate = node.stage.estimate(rows).filter(|_| !node.models.is_empty())?;
        let need = Need {
            calls: estimate.most_calls,
            prompt_tokens: 0,
            reads_more: estimate.calls > 0,
            completion_tokens: estimate.max_tokens,
            money: self.money(node, 0, 0, estimate.max_tokens),
        };
        Some(StageNeed { rows, need, basis: Basis::MaxTokens })
    }

    /// Money of a stage by the prices of its models, of which each is taken to answer an equal share.
    fn money(&self, node: &Node, read: u64, cached: u64, written: u64) -> Option<(f64, String)> {
        let (mut sum, mut currency) = (0.0, String::new());
        for name in node.models.keys() {
            let model = self.session.models.get(name)?;
            let Some(price) = &model.price else {
                // weights in this process cost nothing, unless their price was named
                if model.engine == Engine::Local {
                    continue;
                }
                return None;
            };
            if !currency.is_empty() && currency != price.currency {
                return None;
            }
            currency.clone_from(&price.currency);
            sum += price.cost(read, cached, written) / node.models.len() as f64;
        }
        Some((sum, currency))
    }
}

/// Whether a version's answers tell something about those to come: the same kind on the same models.
fn is_akin(found: &Recipe, wanted: &Recipe) -> bool {
    found.kind == wanted.kind && found.models == wanted.models
}

fn rank(witness: &Witness) -> (bool, u64, bool) {
    (witness.has_same_params, witness.success.counts.read, witness.is_try_out)
}

/// `amount` for `of` instead of `per`, rounded.
fn scaled(amount: u64, of: u64, per: u64) -> u64 {
    let exact = u128::from(amount) * u128::from(of) + u128::from(per / 2);
    u64::try_from(exact / u128::from(per.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(calls: u64, read: Option<u64>, written: u64, money: Option<(f64, &str)>) -> Need {
        let money = money.map(|(money, currency)| (money, currency.to_owned()));
        let (prompt_tokens, reads_more) = (read.unwrap_or(0), read.is_none());
        Need { calls, prompt_tokens, reads_more, completion_tokens: written, money }
    }

    #[test]
    fn what_is_unknown_of_a_part_is_unknown_of_the_whole() {
        let mut total = need(0, Some(0), 0, Some((0.0, "")));
        total.add(&need(2, Some(10), 20, Some((0.5, "USD"))));
        assert_eq!(total, need(2, Some(10), 20, Some((0.5, "USD"))));
        total.add(&need(1, Some(1), 1, Some((0.0, ""))));
        assert_eq!(total.to_string(), "3 calls, 11 tokens in, 21 out, 0.5000 USD");
        let mut other = total.clone();
        other.add(&need(1, None, 5, Some((1.0, "EUR"))));
        assert_eq!(other, Need { prompt_tokens: 11, ..need(4, None, 26, None) });
        assert_eq!(other.to_string(), "4 calls, 26 tokens of answers, 11 in and those of prompts not known yet");
        assert_eq!(other.tokens(), 37);
    }

    #[test]
    fn figures_are_scaled_and_rounded() {
        assert_eq!(scaled(3, 10, 2), 15);
        assert_eq!(scaled(1, 1, 3), 0);
        assert_eq!(scaled(2, 1, 3), 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(scaled(5, 5, 0), 25);
    }

    #[test]
    fn a_budget_below_the_estimate_is_told_before_it_is_spent() {
        let total = need(10, Some(600), 500, Some((2.0, "USD")));
        let outlook = Outlook { stages: BTreeMap::new(), unknown: Vec::new(), total };
        let budget = |tokens, money| BudgetConfig { tokens, money };
        assert_eq!(outlook.warning(&budget(Some(1100), Some(2.0))), None);
        let warning = outlook.warning(&budget(Some(1000), None)).unwrap();
        assert!(warning.starts_with("the run will take about 1,100 tokens, and `[budget]` allows 1,000"), "{warning}");
        let warning = outlook.warning(&budget(None, Some(1.5))).unwrap();
        assert!(warning.contains("2.00 USD, and `[budget]` allows 1.50"), "{warning}");
    }
}
