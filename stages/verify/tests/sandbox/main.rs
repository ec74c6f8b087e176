//! The sandbox, by programs that try to get out of it, over its limits, or to outlive it.
//!
//! Where the host has no user namespaces the tests say so and pass. Run as root they try the unprivileged user as well.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod isolation;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod survival;
#[cfg(test)]
mod users;
