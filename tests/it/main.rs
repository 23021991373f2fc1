//! All tests that need no extra package, in one binary: stories on the engine, the contract of the store, the seams.

mod exposition;
mod house;

mod engine;
mod executor;
mod graph;
mod language;
mod logs;
mod metrics;
mod outbox;
mod reaper;
mod scheduler;
mod server;
mod store;
mod sweeper;

mod backup;
mod config;
mod dependencies;
mod essential;
mod examples;
mod import;
mod readme;
mod schema;
mod why;
mod worker;
mod writing;
