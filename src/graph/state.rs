//! States as pictures show them: the sign beside the word, and which of many is told first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::domain::step::StepState;

/// Never alone: the word stands beside it. One column wide.
pub fn icon(state: &str) -> &'static str {
    match state {
        "completed" => "✔",
        "failed" => "✘",
        "running" => "▶",
        "assigned" | "preparing" => "◐",
        "ready" => "◷",
        "suspended" => "‖",
        "skipped" => "⤼",
        "cancelled" => "⊘",
        _ => "○",
    }
}

/// Of many steps, the one with the most is told. A failure is looked into and a suspended step waits for whoever looks; what is on
/// its way needs nobody; what is over and well is told last.
#[rustfmt::skip]
pub fn weight(state: &str) -> u8 {
    use StepState::*;
    match StepState::from_word(state) {
        Some(Failed)    => 9,
        Some(Suspended) => 8,
        Some(Running)   => 7,
        Some(Assigned)  => 6,
        Some(Ready)     => 5,
        Some(Cancelled) => 4,
        Some(Pending)   => 3,
        // Of a server that knows more than we do.
        None            => 2,
        Some(Skipped)   => 1,
        Some(Completed) => 0,
    }
}

/// `2 failed, 118 completed`: what matters most comes first.
pub fn counted<'s>(states: impl IntoIterator<Item = &'s str>) -> String {
    let mut counts: BTreeMap<(Reverse<u8>, &str), usize> = BTreeMap::new();
    for state in states {
        *counts.entry((Reverse(weight(state)), state)).or_default() += 1;
    }
    let told = counts
        .iter()
        .map(|((_, state), count)| format!("{count} {state}"));
    told.collect::<Vec<String>>().join(", ")
}
