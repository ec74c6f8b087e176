//! No string makes the verifier panic or contradict itself; `cargo run --release -p stage-verify
//! --example fuzz -- 1000000` does the same for longer.

mod mutations;

#[test]
fn mutated_answers_never_panic_nor_contradict_themselves() {
    let work = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        let mut source = mutations::Source::new(20);
        for index in 0..4000 {
            let (a, b) = source.pair();
            assert_eq!(mutations::trial(&a, &b, index), Ok(()), "{a:?} | {b:?}");
        }
    });
    assert!(work.is_ok_and(|work| work.join().is_ok()));
}
