//! Passes over packed weights: decoding and scoring.

use std::path::{Path, PathBuf};

use super::cache::{self, Cache};
use super::{Arithmetic, Decoder, Forward, Linear, NetConfig, PAGE, Rotary, Step};
use crate::NetError;
use crate::kernels::{self, Heads, Matrix, log_softmax_at};
use crate::weights::{self, FolderWeights, Form, GgufWeights, Random, Values};

/// Rows whose logits are held at once when only log-probabilities are asked for.
const HEAD_ROWS: usize = 64;

/// A net with weights packed for this machine's vectors.
#[derive(Debug)]
pub struct Net {
    pub(crate) config: NetConfig,
    pub(crate) decoder: Decoder<Matrix, Vec<f32>>,
    pub(crate) rotary: Rotary,
    rounds_activations: bool,
}

impl Net {
    /// A net of given weights.
    pub(crate) fn new(config: NetConfig, decoder: Decoder<Matrix, Vec<f32>>) -> Self {
        let rotary = Rotary::new(&config);
        Self { config, decoder, rotary, rounds_activations: false }
    }

    /// Loads a `.gguf` file, or a folder with `config.json` and safetensors.
    ///
    /// Values are those of the file in `f32`. Matrices in `Q4_1` and `Q8_0` stay in their blocks and become `f32` in the cache
    /// as they are used; the numbers are the same.
    ///
    /// # Errors
    /// A file that is cut, a configuration that is not supported, tensors that are missing, extra, misshaped or not finite.
    pub fn load(path: &Path) -> Result<Self, NetError> {
        if path.is_dir() {
            let weights = FolderWeights::open(path)?;
            let decoder = weights::assemble(&weights.config, &weights, &Panelled)?;
            return Ok(Self::new(weights.config, decoder));
        }
        let weights = GgufWeights::open(path)?;
        let decoder = weights::assemble(&weights.config, &weights, &Panelled)?;
        Ok(Self::new(weights.config, decoder))
    }

    /// A net with random weights that are a function of `seed`; for tests and small models.
    ///
    /// # Errors
    /// When the sizes make no net.
    pub fn random(config: NetConfig, seed: u64) -> Result<Self, NetError> {
        if let Some(message) = config.fault() {
            return Err(NetError::Config { path: PathBuf::from("random"), message });
        }
        let decoder = weights::assemble(&config, &Random { seed }, &Panelled)?;
        Ok(Self::new(config, decoder))
    }

    /// The same net with what each matrix is multiplied with rounded to 8 bits in blocks of 32, as engines do that multiply
    /// quantised weights in whole numbers. It shows how far such an engine may be from the exact product, and is good for
    /// comparisons with one only.
    #[must_use]
    pub fn with_rounded_activations(self) -> Self {
        Self { rounds_activations: true, ..self }
    }

    /// Its sizes and constants.
    pub fn config(&self) -> &NetConfig {
        &self.config
    }

    /// Passes a step through all layers; gives the rows before the last norm.
    fn pass(&self, step: &Step<'_>, cache: &mut Cache) -> Result<Vec<f32>, NetError> {
        step.check(self.config.vocabulary, self.config.context, cache.pages)?;
        let hidden = self.config.hidden;
        let mut x = cache.take(step.tokens.len() * hidden);
        for (row, token) in x.chunks_exact_mut(hidden).zip(step.tokens) {
            self.decoder.embedding.row(*token as usize, row);
        }
        self.rotary.angles(step.positions(), &mut cache.cos, &mut cache.sin);
        let mut arithmetic = Packed {
            step,
            cache,
            heads: self.config.attention(),
            eps: self.config.rms_eps,
            rows: step.tokens.len(),
            rounds_activations: self.rounds_activations,
        };
        self.decoder.pass(&mut arithmetic, x)
    }

