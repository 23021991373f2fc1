//! Limits on the work that one check may cost.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::words;

/// Time limit of one check. This module never reads a clock: the caller that sets a limit passes a function that tells whether it is over.
#[derive(Clone, Default)]
pub struct CheckBudget {
    limit: Option<TimeLimit>,
}

#[derive(Clone)]
struct TimeLimit {
    time: Duration,
    is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl CheckBudget {
    /// `time` is only shown to people. `is_over` is asked many times, from one thread.
    pub fn new(time: Duration, is_over: impl Fn() -> bool + Send + Sync + 'static) -> CheckBudget {
        let limit = TimeLimit {
            time,
            is_over: Arc::new(is_over),
        };
        CheckBudget { limit: Some(limit) }
    }

    /// The limit, if it has passed.
    pub(super) fn exceeded(&self) -> Option<Duration> {
        let limit = self.limit.as_ref()?;
        (limit.is_over)().then_some(limit.time)
    }
}

impl fmt::Debug for CheckBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.limit.as_ref().map(|limit| limit.time);
        f.debug_struct("CheckBudget").field("time", &time).finish()
    }
}

/// Finds the names that people probably meant, up to a total amount of work: each search costs as much as there are names, so
/// unlimited searches in a large file full of mistakes would cost the square of its size.
#[derive(Debug)]
pub struct Suggestions {
    left: Cell<usize>,
}

impl Suggestions {
    /// Names looked at by all searches of one check; a name that is compared in full counts as `words::COMPARISON_COST`.
    const NAMES_MAX: usize = 2_000_000;

    pub fn new() -> Suggestions {
        Suggestions {
            left: Cell::new(Suggestions::NAMES_MAX),
        }
    }

    pub fn are_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// The nearest of the known words, if one is near and there is work left to find it.
    pub fn nearest<'w>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'w str>,
    ) -> Option<&'w str> {
        let mut left = self.left.get();
        let near = words::nearest_within(word, known, &mut left);
        self.left.set(left);
        near
    }
}
