//! Hashes tokens without copying them.
//!
//! A token is hashed over its folded bytes, eight at a time, by multiplying into 128 bits and folding the halves
//! together. Words of ASCII letters, which most tokens are, are lower-cased inside the eight-byte steps.

const SEED: u64 = 0x2D35_8DCC_AA6C_78A5;
const FACTOR: u64 = 0x8BB8_4B93_962E_ACC9;

/// Bit that tells lower from upper case, in every byte of a step.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// Hash of a folded token.
#[inline]
pub(crate) fn token_hash(folded: &[u8]) -> u64 {
    hash(folded, 0, folded.len(), 0)
}

/// Hash of the token `bytes[start..end]`, which is ASCII letters only: that of its lower-cased bytes.
#[inline]
pub(crate) fn ascii_word_hash(bytes: &[u8], start: usize, end: usize) -> u64 {
    hash(bytes, start, end, LOWER)
}

/// Hash of the token `bytes[start..end]`, which is folded already, such as a number.
#[inline]
pub(crate) fn folded_hash(bytes: &[u8], start: usize, end: usize) -> u64 {
    hash(bytes, start, end, 0)
}

#[inline]
fn hash(bytes: &[u8], start: usize, end: usize, lower: u64) -> u64 {
    let mut state = SEED ^ (end - start) as u64;
    let mut at = start;
    while at + 8 < end {
        state = fold(state ^ (load(bytes, at) | lower));
        at += 8;
    }
    let rest = end - at;
    let kept = if rest == 0 { 0 } else { u64::MAX >> (64 - 8 * rest) };
    fold(state ^ ((load(bytes, at) | lower) & kept))
}

/// Hash of the token that is the first `length` bytes of a step, 1 to 8 ASCII letters: that of its lower-cased bytes.
#[inline]
pub(crate) fn short_word_hash(step: u64, length: usize) -> u64 {
    step_hash(step | LOWER, length)
}

/// Hash of the folded token that is the first `length` bytes of a step, 1 to 8.
#[inline]
pub(crate) fn step_hash(step: u64, length: usize) -> u64 {
    let kept = u64::MAX >> (64 - 8 * length);
    fold((SEED ^ length as u64) ^ (step & kept))
}

/// How many of the eight bytes of a step, from the first on, are ASCII letters.
#[inline]
pub(crate) fn leading_letters(step: u64) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const EACH: u64 = 0x0101_0101_0101_0101;
    // with the case bit set and the high bit off, no byte of a sum carries into the next
    let lower = (step | LOWER) & !HIGH;
    let from_a = lower + EACH * (0x80 - u64::from(b'a'));
    let beyond_z = lower + EACH * (0x7F - u64::from(b'z'));
    let others = !(from_a & !beyond_z & !step) & HIGH;
    others.trailing_zeros() as usize / 8
}

/// The eight bytes from `at` on; `None` where there are fewer.
#[inline]
pub(crate) fn step_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map(|step| u64::from_le_bytes(*step))
}

/// Eight bytes from `at` on, zeros behind the end.
#[inline]
fn load(bytes: &[u8], at: usize) -> u64 {
    if let Some(step) = step_at(bytes, at) {
        return step;
    }
    let mut step = [0; 8];
    for (to, from) in step.iter_mut().zip(bytes.get(at..).unwrap_or_default()) {
        *to = *from;
    }
    u64::from_le_bytes(step)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn fold(value: u64) -> u64 {
    let product = u128::from(value) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_has_the_hash_of_its_lower_case_wherever_it_stands(before in "[a-z ]{0,9}", word in "[a-zA-Z]{1,40}", after in "[ .]{0,9}") {
            let text = format!("{before}{word}{after}");
            let in_place = ascii_word_hash(text.as_bytes(), before.len(), before.len() + word.len());
            prop_assert_eq!(in_place, token_hash(word.to_ascii_lowercase().as_bytes()));
        }

        #[test]
        fn a_step_tells_its_leading_letters_and_their_hash(bytes in any::<[u8; 8]>(), letters in 0_usize..9, word in "[a-zA-Z]{8}") {
            let mut bytes = bytes;
            bytes[..letters].copy_from_slice(&word.as_bytes()[..letters]);
            let expected = bytes.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            let step = u64::from_le_bytes(bytes);
            prop_assert_eq!(leading_letters(step), expected);
            if expected > 0 {
                prop_assert_eq!(short_word_hash(step, expected), ascii_word_hash(&bytes, 0, expected));
                prop_assert_eq!(step_hash(step, expected), token_hash(&bytes[..expected]));
            }
        }
    }

    #[test]
    fn tokens_of_any_length_differ() {
        let long = "0".repeat(40);
        let mut hashes: Vec<u64> = (0..=long.len()).map(|length| token_hash(&long.as_bytes()[..length])).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 41);
    }
}
