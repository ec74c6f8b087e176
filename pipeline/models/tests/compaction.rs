//! Compaction of a call store: nothing is lost, whoever reads, writes or is killed meanwhile.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pipeline_models::{CallKey, CallStore, Damage, Message, ModelId, Prune, Reply, Request, Sampling, StoredCall};
use proptest::prelude::*;

fn model() -> ModelId {
    ModelId::named("m", Some("r"))
}

fn call(number: u32) -> (CallKey, StoredCall) {
    let messages = vec![Message::new("user", format!("第{number}题"))];
    let request = Request::new(messages, Sampling::full(1.0, 8), number);
    let stored = StoredCall {
        model: model(),
        request: request.clone().into(),
        reply: Reply::Answer(format!(r#"{{"choices":[{{"message":{{"content":"答{number}"}}}}]}}"#)),
        stage: "s".to_owned(),
        host: String::new(),
        time_ms: 1000 + u64::from(number),
        latency_ms: 5,
    };
    (CallKey::of(&model(), &request), stored)
}

fn refused(number: u32) -> (CallKey, StoredCall) {
    let (key, stored) = call(number);
    let reply = Reply::RowError { code: "context_exceeded".to_owned(), message: "too long".to_owned() };
    (key, StoredCall { reply, ..stored })
}

fn append(store: &CallStore, (key, stored): &(CallKey, StoredCall)) {
    store.append(key, stored).unwrap();
}

fn fill(folder: &Path, calls: impl IntoIterator<Item = (CallKey, StoredCall)>) {
    let store = CallStore::open(folder).unwrap();
    calls.into_iter().for_each(|call| append(&store, &call));
}

/// Files below the folder of the only model, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let models = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        models.flat_map(|model| fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path())).collect();
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

fn assert_readable(store: &CallStore, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        let (key, stored) = call(number);
        assert_eq!(store.get(&key).unwrap(), Some(stored), "call {number}");
    }
}

#[test]
fn many_files_become_one_without_doubles_and_without_damage() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder, [refused(0), refused(1), call(2)]);
    fill(folder, (0..6).filter(|number| *number != 1).map(call));
    fill(folder, (4..9).map(call));
    let last = files(folder).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&last, bytes).unwrap();
    let store = CallStore::open(folder).unwrap();
    assert_eq!(store.shape().unwrap().closed, 3);
    let before: u64 = files(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    let compacted = store.compact().unwrap();
    // double are call 2, the refusal of 0, and 4 and 5; what is left is 0 to 7 with the refusal of 1; 8 is damaged
    assert_eq!((compacted.files, compacted.files_left, compacted.calls), (3, 1, 8));
    assert_eq!((compacted.doubles, compacted.damaged), (4, 1));
    assert_eq!((compacted.in_use.len(), compacted.later.len()), (0, 0));
    let after: u64 = files(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(compacted.bytes, before - after);
    assert_eq!(files(folder).len(), 1);
    for store in [&store, &CallStore::open(folder).unwrap()] {
        assert_readable(store, [0, 2, 3, 4, 5, 6, 7]);
        assert_eq!(store.get(&call(1).0).unwrap(), Some(refused(1).1));
        assert_eq!((store.len(), store.damage()), (8, Damage::default()));
    }
    // what is compact is left as it is
    let name = files(folder);
    let again = store.compact().unwrap();
    assert_eq!((again.files, again.files_left, again.calls, again.bytes), (1, 1, 8, 0));
    assert_eq!(files(folder), name);
}

#[test]
fn the_order_of_records_that_readers_agree_on_stays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let told = |text: &str| {
        let (key, stored) = call(0);
        (key, StoredCall { host: text.to_owned(), ..stored })
    };
    fill(folder, [call(1)]);
    let living = CallStore::open(folder).unwrap();
    append(&living, &told("second"));
    fill(folder, [told("third"), call(2)]);
    fill(folder, [call(3)]);
    let store = CallStore::open(folder).unwrap();
    let compacted = store.compact().unwrap();
    assert_eq!((compacted.files, compacted.files_left, compacted.in_use.len()), (3, 2, 1));
    for store in [&store, &CallStore::open(folder).unwrap()] {
        assert_eq!(store.get(&call(0).0).unwrap().unwrap().host, "second", "the record begun first is read");
        assert_readable(store, 1..4);
    }
    append(&living, &call(4));
    drop(living);
    let store = CallStore::open(folder).unwrap();
    store.compact().unwrap();
    assert_readable(&store, 1..5);
    assert_eq!(store.get(&call(0).0).unwrap().unwrap().host, "second");
    assert_eq!(files(folder).len(), 1);
}

