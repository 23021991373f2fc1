//! What people and scripts ask for, one file per noun. Parse, one verb, answer; `show.rs` says what things look like.

pub mod audit;
pub mod backups;
pub mod deliveries;
pub mod events;
pub mod health;
pub mod hooks;
pub mod jobs;
pub mod logs;
pub mod queue;
pub mod recovery;
pub mod retention;
pub mod schedules;
pub mod show;
pub mod steps;
pub mod tasks;
pub mod tokens;
pub mod workers;
pub mod workflows;

/// How many a page holds, by default and at most.
pub const PAGE: u32 = 50;
pub const PAGE_MAX: u32 = 500;
