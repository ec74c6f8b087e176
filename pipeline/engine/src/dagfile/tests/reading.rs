use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::dagfile::NodeValue;

fn inputs(dag: &DagFile, stage: &str) -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let ports = dag.stage(stage).unwrap().inputs.iter();
    ports
        .map(|(port, references)| {
            let pairs = references.iter().map(|reference| (reference.stage.clone(), reference.output.clone()));
            (port.clone(), pairs.collect())
        })
        .collect()
}

#[test]
fn the_example_is_read_as_it_is_written() {
    let dag = parsed(EXAMPLE);
    assert_eq!(dag.pipeline.name.as_deref(), Some("math-small"));
    assert_eq!((dag.pipeline.seed, dag.run.jobs, dag.run.shard_rows), (17, Some(2), Some(10_000)));
    assert_eq!(dag.models["teacher"].to_json()["base_url"], json!("http://127.0.0.1:8080/v1"));
    assert_eq!(dag.budget.as_ref().unwrap().to_json(), json!({ "money": 20.0, "tokens": 5_000_000 }));
    let names: Vec<&str> = dag.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["seeds", "paths[salt=a]", "paths[salt=b]", "clean"]);
    let paths = &dag.stages[1];
    assert_eq!((paths.base.as_str(), paths.kind.as_str(), paths.max_errors), ("paths", "sample", Some(0.01)));
    assert_eq!(paths.params, json!({ "model": "teacher", "n": 8, "salt": "a", "temperature": 1.0 }));
    assert_eq!(paths.matrix, BTreeMap::from([("salt".to_owned(), json!("a"))]));
    assert_eq!(inputs(&dag, "paths[salt=b]"), BTreeMap::from([(String::new(), vec![("seeds".into(), None)])]));
    let wanted = BTreeMap::from([
        ("rows".into(), vec![("paths".into(), None)]),
        ("eval".into(), vec![("seeds".into(), None), ("seeds".into(), Some("rejects".into()))]),
    ]);
    assert_eq!(inputs(&dag, "clean"), wanted);
}

#[test]
fn every_way_to_write_a_table_gives_the_same_parameters() {
    let wanted = json!({ "a": { "b": { "c": 1 } }, "list": [{ "x": "1979-05-27T07:32:00Z" }, { "x": "07:32:00" }] });
    let texts = [
        "[stages.s]\nkind='k'\na.b.c=1\nlist=[{x=1979-05-27T07:32:00Z},{x=07:32:00}]\n",
        "stages.s={kind='k',a={b={c=1}},list=[{x=1979-05-27 07:32:00Z},{x=07:32:00}]}",
        "[stages.s.a.b]\nc=0x1\n[stages.s]\nkind='k'\n[[stages.s.list]]\nx=1979-05-27T07:32:00Z\n[[stages.s.list]]\nx=07:32:00\n",
        "[stages]\ns.kind=\"k\"\ns.a.b={c=0b1}\ns.list=[{x='1979-05-27T07:32:00Z'},{\"x\"='''07:32:00'''}]",
    ];
    for text in texts {
        assert_eq!(parsed(text).stages[0].params, wanted, "{text}");
    }
}

#[test]
fn text_is_kept_as_it_is() {
    let dag = parsed("[stages.s]\nkind='k'\nt = '$x$ \\frac{1}{2} é e\u{301} 中文 $${a}'\n");
    assert_eq!(dag.stages[0].params["t"], json!("$x$ \\frac{1}{2} é e\u{301} 中文 ${a}"));
}

