//! Where times are on a row, and which of them are written above it.

use crate::domain::span::span;
use crate::graph::markup::line;

/// What a row is wide, in tenths of a unit.
pub(super) const FULL: i64 = 10_000;
const TICKS_MAX: i64 = 8;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Between two ticks: what people count in.
#[rustfmt::skip]
const STEPS_MS: [i64; 30] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500,
    SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 20 * SECOND, 30 * SECOND,
    MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
    DAY, 2 * DAY, 7 * DAY, 14 * DAY,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// From the left to the right; at least 1.
    pub length_ms: i64,
    pub ticks: Vec<Tick>,
    /// Where now is, in thousandths of the length, while the job runs.
    pub now_permille: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// In thousandths of the length.
    pub at_permille: u32,
    pub label: String,
}

impl Axis {
    pub fn of_ended(length_ms: i64) -> Axis {
        let length_ms = length_ms.max(1);
        Axis::new(length_ms, step_ms(length_ms, TICKS_MAX - 1), None)
    }

    /// Up to the tick after now: whoever looks again sees bars that grow, and not everything moved.
    pub fn of_running(now_ms: i64) -> Axis {
        let now_ms = now_ms.max(0);
        let step_ms = step_ms(now_ms, TICKS_MAX - 2);
        let length_ms = (now_ms / step_ms).saturating_add(1).saturating_mul(step_ms);
        Axis::new(length_ms, step_ms, Some(now_ms))
    }

    fn new(length_ms: i64, step_ms: i64, now_ms: Option<i64>) -> Axis {
        let permille = |ms: i64| (i128::from(ms) * 1_000 / i128::from(length_ms)) as u32;
        let ticks = (0..=length_ms / step_ms).map(|at| Tick {
            at_permille: permille(at * step_ms),
            label: label(at * step_ms),
        });
        Axis {
            length_ms,
            ticks: ticks.collect(),
            now_permille: now_ms.map(permille),
        }
    }

    /// In tenths of a unit.
    pub(super) fn place(&self, ms: i64) -> i64 {
        let place = i128::from(ms) * i128::from(FULL) / i128::from(self.length_ms.max(1));
        (place as i64).clamp(0, FULL)
    }

    /// The row above all rows. Lengths in percent need neither a style nor a stretched text.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        line(
            &mut out,
            format_args!(
                r#"<svg class="axis" width="100%" height="20" font-size="12" fill="currentColor" aria-hidden="true">"#
            ),
        );
        for Tick { at_permille, label } in &self.ticks {
            let anchor = match at_permille {
                0..=30 => "start",
                31..=969 => "middle",
                _ => "end",
            };
            let (whole, tenth) = (at_permille / 10, at_permille % 10);
            line(
                &mut out,
                format_args!(
                    r#"  <line class="tick" x1="{whole}.{tenth}%" x2="{whole}.{tenth}%" y1="15" y2="20" stroke="currentColor"/><text x="{whole}.{tenth}%" y="12" text-anchor="{anchor}">{label}</text>"#
                ),
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// The smallest of which `count_max` are enough.
fn step_ms(length_ms: i64, count_max: i64) -> i64 {
    let is_enough = |step_ms: &i64| length_ms / step_ms <= count_max;
    let found = STEPS_MS.into_iter().find(is_enough);
    let doubled = std::iter::successors(Some(28 * DAY), |step_ms| step_ms.checked_mul(2));
    found
        .or_else(|| doubled.into_iter().find(is_enough))
        .unwrap_or(i64::MAX)
}

/// `0s`, `50ms`, `0.5s`, `5s`, `1m 30s`.
fn label(ms: i64) -> String {
    match ms {
        0 => "0s".to_string(),
        1..100 => format!("{ms}ms"),
        100..10_000 if ms % SECOND == 0 => format!("{}s", ms / SECOND),
        100..10_000 if ms % 100 != 0 => format!("{ms}ms"),
        _ => span(ms),
    }
}
