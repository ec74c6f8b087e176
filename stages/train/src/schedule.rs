//! The learning rate of each step: up in a line, down in half a cosine.

use std::f64::consts::PI;

use crate::TrainError;

/// Learning rates of a run. Steps count from 1.
///
/// During warm-up `rate(n) = peak * n / warm_up`; after it `rate(n) = minimum + (peak - minimum) (1 + cos(pi t)) / 2` with
/// `t = (n - warm_up) / (steps - warm_up)`: the peak is reached with the last step of the warm-up, the minimum with the
/// last step of all. Both reports warm up over 5 % of the steps and fall from 5e-5 to 8e-8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    peak: f64,
    minimum: f64,
    warm_up: u64,
    steps: u64,
}

impl Schedule {
    /// A schedule of `steps` steps; `warm_up` is the share of them, 0 to 1, that the rate rises in, rounded up to whole steps.
    ///
    /// # Errors
    /// Without steps, for a share outside 0 to 1, or rates that are not `0 <= minimum <= peak`.
    pub fn new(peak: f64, minimum: f64, warm_up: f64, steps: u64) -> Result<Self, TrainError> {
        if steps == 0 {
            return Err(TrainError::Parameter("a schedule needs a step at least".to_owned()));
        }
        if !(0.0..=1.0).contains(&warm_up) {
            return Err(TrainError::Parameter(format!("the share of warm-up is {warm_up}; expected 0 to 1")));
        }
        if !(peak.is_finite() && minimum >= 0.0 && minimum <= peak) {
            let message = format!("the learning rate falls from {peak} to {minimum}; expected peak >= minimum >= 0");
            return Err(TrainError::Parameter(message));
        }
        // a share of 0.05 of 100 steps is 5.000000000000001 in floating point
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of steps"
        )]
        let warm_up = (warm_up * steps as f64 - 1e-9).ceil().max(0.0) as u64;
        Ok(Self { peak, minimum, warm_up, steps })
    }

    /// The learning rate of step `step`, from 1; beyond the last step the minimum.
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warm_up {
            return self.peak * step as f64 / self.warm_up as f64;
        }
        if step >= self.steps {
            return self.minimum;
        }
        let place = (step - self.warm_up) as f64 / (self.steps - self.warm_up) as f64;
        self.minimum + (self.peak - self.minimum) * (1.0 + (PI * place).cos()) / 2.0
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
    }

    #[test]
    fn the_rate_rises_in_a_line_and_falls_to_the_minimum() {
        let schedule = Schedule::new(5e-5, 8e-8, 0.05, 100).unwrap();
        assert!(close(schedule.rate(1), 1e-5) && close(schedule.rate(3), 3e-5) && close(schedule.rate(5), 5e-5));
        // by hand: t = 10 / 95, (1 + cos(pi t)) / 2 = 0.972907...
        let expected = 8e-8 + (5e-5 - 8e-8) * (1.0 + (PI * 10.0 / 95.0).cos()) / 2.0;
        assert!(close(schedule.rate(15), expected));
        assert!(close(schedule.rate(100), 8e-8) && close(schedule.rate(1000), 8e-8));
        let rates: Vec<f64> = (5..=100).map(|step| schedule.rate(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn the_middle_of_the_cosine_is_the_mean() {
        let schedule = Schedule::new(3.0, 1.0, 0.0, 10).unwrap();
        assert!(close(schedule.rate(5), 2.0) && close(schedule.rate(10), 1.0));
    }

    #[test]
    fn numbers_that_make_no_schedule_are_refused() {
        for (peak, minimum, warm_up, steps) in
            [(1.0, 2.0, 0.0, 1), (1.0, -1.0, 0.0, 1), (f64::NAN, 0.0, 0.0, 1), (1.0, 0.0, 1.5, 1), (1.0, 0.0, 0.0, 0)]
        {
            assert!(Schedule::new(peak, minimum, warm_up, steps).is_err(), "{peak} {minimum} {warm_up} {steps}");
        }
    }
}