#[test]
fn a_matrix_makes_every_combination_and_puts_its_values_in() {
    let dag = parsed(
        "[stages.x]\nkind='sft'\ninputs='a'\nseed=9\n[stages.x.matrix]\nseed=[1,2]\nlr=[1e-5,0.5]\nmodel=['a/b']\n",
    );
    let names: Vec<&str> = dag.stages.iter().map(|stage| stage.name.as_str()).collect();
    let wanted = [
        "x[lr=0.00001,model=a%2Fb,seed=1]",
        "x[lr=0.00001,model=a%2Fb,seed=2]",
        "x[lr=0.5,model=a%2Fb,seed=1]",
        "x[lr=0.5,model=a%2Fb,seed=2]",
    ];
    assert_eq!(names, wanted);
    assert_eq!(dag.stages[1].params, json!({ "lr": 1e-5, "model": "a/b", "seed": 2 }));
    let place = crate::dagfile::place_of(&dag.stages[1], &[crate::dagfile::PathSegment::Key("seed".into())]);
    assert_eq!((place.line, place.column), (6, 9));
}

#[test]
fn a_matrix_may_vary_what_a_stage_reads() {
    let dag = parsed("[stages.x]\nkind='sft'\nmatrix.inputs=['a','b.out']\n");
    assert_eq!(dag.stages[1].name, "x[inputs=b.out]");
    assert_eq!(inputs(&dag, "x[inputs=b.out]")[""], [("b".to_owned(), Some("out".to_owned()))]);
    let later = parsed("[stages.y]\nkind='k'\ninputs=['x[lr=0.5]', 'x[lr=0.5].rollouts']\n");
    let both = [("x[lr=0.5]".to_owned(), None), ("x[lr=0.5]".to_owned(), Some("rollouts".to_owned()))];
    assert_eq!(inputs(&later, "y")[""], both);
}

#[test]
fn a_wrong_matrix_is_refused() {
    let cases = [
        ("matrix = 3", "the matrix of stage `x` must be a table of lists"),
        ("matrix = {}", "the matrix of stage `x` must be a table of lists"),
        ("matrix.seed = 1", "`seed` in a matrix must be a list with at least one value"),
        ("matrix.seed = []", "`seed` in a matrix must be a list with at least one value"),
        ("matrix.seed = [[1]]", "`seed` in a matrix must hold texts, numbers or booleans"),
        ("matrix.seed = [1, 2, 1]", "`seed` in a matrix has the value 1 twice"),
        ("matrix.kind = ['a']", "`kind` cannot vary in a matrix"),
        ("matrix.max_errors = [0.5, 7]", "`max_errors` must be a share of rows from 0 to 1"),
    ];
    for (line, wanted) in cases {
        let message = mistakes(&format!("[stages.x]\nkind = 'k'\n{line}\n"));
        assert!(message.starts_with(&format!("error: {wanted}\n")), "{line}: {message}");
    }
    let axes: Vec<String> = (0..7).map(|axis| format!("a{axis} = [1,2,3]")).collect();
    let message = mistakes(&format!("[stages.x]\nkind = 'k'\n[stages.x.matrix]\n{}\n", axes.join("\n")));
    assert!(message.starts_with("error: the matrix of stage `x` has more than 1000 combinations"), "{message}");
}

#[test]
fn included_tables_come_first_and_are_merged() {
    let Reading { dag, errors } = reading([
        ("data/dag.toml", "include = ['sub/a.toml', '../b.toml']\n[pipeline]\nseed = 3\n[stages.own]\nkind = 'k'\n"),
        ("data/sub/a.toml", "include = ['../../b.toml']\n[pipeline]\nname = 'n'\n[stages.a]\nkind = 'k'\n"),
        ("b.toml", "[stages.b]\nkind = 'k'\n[models.m]\npath = 'p'\n"),
    ]);
    assert_eq!(errors.render(&dag.sources), "");
    let names: Vec<&str> = dag.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "own"]);
    assert_eq!((dag.pipeline.name.as_deref(), dag.pipeline.seed), (Some("n"), 3));
    assert_eq!(dag.sources.name(dag.models["m"].place.file), "data/sub/../../b.toml");
}

