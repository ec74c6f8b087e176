//! The sampler against definitions written out naively, and its distribution.

use proptest::prelude::*;

use super::*;

fn draw(temperature: f64, top_k: u32, top_p: f64, min_p: f64) -> Draw {
    Draw { temperature, top_p, top_k, min_p, ..Draw::default() }
}

/// Probabilities of all ids after the truncations, by sorting everything, in f64.
fn truncated(logits: &[f32], draw: &Draw) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |id: usize| ((f64::from(logits[id]) - f64::from(largest)) / draw.temperature).exp();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|left, right| logits[*right].partial_cmp(&logits[*left]).unwrap().then(left.cmp(right)));
    if draw.top_k > 0 {
        ids.truncate(draw.top_k as usize);
    }
    let total: f64 = ids.iter().map(|id| weight(*id)).sum();
    let mut reached = 0.0;
    let nucleus = ids.iter().position(|id| {
        reached += weight(*id) / total;
        reached >= draw.top_p
    });
    ids.truncate(nucleus.map_or(ids.len(), |last| last + 1));
    ids.retain(|id| weight(*id) >= draw.min_p * weight(ids_best(logits)));
    let left: f64 = ids.iter().map(|id| weight(*id)).sum();
    let mut probabilities = vec![0.0; logits.len()];
    for id in ids {
        probabilities[id] = weight(id) / left;
    }
    probabilities
}

fn ids_best(logits: &[f32]) -> usize {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|logit| *logit >= largest).unwrap()
}

/// Pearson's statistic of `draws` tokens, and the number of ids that can be drawn.
fn chi_square(logits: &[f32], how: &Draw, draws: u32) -> (f64, usize) {
    let expected = truncated(logits, how);
    let mut counts = vec![0_u32; logits.len()];
    let mut sampler = Sampler::default();
    for seed in 0..draws {
        let how = Draw { seed: u64::from(seed % 7), ..how.clone() };
        counts[sampler.draw(logits, &how, u64::from(seed)).unwrap() as usize] += 1;
    }
    let mut statistic = 0.0;
    for (count, probability) in counts.iter().zip(&expected) {
        if *probability > 0.0 {
            let mean = probability * f64::from(draws);
            statistic += (f64::from(*count) - mean).powi(2) / mean;
        } else {
            assert_eq!(*count, 0, "a token that was truncated away was drawn");
        }
    }
    (statistic, expected.iter().filter(|probability| **probability > 0.0).count())
}

#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0_u16..40).map(|id| f32::from((id * 37) % 40) * 0.08).collect();
    for how in [
        draw(1.0, 0, 1.0, 0.0),
        draw(0.7, 0, 1.0, 0.0),
        draw(1.0, 12, 1.0, 0.0),
        draw(1.0, 0, 0.8, 0.0),
        draw(1.3, 30, 0.9, 0.2),
        draw(0.8, 0, 1.0, 0.3),
    ] {
        let (statistic, outcomes) = chi_square(&logits, &how, 40_000);
        // Mean n - 1, standard deviation sqrt(2 (n - 1)): four of them happen less than once in ten thousand times.
        let freedom = (outcomes - 1) as f64;
        assert!(statistic < freedom + 4.0 * (2.0 * freedom).sqrt() + 4.0, "{how:?}: {statistic} of {freedom}");
        assert!(statistic > freedom - 4.0 * (2.0 * freedom).sqrt(), "{how:?}: {statistic} of {freedom}");
    }
}

#[test]
fn large_vocabularies_are_walked_block_by_block_without_loss() {
    let logits: Vec<f32> = (0..50_001_u32).map(|id| ((id * 7919) % 1000) as f32 * 0.001).collect();
    let how = draw(1.0, 0, 1.0, 0.0);
    let mut sampler = Sampler::default();
    let mut last = 0;
    // Shares grow with the uniform number, so the drawn ids do too.
    sampler.weigh(&logits, 0.999, 1.0);
    for step in 0..=1000 {
        let id = sampler.walk_blocks(f64::from(step) / 1000.0).unwrap();
        assert!(id >= last, "{id} after {last}");
        last = id;
    }
    assert_eq!(last, 50_000);
    assert_eq!(sampler.walk_blocks(0.0), Some(0));
    assert!(sampler.draw(&logits, &how, 0).is_some());
}

