//! How ggml stores numbers: types by their number in the file, elements and bytes of a block.
//!
//! Source of numbers and sizes: the enumeration and block structures of `ggml.h` and `ggml-common.h`.

use std::fmt;

/// A storage type, by its number in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GgmlType(u32);

/// Number, name, elements of a block, bytes of a block.
const TYPES: [(u32, &str, u64, u64); 31] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
];

impl GgmlType {
    /// Numbers of 32 bits.
    pub const F32: Self = Self(0);
    /// Numbers of 16 bits (IEEE half).
    pub const F16: Self = Self(1);
    /// 32 numbers of 4 bits with a scale.
    pub const Q4_0: Self = Self(2);
    /// 32 numbers of 4 bits with a scale and a minimum.
    pub const Q4_1: Self = Self(3);
    /// 32 numbers of 5 bits with a scale.
    pub const Q5_0: Self = Self(6);
    /// 32 numbers of 5 bits with a scale and a minimum.
    pub const Q5_1: Self = Self(7);
    /// 32 numbers of 8 bits with a scale.
    pub const Q8_0: Self = Self(8);
    /// 256 numbers of 2 bits with scales and minima.
    pub const Q2_K: Self = Self(10);
    /// 256 numbers of 3 bits with scales.
    pub const Q3_K: Self = Self(11);
    /// 256 numbers of 4 bits with scales and minima.
    pub const Q4_K: Self = Self(12);
    /// 256 numbers of 5 bits with scales and minima.
    pub const Q5_K: Self = Self(13);
    /// 256 numbers of 6 bits with scales.
    pub const Q6_K: Self = Self(14);
    /// 256 numbers of 8 bits with a scale and sums.
    pub const Q8_K: Self = Self(15);
    /// Numbers of 16 bits with the exponent of 32.
    pub const BF16: Self = Self(30);

    /// The type with this number, if its sizes are known.
    pub fn new(id: u32) -> Option<Self> {
        TYPES.iter().any(|entry| entry.0 == id).then_some(Self(id))
    }

    /// Its number in the file.
    pub fn id(self) -> u32 {
        self.0
    }

    /// Its name, such as `Q4_1`.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Elements of a block.
    pub fn block(self) -> u64 {
        self.entry().2
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u64 {
        self.entry().3
    }

    fn entry(self) -> (u32, &'static str, u64, u64) {
        TYPES.into_iter().find(|entry| entry.0 == self.0).unwrap_or(TYPES[0])
    }
}

impl fmt::Debug for GgmlType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
