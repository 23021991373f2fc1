//! What a worker runs a step with, up to the tool's door: docker and kubectl are recorded here, `tests/docker.rs` has a real one.

mod desk;
mod docker;
mod offer;
mod pod;