#[test]
fn greedy_ties_go_to_the_smaller_id() {
    let mut sampler = Sampler::default();
    assert_eq!(sampler.draw(&[0.5, 2.0, -1.0, 2.0], &draw(0.0, 0, 1.0, 0.0), 9), Some(1));
    assert_eq!(sampler.draw(&[-0.0, 0.0], &draw(0.0, 0, 1.0, 0.0), 0), Some(0));
    assert_eq!(sampler.draw(&[1.0, 2.0, 2.0], &draw(1.0, 1, 1.0, 0.0), 0), Some(1));
    assert_eq!(sampler.draw(&[-0.0, 0.0], &draw(1.0, 1, 1.0, 0.0), 0), Some(0));
    assert_eq!(likeliest(&[1.0, 3.0, 3.0, 2.0], 3), [1, 2, 3]);
    assert_eq!(likeliest(&[1.0, 3.0], 9), [1, 0]);
    assert!(likeliest(&[1.0], 0).is_empty());
}

#[test]
fn logits_that_are_no_numbers_draw_nothing() {
    let mut sampler = Sampler::default();
    for how in [draw(0.0, 0, 1.0, 0.0), draw(1.0, 0, 1.0, 0.0), draw(1.0, 1, 0.5, 0.1)] {
        assert_eq!(sampler.draw(&[0.0, f32::NAN, 1.0], &how, 0), None);
        assert_eq!(sampler.draw(&[0.0, f32::INFINITY], &how, 0), None);
        assert_eq!(sampler.draw(&[f32::NEG_INFINITY; 3], &how, 0), None);
        assert_eq!(sampler.draw(&[], &how, 0), None);
        assert_eq!(sampler.draw(&[f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY], &how, 0), Some(1));
    }
}

#[test]
fn extreme_temperatures_are_greedy_or_flat() {
    let mut sampler = Sampler::default();
    for place in 0..50 {
        assert_eq!(sampler.draw(&[0.0, 1.0, 0.5], &draw(1e-30, 0, 1.0, 0.0), place), Some(1));
        assert_eq!(sampler.draw(&[0.0, 1.0, 0.5], &draw(1e-300, 0, 1.0, 0.0), place), Some(1));
    }
    let (statistic, outcomes) = chi_square(&[0.0, 1.0, 0.5], &draw(1e12, 0, 1.0, 0.0), 3000);
    assert!(outcomes == 3 && statistic < 20.0, "{statistic}");
}

#[test]
fn the_exponential_is_exact_to_f32() {
    let mut worst = 0.0_f64;
    for step in 0..870_000 {
        let x = -(step as f32) * 1e-4;
        let right = f64::from(x).exp();
        worst = worst.max((f64::from(exp(x)) - right).abs() / right);
    }
    assert!(worst < 2e-7, "{worst}");
    assert_eq!(exp(0.0).to_bits(), 1.0_f32.to_bits());
    assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
    assert_eq!(exp(-1e30).to_bits(), 0);
}

proptest! {
    #[test]
    fn truncations_keep_what_their_definitions_say(
        logits in prop::collection::vec((-8_i8..8).prop_map(|logit| f32::from(logit) * 0.5), 1..60),
        top_k in 0_u32..70,
        top_p in prop_oneof![Just(1.0), 0.01..1.0_f64],
        min_p in prop_oneof![Just(0.0), 0.0..1.0_f64],
        temperature in 0.2..3.0_f64,
    ) {
        let how = draw(temperature, top_k, top_p, min_p);
        let expected = truncated(&logits, &how);
        let mut sampler = Sampler::default();
        for place in 0..40 {
            let uniform = philox::uniform(how.seed, place);
            let id = sampler.draw(&logits, &how, place).unwrap() as usize;
            // The drawn id is where the cumulated probabilities pass the uniform number, up to rounding.
            let before: f64 = expected[..id].iter().sum();
            prop_assert!(expected[id] > 0.0, "{id} was truncated away");
            prop_assert!(before <= uniform + 1e-5 && uniform <= before + expected[id] + 1e-5, "{before} {uniform}");
        }
    }

    #[test]
    fn a_truncation_that_drops_nothing_changes_nothing(seed: u64, size in 1_usize..2000) {
        let logit = |place| f32::from(u8::from(philox::uniform(seed, place) < 0.3)) + place as f32 * 1e-3;
        let logits: Vec<f32> = (0..size as u64).map(logit).collect();
        let plain = Draw { seed, ..draw(0.9, 0, 1.0, 0.0) };
        let (mut sampler, mut other) = (Sampler::default(), Sampler::default());
        for place in 0..5 {
            let expected = sampler.draw(&logits, &plain, place);
            prop_assert_eq!(other.draw(&logits, &Draw { top_k: 2000, ..plain.clone() }, place), expected);
            prop_assert_eq!(other.draw(&logits, &Draw { min_p: 1e-9, ..plain.clone() }, place), expected);
        }
    }
}
