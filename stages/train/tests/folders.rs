//! What is written: models that others load, states that a run goes on from, merged models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stage_candle::{Architecture, LocalModel, Net, NetConfig, Shards, TapedNet};
use stage_tokens::{ChatTemplate, EndTokens, Tokenizer, Turn, byte_tokenizer};
use stage_train::{
    Checkpoints, Example, Micro, ModelFiles, Options, Position, Schedule, Storage, Trainer, merge, save_folder,
};

const TEMPLATE: &str = "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|start|>assistant\n{% endif %}";
/// Folder that a process of its own writes states to.
const CHILD: &str = "STAGE_TRAIN_TEST_FOLDER";

fn config(architecture: Architecture) -> NetConfig {
    NetConfig { vocabulary: 264, ..NetConfig::tiny(architecture) }
}

fn files(config: &NetConfig) -> ModelFiles {
    let json = byte_tokenizer(&["<|start|>", "<|end|>"]);
    let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
    let template = ChatTemplate::new(TEMPLATE, "", "<|end|>").unwrap();
    let ends = EndTokens::new(vec![257], &tokenizer, Some(&template));
    ModelFiles::made(config, &json, Some(&template), &ends).unwrap()
}

/// Saves a random model.
fn save(folder: &Path, architecture: Architecture, seed: u64, storage: Storage) -> TapedNet {
    let config = config(architecture);
    let net = TapedNet::random(config.clone(), seed).unwrap();
    save_folder(&net, &files(&config), folder, storage).unwrap();
    net
}

fn weights(net: &TapedNet) -> BTreeMap<String, Vec<u32>> {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    net.variables().keys().map(|name| (name.clone(), net.read_with(name, bits).unwrap())).collect()
}

fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(tree(&path)) } else { files.extend([(path.clone(), fs::read(&path).unwrap())]) }
    }
    files
}

#[test]
fn a_saved_model_is_loaded_with_the_same_weights_and_answers_conversations() {
    for architecture in [Architecture::Llama, Architecture::Qwen2] {
        for tied in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("model");
            let config = NetConfig { tied, ..config(architecture) };
            let net = TapedNet::random(config.clone(), 4).unwrap();
            save_folder(&net, &files(&config), &path, Storage::F32).unwrap();
            let loaded = TapedNet::load(&path).unwrap();
            assert_eq!(loaded.config(), &config);
            assert!(weights(&loaded) == weights(&net), "{architecture}, tied {tied}");
            let model = LocalModel::open(&path).unwrap();
            assert_eq!(model.ends().ids(), [257]);
            let prompt = model.prompt(&[Turn { role: "user", content: "hi", tool_calls: None }]).unwrap();
            assert_eq!((prompt[0], prompt.len()), (256, 21));
            // files that are read from a folder are written as they were
            let again = folder.path().join("again");
            save_folder(&loaded, &ModelFiles::open(&path).unwrap(), &again, Storage::F32).unwrap();
            let content = |folder: &Path| tree(folder).into_values().collect::<Vec<_>>();
            assert!(content(&path) == content(&again), "{architecture}");
        }
    }
}

#[test]
fn sixteen_bits_are_the_nearest_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let net = save(&path, Architecture::Llama, 4, Storage::Bf16);
    let loaded = TapedNet::load(&path).unwrap();
    for name in net.variables().keys() {
        let exact = net.read_with(name, <[f32]>::to_vec).unwrap();
        loaded
            .read_with(name, |stored| {
                assert!(stored.iter().zip(&exact).all(|(stored, exact)| (stored - exact).abs() <= exact.abs() / 256.0));
            })
            .unwrap();
    }
    assert!(Net::load(&path).is_ok());
    let config = fs::read_to_string(path.join("config.json")).unwrap();
    assert!(config.contains("\"dtype\": \"bfloat16\""), "{config}");
}

/// The sample model of the project (`datasets/quickstart/fetch_model.sh`), where it is cached.
#[test]
fn a_gguf_file_becomes_a_folder_with_the_same_ids_and_weights() {
    let file = std::env::home_dir().unwrap().join(".cache/pipeline/models/smollm2-135m-instruct-q4_1.gguf");
    if !file.exists() {
        println!("skipped: fetch the sample model first");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let net = TapedNet::load(&file).unwrap();
    save_folder(&net, &ModelFiles::open(&file).unwrap(), &path, Storage::F32).unwrap();
    let loaded = TapedNet::load(&path).unwrap();
    assert_eq!(loaded.config(), net.config());
    assert!(weights(&loaded) == weights(&net));
    let (before, after) = (LocalModel::open(&file).unwrap(), LocalModel::open(&path).unwrap());
    assert_eq!(before.tokenizer().digest(), after.tokenizer().digest());
    assert_eq!(before.template().unwrap().digest(), after.template().unwrap().digest());
    assert_eq!(before.ends(), after.ends());
}

#[test]
fn a_folder_that_is_there_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let net = save(&path, Architecture::Llama, 4, Storage::F32);
    let before = tree(&path);
    assert!(save_folder(&net, &files(net.config()), &path, Storage::Bf16).is_err());
    assert!(tree(&path) == before);
}

