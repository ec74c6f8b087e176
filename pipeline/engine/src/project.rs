//! From a dag file to a checked graph: kinds, parameters, ports and the columns of every edge. All mistakes are found
//! at once, before anything runs.

use std::collections::BTreeMap;

use pipeline_core::{AnyStage, Output, ParamError, Port, Ports, StageEntry, Step, TableType};
use serde_json::Value;

use crate::dagfile::{
    self, DagError, DagErrors, DagFile, InputRef, ParamProblem, PathSegment, StageDef, nearest, param_error, place_of,
    unknown_kind,
};

/// The kinds that this program knows, in the order data meets them.
#[derive(Debug, Clone, Default)]
pub struct Registry(pub Vec<StageEntry>);

impl Registry {
    /// Joins lists of kinds.
    pub fn new(lists: &[&[StageEntry]]) -> Self {
        Self(lists.concat())
    }

    /// Finds a kind.
    pub fn get(&self, kind: &str) -> Option<&StageEntry> {
        self.0.iter().find(|entry| entry.kind == kind)
    }
}

/// A stage of a checked graph.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where and how it is defined.
    pub def: StageDef,
    /// Its kind.
    pub entry: StageEntry,
    /// Its parameters, with behaviour.
    pub stage: Box<dyn AnyStage>,
    /// What each port reads: stage and output, in the order of `inputs`.
    pub edges: BTreeMap<String, Vec<(usize, usize)>>,
    /// Columns that come in.
    pub ports: Ports,
    /// What it writes.
    pub outputs: Vec<Output>,
    /// Its steps.
    pub steps: Vec<Step>,
    /// Names of models, by parameter.
    pub models: BTreeMap<String, String>,
    /// Whether a table without rows is fine.
    pub allow_empty: bool,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Node({} {:?})", self.name, self.entry)
    }
}

impl Node {
    /// Name of the port whose rows are mapped; `None` for kinds that read files.
    pub fn rows_port(&self) -> Option<&'static str> {
        self.entry.ports.first().map(|port| port.name)
    }

    /// Stages that it reads.
    pub fn upstream(&self) -> impl Iterator<Item = usize> {
        self.edges.values().flatten().map(|(stage, _)| *stage)
    }

    /// Whether each task depends on its own slice alone, so that tasks of other versions may serve.
    pub fn is_row_wise(&self) -> bool {
        self.steps.len() == 1 && self.steps[0].kind == pipeline_core::StepKind::Map
    }
}

/// A checked graph, in an order in which every stage comes after those it reads.
#[derive(Debug)]
pub struct Project {
    /// The file it was read from, for places in messages.
    pub dag: DagFile,
    /// `name` of the pipeline.
    pub name: String,
    /// `seed` of the pipeline.
    pub seed: u64,
    /// Identity of each model.
    pub models: BTreeMap<String, String>,
    /// Stages in order.
    pub nodes: Vec<Node>,
}

impl Project {
    /// Index of a stage.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Checks a dag file. `models` gives the identity of each model of the file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(
        mut dag: DagFile,
        registry: &Registry,
        models: BTreeMap<String, String>,
    ) -> Result<Self, Box<(DagFile, DagErrors)>> {
        let mut errors = DagErrors::default();
        read_weights(&mut dag, registry);
        let order = match dagfile::order(&dag.stages) {
            Ok(order) => order,
            Err(found) => {
                errors.extend(found);
                // kinds and keys can still be checked, so that all mistakes come at once
                for def in &dag.stages {
                    parse_stage(def, registry, &mut errors);
                }
                errors.tidy();
                return Err(Box::new((dag, errors)));
            }
        };
        if dag.stages.is_empty() {
            errors.push(DagError::new("no stages").with_hint("add a table such as `[stages.problems]`"));
        }
        let mut nodes: Vec<Node> = Vec::new();
        // where a stage of the file stands in `nodes`; `None` when it could not be checked
        let mut positions: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        for index in order {
            let def = &dag.stages[index];
            let node = build_node(&dag, def, registry, &models, &nodes, &positions, &mut errors);
            positions.insert(index, node.is_some().then_some(nodes.len()));
            nodes.extend(node);
        }
        if !errors.is_empty() {
            errors.tidy();
            return Err(Box::new((dag, errors)));
        }
        let name = dag.pipeline.name.clone().unwrap_or_else(|| "pipeline".to_owned());
        let seed = dag.pipeline.seed;
        Ok(Self { dag, name, seed, models, nodes })
    }
}

