//! The service over the toy net: texts do not depend on how they are decoded, and no listener is left hanging.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::decode::toy::{Alphabet, Ear, Fault, Heard, Toy, VOCABULARY, naive, naive_score};
use crate::decode::{Draw, Listener, Piece};

/// A thread that hangs fails the test instead of hanging it.
const LONG: Duration = Duration::from_mins(1);

fn options(threads: usize, slots: usize, pages: usize) -> ServiceOptions {
    ServiceOptions { threads, slots, cache_bytes: Some(pages * PAGE * 8 * threads), context: None }
}

fn start(toy: &Arc<Toy>, options: &ServiceOptions) -> Service {
    Service::over(toy, &Alphabet::shared(), options).unwrap()
}

fn prompt(seed: usize, length: usize) -> Vec<u32> {
    let id = |index| 5 + (seed * 7 + index * index + index / 3) % (VOCABULARY - 5);
    (0..length).map(|index| u32::try_from(id(index)).unwrap()).collect()
}

fn submit(service: &Service, job: usize, prompt: &[u32], draw: &Draw, to: &Sender<(usize, Heard)>) {
    let listener = Ear { heard: Heard::default(), patience: usize::MAX, to: to.clone(), job };
    service.submit(Job { prompt: prompt.to_vec(), draw: draw.clone(), listener: Box::new(listener) });
}

fn collect(ears: &Receiver<(usize, Heard)>, count: usize) -> BTreeMap<usize, Heard> {
    let heard: BTreeMap<_, _> = (0..count).map(|_| ears.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(heard.len(), count);
    heard
}

fn answer(service: &Service, prompt: &[u32], draw: &Draw) -> Heard {
    let (to, ears) = channel();
    submit(service, 0, prompt, draw, &to);
    collect(&ears, 1).remove(&0).unwrap()
}

fn code(heard: &Heard) -> (&str, &str) {
    match heard.end.as_ref() {
        Some(End::Refused { code, message }) => (code, message),
        other => panic!("{other:?} is no refusal"),
    }
}

struct ScoreEar(usize, Sender<(usize, Result<Vec<f32>, End>)>);

impl ScoreListener for ScoreEar {
    fn end(self: Box<Self>, outcome: Result<Vec<f32>, End>) {
        let _ = self.1.send((self.0, outcome));
    }
}

fn arbitrary_jobs() -> impl Strategy<Value = Vec<(Vec<u32>, Draw)>> {
    let stop = prop::sample::subsequence(vec!["\n\nQ:".to_owned(), "aba".to_owned(), "é".to_owned()], 0..3);
    let draw = (prop_oneof![Just(0.0), 0.3..1.5_f64], 0_u32..20, 0.3..1.0_f64, 1_u32..70, stop, any::<u64>(), 0_u8..4);
    let draw = draw.prop_map(|(temperature, top_k, top_p, max_tokens, stop, seed, top)| Draw {
        temperature,
        top_k,
        top_p,
        min_p: 0.01,
        max_tokens,
        stop,
        seed,
        top_logprobs: top.checked_sub(1),
    });
    // Few prompts, of which one begins like the other, so that prefixes meet.
    let prompt =
        (0_usize..3, prop::sample::select(vec![1_usize, 15, 16, 17, 40, 64, 100])).prop_map(|(seed, length)| {
            if seed == 2 { [prompt(1, 48), prompt(2, length)].concat() } else { prompt(seed, length) }
        });
    prop::collection::vec((prompt, draw), 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn texts_depend_on_prompt_and_draw_alone(
        jobs in arbitrary_jobs(),
        threads in 1_usize..4,
        slots in 1_usize..6,
        // From what one sequence needs at most (14 pages), so that some runs preempt all the time.
        pages in 14_usize..60,
    ) {
        let toy = Arc::new(Toy::default());
        let service = start(&toy, &options(threads, slots, pages));
        let (to, ears) = channel();
        for (index, (prompt, draw)) in jobs.iter().enumerate() {
            submit(&service, index, prompt, draw, &to);
        }
        let heard = collect(&ears, jobs.len());
        for (index, (prompt, draw)) in jobs.iter().enumerate() {
            let expected = Heard { pieces: heard[&index].pieces, ..naive(prompt, draw, 512) };
            prop_assert_eq!(&heard[&index], &expected);
        }
        prop_assert!(toy.most_spans.load(Ordering::SeqCst) <= slots);
    }

    #[test]
    fn scores_depend_on_their_tokens_alone(
        jobs in arbitrary_jobs(),
        cuts in prop::collection::vec(0_usize..100, 14),
        threads in 1_usize..3,
        slots in 1_usize..6,
        pages in 14_usize..40,
    ) {
        let toy = Arc::new(Toy::default());
        let service = start(&toy, &options(threads, slots, pages));
        let (to, ears) = channel();
        let (to_answers, answers) = channel();
        let mut expected = BTreeMap::new();
        for (index, ((ids, draw), cut)) in jobs.iter().zip(cuts).enumerate() {
            // Answers and scores share slots and pages.
            submit(&service, index, ids, draw, &to_answers);
            if ids.len() < 2 {
                continue;
            }
            let from = 1 + (ids.len() - 1) * cut / 100;
            service.submit_score(ScoreJob { ids: ids.clone(), from, listener: Box::new(ScoreEar(index, to.clone())) });
            expected.insert(index, Ok(naive_score(ids, from)));
        }
        let heard: BTreeMap<_, _> = expected.keys().map(|_| ears.recv_timeout(LONG).unwrap()).collect();
        prop_assert_eq!(heard, expected);
        let heard = collect(&answers, jobs.len());
        for (index, (prompt, draw)) in jobs.iter().enumerate() {
            prop_assert_eq!(heard[&index].ids(), naive(prompt, draw, 512).ids());
        }
    }
}

#[test]
fn a_shared_prompt_is_computed_once() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(1, 8, 200));
    let (to, ears) = channel();
    let prompt = prompt(1, 200);
    for index in 0..8 {
        let draw = Draw { max_tokens: 1, seed: index as u64, ..Draw::default() };
        submit(&service, index, &prompt, &draw, &to);
    }
    toy.gate.open();
    collect(&ears, 8);
    // 12 whole pages once, and 8 tokens behind them for each.
    assert_eq!(toy.rows.load(Ordering::SeqCst), 192 + 8 * 8);
    let draw = Draw { max_tokens: 1, ..Draw::default() };
    answer(&service, &prompt, &draw);
    assert_eq!(toy.rows.load(Ordering::SeqCst), 192 + 9 * 8, "pages that nobody holds are still known");
}

