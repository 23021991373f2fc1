//! A worker orchestrator in one binary: a server that keeps jobs in SQLite, workers that run them.
//!
//! # Words
//! A *task* is a definition. Submitting it makes a *job*. A job is made of *steps*; each step does one *action*, by one
//! *worker*, in one or more *attempts*. One life of a worker process is a *session*. What happened is an *event*; why
//! something waits or ended is a *reason*.
//!
//! # Where to start
//! `domain/step.rs` for what can happen to a step, `engine/mod.rs` for everything that can be done, `engine/finish.rs` for how
//! any of it is done, `engine/cascade.rs` for what follows, `sweeper/mod.rs` for what happens when nothing does, `schema.sql` for
//! what is kept, `server/web/mod.rs` for what people see.
//!
//! # How anything happens
//! A verb of the engine sends one closure to the store's writer thread. There it loads, checks, moves, records, cascades
//! and settles, all in one transaction that shares its commit with whatever else is queued. The caller is answered when
//! the commit is on disk. So a crash leaves all of an event or nothing of it.
//!
//! # What is deliberately absent
//! - No SQL outside `store`.
//! - No state in memory that is not in the database: kill the process at any point and start it again. The one exception are
//!   the signs of life of the last second (`store/contacts.rs`), which a start makes up for with a full heartbeat timeout.
//! - No clock below the threads of `sweeper` and `scheduler`: time is an argument. Only `clock.rs` asks for it.
//! - No decision in `store`, no I/O in `domain`. `tests/walls.rs` holds these walls.

// In reading order. The blank lines keep it: rustfmt sorts `mod` lines that touch each other.

pub mod domain; // what exists

pub mod metrics; // what is counted

pub mod store; // where it is kept

pub mod logs; // where what steps print is kept

pub mod engine; // what can be done

pub mod sweeper; // what happens when nobody acts

pub mod reaper; // what happens to what is too old

pub mod outbox;
pub mod scheduler; // what happens when it is time // who is told of it

pub mod language; // what the YAML says

pub mod secrets; // what nobody may read

pub mod secret_policy; // which secrets workflow files may name

pub mod sealer; // how the values of secret inputs are kept

pub mod backup; // all of an installation in one file

pub mod import; // what others wrote, in our language

pub mod wire; // what it looks like from outside

pub mod words; // how it is said

pub mod problems; // what is wrong

pub mod graph; // what waits for what, as a picture

pub mod timeline; // what waited for what when, as bars

pub mod server; // HTTP in front of the engine

pub mod certificate; // who a server is

pub mod client; // the same from the other side

pub mod worker; // who runs the steps

pub mod clock; // what time it is

pub mod essential; // what a panic does to the process

pub mod disk; // how much room there is
pub mod lock; // who has a folder
pub mod program; // programs that the server runs
pub mod temporary; // folders that a killed process does not leave behind
pub mod token_files; // tokens that commands and workers of the same user find
pub mod whole_file; // files that are replaced as a whole

pub mod service; // who watches over the process

pub mod cron; // when a schedule is due

pub mod config; // how it is set up

pub mod cli; // what a person types

pub mod planted; // what must go wrong in tests