    /// Logits of the given rows of `x`.
    fn logits(
        &self,
        x: &[f32],
        wanted: impl ExactSizeIterator<Item = usize>,
        cache: &mut Cache,
        logits: &mut Vec<f32>,
    ) -> Result<(), NetError> {
        let hidden = self.config.hidden;
        let (mut picked, mut normed) = (cache.take(wanted.len() * hidden), cache.take(wanted.len() * hidden));
        logits.resize(wanted.len() * self.config.vocabulary, 0.0);
        for (to, row) in picked.chunks_exact_mut(hidden).zip(wanted) {
            let Some(from) = x.get(row * hidden..(row + 1) * hidden) else {
                return Err(NetError::Step(format!("row {row} is asked for, but there are {}", x.len() / hidden)));
            };
            to.copy_from_slice(from);
        }
        kernels::rms_norm(&picked, &self.decoder.norm, self.config.rms_eps, &mut normed);
        if self.rounds_activations {
            kernels::round_to_8_bits(&mut normed, hidden);
        }
        self.decoder.head().multiply(&normed, None, logits, &mut cache.panels);
        cache.spare.extend([picked, normed]);
        Ok(())
    }
}

impl Forward for Net {
    type Cache = Cache;

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.config.context
    }

    fn page_bytes(&self) -> usize {
        cache::page_bytes(&self.config)
    }

    fn cache(&self, pages: usize) -> Result<Cache, NetError> {
        Cache::new(&self.config, pages)
    }

    fn forward(
        &self,
        step: &Step<'_>,
        cache: &mut Cache,
        wanted: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), NetError> {
        let x = self.pass(step, cache)?;
        let outcome = self.logits(&x, wanted.iter().copied(), cache, logits);
        cache.spare.push(x);
        outcome
    }

    fn log_probs(
        &self,
        step: &Step<'_>,
        cache: &mut Cache,
        wanted: &[(usize, u32)],
        out: &mut Vec<f32>,
    ) -> Result<(), NetError> {
        let vocabulary = self.config.vocabulary;
        if let Some((_, token)) = wanted.iter().find(|(_, token)| *token as usize >= vocabulary) {
            return Err(NetError::Token { token: *token, vocabulary });
        }
        let x = self.pass(step, cache)?;
        let mut logits = cache.take(0);
        out.clear();
        for wanted in wanted.chunks(HEAD_ROWS) {
            self.logits(&x, wanted.iter().map(|(row, _)| *row), cache, &mut logits)?;
            let rows = logits.chunks_exact(vocabulary).zip(wanted);
            out.extend(rows.map(|(logits, (_, token))| log_softmax_at(logits, *token)));
        }
        cache.spare.extend([x, logits]);
        Ok(())
    }
}

/// Arithmetic on slices, with keys and values in the cache.
struct Packed<'a> {
    step: &'a Step<'a>,
    cache: &'a mut Cache,
    heads: Heads,
    eps: f32,
    rows: usize,
    rounds_activations: bool,
}

impl Arithmetic for Packed<'_> {
    type Rows = Vec<f32>;
    type Matrix = Matrix;
    type Vector = Vec<f32>;

    fn rms_norm(&mut self, x: &Vec<f32>, weight: &Vec<f32>) -> Result<Vec<f32>, NetError> {
        let mut y = self.cache.take(x.len());
        kernels::rms_norm(x, weight, self.eps, &mut y);
        Ok(y)
    }

    fn linear(&mut self, x: &Vec<f32>, weights: &Linear<Matrix, Vec<f32>>) -> Result<Vec<f32>, NetError> {
        let mut y = self.cache.take(self.rows * weights.weight.outputs());
        if self.rounds_activations {
            let mut rounded = x.clone();
            kernels::round_to_8_bits(&mut rounded, weights.weight.inputs());
            weights.weight.multiply(&rounded, weights.bias.as_deref(), &mut y, &mut self.cache.panels);
        } else {
            weights.weight.multiply(x, weights.bias.as_deref(), &mut y, &mut self.cache.panels);
        }
        Ok(y)
    }

    fn rotate(&mut self, mut x: Vec<f32>) -> Result<Vec<f32>, NetError> {
        kernels::rotate(&mut x, &self.cache.cos, &self.cache.sin, self.heads.width);
        Ok(x)
    }

    fn attend(
        &mut self,
        layer: usize,
        queries: Vec<f32>,
        keys: Vec<f32>,
        values: Vec<f32>,
    ) -> Result<Vec<f32>, NetError> {
        let mut out = self.cache.take(queries.len());
        let (query_width, key_width) = (self.heads.queries * self.heads.width, self.heads.keys * self.heads.width);
        let Cache { layers, scratch, .. } = &mut *self.cache;
        let layer = &mut layers[layer];
        // all keys first: a span may read pages that another span of the step writes
        let places = self.step.spans.iter().flat_map(|span| (0..span.rows).map(move |row| (span, span.start + row)));
        let both = keys.chunks_exact(key_width).zip(values.chunks_exact(key_width));
        for ((span, position), (keys, values)) in places.zip(both) {
            layer.write(span.pages[position / PAGE] as usize, position, keys, values, self.heads);
        }
        let mut row = 0;
        for span in self.step.spans {
            let place = row * query_width..(row + span.rows) * query_width;
            let (queries, out) = (&queries[place.clone()], &mut out[place]);
            kernels::attend(queries, span.start, span.pages, layer, self.heads, out, None, scratch);
            row += span.rows;
        }
        self.cache.spare.extend([queries, keys, values]);
        Ok(out)
    }

    fn swiglu(&mut self, mut gate: Vec<f32>, up: Vec<f32>) -> Result<Vec<f32>, NetError> {
        kernels::swiglu(&mut gate, &up);
        self.cache.spare.push(up);
        Ok(gate)
    }

    fn add(&mut self, mut x: Vec<f32>, y: Vec<f32>) -> Result<Vec<f32>, NetError> {
        kernels::add(&mut x, &y);
        self.cache.spare.push(y);
        Ok(x)
    }

    fn release(&mut self, rows: Vec<f32>) {
        self.cache.spare.push(rows);
    }
}