#[test]
fn the_youngest_is_computed_again_when_pages_run_out() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(1, 3, 6));
    let (to, ears) = channel();
    let draw = Draw { max_tokens: 60, top_k: 2, ..Draw::default() };
    let prompts = (0..).map(|seed| prompt(seed, 20)).filter(|prompt| naive(prompt, &draw, 512).tokens.len() == 60);
    let prompts: Vec<_> = prompts.take(3).collect();
    for (index, prompt) in prompts.iter().enumerate() {
        submit(&service, index, prompt, &draw, &to);
    }
    toy.gate.open();
    let order: Vec<usize> = (0..3)
        .map(|_| {
            ears.recv_timeout(LONG)
                .map(|(job, heard)| {
                    assert_eq!(heard.ids(), naive(&prompts[job], &draw, 512).ids());
                    job
                })
                .unwrap()
        })
        .collect();
    assert_eq!(order, [0, 1, 2], "the oldest always gets on");
    // Two need ten pages of the six: what was let go was computed again.
    assert!(toy.rows.load(Ordering::SeqCst) > 3 * 79, "{:?}", toy.rows);
}

#[test]
fn written_answers_are_prefixes_too() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &options(1, 1, 200));
    let first = answer(&service, &prompt(1, 30), &Draw { max_tokens: 40, top_k: 1, ..Draw::default() });
    let before = toy.rows.load(Ordering::SeqCst);
    let longer = [prompt(1, 30), first.ids(), prompt(2, 10)].concat();
    answer(&service, &longer, &Draw { max_tokens: 1, ..Draw::default() });
    let shared = (30 + first.ids().len() - 1) / PAGE * PAGE;
    assert_eq!(toy.rows.load(Ordering::SeqCst) - before, longer.len() - shared);
}

