//! What a browser shows.

pub mod ansi;
