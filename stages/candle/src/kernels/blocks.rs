//! Weights that stay in the blocks of 4 or 8 bits that a GGUF file holds, regrouped for panels.
//!
//! A step of few rows is bound by the bytes of the weights. Kept in blocks they are a fifth to a quarter, and a piece of
//! a panel is made into `f32` in the first-level cache just before it is used: the very numbers that would else be read.

use half::f16;

use super::LANES;

/// Weights of a block: one scale for 32 inputs of an output.
pub(crate) const BLOCK: usize = 32;

/// How the weights of a block are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// `Q4_1`: scale and minimum in 16 bits each, then 16 bytes; byte `j` holds weights `j` (low half) and `j + 16`.
    /// A weight is `scale * q + minimum`.
    Nibbles,
    /// `Q8_0`: scale in 16 bits, then 32 signed bytes. A weight is `scale * q`.
    Bytes,
}

impl BlockKind {
    /// Bytes of a block in a file.
    pub fn bytes(self) -> usize {
        match self {
            Self::Nibbles => 20,
            Self::Bytes => 34,
        }
    }

    /// Weights in a word of 32 bits.
    fn per_word(self) -> usize {
        match self {
            Self::Nibbles => 8,
            Self::Bytes => 4,
        }
    }

    /// Rows of 16 words, one of each output of a panel, that a block becomes.
    fn lines(self) -> usize {
        BLOCK / self.per_word()
    }

    /// Bits of weight `index` in a file's block.
    fn bits(self, quants: &[u8], index: usize) -> u32 {
        u32::from(match self {
            Self::Nibbles if index < BLOCK / 2 => quants[index] & 15,
            Self::Nibbles => quants[index - BLOCK / 2] >> 4,
            Self::Bytes => quants[index],
        })
    }

    /// The whole number that weight `index` of a word stands for.
    #[inline(always)]
    fn number(self, word: u32, index: usize) -> f32 {
        // whole numbers below 2^8 are exact
        #[expect(clippy::cast_precision_loss, reason = "at most 8 bits")]
        match self {
            Self::Nibbles => (word >> (4 * index) & 15).cast_signed() as f32,
            Self::Bytes => (word << (24 - 8 * index)).cast_signed().wrapping_shr(24) as f32,
        }
    }

    /// Bytes before a block's quants.
    fn head(self) -> usize {
        match self {
            Self::Nibbles => 4,
            Self::Bytes => 2,
        }
    }
}

/// A matrix `[outputs, inputs]` in blocks, panel by panel of 16 outputs, within a panel block by block of 32 inputs.
#[derive(Debug, Clone)]
pub struct Blocks {
    kind: BlockKind,
    outputs: usize,
    inputs: usize,
    scales: Vec<[f32; LANES]>,
    /// Empty where the kind has none.
    minima: Vec<[f32; LANES]>,
    /// Words whose low bits are the first weights.
    quants: Vec<[u32; LANES]>,
}

impl Blocks {
    /// From a file's bytes: row after row, `inputs / 32` blocks each. Row `i` of the matrix is the file's row `order(i)`.
    /// `None` where rows are no whole blocks or bytes are missing.
    pub fn new(
        kind: BlockKind,
        bytes: &[u8],
        outputs: usize,
        inputs: usize,
        order: impl Fn(usize) -> usize,
    ) -> Option<Self> {
        let (blocks, panels) = (inputs / BLOCK, outputs.div_ceil(LANES));
        let row_bytes = blocks * kind.bytes();
        if !inputs.is_multiple_of(BLOCK) || bytes.len() != outputs * row_bytes {
            return None;
        }
        let has_minima = kind == BlockKind::Nibbles;
        let mut scales = vec![[0.0; LANES]; panels * blocks];
        let mut minima = vec![[0.0; LANES]; if has_minima { panels * blocks } else { 0 }];
        let mut quants = vec![[0; LANES]; panels * blocks * kind.lines()];
        for output in 0..outputs {
            let row = bytes.get(order(output) * row_bytes..)?.get(..row_bytes)?;
            let (panel, column) = (output / LANES, output % LANES);
            for (index, block) in row.chunks_exact(kind.bytes()).enumerate() {
                let place = panel * blocks + index;
                scales[place][column] = f16::from_le_bytes([block[0], block[1]]).to_f32();
                if has_minima {
                    minima[place][column] = f16::from_le_bytes([block[2], block[3]]).to_f32();
                }
                let lines = &mut quants[place * kind.lines()..(place + 1) * kind.lines()];
                let width = kind.per_word();
                for input in 0..BLOCK {
                    let bits = kind.bits(&block[kind.head()..], input);
                    lines[input / width][column] |= bits << (input % width * (32 / width));
                }
            }
        }
        Some(Self { kind, outputs, inputs, scales, minima, quants })
    }

