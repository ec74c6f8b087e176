//! The graph of stages: which feeds which, and an order to run them in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::error::{DagError, DagErrors};
use super::params::nearest;
use super::render::shown;
use super::source::Place;
use super::stage::{InputRef, StageDef};

/// A dependency that is not an input: a stage that uses a model which another stage makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Index of the stage that comes first.
    pub from: usize,
    /// Index of the stage that needs it.
    pub to: usize,
    /// Where the dependency is written.
    pub place: Place,
}

/// Indices of the stages a reference means: one, or all combinations of a matrix in order; empty when there is none.
pub fn resolve(stages: &[StageDef], reference: &InputRef) -> Vec<usize> {
    let matching = |by: fn(&StageDef) -> &str| {
        let is_meant = move |(_, stage): &(usize, &StageDef)| by(stage) == reference.stage;
        stages.iter().enumerate().filter(is_meant).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let exact = matching(|stage| &stage.name);
    if exact.is_empty() { matching(|stage| &stage.base) } else { exact }
}

/// An order in which each stage comes after all it reads; free stages keep the order of the file.
///
/// # Errors
/// Inputs that name no stage, and every cycle with its whole path.
pub fn order(stages: &[StageDef]) -> Result<Vec<usize>, DagErrors> {
    order_with(stages, &[])
}

/// [`order`] with dependencies besides the inputs.
///
/// # Errors
/// As [`order`].
pub fn order_with(stages: &[StageDef], edges: &[Edge]) -> Result<Vec<usize>, DagErrors> {
    let mut errors = DagErrors::default();
    let mut graph = Graph::new(stages, edges, &mut errors);
    let mut order = graph.take_free();
    while order.len() + graph.broken < stages.len() {
        let Some(cycle) = graph.cycle() else { break };
        errors.push(cycle_error(stages, &graph, &cycle));
        for index in cycle {
            graph.broken += usize::from(!graph.is_done[index]);
            graph.finish(index);
        }
        order.extend(graph.take_free());
    }
    errors.tidy();
    errors.or_ok(order)
}

struct Graph<'a> {
    /// For each stage: those it needs, with the place that says so.
    needs: Vec<BTreeMap<usize, &'a Place>>,
    feeds: Vec<Vec<usize>>,
    /// How many of its needs are not done.
    waiting: Vec<usize>,
    is_done: Vec<bool>,
    ready: BinaryHeap<Reverse<usize>>,
    /// Stages done only because they were reported as part of a cycle.
    broken: usize,
}

impl<'a> Graph<'a> {
    fn new(stages: &'a [StageDef], edges: &'a [Edge], errors: &mut DagErrors) -> Self {
        let by_name = names(stages);
        let mut needs: Vec<BTreeMap<usize, &Place>> = vec![BTreeMap::new(); stages.len()];
        for (index, stage) in stages.iter().enumerate() {
            for reference in stage.inputs.values().flatten() {
                let Some(found) = by_name.get(reference.stage.as_str()) else {
                    errors.push(unknown_stage(reference, stages));
                    continue;
                };
                for source in found {
                    needs[index].entry(*source).or_insert(&reference.place);
                }
            }
        }
        for edge in edges {
            if edge.from < stages.len() && edge.to < stages.len() {
                needs[edge.to].entry(edge.from).or_insert(&edge.place);
            }
        }
        let mut feeds = vec![Vec::new(); stages.len()];
        for (index, sources) in needs.iter().enumerate() {
            for source in sources.keys() {
                feeds[*source].push(index);
            }
        }
        let waiting: Vec<usize> = needs.iter().map(BTreeMap::len).collect();
        let ready = (0..stages.len()).filter(|index| waiting[*index] == 0).map(Reverse).collect();
        Self { needs, feeds, waiting, is_done: vec![false; stages.len()], ready, broken: 0 }
    }

    /// Takes out all stages whose needs are done, the first of the file first.
    fn take_free(&mut self) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some(Reverse(index)) = self.ready.pop() {
            if !self.is_done[index] {
                order.push(index);
                self.finish(index);
            }
        }
        order
    }

    fn finish(&mut self, index: usize) {
        if std::mem::replace(&mut self.is_done[index], true) {
            return;
        }
        for target in &self.feeds[index] {
            self.waiting[*target] = self.waiting[*target].saturating_sub(1);
            if self.waiting[*target] == 0 {
                self.ready.push(Reverse(*target));
            }
        }
    }

    /// A cycle among the stages that are left, in the direction of the data, beginning with the first of the file.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut current = self.is_done.iter().position(|is_done| !is_done)?;
        let mut path: Vec<usize> = Vec::new();
        let mut position = vec![None; self.needs.len()];
        // everything left waits for something left, so going upstream must come back
        while position[current].is_none() {
            position[current] = Some(path.len());
            path.push(current);
            current = self.needs[current].keys().copied().find(|source| !self.is_done[*source])?;
        }
        let mut cycle = path.split_off(position[current]?);
        cycle.reverse();
        let first = (0..cycle.len()).min_by_key(|index| cycle[*index])?;
        cycle.rotate_left(first);
        Some(cycle)
    }
}

/// Stages by name, and by base name where no stage has it as its own.
fn names(stages: &[StageDef]) -> BTreeMap<&str, Vec<usize>> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, stage) in stages.iter().enumerate() {
        by_name.entry(&stage.name).or_default().push(index);
        if stage.base != stage.name {
            by_name.entry(&stage.base).or_default().push(index);
        }
    }
    by_name
}

fn unknown_stage(reference: &InputRef, stages: &[StageDef]) -> DagError {
    let mut candidates: Vec<&str> = stages.iter().map(|stage| stage.base.as_str()).collect();
    candidates.extend(stages.iter().map(|stage| stage.name.as_str()));
    DagError::new(format!("unknown stage `{}`", shown(&reference.stage)))
        .at(&reference.place)
        .with_nearest(nearest(&reference.stage, &candidates))
}

fn cycle_error(stages: &[StageDef], graph: &Graph<'_>, cycle: &[usize]) -> DagError {
    let names = cycle.iter().chain(cycle.first()).map(|index| shown(&stages[*index].name));
    let path = names.collect::<Vec<_>>().join(" -> ");
    let error = DagError::new(format!("stages feed each other: `{path}`"));
    // the first stage of the file reads the last of the cycle
    match cycle.first().zip(cycle.last()).and_then(|(first, last)| graph.needs[*first].get(last)) {
        Some(place) => error.at(place),
        None => error,
    }
}