#[test]
fn a_slot_is_filled_again_in_the_next_step() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(1, 2, 200));
    let (to, ears) = channel();
    let lengths = [12, 2, 2, 2, 2, 2];
    for (index, max_tokens) in lengths.into_iter().enumerate() {
        let draw = Draw { max_tokens, seed: 3, temperature: 0.0, ..Draw::default() };
        let prompt = (1..).map(|seed| prompt(seed * 6 + index, 20));
        let prompt = prompt.into_iter().find(|prompt| naive(prompt, &draw, 512).tokens.len() == max_tokens as usize);
        submit(&service, index, &prompt.unwrap(), &draw, &to);
    }
    toy.gate.open();
    let order: Vec<usize> = (0..6).map(|_| ears.recv_timeout(LONG).unwrap().0).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 0]);
    // Five short answers of two steps each beside a long one: twelve tokens, twelve steps. One more may go into the step
    // that the first job took alone, before the others came.
    assert!(toy.steps.load(Ordering::SeqCst) <= 13, "{:?}", toy.steps);
}

#[test]
fn long_prompts_come_in_pieces_beside_answers() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &options(1, 4, 200));
    let (to, ears) = channel();
    for index in 0..4 {
        submit(&service, index, &prompt(index, 500), &Draw::default(), &to);
    }
    collect(&ears, 4);
    assert!(toy.widest.load(Ordering::SeqCst) <= 256 + 4);
}

#[test]
fn jobs_are_shared_among_threads() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(2, 8, 200));
    let (to, ears) = channel();
    for index in 0..8 {
        submit(&service, index, &prompt(1, 20), &Draw { seed: index as u64, max_tokens: 30, ..Draw::default() }, &to);
    }
    toy.gate.open();
    collect(&ears, 8);
    let most = toy.most_spans.load(Ordering::SeqCst);
    assert!((3..=5).contains(&most), "{most} of 8 sequences in one thread");
}

#[test]
fn the_context_cuts_answers_and_refuses_prompts() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &ServiceOptions { context: Some(30), ..options(1, 2, 40) });
    let draw = Draw { max_tokens: 1000, temperature: 0.0, ..Draw::default() };
    let prompt =
        (0..1000).map(|seed| prompt(seed, 20)).find(|prompt| naive(prompt, &draw, 30).tokens.len() == 10).unwrap();
    let heard = answer(&service, &prompt, &draw);
    assert_eq!((heard.end, heard.tokens.len()), (Some(End::Cut), 10));
    let heard = answer(&service, &self::prompt(1, 30), &draw);
    let (code, message) = code(&heard);
    assert!(
        code == "context_exceeded" && message.contains("30 tokens") && message.contains("context of 30"),
        "{message}"
    );
    assert_eq!(answer(&service, &self::prompt(1, 29), &draw).tokens.len(), 1);
}

#[test]
fn what_can_never_be_answered_is_refused_with_numbers() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &options(1, 2, 4));
    let refused = |prompt: &[u32], draw: &Draw| {
        let heard = answer(&service, prompt, draw);
        let (code, message) = code(&heard);
        (code.to_owned(), message.to_owned())
    };
    let (code, message) = refused(&prompt(1, 60), &Draw { max_tokens: 6, ..Draw::default() });
    assert_eq!(code, "cache_exceeded");
    assert!(message.contains("640") && message.contains("512") && message.contains("cache_bytes"), "{message}");
    assert!(answer(&service, &prompt(1, 60), &Draw { max_tokens: 5, ..Draw::default() }).end.is_some());
    assert_eq!(refused(&[], &Draw::default()).0, "empty_prompt");
    assert_eq!(refused(&[48], &Draw::default()).0, "bad_token");
    assert_eq!(refused(&[1], &Draw { max_tokens: 0, ..Draw::default() }).0, "bad_sampling");
    for (ids, from, expected) in [
        (vec![1, 2], 0, "empty_prompt"),
        (vec![1, 2], 2, "empty_response"),
        (vec![1, 99], 1, "bad_token"),
        (vec![1; 600], 1, "context_exceeded"),
        (vec![1; 70], 1, "cache_exceeded"),
    ] {
        let (to, ears) = channel();
        service.submit_score(ScoreJob { ids, from, listener: Box::new(ScoreEar(0, to)) });
        let Ok((_, Err(End::Refused { code, .. }))) = ears.recv_timeout(LONG) else { panic!("{expected}") };
        assert_eq!(code, expected);
    }
}