#[test]
fn readers_and_writers_go_on_while_another_compacts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fill(folder, (0..40).map(call));
    fill(folder, (20..60).map(call));
    let reader = CallStore::open(folder).unwrap();
    let unread = CallStore::open(folder).unwrap();
    let writer = CallStore::open(folder).unwrap();
    append(&writer, &call(60));
    assert_readable(&reader, 0..30);
    CallStore::open(folder).unwrap().compact().unwrap();
    append(&writer, &call(61));
    for store in [&reader, &unread, &writer] {
        assert_readable(store, 0..60);
        store.refresh().unwrap();
        assert_readable(store, 0..62);
        assert_eq!((store.len(), store.damage()), (62, Damage::default()));
    }
}

#[test]
fn a_kill_at_any_step_of_a_compaction_loses_nothing() {
    let origin = tempfile::tempdir().unwrap();
    fill(origin.path(), [refused(0), call(1), call(2)]);
    fill(origin.path(), [call(0), call(2), call(3)]);
    fill(origin.path(), [call(4)]);
    let old: Vec<PathBuf> = files(origin.path());
    let done = tempfile::tempdir().unwrap();
    copy(origin.path(), done.path());
    CallStore::open(done.path()).unwrap().compact().unwrap();
    let joined = files(done.path()).pop().unwrap();
    let bytes = fs::read(&joined).unwrap();
    let name = joined.file_stem().unwrap().to_str().unwrap();
    let mut parts: Vec<&str> = name.split('-').collect();
    let process = parts.len() - 2;
    parts[process] = "999999999";
    let left = format!("{}.tmp", parts.join("-"));

    let check = |state: &str, prepare: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        copy(origin.path(), folder.path());
        let of_model = folder.path().join(model().slug());
        prepare(&of_model);
        let store = CallStore::open(folder.path()).unwrap();
        assert_readable(&store, 0..5);
        assert_eq!(store.len(), 5, "{state}");
        let compacted = store.compact().unwrap();
        assert_eq!(compacted.calls, 5, "{state}");
        assert_readable(&CallStore::open(folder.path()).unwrap(), 0..5);
        let rest = files(folder.path());
        assert!(rest.len() == 1 && rest[0].extension().unwrap() == "calls", "{state}: {rest:?}");
    };
    for cut in [0, 70, bytes.len() / 2, bytes.len()] {
        check("killed while it wrote", &|folder| fs::write(folder.join(&left), &bytes[..cut]).unwrap());
    }
    for removed in 0..=old.len() {
        check("killed while it removed the old files", &|folder| {
            fs::write(folder.join(joined.file_name().unwrap()), &bytes).unwrap();
            for path in &old[..removed] {
                fs::remove_file(folder.join(path.file_name().unwrap())).unwrap();
            }
        });
    }
}

#[test]
fn a_draft_of_a_living_process_stays() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), [call(0)]);
    let file = files(folder.path()).pop().unwrap();
    let name = file.file_stem().unwrap().to_str().unwrap();
    let draft = file.with_file_name(format!("{name}~{name}.tmp"));
    fs::write(&draft, "half").unwrap();
    CallStore::open(folder.path()).unwrap().compact().unwrap();
    assert!(draft.exists(), "its process, this one, is alive");
}

#[test]
fn a_file_with_records_of_a_later_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), (0..2).map(call));
    fill(folder.path(), (2..4).map(call));
    let later = files(folder.path()).remove(0);
    let mut bytes = fs::read(&later).unwrap();
    bytes[7] = 2;
    fs::write(&later, &bytes).unwrap();
    let store = CallStore::open(folder.path()).unwrap();
    let compacted = store.compact().unwrap();
    assert_eq!(compacted.later, std::slice::from_ref(&later));
    assert_eq!(fs::read(&later).unwrap(), bytes);
    assert_readable(&store, 1..4);
}

