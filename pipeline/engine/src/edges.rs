//! What flows along the edges of a graph once stages have been made.

use std::collections::BTreeMap;

use pipeline_core::task::PortInput;
use pipeline_core::{Digest, StageError};

use crate::project::{Node, Project};
use crate::records::Success;
use crate::store::Version;

/// A stage's output that others may read.
#[derive(Debug, Clone)]
pub struct Made {
    /// Where it lies.
    pub version: Version,
    /// Its record.
    pub success: Success,
}

fn output_name(project: &Project, stage: usize, output: usize) -> &'static str {
    project.nodes[stage].outputs[output].name
}

/// Digests of what feeds each port.
pub fn digests(project: &Project, node: &Node, made: &BTreeMap<usize, Made>) -> BTreeMap<String, Vec<Digest>> {
    let of = |(stage, output): &(usize, usize)| {
        let record = made.get(stage)?.success.outputs.get(output_name(project, *stage, *output))?;
        Some(record.digest)
    };
    let ports = node.edges.iter();
    ports.map(|(port, sources)| (port.clone(), sources.iter().filter_map(of).collect())).collect()
}

/// Rows that feed a port, where all of them are known.
pub fn rows_of(project: &Project, node: &Node, port: &str, made: &BTreeMap<usize, Made>) -> Option<u64> {
    let sources = node.edges.get(port)?;
    let rows = sources.iter().map(|(stage, output)| {
        let name = output_name(project, *stage, *output);
        made.get(stage)?.success.outputs.get(name).map(|record| record.rows)
    });
    rows.sum()
}

/// What feeds each port.
///
/// # Errors
/// When an output is not there, which the driver has made sure of.
pub fn port_inputs(
    project: &Project,
    node: &Node,
    made: &BTreeMap<usize, Made>,
) -> Result<BTreeMap<String, Vec<PortInput>>, StageError> {
    let mut inputs = BTreeMap::new();
    for (port, sources) in &node.edges {
        let mut given = Vec::new();
        for (stage, output) in sources {
            let declared = &project.nodes[*stage].outputs[*output];
            let found = made.get(stage).and_then(|made| {
                let record = made.success.outputs.get(declared.name)?;
                Some(made.version.port_input(record, &declared.rows.schema))
            });
            given.push(found.ok_or_else(|| {
                StageError::Internal(format!(
                    "output `{}` of `{}` is not there",
                    declared.name, project.nodes[*stage].name
                ))
            })?);
        }
        inputs.insert(port.clone(), given);
    }
    Ok(inputs)
}