fn example(salt: usize) -> Example {
    let ids = (0..30).map(|i| u32::try_from((i * 37 + salt * 101 + i * i) % 256).unwrap()).collect();
    Example { ids, supervised: std::iter::once(10..30).collect() }
}

fn schedule() -> Schedule {
    Schedule::new(2e-3, 1e-5, 0.2, 8).unwrap()
}

fn trainer() -> Trainer {
    let net = TapedNet::random(config(Architecture::Qwen2), 9).unwrap();
    Trainer::new(net, schedule(), Options::default()).unwrap()
}

fn go_on(trainer: &mut Trainer, steps: usize) {
    for _ in 0..steps {
        let salt = usize::try_from(trainer.steps()).unwrap();
        trainer.step(&[Micro::of([("row", &example(salt))])]).unwrap();
    }
}

#[test]
fn four_steps_saved_and_four_more_are_eight_steps_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut whole = trainer();
    go_on(&mut whole, 8);
    let mut half = trainer();
    go_on(&mut half, 4);
    let position = Position { epoch: 1, window: 3, random: vec![17, u64::MAX] };
    let state = checkpoints.save(&half, &files(half.net().config()), &position).unwrap();
    assert_eq!(checkpoints.latest().unwrap().as_ref(), Some(&state));
    let (mut resumed, found) = Trainer::resume(&state, schedule(), Options::default()).unwrap();
    assert_eq!((found, resumed.steps()), (position, 4));
    go_on(&mut resumed, 4);
    assert!(weights(resumed.net()) == weights(whole.net()), "weights differ");
    assert!(resumed.optimizer() == whole.optimizer(), "moments differ");
    // a state is a model too
    assert!(LocalModel::open(&state).is_ok());
}

#[test]
fn only_the_newest_state_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    assert_eq!(checkpoints.latest().unwrap(), None);
    let mut trainer = trainer();
    for _ in 0..3 {
        go_on(&mut trainer, 1);
        checkpoints.save(&trainer, &files(trainer.net().config()), &Position::default()).unwrap();
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["step-00000003"]);
}

#[test]
fn a_state_of_a_later_version_or_a_cut_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = Checkpoints::new(folder.path());
    let mut trainer = trainer();
    go_on(&mut trainer, 1);
    let state = state.save(&trainer, &files(trainer.net().config()), &Position::default()).unwrap();
    let refusal = || Trainer::resume(&state, schedule(), Options::default()).unwrap_err().to_string();
    let moments = state.join("state/optimizer.safetensors");
    let bytes = fs::read(&moments).unwrap();
    fs::write(&moments, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refusal().contains("damaged"), "{}", refusal());
    let record = state.join("state/state.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
    assert!(refusal().contains("format 2"), "{}", refusal());
}

/// Writes a state after two steps, in a process that other tests start with a small limit on the size of files.
/// Without the variable that names the folder it has nothing to do.
#[test]
fn child_that_saves_a_second_state() {
    let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let mut trainer = trainer();
    go_on(&mut trainer, 2);
    if let Err(error) = Checkpoints::new(&root).save(&trainer, &files(trainer.net().config()), &Position::default()) {
        println!("refused: {error}");
    }
}

/// Runs the child with files limited to `blocks` of 512 bytes; `trap` says what the signal for larger ones does.
fn save_with_limit(root: &Path, blocks: u32, trap: &str) -> std::process::Output {
    let script = format!(
        "{trap} ulimit -c 0; ulimit -f {blocks}; exec \"$0\" --exact child_that_saves_a_second_state --nocapture"
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(CHILD, root);
    command.output().unwrap()
}

#[test]
fn a_kill_or_a_full_disk_in_the_middle_of_a_state_leaves_the_old_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut first = trainer();
    go_on(&mut first, 1);
    let old = checkpoints.save(&first, &files(first.net().config()), &Position::default()).unwrap();
    let before = tree(&old);
    // configuration, weights, moments: 4 KiB, 300 KiB, 600 KiB
    let mut killed = 0;
    for blocks in [2, 30, 300, 700, 1000] {
        let output = save_with_limit(folder.path(), blocks, "");
        killed += u32::from(!output.status.success());
        assert_eq!(checkpoints.latest().unwrap().as_ref(), Some(&old), "{blocks} blocks: {output:?}");
        assert!(tree(&old) == before, "{blocks} blocks");
    }
    assert_eq!(killed, 5, "the limit killed no process");
    let output = save_with_limit(folder.path(), 300, "trap '' XFSZ;");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("refused: cannot write"), "{printed}");
    assert!(tree(&old) == before);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["step-00000001"], "a refused state leaves no draft");
    // with room enough the new state replaces the old one
    assert!(save_with_limit(folder.path(), 100_000, "").status.success());
    let new = checkpoints.latest().unwrap().unwrap();
    assert!(new.ends_with("step-00000002") && !old.exists());
    let (resumed, _) = Trainer::resume(&new, schedule(), Options::default()).unwrap();
    go_on(&mut first, 1);
    assert!(weights(resumed.net()) == weights(first.net()));
}

