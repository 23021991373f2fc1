//! Addresses of pages. Whatever stands in one is escaped here, and nowhere else.

use std::fmt::Write;

/// As part of a path or of a query: what is not plain becomes `%xx`.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                safe.push(char::from(byte));
            }
            // A String takes everything.
            _ => drop(write!(safe, "%{byte:02X}")),
        }
    }
    safe
}

pub fn job(job_id: i64) -> String {
    format!("/jobs/{job_id}")
}

/// The page of its job, with its log open.
pub fn step(job_id: i64, step: &str) -> String {
    format!("/jobs/{job_id}?step={}", escaped(step))
}

pub fn task(name: &str) -> String {
    format!("/tasks/{}", escaped(name))
}

/// Jobs that fit.
pub fn jobs(query: &str) -> String {
    match query {
        "" => "/jobs".to_string(),
        query => format!("/jobs?q={}", escaped(query)),
    }
}

pub fn worker(worker_id: i64) -> String {
    format!("/workers#worker-{worker_id}")
}

/// With these after the question mark; those without a value are left out.
pub fn with_query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let said = pairs.iter().filter_map(|(key, value)| {
        let value = value.as_ref()?;
        Some(format!("{key}={}", escaped(value)))
    });
    let said: Vec<String> = said.collect();
    match said.is_empty() {
        true => path.to_string(),
        false => format!("{path}?{}", said.join("&")),
    }
}
