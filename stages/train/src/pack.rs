//! Examples into windows, so that a step's rows are nearly all real tokens; and the order of windows.

use std::collections::{BTreeMap, BTreeSet};

/// Which examples share a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Indices of the examples of each window, ascending.
    pub windows: Vec<Vec<usize>>,
    /// Examples longer than a window, ascending; they are in none.
    pub too_long: Vec<usize>,
}

/// Packs examples of `lengths` tokens into windows of `window` tokens: the longest first, each into the fullest window that
/// has room for it (best-fit decreasing). Ties go to the smaller index, so that reruns agree; windows stand in the order
/// of their first example.
pub fn pack(lengths: &[usize], window: usize) -> Packed {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|index| lengths[*index] <= window).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(lengths[*index]), *index));
    let mut windows: Vec<Vec<usize>> = Vec::new();
    let mut by_room: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for index in order {
        let length = lengths[index];
        let fullest = by_room.range_mut(length..).find_map(|(room, windows)| Some((*room, windows.pop_first()?)));
        let (room, place) = fullest.unwrap_or_else(|| {
            windows.push(Vec::new());
            (window, windows.len() - 1)
        });
        if by_room.get(&room).is_some_and(BTreeSet::is_empty) {
            by_room.remove(&room);
        }
        windows[place].push(index);
        by_room.entry(room - length).or_default().insert(place);
    }
    for window in &mut windows {
        window.sort_unstable();
    }
    windows.sort_unstable_by_key(|window| window.first().copied());
    let too_long = (0..lengths.len()).filter(|index| lengths[*index] > window).collect();
    Packed { windows, too_long }
}

/// The numbers below `count` in a random order that `seed` and `epoch` alone decide (Fisher and Yates).
pub fn shuffled(count: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = mix(seed ^ mix(epoch));
    for last in (1..count).rev() {
        state = mix(state);
        // the high part of the product is uniform up to 2^-64 times the count
        let place = (u128::from(state) * (last as u128 + 1)) >> 64;
        order.swap(last, usize::try_from(place).unwrap_or(last));
    }
    order
}

/// One step of a 64-bit mixer (splitmix64).
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_example_goes_into_the_fullest_window_with_room() {
        // by hand: 7 | 6 | 5 | 4 goes beside 6 | 3 beside 7 | 2 beside 5
        let packed = pack(&[2, 3, 4, 5, 6, 7, 11], 10);
        assert_eq!(packed.windows, [vec![0, 3], vec![1, 5], vec![2, 4]]);
        assert_eq!(packed.too_long, [6]);
    }

    proptest! {
        #[test]
        fn every_example_is_in_one_window_and_no_two_windows_could_be_one(
            lengths in prop::collection::vec(1_usize..40, 0..80),
        ) {
            let packed = pack(&lengths, 32);
            let mut all: Vec<usize> = packed.windows.concat();
            all.extend(&packed.too_long);
            all.sort_unstable();
            prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            let mut sizes: Vec<usize> =
                packed.windows.iter().map(|window| window.iter().map(|index| lengths[*index]).sum()).collect();
            sizes.sort_unstable();
            prop_assert!(sizes.iter().all(|size| *size <= 32));
            prop_assert!(sizes.len() < 2 || sizes[0] + sizes[1] > 32);
        }

        #[test]
        fn an_order_has_every_number_once(count in 0_usize..200, seed: u64, epoch in 0_u64..5) {
            let mut order = shuffled(count, seed, epoch);
            prop_assert_eq!(&order, &shuffled(count, seed, epoch));
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn orders_of_epochs_and_seeds_differ() {
        assert_ne!(shuffled(50, 1, 0), shuffled(50, 1, 1));
        assert_ne!(shuffled(50, 1, 0), shuffled(50, 2, 0));
        assert_ne!(shuffled(50, 1, 0), (0..50).collect::<Vec<_>>());
    }
}
