//! The real binary: servers, workers and steps as processes, killed and stopped as the world does it.
//!
//! Every story ends with the checker of the database, and leaves no process behind.

mod cancel;
#[cfg(feature = "faults")]
mod disks;
mod house;
mod ledger;
mod network;
mod proxy;
mod scale;
mod servers;
mod stops;
mod workers;
