//! How things are written at the prompt: as everywhere, and by this machine's clock.

use crate::clock::wall_time;
use crate::wire::Time;

pub use crate::words::*;

/// How long ago, by this machine's clock.
pub fn ago(at: Time) -> String {
    format!("{} ago", duration(wall_time().0 - at.0.0))
}

/// How far away, by this machine's clock.
pub fn until(at: Time) -> String {
    format!("in {}", duration(at.0.0 - wall_time().0))
}
