//! Requests, counted by route: as many series as there are routes, whatever anybody asks for.

use std::collections::BTreeMap;

use super::routes::{self, Route};
use crate::metrics::text::{Kind, Page};
use crate::metrics::{Counter, Histogram};

/// Where everything is counted that no route leads to.
const NOWHERE: &str = "none";

/// What an answer's status begins with.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// A poll and a stream are counted when they are answered, however long they were waiting.
const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

pub struct Meter {
    /// By the pattern of the path, so that GET and POST of the same are one.
    routes: BTreeMap<&'static str, Answers>,
}

struct Answers {
    by_class: [Counter; CLASSES.len()],
    seconds: Histogram,
}

impl Default for Meter {
    fn default() -> Meter {
        let patterns = routes::patterns().chain([NOWHERE]);
        let answers = || Answers {
            by_class: Default::default(),
            seconds: Histogram::new(SECONDS),
        };
        Meter {
            routes: patterns.map(|pattern| (pattern, answers())).collect(),
        }
    }
}

impl Meter {
    pub fn count(&self, route: Option<&Route>, status: u16, seconds: f64) {
        let pattern = route.map_or(NOWHERE, |route| route.path);
        let Some(answers) = self.routes.get(pattern) else {
            return;
        };
        // The library alone answers with less than 200.
        let class = usize::from(status / 100).saturating_sub(2);
        answers.by_class[class.min(CLASSES.len() - 1)].add(1);
        answers.seconds.observe(seconds);
    }

    pub fn write(&self, page: &mut Page) {
        let help = "Requests that were answered, by the pattern of their path. The route none: no route of ours.";
        page.family("stepward_http_requests_total", Kind::Counter, help);
        for (route, answers) in &self.routes {
            for (class, counter) in CLASSES.iter().zip(&answers.by_class) {
                page.sample(&[("route", route), ("code", class)], counter.count());
            }
        }
        let help = "Time from a request's head to its answer. That of a poll is the time that a worker waited for something to do.";
        page.family("stepward_http_request_seconds", Kind::Histogram, help);
        for (route, answers) in &self.routes {
            answers.seconds.write(page, &[("route", route)]);
        }
    }
}