#[test]
fn one_stage_in_two_files_is_refused_with_both_places() {
    let Reading { dag, errors } = reading([
        ("dag.toml", "include = ['more.toml']\n[pipeline]\nseed = 1\n[stages.a]\nkind = 'k'\n"),
        ("more.toml", "[stages.a]\nkind = 'k'\n[pipeline]\nseed = 1\n"),
    ]);
    assert_eq!(
        errors.render(&dag.sources),
        "\
error: key `pipeline.seed` is defined twice
 --> dag.toml:3:1
  |
3 | seed = 1
  | ^^^^
note: first defined here
 --> more.toml:4:1
  |
4 | seed = 1
  | ^^^^

error: stage `a` is defined twice
 --> dag.toml:4:9
  |
4 | [stages.a]
  |         ^
note: first defined here
 --> more.toml:1:9
  |
1 | [stages.a]
  |         ^"
    );
}

#[test]
fn files_that_include_each_other_are_refused() {
    let Reading { dag, errors } = reading([
        ("d/dag.toml", "include = ['a.toml']\n[stages.x]\nkind = 'k'\n"),
        ("d/a.toml", "include = ['./dag.toml', 'gone.toml', 3]\n"),
    ]);
    assert_eq!(
        errors.render(&dag.sources),
        "\
error: files include each other: `d/dag.toml -> d/a.toml -> d/./dag.toml`
 --> d/a.toml:1:12
  |
1 | include = ['./dag.toml', 'gone.toml', 3]
  |            ^^^^^^^^^^^^

error: cannot read `d/gone.toml`: entity not found
 --> d/a.toml:1:26
  |
1 | include = ['./dag.toml', 'gone.toml', 3]
  |                          ^^^^^^^^^^^

error: `include` must be a list of files
 --> d/a.toml:1:39
  |
1 | include = ['./dag.toml', 'gone.toml', 3]
  |                                       ^"
    );
    assert_eq!(dag.stages.len(), 1);
}

#[test]
fn a_dag_is_loaded_from_disk_relative_to_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dag.toml");
    std::fs::write(&path, "include = ['${WHICH}.toml']\n").unwrap();
    std::fs::write(folder.path().join("more.toml"), "[stages.'清洗']\nkind = 'k'\n").unwrap();
    let dag = load(&path, &|name| (name == "WHICH").then(|| "more".to_owned())).unwrap();
    assert_eq!(dag.stages[0].name, "清洗");
    let LoadError { errors, .. } = load(&folder.path().join("none.toml"), &nothing).unwrap_err();
    assert!(errors.0[0].message.starts_with("cannot read `"), "{errors}");
}

#[test]
fn a_tree_that_is_too_deep_is_refused_and_dropped_safely() {
    let keys = vec!["a"; 78].join(".");
    let deep = format!("models.x = {}1{}\n", format!("{{{keys}=").repeat(75), "}".repeat(75));
    let message = mistakes(&deep);
    assert!(message.starts_with("error: tables are nested more than 64 deep"), "{message}");
    let broken = mistakes(&format!("{deep}=\n"));
    assert!(broken.contains("error: not valid TOML"), "{broken}");
}

#[test]
fn a_mistake_reported_once_is_not_reported_again_in_other_words() {
    let text = "[pipeline]\nseed = nan\n[stages.x]\nkind = '${NONE}'\nmax_errors = inf\ninputs = ['${NONE}']\n";
    let Reading { dag, errors } = reading([("dag.toml", text)]);
    assert_eq!(errors.len(), 4, "{}", errors.render(&dag.sources));
    assert!(matches!(dag.stages[0].node.get("max_errors").unwrap().value, NodeValue::Invalid));
    assert_eq!(dag.stages[0].kind, "");
}

#[test]
fn a_mistake_beside_a_matrix_is_reported_once() {
    let message = mistakes("[stages.x]\nkind = 'k'\ninputs = 'y'\nmatrix.seed = [1, 2, 3]\n");
    assert_eq!(message.matches("error:").count(), 1, "{message}");
    let message = mistakes("[stages.x]\nkind = 'k'\nmax_errors = 5\nmatrix.seed = [1, 2, 3]\n");
    assert_eq!(message.matches("error:").count(), 1, "{message}");
}
