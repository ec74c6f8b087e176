//! Training: from rendered examples to checkpoints. Plain functions, no Arrow, no tables.
//!
//! An example is made of messages and a response ([`Renderer`]), packed with others into windows ([`pack`]), and trained
//! on ([`Trainer`]). Supervised fine-tuning is section 2.2 of the 1.5B report.

mod adamw;
mod error;
mod estimate;
mod pack;
mod render;
mod schedule;
mod trainer;

pub use adamw::{AdamW, AdamWOptions, Moments};
pub use error::TrainError;
pub use estimate::{Estimate, mean, pass_at_k};
pub use pack::{Packed, pack, shuffled};
pub use render::{Example, Renderer, Supervision, Unusable};
pub use schedule::Schedule;
pub use trainer::{Micro, Options, StepReport, Trainer};
