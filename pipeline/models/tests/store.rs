//! The call store against kills, damage and other writers: a record that was whole stays readable.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pipeline_models::{
    Asked, CallKey, CallStore, Damage, Message, ModelId, Prune, Recorded, Recordings, Reply, Request, Sampling, Score,
    ScoreRequest, StoredCall, parse_answer,
};
use proptest::prelude::*;

fn model() -> ModelId {
    ModelId::named("m", Some("r"))
}

fn call(number: u32) -> (CallKey, StoredCall) {
    let messages = vec![Message::new("user", format!("第{number}题"))];
    let request = Request::new(messages, Sampling::full(1.0, 8), number);
    let raw = format!(
        r#"{{"choices":[{{"message":{{"content":"答{number}"}}}}],"usage":{{"prompt_tokens":3,"completion_tokens":{number}}}}}"#
    );
    let stored = StoredCall {
        model: model(),
        request: request.clone().into(),
        reply: Reply::Answer(raw),
        stage: if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
        host: "http://127.0.0.1:1".to_owned(),
        time_ms: 1000 + u64::from(number),
        latency_ms: 5,
    };
    (CallKey::of(&model(), &request), stored)
}

fn fill(folder: &Path, numbers: std::ops::Range<u32>) {
    let store = CallStore::open(folder).unwrap();
    for number in numbers {
        let (key, stored) = call(number);
        store.append(&key, &stored).unwrap();
    }
}

fn only_file(folder: &Path) -> PathBuf {
    let models = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = models
        .flat_map(|model| std::fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|end| end == "calls"))
        .collect();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn readable(store: &CallStore, numbers: std::ops::Range<u32>) -> Vec<u32> {
    numbers
        .filter(|number| {
            let (key, stored) = call(*number);
            let found = store.get(&key).unwrap();
            assert!(found.is_none() || found == Some(stored), "what is read is what was written");
            assert_eq!(store.contains(&key), store.get(&key).unwrap().is_some());
            store.contains(&key)
        })
        .collect()
}

#[test]
fn a_kill_at_any_byte_loses_at_most_the_record_being_written() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..3);
    let path = only_file(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    let mut ends = vec![0];
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let store = CallStore::open(folder.path()).unwrap();
        let whole = readable(&store, 0..3);
        let count = u32::try_from(whole.len()).unwrap();
        assert_eq!(whole, (0..count).collect::<Vec<_>>(), "cut at {cut}");
        if whole.len() == ends.len() {
            ends.push(cut);
        }
        let torn = u64::from(*ends.last().unwrap() != cut);
        assert_eq!(store.damage(), Damage { damaged: 0, torn }, "cut at {cut}");
    }
    assert_eq!(ends.len(), 4);
    // What a killed writer was writing when it was looked at is taken up once it is whole.
    std::fs::write(&path, &bytes[..ends[2] + 70]).unwrap();
    let store = CallStore::open(folder.path()).unwrap();
    assert_eq!(readable(&store, 0..3), [0, 1]);
    std::fs::write(&path, &bytes).unwrap();
    store.refresh().unwrap();
    assert_eq!(readable(&store, 0..3), [0, 1, 2]);
    assert_eq!(store.damage(), Damage::default());
}

#[test]
fn damage_costs_the_records_it_hits_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..6);
    let path = only_file(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    proptest!(ProptestConfig::with_cases(300), |(at in 0..bytes.len(), mask in 1_u8..)| {
        let mut damaged = bytes.clone();
        damaged[at] ^= mask;
        std::fs::write(&path, &damaged).unwrap();
        let store = CallStore::open(folder.path()).unwrap();
        prop_assert_eq!(readable(&store, 0..6).len(), 5);
        let damage = store.damage();
        prop_assert_eq!(damage.damaged + damage.torn, 1);
    });
}

