//! The contract of `Store` and `Tx`, backend-neutral but for `open.rs` and `statements.rs`.

mod audit;
mod group_commit;
mod invariants;
pub mod lists;
mod mark;
mod moves;
mod open;
mod statements;
mod upgrades;