/// Three specialists.
fn specialists(folder: &Path) -> Vec<PathBuf> {
    (0..3)
        .map(|seed| {
            let path = folder.join(format!("specialist-{seed}"));
            save(&path, Architecture::Qwen2, seed, Storage::F32);
            path
        })
        .collect()
}

fn with_weights(paths: &[PathBuf], weights: &[f64]) -> Vec<(PathBuf, f64)> {
    paths.iter().cloned().zip(weights.iter().copied()).collect()
}

#[test]
fn a_merged_model_is_the_weighted_mean() {
    let folder = tempfile::tempdir().unwrap();
    let paths = specialists(folder.path());
    let out = folder.path().join("merged");
    let merged = merge(&with_weights(&paths, &[1.0, 1.0, 2.0]), &out, Storage::F32).unwrap();
    assert_eq!(merged.weights, [0.25, 0.25, 0.5]);
    let nets: Vec<TapedNet> = paths.iter().map(|path| TapedNet::load(path).unwrap()).collect();
    let mean = TapedNet::load(&out).unwrap();
    assert_eq!(merged.tensors, mean.variables().len());
    let values = |net: &TapedNet, name: &str| net.read_with(name, <[f32]>::to_vec).unwrap();
    let mut elements = 0;
    for name in mean.variables().keys() {
        let [first, second, third] = [0, 1, 2].map(|index: usize| values(&nets[index], name));
        for (index, mean) in values(&mean, name).iter().enumerate() {
            let exact =
                0.25 * f64::from(first[index]) + 0.25 * f64::from(second[index]) + 0.5 * f64::from(third[index]);
            assert!((f64::from(*mean) - exact).abs() <= exact.abs() * 1e-7, "{name}: {mean} {exact}");
            elements += 1;
        }
    }
    assert_eq!(elements, merged.elements);
    assert!(LocalModel::open(&out).is_ok());
}

#[test]
fn equal_models_merge_to_their_own_bytes_and_a_weight_of_one_is_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let paths = specialists(folder.path());
    let content = |folder: &Path| tree(folder).into_values().collect::<Vec<_>>();
    let same = [paths[0].clone(), paths[0].clone(), paths[0].clone()];
    for (name, models) in [
        ("thirds", with_weights(&same, &[1.0, 1.0, 1.0])),
        ("sevenths", with_weights(&same, &[1.0, 2.0, 4.0])),
        ("one", with_weights(&paths, &[3.0, 0.0, 0.0])),
    ] {
        let out = folder.path().join(name);
        let merged = merge(&models, &out, Storage::F32).unwrap();
        assert!((merged.weights.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert!(content(&out) == content(&paths[0]), "{name}");
    }
}

#[test]
fn models_that_do_not_fit_are_refused_with_what_differs_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let paths = specialists(folder.path());
    let out = folder.path().join("merged");
    let refuse = |other: PathBuf, weights: [f64; 2]| {
        let message =
            merge(&with_weights(&[paths[0].clone(), other], &weights), &out, Storage::F32).unwrap_err().to_string();
        assert!(!out.exists());
        message
    };
    let llama = folder.path().join("llama");
    save(&llama, Architecture::Llama, 1, Storage::F32);
    assert!(refuse(llama, [1.0, 1.0]).contains("tensor"));
    let edited = |name: &str, file: &str, from: &str, to: &str| {
        let path = folder.path().join(name);
        save(&path, Architecture::Qwen2, 1, Storage::F32);
        let text = fs::read_to_string(path.join(file)).unwrap();
        assert!(text.contains(from));
        fs::write(path.join(file), text.replace(from, to)).unwrap();
        path
    };
    let theta = edited("theta", "config.json", "10000.0", "20000.0");
    assert!(refuse(theta, [1.0, 1.0]).contains("of `config.json` differs"));
    let tokenizer = edited("tokenizer", "tokenizer.json", "<|start|>", "<|begin|>");
    assert!(refuse(tokenizer, [1.0, 1.0]).contains("tokenizers differ"));
    let template = edited("template", "chat_template.jinja", "assistant", "model");
    assert!(refuse(template, [1.0, 1.0]).contains("chat templates differ"));
    assert!(refuse(paths[1].clone(), [1.0, -1.0]).contains("weight -1"));
    assert!(refuse(paths[1].clone(), [0.0, 0.0]).contains("add up to 0"));
    assert!(merge(&[], &out, Storage::F32).is_err());
}

#[test]
fn a_weight_that_is_no_number_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = specialists(folder.path());
    let file = paths[1].join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    // the last element of the last tensor
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let error = merge(&with_weights(&paths, &[1.0; 3]), &folder.path().join("merged"), Storage::F32).unwrap_err();
    assert!(error.to_string().contains("model.norm.weight") && error.to_string().contains("specialist-1"), "{error}");
    assert!(!folder.path().join("merged").exists());
    assert_eq!(Shards::open(&paths[0]).unwrap().shapes().last().unwrap().0, "model.norm.weight");
}
