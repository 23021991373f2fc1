//! The real binary: servers, workers and steps as processes, killed and stopped as the world does it.
//!
//! Every story ends with the checker of the database, and leaves no process behind.

mod audit;
mod backups;
mod cancel;
mod cli_config;
#[cfg(feature = "faults")] // It needs strace.
mod cli_connections;
mod cli_demo;
mod cli_dev;
mod cli_doctor;
mod cli_first_minutes;
mod cli_help;
mod cli_json;
mod cli_logs;
mod cli_look;
mod cli_nouns;
mod cli_reach;
mod cli_rubbish;
mod cli_run;
mod cli_terminal;
mod cli_watch;
mod cli_why;
mod cli_worker;
mod cli_write;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../it/executor/desk.rs"]
mod desk;
#[cfg(feature = "faults")]
mod disks;
mod door;
mod examples;
mod hostile_clock;
mod house;
#[path = "../it/executor/kubectl.rs"]
mod kubectl;
mod ledger;
mod limits;
mod network;
mod outbox;
mod own_log;
mod pods;
mod proxy;
mod pseudo_terminal;
#[allow(dead_code)] // Stories use what they need of it.
mod pty;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../it/outbox/receiver.rs"]
mod receiver;
mod retention;
mod rollback;
mod scale;
mod schedules;
mod secrets;
mod servers;
mod service;
mod settings;
mod stops;
mod tls;
mod token_files;
#[allow(dead_code)] // Stories use what they need of it.
mod tokens;
mod typed;
mod v0_1;
mod workers;
mod workflows;