#[test]
fn a_record_cut_short_within_a_file_does_not_hide_its_successors() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..4);
    let path = only_file(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    let second = bytes.windows(5).skip(1).position(|window| window == b"\x89CALL").unwrap() + 1;
    for missing in 1..second {
        let mut damaged = bytes[..second - missing].to_vec();
        damaged.extend_from_slice(&bytes[second..]);
        std::fs::write(&path, &damaged).unwrap();
        let store = CallStore::open(folder.path()).unwrap();
        assert_eq!(readable(&store, 0..4), [1, 2, 3], "{missing} bytes missing");
    }
}

#[test]
fn two_writers_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = CallStore::open(folder.path()).unwrap();
    let second = CallStore::open(folder.path()).unwrap();
    std::thread::scope(|scope| {
        for (store, numbers) in [(&first, 0..100), (&second, 50..150), (&first, 150..200)] {
            scope.spawn(move || {
                for number in numbers {
                    let (key, stored) = call(number);
                    store.append(&key, &stored).unwrap();
                }
            });
        }
    });
    for store in [&first, &second, &CallStore::open(folder.path()).unwrap()] {
        store.refresh().unwrap();
        assert_eq!(readable(store, 0..200).len(), 200);
        assert_eq!((store.len(), store.damage()), (200, Damage::default()));
    }
}

#[test]
fn a_damaged_record_is_replaced_by_its_double() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..1);
    let path = only_file(folder.path());
    fill(folder.path(), 0..0);
    let other = CallStore::open(tempfile::tempdir().unwrap().path().join("none")).unwrap();
    assert!(other.is_empty());
    let (key, stored) = call(0);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    // The first record is damaged, but not at the end of the file, so that opening does not notice.
    bytes.extend_from_slice(&std::fs::read(&path).unwrap());
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(CallStore::open(folder.path()).unwrap().get(&key).unwrap(), Some(stored));
}

#[test]
fn an_answer_goes_before_a_row_error() {
    let folder = tempfile::tempdir().unwrap();
    let (key, answered) = call(0);
    let reply = Reply::RowError { code: "context_exceeded".to_owned(), message: "too long".to_owned() };
    let refused = StoredCall { reply, ..answered.clone() };
    let store = CallStore::open(folder.path()).unwrap();
    for (append, expected) in [(&refused, &refused), (&answered, &answered), (&refused, &answered)] {
        store.append(&key, append).unwrap();
        assert_eq!(store.get(&key).unwrap().as_ref(), Some(expected));
    }
    drop(store);
    assert_eq!(CallStore::open(folder.path()).unwrap().get(&key).unwrap(), Some(answered));
}

#[test]
fn calls_are_counted_by_model_and_stage() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..5);
    let summary = CallStore::open(folder.path()).unwrap().summary().unwrap();
    let short: Vec<_> = summary
        .iter()
        .map(|group| {
            (group.model.as_str(), group.stage.as_str(), group.calls, group.prompt_tokens, group.completion_tokens)
        })
        .collect();
    assert_eq!(short, [("m@r", "even", 3, 9, 6), ("m@r", "odd", 2, 6, 4)]);
    let bytes: u64 = summary.iter().map(|group| group.bytes).sum();
    assert_eq!(bytes, std::fs::metadata(only_file(folder.path())).unwrap().len());
    assert_eq!((summary[0].first_ms, summary[0].last_ms), (1000, 1004));
}

