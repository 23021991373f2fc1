//! One file per verb, and one for what must hold whatever the verb.

mod approve;
mod bad_input;
mod cancel;
mod children;
mod concurrency;
mod cost;
mod decline;
mod facts;
mod features;
mod graphs;
mod hooks;
mod inputs;
mod log;
mod loops;
mod one_phase;
mod poll;
mod race;
mod reports;
mod retry;
mod session;
mod submit;
mod templates;
mod wait;
mod why;
mod workers;
