//! The contract of `Store` and `Tx`, backend-neutral but for `open.rs` and `statements.rs`.

mod group_commit;
mod invariants;
mod mark;
mod moves;
mod open;
mod statements;
mod upgrades;
