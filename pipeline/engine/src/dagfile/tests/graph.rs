use super::*;
use crate::dagfile::{Edge, order_with, resolve};

fn graph(edges: &[(&str, &[&str])]) -> DagFile {
    let tables = edges.iter().map(|(name, inputs)| {
        let inputs = serde_json::json!(inputs);
        format!("[stages.{name}]\nkind = 'k'\ninputs = {inputs}\n")
    });
    parsed(&tables.collect::<String>())
}

fn ordered(dag: &DagFile) -> Vec<&str> {
    let order = order(&dag.stages).unwrap_or_else(|errors| panic!("{}", errors.render(&dag.sources)));
    order.into_iter().map(|index| dag.stages[index].name.as_str()).collect()
}

#[test]
fn free_stages_keep_the_order_of_the_file() {
    let dag = graph(&[("d", &["b", "c"]), ("z", &[]), ("c", &["a"]), ("b", &["a"]), ("a", &[]), ("e", &["a", "a"])]);
    assert_eq!(ordered(&dag), ["z", "a", "c", "b", "d", "e"]);
}

#[test]
fn a_base_name_means_all_combinations() {
    let dag = parsed(
        "[stages.all]\nkind='k'\ninputs='x'\n[stages.one]\nkind='k'\ninputs='x[seed=2].out'\n\
         [stages.x]\nkind='k'\nmatrix.seed=[1,2]\n",
    );
    assert_eq!(ordered(&dag), ["x[seed=1]", "x[seed=2]", "all", "one"]);
    assert_eq!(resolve(&dag.stages, &dag.stages[0].inputs[""][0]), [2, 3]);
    assert_eq!(resolve(&dag.stages, &dag.stages[1].inputs[""][0]), [3]);
}

#[test]
fn every_cycle_and_every_missing_input_is_reported() {
    let dag = graph(&[
        ("free", &["gonn"]),
        ("a", &["c", "free"]),
        ("b", &["a"]),
        ("c", &["b"]),
        ("after", &["a"]),
        ("self", &["self"]),
        ("gone", &[]),
    ]);
    assert_eq!(
        order(&dag.stages).unwrap_err().render(&dag.sources),
        "\
error: unknown stage `gonn`
 --> dag.toml:3:11
  |
3 | inputs = [\"gonn\"]
  |           ^^^^^^
hint: did you mean `gone`?

error: stages feed each other: `a -> b -> c -> a`
 --> dag.toml:6:11
  |
6 | inputs = [\"c\",\"free\"]
  |           ^^^

error: stages feed each other: `self -> self`
  --> dag.toml:18:11
   |
18 | inputs = [\"self\"]
   |           ^^^^^^"
    );
}

#[test]
fn a_model_that_a_stage_makes_is_an_edge_too() {
    let dag = graph(&[("eval", &[]), ("merged", &["eval2"]), ("eval2", &[])]);
    let edge = Edge { from: 1, to: 0, place: dag.stages[0].place.clone() };
    assert_eq!(order_with(&dag.stages, &[edge]), Ok(vec![2, 1, 0]));
    let back = Edge { from: 1, to: 2, place: dag.stages[2].place.clone() };
    let errors = order_with(&dag.stages, &[back]).unwrap_err();
    assert_eq!(errors.to_string(), "stages feed each other: `merged -> eval2 -> merged`");
}
