//! Training: from rendered examples to checkpoints. Plain functions, no Arrow, no tables.
//!
//! An example is made of messages and a response ([`Renderer`]), packed with others into windows ([`pack`]), and trained
//! on ([`Trainer`]). What comes of it is a folder as Hugging Face lays it out ([`save_folder`]), a state to go on from
//! ([`Checkpoints`]), or the mean of several models ([`merge`]). Supervised fine-tuning is section 2.2 of the 1.5B report.

mod adamw;
mod checkpoint;
mod error;
mod folder;
mod merge;
mod pack;
mod render;
mod schedule;
mod tensor_file;
mod trainer;

pub use adamw::{AdamW, AdamWOptions, Moments};
pub use checkpoint::{Checkpoints, Position};
pub use error::TrainError;
pub use folder::{ModelFiles, save_folder};
pub use merge::{Merged, merge};
pub use pack::{Packed, pack, shuffled};
pub use render::{Example, Renderer, Supervision, Unusable};
pub use schedule::Schedule;
pub use tensor_file::{Storage, TensorFile};
pub use trainer::{Micro, Options, StepReport, Trainer};