/// Weights in panels.
pub(crate) struct Panelled;

impl Form for Panelled {
    type Matrix = Matrix;
    type Vector = Vec<f32>;

    fn matrix(&self, _name: &str, values: Values, outputs: usize, inputs: usize) -> Result<Matrix, NetError> {
        Ok(match values {
            Values::Whole(values) => Matrix::new(&values, outputs, inputs),
            Values::Blocks(blocks) => Matrix::from(blocks),
        })
    }

    fn vector(&self, _name: &str, values: Vec<f32>) -> Result<Vec<f32>, NetError> {
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::net::{Architecture, Span};

    /// Logits of the last token of each sequence, each cut into steps of the given sizes; sequences go side by side.
    fn last_logits(net: &Net, sequences: &[Vec<u32>], cuts: &[Vec<usize>]) -> Vec<Vec<f32>> {
        let pages = 8;
        let mut cache = net.cache(pages * sequences.len()).unwrap();
        let tables: Vec<Vec<u32>> = (0..sequences.len())
            .map(|index| (0..pages).rev().map(|page| u32::try_from(page * sequences.len() + index).unwrap()).collect())
            .collect();
        let mut places = vec![0; sequences.len()];
        let mut last = vec![Vec::new(); sequences.len()];
        let mut logits = Vec::new();
        for round in 0.. {
            let (mut tokens, mut spans, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            for (index, sequence) in sequences.iter().enumerate() {
                let size = cuts[index].get(round).copied().unwrap_or(usize::MAX).min(sequence.len() - places[index]);
                if size == 0 {
                    continue;
                }
                tokens.extend(&sequence[places[index]..places[index] + size]);
                spans.push(Span { rows: size, start: places[index], pages: &tables[index] });
                places[index] += size;
                if places[index] == sequence.len() {
                    ends.push((index, tokens.len() - 1));
                }
            }
            if spans.is_empty() {
                return last;
            }
            let wanted: Vec<usize> = ends.iter().map(|(_, row)| *row).collect();
            net.forward(&Step { tokens: &tokens, spans: &spans }, &mut cache, &wanted, &mut logits).unwrap();
            for ((index, _), logits) in ends.iter().zip(logits.chunks_exact(net.vocabulary())) {
                last[*index] = logits.to_vec();
            }
        }
        last
    }

    fn bits(logits: &[f32]) -> Vec<u32> {
        logits.iter().map(|logit| logit.to_bits()).collect()
    }

    fn sequence(length: usize, salt: usize) -> Vec<u32> {
        (0..length).map(|index| u32::try_from((index * 37 + salt * 101 + index * index) % 256).unwrap()).collect()
    }

    #[test]
    fn logits_at_batch_1_3_and_8_are_bit_equal() {
        for architecture in [Architecture::Llama, Architecture::Qwen2] {
            let net = Net::random(NetConfig::tiny(architecture), 7).unwrap();
            let sequences: Vec<Vec<u32>> = (0..8).map(|salt| sequence(20 + 11 * salt, salt)).collect();
            let alone: Vec<_> =
                sequences.iter().map(|s| last_logits(&net, std::slice::from_ref(s), &[vec![]]).remove(0)).collect();
            for batch in [3, 8] {
                let together = last_logits(&net, &sequences[..batch], &vec![vec![]; batch]);
                for (alone, together) in alone.iter().zip(&together) {
                    assert_eq!(bits(alone), bits(together));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn logits_depend_on_the_sequence_alone(
            lengths in prop::collection::vec(1_usize..100, 1..9),
            cuts in prop::collection::vec(prop::collection::vec(1_usize..40, 0..12), 9),
        ) {
            let net = Net::random(NetConfig::tiny(Architecture::Qwen2), 11).unwrap();
            let sequences: Vec<Vec<u32>> =
                lengths.iter().enumerate().map(|(salt, length)| sequence(*length, salt)).collect();
            let together = last_logits(&net, &sequences, &cuts);
            for (sequence, together) in sequences.iter().zip(&together) {
                let alone = last_logits(&net, std::slice::from_ref(sequence), &[vec![]]).remove(0);
                prop_assert_eq!(bits(&alone), bits(together));
            }
        }
    }

    #[test]
    fn log_probs_are_the_softmax_of_the_logits() {
        let net = Net::random(NetConfig::tiny(Architecture::Llama), 3).unwrap();
        let tokens = sequence(100, 5);
        let pages: Vec<u32> = (0..7).collect();
        let spans = [Span { rows: tokens.len(), start: 0, pages: &pages }];
        let step = Step { tokens: &tokens, spans: &spans };
        let mut cache = net.cache(7).unwrap();
        let (mut logits, mut log_probs) = (Vec::new(), Vec::new());
        let wanted: Vec<(usize, u32)> = (0..99).map(|row| (row, tokens[row + 1])).collect();
        let rows: Vec<usize> = (0..99).collect();
        net.forward(&step, &mut cache, &rows, &mut logits).unwrap();
        net.log_probs(&step, &mut cache, &wanted, &mut log_probs).unwrap();
        for ((logits, (_, token)), log_prob) in logits.chunks_exact(256).zip(&wanted).zip(&log_probs) {
            assert_eq!(log_softmax_at(logits, *token).to_bits(), log_prob.to_bits());
            let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            let exact = f64::from(logits[*token as usize]) - sum.ln();
            assert!((exact - f64::from(*log_prob)).abs() < 1e-5, "{exact} {log_prob}");
        }
    }

    #[test]
    fn malformed_steps_are_refused() {
        let net = Net::random(NetConfig::tiny(Architecture::Llama), 3).unwrap();
        let mut cache = net.cache(2).unwrap();
        let mut refuse = |tokens: &[u32], rows, start, pages: &[u32]| {
            let spans = [Span { rows, start, pages }];
            net.forward(&Step { tokens, spans: &spans }, &mut cache, &[0], &mut Vec::new()).unwrap_err().to_string()
        };
        assert!(refuse(&[256], 1, 0, &[0]).contains("token 256 is outside the vocabulary of 256"));
        assert!(refuse(&[1], 1, 128, &[0; 9]).contains("position 128 is beyond the context of 128"));
        assert!(refuse(&[1, 2], 1, 0, &[0]).contains("spans cover 1 rows"));
        assert!(refuse(&[1], 1, 16, &[0]).contains("has 1 pages"));
        assert!(refuse(&[1], 1, 0, &[2]).contains("page 2 of a cache of 2 pages"));
    }

    #[test]
    fn a_cache_beyond_memory_is_refused_with_numbers() {
        let net = Net::random(NetConfig::tiny(Architecture::Llama), 3).unwrap();
        let message = net.cache(1 << 40).unwrap_err().to_string();
        assert!(message.contains("bytes are free"), "{message}");
    }
}
