//! A net for tests: its logits are a hash of the sequence so far, and of that it knows only what lies in the pages. So a page
//! that is wrong, stale or of another sequence changes the text.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};

use super::*;
use crate::{Forward, NetError, PAGE, Span, Step, log_softmax_at};

/// Tokens of the toy; 0 ends an answer.
pub const VOCABULARY: usize = 48;

/// What a hidden place says where a token would say what came before it.
const START: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Default)]
pub struct Toy {
    /// Rows computed, over all caches.
    pub rows: AtomicUsize,
    /// Steps computed.
    pub steps: AtomicUsize,
    /// Most rows of a step.
    pub widest: AtomicUsize,
    /// Most sequences of a step.
    pub most_spans: AtomicUsize,
    /// Whether passes fail, panic, or give no numbers.
    pub fault: Mutex<Option<Fault>>,
    /// Passes wait while it is closed.
    pub gate: Gate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Error,
    Panic,
    Nan,
}

/// Holds threads up while it is closed.
#[derive(Default)]
pub struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub fn close(&self) {
        *self.0.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.0.lock().unwrap() = false;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |is_closed| *is_closed).unwrap());
    }
}

fn mix(state: u64, token: u64) -> u64 {
    let mut mixed = (state ^ token).wrapping_add(START).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^= mixed >> 31;
    mixed.wrapping_mul(0x94D0_49BB_1331_11EB) ^ (mixed >> 29)
}

impl Toy {
    /// Writes the step's places and hands each wanted row's logits on.
    fn pass(&self, step: &Step<'_>, cache: &mut [u64], wanted: &[usize], mut take: impl FnMut(usize, &[f32])) {
        self.gate.pass();
        let fault = *self.fault.lock().unwrap();
        assert!(fault != Some(Fault::Panic), "the toy panics");
        assert_eq!(step.spans.iter().map(|span| span.rows).sum::<usize>(), step.tokens.len());
        self.rows.fetch_add(step.tokens.len(), Ordering::SeqCst);
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.widest.fetch_max(step.tokens.len(), Ordering::SeqCst);
        self.most_spans.fetch_max(step.spans.len(), Ordering::SeqCst);
        let mut row = 0;
        for span in step.spans {
            for position in span.start..span.start + span.rows {
                let before = if position == 0 { START } else { cache[place(span, position - 1)] };
                cache[place(span, position)] = mix(before, u64::from(step.tokens[row]));
                if wanted.contains(&row) {
                    // Every place so far is read again, as attention would.
                    let seen = (0..=position).fold(START, |seen, past| mix(seen, cache[place(span, past)]));
                    let mut logits = logits(seen);
                    if fault == Some(Fault::Nan) {
                        logits[3] = f32::NAN;
                    }
                    take(row, &logits);
                }
                row += 1;
            }
        }
    }
}

fn place(span: &Span<'_>, position: usize) -> usize {
    span.pages[position / PAGE] as usize * PAGE + position % PAGE
}

fn logits(seen: u64) -> Vec<f32> {
    let number = |id: u64| (mix(seen, id) >> 40) as f32 / (1_u32 << 24) as f32 * 6.0;
    let mut logits: Vec<f32> = (0..VOCABULARY as u64).map(number).collect();
    // Answers of some length.
    logits[0] -= 1.0;
    logits
}

impl Forward for Toy {
    type Cache = Vec<u64>;

    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn context(&self) -> usize {
        512
    }

    fn page_bytes(&self) -> usize {
        PAGE * 8
    }

    fn cache(&self, pages: usize) -> Result<Vec<u64>, NetError> {
        Ok(vec![0xDEAD; pages * PAGE])
    }

    fn forward(
        &self,
        step: &Step<'_>,
        cache: &mut Vec<u64>,
        wanted: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), NetError> {
        if *self.fault.lock().unwrap() == Some(Fault::Error) {
            return Err(NetError::Step("the toy fails".to_owned()));
        }
        logits.clear();
        self.pass(step, cache, wanted, |_, row| logits.extend_from_slice(row));
        Ok(())
    }

    fn log_probs(
        &self,
        step: &Step<'_>,
        cache: &mut Vec<u64>,
        wanted: &[(usize, u32)],
        out: &mut Vec<f32>,
    ) -> Result<(), NetError> {
        out.clear();
        let rows: Vec<usize> = wanted.iter().map(|(row, _)| *row).collect();
        let mut targets = wanted.iter();
        self.pass(step, cache, &rows, |row, logits| {
            let (wanted_row, target) = targets.next().unwrap();
            assert_eq!(*wanted_row, row);
            out.push(log_softmax_at(logits, *target));
        });
        Ok(())
    }
}