/// Beginning of the name of a port that brings weights: a model which a stage of the graph makes is an input of those
/// that use it.
const WEIGHTS: &str = "weights of ";

/// The port behind [`WEIGHTS`].
static WEIGHTS_PORT: Port =
    Port::rows(&["checkpoints"], &[]).named("weights", "weights of a model that a stage makes").many();

/// Makes the stages behind models inputs of the stages that use them.
fn read_weights(dag: &mut DagFile, registry: &Registry) {
    let DagFile { stages, models, .. } = dag;
    for def in stages {
        let params = registry.get(&def.kind).map_or(&[][..], |entry| entry.model_params);
        for param in params {
            let references: Vec<InputRef> = named_models(&def.params, param)
                .into_iter()
                .filter_map(|name| models.get(name)?.get("stage"))
                .filter_map(|node| {
                    Some(InputRef { stage: node.as_str()?.to_owned(), output: None, place: node.place.clone() })
                })
                .collect();
            if !references.is_empty() {
                def.inputs.insert(format!("{WEIGHTS}{param}"), references);
            }
        }
    }
}

/// Names of models that a parameter holds.
fn named_models<'a>(params: &'a Value, param: &str) -> Vec<&'a str> {
    match params.get(param) {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A stage with its kind found and its parameters read.
struct Parsed {
    entry: StageEntry,
    stage: Box<dyn AnyStage>,
    params: Value,
    allow_empty: bool,
}

fn parse_stage(def: &StageDef, registry: &Registry, errors: &mut DagErrors) -> Option<Parsed> {
    if def.kind.is_empty() {
        return None; // its absence was reported where the file was read
    }
    let Some(entry) = registry.get(&def.kind) else {
        let known: Vec<&str> = registry.0.iter().map(|entry| entry.kind).collect();
        errors.push(unknown_kind(def, &known));
        return None;
    };
    let mut params = def.params.clone();
    let allow_empty = match params.as_object_mut().and_then(|params| params.remove("allow_empty")) {
        None => false,
        Some(Value::Bool(allowed)) => allowed,
        Some(_) => {
            errors.push(problem(def, &ParamError::new("allow_empty", "`allow_empty` must be true or false")));
            return None;
        }
    };
    match (entry.parse)(&params) {
        Ok(stage) => Some(Parsed { entry: *entry, stage, params, allow_empty }),
        Err(error) => {
            errors.push(problem(def, &error));
            None
        }
    }
}

/// A parameter's error at its place in the file, also for one that only shows when the stage runs.
pub fn problem(def: &StageDef, error: &ParamError) -> DagError {
    let path = path_segments(&error.path);
    let from_serde = error.hint.is_none()
        && ["unknown field", "missing field", "unknown variant", "invalid"]
            .iter()
            .any(|start| error.message.starts_with(start));
    if from_serde {
        return param_error(def, &ParamProblem { path, message: error.message.clone() });
    }
    let found = DagError::new(format!("kind `{}`: {}", def.kind, error.message)).at(&place_of(def, &path));
    match &error.hint {
        Some(hint) => found.with_hint(hint.clone()),
        None => found,
    }
}

/// `columns.prompt[2]` as steps.
fn path_segments(path: &str) -> Vec<PathSegment> {
    let mut segments = Vec::new();
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        match part.strip_suffix(']').and_then(|index| index.parse().ok()) {
            Some(index) => segments.push(PathSegment::Index(index)),
            None => segments.push(PathSegment::Key(part.to_owned())),
        }
    }
    segments
}

