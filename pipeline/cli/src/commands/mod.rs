//! One file a command.

pub mod calls;
pub mod clean;
pub mod export;
pub mod figures;
pub mod kinds;
pub mod plan;
pub mod run;
pub mod serve;
pub mod show;
pub mod status;
pub mod try_out;
pub mod verify;
pub mod verify_code;
pub mod worker;