#[test]
fn no_memory_for_a_page_is_an_error() {
    let toy = Arc::new(Toy::default());
    let none = ServiceOptions { cache_bytes: Some(100), ..options(1, 2, 0) };
    let error = Service::over(&toy, &Alphabet::shared(), &none).err().unwrap();
    assert!(matches!(error, LocalError::NoCache { bytes: 100, page_bytes: 128, .. }), "{error}");
}

#[test]
fn a_listener_that_gives_up_is_told_so_once() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &options(1, 2, 100));
    let (to, ears) = channel();
    let listener = Ear { heard: Heard::default(), patience: 3, to, job: 0 };
    let draw = Draw { max_tokens: 400, top_k: 2, ..Draw::default() };
    let prompt =
        (0..1000).map(|seed| prompt(seed, 20)).find(|prompt| naive(prompt, &draw, 512).tokens.len() > 20).unwrap();
    service.submit(Job { prompt, draw, listener: Box::new(listener) });
    let heard = collect(&ears, 1).remove(&0).unwrap();
    assert_eq!((heard.end, heard.pieces), (Some(End::GivenUp), 3));
}

#[test]
fn a_stopped_service_gives_up_what_it_has() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(1, 2, 200));
    let (to, ears) = channel();
    for index in 0..5 {
        submit(&service, index, &prompt(index, 400), &Draw { max_tokens: 100, ..Draw::default() }, &to);
    }
    let stopping = std::thread::spawn(move || drop(service));
    for _ in 0..3 {
        // Those that wait are told before the thread has finished its step.
        assert_eq!(ears.recv_timeout(LONG).unwrap().1.end, Some(End::GivenUp));
    }
    toy.gate.open();
    stopping.join().unwrap();
    let ends: Vec<_> = ears.try_iter().map(|(_, heard)| heard.end).collect();
    assert_eq!(ends.len(), 2);
}

#[test]
fn a_failing_net_ends_its_jobs_and_the_service_goes_on() {
    let toy = Arc::new(Toy::default());
    let service = start(&toy, &options(2, 2, 100));
    for (fault, words) in [(Fault::Error, "the toy fails"), (Fault::Panic, "the toy panics")] {
        *toy.fault.lock().unwrap() = Some(fault);
        let heard = answer(&service, &prompt(1, 20), &Draw::default());
        let Some(End::Failed { message }) = heard.end else { panic!("{heard:?}") };
        assert!(message.contains(words), "{message}");
        *toy.fault.lock().unwrap() = None;
        let heard = answer(&service, &prompt(1, 20), &Draw::default());
        assert_eq!(heard.text, naive(&prompt(1, 20), &Draw::default(), 512).text);
    }
    *toy.fault.lock().unwrap() = Some(Fault::Nan);
    for temperature in [0.0, 1.0] {
        let heard = answer(&service, &prompt(2, 20), &Draw { temperature, ..Draw::default() });
        assert_eq!(code(&heard).0, "bad_logits");
    }
}

/// Panics when told.
struct Clumsy(Sender<End>);

impl Listener for Clumsy {
    fn piece(&mut self, _: &Piece<'_>) -> bool {
        panic!("clumsy");
    }

    fn end(&mut self, end: End) {
        let _ = self.0.send(end);
    }
}

#[test]
fn a_panicking_listener_leaves_nobody_hanging() {
    let toy = Arc::new(Toy::default());
    toy.gate.close();
    let service = start(&toy, &options(1, 4, 100));
    let (to, ears) = channel();
    let (to_clumsy, clumsy) = channel();
    let draw = Draw { max_tokens: 50, top_k: 3, ..Draw::default() };
    submit(&service, 0, &prompt(3, 20), &draw, &to);
    service.submit(Job { prompt: prompt(1, 20), draw: draw.clone(), listener: Box::new(Clumsy(to_clumsy)) });
    toy.gate.open();
    assert!(matches!(clumsy.recv_timeout(LONG).unwrap(), End::Failed { .. }));
    assert!(collect(&ears, 1)[&0].end.is_some());
    assert_eq!(answer(&service, &prompt(3, 20), &draw).ids(), naive(&prompt(3, 20), &draw, 512).ids());
}