/// Bytes of the toy's tokens: letters, pieces of characters, and some that are no text.
pub struct Alphabet(Vec<Vec<u8>>);

impl Alphabet {
    pub fn shared() -> Arc<dyn Vocabulary> {
        let mut tokens: Vec<Vec<u8>> = vec![b"<end>".to_vec(), Vec::new(), vec![0xC3], vec![0xA9], vec![0xFF]];
        tokens.extend(["二", "ab", "ba", "\n\n", "\n", "Q:", " "].map(|text| text.as_bytes().to_vec()));
        while tokens.len() < VOCABULARY {
            tokens.push(vec![b'a' + u8::try_from(tokens.len() % 5).unwrap()]);
        }
        Arc::new(Self(tokens))
    }
}

impl Vocabulary for Alphabet {
    fn bytes_of(&self, id: u32) -> &[u8] {
        self.0.get(id as usize).map_or(&[], Vec::as_slice)
    }

    fn ends_at(&self, id: u32) -> bool {
        id == 0
    }
}

/// All that was told of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    pub text: String,
    pub tokens: Vec<Drawn>,
    pub pieces: usize,
    pub end: Option<End>,
}

impl Heard {
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// Collects what is told, and gives up after so many pieces.
pub struct Ear {
    pub heard: Heard,
    pub patience: usize,
    pub to: std::sync::mpsc::Sender<(usize, Heard)>,
    pub job: usize,
}

impl Listener for Ear {
    fn piece(&mut self, piece: &Piece<'_>) -> bool {
        assert!(self.heard.end.is_none(), "a piece after the end");
        assert!(!piece.text.is_empty() || !piece.tokens.is_empty());
        self.heard.text.push_str(piece.text);
        self.heard.tokens.extend_from_slice(piece.tokens);
        self.heard.pieces += 1;
        self.heard.pieces < self.patience
    }

    fn end(&mut self, end: End) {
        assert_eq!(self.heard.end.replace(end), None, "ended twice");
        let _ = self.to.send((self.job, self.heard.clone()));
    }
}

/// What the toy answers, computed without service, batch, pages or cutter.
pub fn naive(prompt: &[u32], draw: &Draw, context: usize) -> Heard {
    let alphabet = Alphabet::shared();
    let (mut ids, mut bytes, mut heard) = (prompt.to_vec(), Vec::new(), Heard::default());
    let mut sampler = Sampler::default();
    let limit = (draw.max_tokens as usize).min(context - prompt.len());
    loop {
        let mut places: Vec<u64> = Vec::new();
        for id in &ids {
            places.push(mix(places.last().copied().unwrap_or(START), u64::from(*id)));
        }
        let logits = logits(places.iter().fold(START, |seen, place| mix(seen, *place)));
        let id = sampler.draw(&logits, draw, (ids.len() - prompt.len()) as u64).unwrap();
        let logprob = draw.top_logprobs.map(|_| log_softmax_at(&logits, id));
        let top = super::sampler::likeliest(&logits, draw.top_logprobs.unwrap_or(0).into());
        let top = top.into_iter().map(|id| (id, log_softmax_at(&logits, id))).collect();
        heard.tokens.push(Drawn { id, logprob, top });
        ids.push(id);
        if !alphabet.ends_at(id) {
            bytes.extend_from_slice(alphabet.bytes_of(id));
        }
        let starts =
            draw.stop.iter().filter_map(|stop| bytes.windows(stop.len()).position(|part| part == stop.as_bytes()));
        let start = starts.min();
        bytes.truncate(start.unwrap_or(bytes.len()));
        heard.text = String::from_utf8_lossy(&bytes).into_owned();
        if alphabet.ends_at(id) || start.is_some() {
            heard.end = Some(End::Complete);
            return heard;
        }
        if heard.tokens.len() >= limit {
            heard.end = Some(End::Cut);
            return heard;
        }
    }
}

/// What the toy's score is, likewise.
pub fn naive_score(ids: &[u32], from: usize) -> Vec<f32> {
    let mut log_probs = Vec::new();
    let mut places: Vec<u64> = Vec::new();
    for (position, id) in ids.iter().enumerate() {
        if position >= from {
            let logits = logits(places.iter().fold(START, |seen, place| mix(seen, *place)));
            log_probs.push(log_softmax_at(&logits, *id));
        }
        places.push(mix(places.last().copied().unwrap_or(START), u64::from(*id)));
    }
    log_probs
}
