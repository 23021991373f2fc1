//! What the pages of a browser asked for, by Chromium's own log of the network.
//!
//! The events that chromedriver passes on would not do: it meets a shared worker only after that has made its first requests.

use std::fs;
use std::path::Path;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub method: String,
    pub url: String,
    /// The origin of the page or worker that wanted it. `None`: whoever typed the address, or Chromium itself.
    pub initiator: Option<String>,
}

/// In the order in which they began. The last ones may be missing while the browser runs: Chromium writes a few at a time.
pub fn requests(net_log: &Path) -> Vec<Request> {
    let text = fs::read(net_log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    // The first line says which number means what.
    let Some(constants) = lines.next() else {
        return Vec::new();
    };
    let constants: Value =
        serde_json::from_str(&format!("{}}}", constants.trim_end_matches(','))).unwrap();
    let types = &constants["constants"]["logEventTypes"];
    let start = types["URL_REQUEST_START_JOB"].as_i64().unwrap();
    lines.filter_map(|line| request(line, start)).collect()
}

fn request(line: &str, start: i64) -> Option<Request> {
    // The last line may be half written.
    let event: Value = serde_json::from_str(line.trim_end_matches(',')).ok()?;
    if event["type"] != start {
        return None;
    }
    let word = |key: &str| event["params"][key].as_str();
    let initiator = word("initiator").filter(|origin| *origin != "not an origin");
    Some(Request {
        method: word("method")?.to_string(),
        url: word("url")?.to_string(),
        initiator: initiator.map(str::to_string),
    })
}