fn build_node(
    dag: &DagFile,
    def: &StageDef,
    registry: &Registry,
    models: &BTreeMap<String, String>,
    nodes: &[Node],
    positions: &BTreeMap<usize, Option<usize>>,
    errors: &mut DagErrors,
) -> Option<Node> {
    let parsed = parse_stage(def, registry, errors)?;
    let before = errors.len();
    let used = models_of(def, &parsed, models, errors);
    let edges = connect(dag, def, &parsed.entry, nodes, positions, errors)?;
    if errors.len() > before {
        return None;
    }
    let mut ports = Ports::default();
    for (port, sources) in &edges {
        let types = sources.iter().map(|(stage, output)| nodes[*stage].outputs[*output].rows.clone());
        ports.0.insert(port.clone(), types.collect());
    }
    let outputs = match parsed.stage.outputs(&ports) {
        Ok(outputs) => outputs,
        Err(error) => {
            errors.push(problem(def, &error));
            return None;
        }
    };
    let steps = parsed.stage.steps(&ports);
    Some(Node {
        name: def.name.clone(),
        def: def.clone(),
        entry: parsed.entry,
        stage: parsed.stage,
        edges,
        ports,
        outputs,
        steps,
        models: used,
        allow_empty: parsed.allow_empty,
    })
}

fn models_of(
    def: &StageDef,
    parsed: &Parsed,
    models: &BTreeMap<String, String>,
    errors: &mut DagErrors,
) -> BTreeMap<String, String> {
    let mut used = BTreeMap::new();
    for param in parsed.entry.model_params {
        for name in named_models(&parsed.params, param) {
            if !models.contains_key(name) {
                let known: Vec<&str> = models.keys().map(String::as_str).collect();
                let place = place_of(def, &[PathSegment::Key((*param).to_owned())]);
                let error = DagError::new(format!("no model `{name}` in `[models]`")).at(&place);
                errors.push(match nearest(name, &known) {
                    Some(near) => error.with_nearest(Some(near)),
                    None => error.with_hint(format!("add a table `[models.{name}]`")),
                });
            }
            used.insert(name.to_owned(), (*param).to_owned());
        }
    }
    used
}

/// Finds the stages behind each port and checks that they fit. `None` when an input could not be checked itself.
fn connect(
    dag: &DagFile,
    def: &StageDef,
    entry: &StageEntry,
    nodes: &[Node],
    positions: &BTreeMap<usize, Option<usize>>,
    errors: &mut DagErrors,
) -> Option<BTreeMap<String, Vec<(usize, usize)>>> {
    let mut edges: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    let mut whole = true;
    for (given, references) in &def.inputs {
        let brings_weights = given.starts_with(WEIGHTS);
        let port = if brings_weights { Some(&WEIGHTS_PORT) } else { port_named(def, entry, given, references, errors) };
        let Some(port) = port else { continue };
        let mut sources = Vec::new();
        for reference in references {
            let meant = dagfile::resolve(&dag.stages, reference);
            if brings_weights && meant.len() > 1 {
                let message = format!("`{}` is {} stages, and a model is one", reference.stage, meant.len());
                let example = &dag.stages[meant[0]].name;
                errors.push(DagError::new(message).at(&reference.place).with_hint(format!("name one: `{example}`")));
            }
            for index in meant {
                match positions.get(&index).copied().flatten() {
                    Some(position) => {
                        if let Some(output) = output_of(&nodes[position], reference, errors) {
                            check_edge(port, &nodes[position], output, reference, errors);
                            sources.push((position, output));
                        }
                    }
                    None => whole = false,
                }
            }
        }
        if sources.len() > 1 && !port.many {
            let message =
                format!("port `{}` of kind `{}` takes one input, {} are given", port.name, entry.kind, sources.len());
            errors.push(DagError::new(message).at(&references[0].place));
        }
        edges.insert(if brings_weights { given.clone() } else { port.name.to_owned() }, sources);
    }
    for port in entry.ports {
        if !port.optional && !edges.contains_key(port.name) && whole {
            let example = if entry.ports.len() == 1 {
                "inputs = \"STAGE\"".to_owned()
            } else {
                let ports: Vec<String> = entry.ports.iter().map(|port| format!("{} = \"STAGE\"", port.name)).collect();
                format!("inputs = {{ {} }}", ports.join(", "))
            };
            let message = format!("kind `{}` needs an input for port `{}` ({})", entry.kind, port.name, port.doc);
            errors.push(DagError::new(message).at(&def.place).with_hint(example));
        }
    }
    whole.then_some(edges)
}