#[test]
fn models_are_found_by_what_a_list_prints() {
    let folder = tempfile::tempdir().unwrap();
    let store = CallStore::open(folder.path()).unwrap();
    let digests = ["sha256:aabbccddeeff", "sha256:aabbcc001122"];
    let mut ids: Vec<ModelId> = digests.iter().map(|digest| ModelId::weights(*digest, "f32")).collect();
    ids.push(ModelId::named("org/teacher", None));
    ids.push(ModelId::named("org/teacher", Some("v2")));
    for (number, model) in (0..).zip(ids) {
        let (_, stored) = call(number);
        let pipeline_models::Asked::Answer(request) = &stored.request else { panic!("an answer") };
        let key = CallKey::of(&model, request);
        store.append(&key, &StoredCall { model, ..stored }).unwrap();
    }
    for (given, meant) in [
        ("org/teacher", "org/teacher"),
        ("org/teacher@v2", "org/teacher@v2"),
        ("sha256:aabbccddeeff", "sha256:aabbccddeeff"),
        ("sha256:aabbccd", "sha256:aabbccddeeff@f32"),
        ("aabbccdd…", "sha256:aabbccddeeff@f32"),
        ("aabbcc00@f32", "sha256:aabbcc001122@f32"),
    ] {
        assert_eq!(store.model_named(given).unwrap(), meant);
    }
    for (given, part) in
        [("aabbcc", "several models begin so"), ("aabbcc00@bf16", "holds no calls"), ("x", "org/teacher@v2")]
    {
        let message = store.model_named(given).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let file = folder.path().join("a.jsonl");
    let written = store.write_recordings(Some("sha256:aabbccddeeff@f32"), &file).unwrap();
    assert_eq!(written.calls, 1);
}

/// What one of several stores on a folder does.
#[derive(Debug, Clone)]
enum Step {
    Append(u32),
    Refuse(u32),
    Reopen,
    Refresh,
    Compact,
    Prune(u32),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        6 => (0..12_u32).prop_map(Step::Append),
        2 => (0..12_u32).prop_map(Step::Refuse),
        2 => Just(Step::Reopen),
        1 => Just(Step::Refresh),
        3 => Just(Step::Compact),
        1 => (0..12_u32).prop_map(Step::Prune),
    ];
    prop::collection::vec((0..3_usize, step), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_however_stores_append_compact_and_prune(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut stores: Vec<CallStore> = (0..3).map(|_| CallStore::open(folder).unwrap()).collect();
        // what must be there, and what each store was told of
        let (mut answers, mut refusals) = (BTreeSet::new(), BTreeSet::new());
        let mut known = vec![BTreeSet::new(); 3];
        for (at, step) in steps {
            let store = &stores[at];
            match step {
                Step::Append(number) => {
                    append(store, &call(number));
                    answers.insert(number);
                    known[at].insert(number);
                }
                Step::Refuse(number) => {
                    append(store, &refused(number));
                    refusals.insert(number);
                }
                Step::Reopen => {
                    stores[at] = CallStore::open(tempfile::tempdir().unwrap().path()).unwrap();
                    stores[at] = CallStore::open(folder).unwrap();
                    known[at].clone_from(&answers);
                }
                Step::Refresh => {
                    store.refresh().unwrap();
                    known[at].clone_from(&answers);
                }
                Step::Compact => {
                    let compacted = store.compact().unwrap();
                    prop_assert_eq!((compacted.damaged, compacted.later.len()), (0, 0));
                    known[at].clone_from(&answers);
                }
                Step::Prune(number) => {
                    let what = Prune { before_ms: Some(1000 + u64::from(number)), ..Prune::default() };
                    store.prune(&what).unwrap();
                    // what a living writer holds stays, and all of it may go with the next pruning
                    answers.retain(|kept| *kept >= number);
                    refusals.retain(|kept| *kept >= number);
                    known[at].clone_from(&answers);
                }
            }
            for (store, known) in stores.iter().zip(&mut known) {
                known.retain(|number| answers.contains(number));
                assert_readable(store, known.iter().copied());
                prop_assert_eq!(store.damage(), Damage::default());
            }
        }
        stores.clear();
        let store = CallStore::open(folder).unwrap();
        for _ in 0..2 {
            assert_readable(&store, answers.iter().copied());
            for number in refusals.difference(&answers) {
                prop_assert!(store.contains(&call(*number).0));
            }
            store.compact().unwrap();
            prop_assert!(files(folder).len() <= 1);
        }
    }
}