    /// Rows of the matrix.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The first scale or minimum that is NaN or infinite, with an element that it makes so (row-major).
    pub fn fault(&self) -> Option<(usize, f32)> {
        let blocks = self.inputs / BLOCK;
        for (place, group) in self.scales.iter().enumerate().chain(self.minima.iter().enumerate()) {
            if let Some(column) = group.iter().position(|value| !value.is_finite()) {
                let row = place / blocks * LANES + column;
                return Some((row * self.inputs + place % blocks * BLOCK, group[column]));
            }
        }
        None
    }

    /// Makes inputs `first..first + depth` of a panel into `f32`, `[depth][16]`. Both are multiples of 32.
    #[inline(always)]
    pub(crate) fn unpack(&self, panel: usize, first: usize, depth: usize, to: &mut [f32]) {
        let start = panel * (self.inputs / BLOCK) + first / BLOCK;
        let lines = self.kind.lines();
        let to = to.as_chunks_mut::<LANES>().0;
        for (place, to) in (start..start + depth / BLOCK).zip(to.chunks_exact_mut(BLOCK)) {
            // copies: what is read cannot overlap what is written, so a line is made at once
            let scales = self.scales[place];
            let quants = &self.quants[place * lines..(place + 1) * lines];
            match self.kind {
                BlockKind::Nibbles => {
                    let minima = self.minima[place];
                    for (words, to) in quants.iter().zip(to.as_chunks_mut::<8>().0) {
                        line::<0, 28>(*words, &scales, Some(&minima), &mut to[0]);
                        line::<4, 28>(*words, &scales, Some(&minima), &mut to[1]);
                        line::<8, 28>(*words, &scales, Some(&minima), &mut to[2]);
                        line::<12, 28>(*words, &scales, Some(&minima), &mut to[3]);
                        line::<16, 28>(*words, &scales, Some(&minima), &mut to[4]);
                        line::<20, 28>(*words, &scales, Some(&minima), &mut to[5]);
                        line::<24, 28>(*words, &scales, Some(&minima), &mut to[6]);
                        line::<28, 28>(*words, &scales, Some(&minima), &mut to[7]);
                    }
                }
                BlockKind::Bytes => {
                    for (words, to) in quants.iter().zip(to.as_chunks_mut::<4>().0) {
                        line::<0, 24>(*words, &scales, None, &mut to[0]);
                        line::<8, 24>(*words, &scales, None, &mut to[1]);
                        line::<16, 24>(*words, &scales, None, &mut to[2]);
                        line::<24, 24>(*words, &scales, None, &mut to[3]);
                    }
                }
            }
        }
    }

    /// One row of the matrix as `f32`.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        let (panel, column) = (index / LANES, index % LANES);
        let lines = self.kind.lines();
        for (block, row) in row.chunks_exact_mut(BLOCK).enumerate() {
            let place = panel * (self.inputs / BLOCK) + block;
            let scale = self.scales[place][column];
            let quants = &self.quants[place * lines..(place + 1) * lines];
            for (input, value) in row.iter_mut().enumerate() {
                let width = self.kind.per_word();
                let number = self.kind.number(quants[input / width][column], input % width);
                *value = number * scale + self.minima.get(place).map_or(0.0, |minima| minima[column]);
            }
        }
    }
}

