//! Our pages in a real browser: what a person sees, does and waits for, on the real binary.
//!
//! Each story has a server and a browser of its own and leaves no process behind. `STEPWARD_SCREENSHOTS=folder` keeps what was seen.

mod axe;
mod browser;
mod driver;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../processes/house.rs"]
mod house;
mod instrument;
mod requests;
mod site;
mod tab;
