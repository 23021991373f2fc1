//! Our pages in a real browser: what a person sees, does and waits for, on the real binary.
//!
//! Each story has a server and a browser of its own and leaves no process behind. `STEPWARD_SCREENSHOTS=folder` keeps what was seen.

mod instrument;

mod acts;
mod decisions;
mod hostile;
mod kept;
mod keyboard;
mod large_job;
mod lists;
mod log_live;
mod long_log;
mod lost_worker;
mod phone;
mod plain;
mod restart;
mod run_form;
mod safety;
mod tabs;

mod axe;
mod browser;
mod driver;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../processes/house.rs"]
mod house;
mod http;
mod requests;
mod site;
mod tab;