/// One weight of each of 16 words: the bits from `FIRST` on, unsigned with a minimum, else signed; `SPARE` are the bits of
/// a word that belong to others.
#[inline(always)]
fn line<const FIRST: u32, const SPARE: u32>(
    words: [u32; LANES],
    scales: &[f32; LANES],
    minima: Option<&[f32; LANES]>,
    to: &mut [f32; LANES],
) {
    let mut made = [0.0; LANES];
    for i in 0..LANES {
        let shifted = words[i] << (SPARE - FIRST);
        let number = if minima.is_some() { (shifted >> SPARE).cast_signed() } else { shifted.cast_signed() >> SPARE };
        #[expect(clippy::cast_precision_loss, reason = "at most 8 bits")]
        let scaled = number as f32 * scales[i];
        made[i] = match minima {
            Some(minima) => scaled + minima[i],
            None => scaled,
        };
    }
    *to = made;
}

#[cfg(test)]
mod tests {
    use super::super::{Matrix, Panels};
    use super::*;

    /// A file's bytes with scales and minima of moderate size.
    fn bytes(kind: BlockKind, outputs: usize, inputs: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for block in 0..outputs * inputs / BLOCK {
            for value in [0.01 + block as f32 * 1e-4, -0.3].iter().take(kind.head() / 2) {
                bytes.extend(f16::from_f32(*value).to_le_bytes());
            }
            let quants = (0..kind.bytes() - kind.head()).map(|j| u8::try_from((block * 31 + j * 57) % 256).unwrap());
            bytes.extend(quants);
        }
        bytes
    }

    #[test]
    fn products_with_blocks_are_bit_equal_to_those_with_their_values() {
        for kind in [BlockKind::Nibbles, BlockKind::Bytes] {
            for (outputs, inputs) in [(100, 96), (21, 544), (112, 1088)] {
                let order = |row: usize| (row + 7) % outputs;
                let blocks = Blocks::new(kind, &bytes(kind, outputs, inputs), outputs, inputs, order).unwrap();
                let mut values = vec![0.0; outputs * inputs];
                for (index, row) in values.chunks_exact_mut(inputs).enumerate() {
                    blocks.row(index, row);
                }
                let (whole, blocks) = (Matrix::new(&values, outputs, inputs), Matrix::from(blocks));
                for rows in [1, 2, 3, 5, 6, 8, 30, 100] {
                    let x: Vec<f32> = (0..rows * inputs).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
                    let (mut y, mut z) = (vec![0.0; rows * outputs], vec![0.0; rows * outputs]);
                    whole.multiply(&x, None, &mut y, &mut Panels::default());
                    blocks.multiply(&x, None, &mut z, &mut Panels::default());
                    assert!(y.iter().zip(&z).all(|(y, z)| y.to_bits() == z.to_bits()), "{kind:?}, {rows} rows");
                }
            }
        }
    }

    #[test]
    fn a_block_is_read_as_the_format_says() {
        let mut block = Vec::new();
        block.extend(f16::from_f32(0.5).to_le_bytes());
        block.extend(f16::from_f32(-1.0).to_le_bytes());
        block.extend((0_u8..16).map(|j| j | (15 - j) << 4));
        let blocks = Blocks::new(BlockKind::Nibbles, &block, 1, 32, |row| row).unwrap();
        let mut row = [0.0; 32];
        blocks.row(0, &mut row);
        let expected: Vec<f32> = (0_u8..16).chain((0..16).rev()).map(|q| f32::from(q) * 0.5 - 1.0).collect();
        assert_eq!(row.to_vec(), expected);
        assert!(Blocks::new(BlockKind::Nibbles, &block[1..], 1, 32, |row| row).is_none());
    }
}
