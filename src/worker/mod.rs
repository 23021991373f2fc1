//! The process that runs steps. So far its mind: `machine.rs` decides what a worker says and does, given what it hears and
//! what time it is. The process around it will do as it is told: send, prepare, run, kill, write down.
//!
//! Deliberately not here: `engine` and `store`. A worker knows the server only by what it is answered.

pub mod executor;
mod machine;

pub use machine::{Event, Machine, Moment, Order, SessionKey, Trouble};
