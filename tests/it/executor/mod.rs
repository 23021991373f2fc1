//! What a worker runs a step with, up to the tool's door: docker and kubectl are recorded here, `tests/docker` has a real one.

pub mod desk;
mod docker;
mod kubectl;
mod offer;
mod pod;