fn port_named(
    def: &StageDef,
    entry: &StageEntry,
    given: &str,
    references: &[InputRef],
    errors: &mut DagErrors,
) -> Option<&'static Port> {
    let place = references.first().map_or(&def.place, |reference| &reference.place);
    if given.is_empty() {
        if entry.ports.is_empty() {
            errors.push(DagError::new(format!("kind `{}` takes no inputs, it reads files", entry.kind)).at(place));
        }
        return entry.ports.first();
    }
    let port = entry.ports.iter().find(|port| port.name == given);
    if port.is_none() {
        let known: Vec<&str> = entry.ports.iter().map(|port| port.name).collect();
        let error = DagError::new(format!("kind `{}` has no port `{given}`", entry.kind)).at(place);
        errors.push(match nearest(given, &known) {
            Some(near) => error.with_nearest(Some(near)),
            None => error.with_hint(format!("its ports: {}", known.join(", "))),
        });
    }
    port
}

fn output_of(node: &Node, reference: &InputRef, errors: &mut DagErrors) -> Option<usize> {
    let Some(wanted) = &reference.output else {
        return (!node.outputs.is_empty()).then_some(0);
    };
    let found = node.outputs.iter().position(|output| output.name == wanted);
    if found.is_none() {
        let known: Vec<&str> = node.outputs.iter().map(|output| output.name).collect();
        let message = format!("stage `{}` has no output `{wanted}`; it has: {}", node.name, known.join(", "));
        errors.push(DagError::new(message).at(&reference.place).with_nearest(nearest(wanted, &known)));
    }
    found
}

fn check_edge(port: &Port, node: &Node, output: usize, reference: &InputRef, errors: &mut DagErrors) {
    let rows: &TableType = &node.outputs[output].rows;
    if !port.tables.is_empty() && !port.tables.contains(&rows.name()) {
        let message = format!(
            "port `{}` takes {}, and `{}` gives {}",
            port.name,
            port.tables.join(" or "),
            node.name,
            rows.name()
        );
        errors.push(DagError::new(message).at(&reference.place));
        return;
    }
    for column in port.needs {
        if !rows.filled.contains(*column) {
            let message =
                format!("column `{column}` is needed here, and no stage before has filled it in `{}`", node.name);
            let error = DagError::new(message).at(&reference.place);
            errors.push(match filled_by(column) {
                Some(hint) => error.with_hint(hint),
                None => error,
            });
        }
    }
}

/// Which stage fills a column, for a hint.
fn filled_by(column: &str) -> Option<&'static str> {
    Some(match column {
        "label" => "name the column of the answer in the import: `columns = { label = \"...\" }`, or use `vote`",
        "verdict" | "answer" | "verifier" => "a stage of kind `verify` fills it",
        "pass_rate" | "rollouts" => "a stage of kind `difficulty` fills it; `attach` brings it to other rows",
        "response" | "answer_text" | "trace_id" | "sample" => {
            "a stage of kind `sample`, or an import of traces, fills it"
        }
        _ => return None,
    })
}