#[test]
fn pruning_removes_what_was_meant_and_keeps_the_rest_readable() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..10);
    let store = CallStore::open(folder.path()).unwrap();
    assert_eq!(store.prune(&Prune::default()).unwrap().calls, 0, "no condition removes nothing");
    let old = Prune { before_ms: Some(1004), model: Some("m"), ..Prune::default() };
    let counted = store.prune(&Prune { dry_run: true, ..old }).unwrap();
    assert_eq!((counted.calls, counted.kept), (4, 6));
    assert_eq!(store.len(), 10);
    assert_eq!(store.prune(&old).unwrap(), counted);
    assert_eq!(readable(&store, 0..10), [4, 5, 6, 7, 8, 9]);
    let keep: HashSet<CallKey> = [call(5).0].into();
    let other_model = Prune { keep: Some(&keep), model: Some("other"), ..Prune::default() };
    assert_eq!(store.prune(&other_model).unwrap().calls, 0);
    // The store goes on writing, to a new file.
    let (key, stored) = call(20);
    store.append(&key, &stored).unwrap();
    store.prune(&Prune { keep: Some(&keep), ..Prune::default() }).unwrap();
    assert_eq!(readable(&store, 0..21), [5]);
    let all = Prune { model: Some("m@r"), ..Prune::default() };
    store.prune(&all).unwrap();
    assert!(store.is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_being_written_is_not_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let writing = CallStore::open(folder.path()).unwrap();
    let (key, stored) = call(0);
    writing.append(&key, &stored).unwrap();
    let store = CallStore::open(folder.path()).unwrap();
    let pruned = store.prune(&Prune { model: Some("m"), ..Prune::default() }).unwrap();
    assert_eq!((pruned.calls, pruned.in_use.len()), (0, 1));
    drop(writing);
    assert_eq!(store.prune(&Prune { model: Some("m"), ..Prune::default() }).unwrap().calls, 1);
}

#[test]
fn a_reader_survives_pruning_by_another() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 0..4);
    let reader = CallStore::open(folder.path()).unwrap();
    let pruner = CallStore::open(folder.path()).unwrap();
    pruner.prune(&Prune { before_ms: Some(1002), ..Prune::default() }).unwrap();
    assert_eq!(readable(&reader, 0..4), [2, 3]);
    assert_eq!(reader.damage(), Damage::default());
}

#[test]
fn recordings_written_from_a_store_give_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder.path().join("calls"), 0..20);
    let store = CallStore::open(folder.path().join("calls")).unwrap();
    let scored = ScoreRequest {
        messages: vec![Message::new("user", "七加五")],
        response: "十二".to_owned(),
        is_complete: true,
        token_ids: Some(vec![5, 7, 2]),
        tokenizer: Some("sha256:t".to_owned()),
    };
    let score = Score { log_prob: -0.1 - 0.2, tokens: 3 };
    let Asked::Answer(first) = call(0).1.request else { panic!("call 0 is an answer") };
    let refused = Request { sample: 99, ..first };
    let row_error = Reply::RowError { code: "context_exceeded".to_owned(), message: "9 of 8".to_owned() };
    let more = [
        (CallKey::of_score(&model(), &scored), scored.clone().into(), Reply::Score(score)),
        (CallKey::of(&model(), &refused), refused.clone().into(), row_error),
    ];
    for (key, request, reply) in more {
        store.append(&key, &StoredCall { request, reply, ..call(0).1 }).unwrap();
    }
    for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
        let file = folder.path().join(name);
        let written = store.write_recordings(Some("m@r"), &file).unwrap();
        assert_eq!((written.calls, written.unreadable), (22, 0));
        let bytes = std::fs::read(&file).unwrap();
        store.write_recordings(None, &file).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "the same calls give the same bytes");
        let recordings = Recordings::open(&model(), folder.path(), &[name.into()]).unwrap();
        assert_eq!(recordings.len(), 22);
        assert_eq!(recordings.get_score(&scored).unwrap(), Recorded::Answer(score));
        assert!(
            matches!(recordings.get(&refused).unwrap(), Recorded::RowError { code, .. } if code == "context_exceeded")
        );
        for number in 0..20 {
            let (_, stored) = call(number);
            let (Asked::Answer(request), Reply::Answer(raw)) = (stored.request, stored.reply) else { panic!() };
            assert_eq!(recordings.get(&request).unwrap(), Recorded::Answer(parse_answer(&raw).unwrap()));
        }
    }
    let nothing = store.write_recordings(Some("other"), &folder.path().join("a.jsonl")).unwrap();
    assert_eq!(nothing.calls, 0);
    assert!(folder.path().join("a.jsonl").exists(), "what was recorded before stays");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "no draft is left");
}
