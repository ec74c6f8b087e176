//! Real data sets as their authors publish them, imported through the program and read back by pyarrow.

use std::fmt::Write as _;
use std::process::Command;

use crate::quickstart::python;
use crate::support::{Project, ended, repository, shared};

/// File, column of the prompt, rows.
const SETS: [(&str, &str, u64); 30] = [
    ("aqua/dev.json", "question", 254),
    ("cmath/cmath_dev.jsonl", "input", 600),
    ("gsm8k/test.jsonl", "question", 1055),
    ("gsm8k/train.jsonl", "question", 5978),
    ("humaneval/HumanEval.jsonl.gz", "prompt", 164),
    ("ifeval/input_data.jsonl", "prompt", 432),
    ("math/test.jsonl", "problem", 4000),
    ("math-answer-pairs/math500_qwen3_answers.json", "answer", 500),
    ("math500/math500_test.json", "problem", 500),
    ("mawps/addsub.jsonl", "input", 395),
    ("mawps/multiarith.jsonl", "input", 600),
    ("mawps/singleeq.jsonl", "input", 508),
    ("mawps/singleop.jsonl", "input", 562),
    ("mbpp/mbpp.jsonl", "text", 487),
    ("mmlu_stem/test.jsonl", "question", 2414),
    ("mt_bench/question.jsonl", "turns[0]", 80),
    ("olympiadbench/test.jsonl", "question", 540),
    ("reasoning-gym/tasks.jsonl", "question", 2000),
    ("scibench/atkins.json", "problem_text", 105),
    ("scibench/calculus.json", "problem_text", 42),
    ("scibench/fund.json", "problem_text", 71),
    ("scibench/thermo_sol.json", "problem_text", 17),
    ("self-instruct/seed_tasks.jsonl", "instruction", 175),
    ("svamp/SVAMP.json", "Question", 1000),
    ("traces-gsm8k-gpt3/example_model_solutions.jsonl", "question", 1055),
    ("traces-long-cot/sample_ollama_outputs.json", "problem", 5),
    ("traces-math-8x/math_cot_100.jsonl", "question", 80),
    ("vibethinker-eval/aime.parquet", "prompt[0].content", 30),
    ("vibethinker-eval/aime25.parquet", "prompt[0].content", 30),
    ("vibethinker-eval/hmmt25.parquet", "prompt[0].content", 30),
];

#[test]
fn every_data_set_imports_whole_and_reads_back_equal() {
    let Some(shared) = shared() else { return };
    let mut dag = String::new();
    for (index, (file, prompt, _)) in SETS.iter().enumerate() {
        let path = shared.join("data").join(file);
        let _ = write!(
            dag,
            "[stages.set{index}]\nkind = \"import\"\nfiles = ['{}']\nrows = \"queries\"\ncolumns = {{ prompt = '{prompt}' }}\n\n",
            path.display()
        );
    }
    let project = Project::new(&dag);
    project.run(&[]).ok();
    for (index, (file, _, rows)) in SETS.iter().enumerate() {
        let counts = &project.success(&format!("set{index}"))["counts"];
        assert_eq!((counts["read"].as_u64(), counts["written"].as_u64()), (Some(*rows), Some(*rows)), "{file}");
    }
    let Some(python) = python() else { return };
    let script = repository().join("tests/python/check_import.py");
    for (index, (file, prompt, rows)) in SETS.iter().enumerate() {
        let output = Command::new(&python)
            .arg(&script)
            .arg(project.path().join(format!("out/set{index}")))
            .arg(shared.join("data").join(file))
            .arg(prompt)
            .output()
            .unwrap();
        let checked = ended(output).ok();
        assert!(checked.out.contains(&format!("{rows} rows equal")), "{file}: {checked:?}");
    }
}
