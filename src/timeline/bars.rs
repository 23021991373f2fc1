//! A row as SVG, 1000 units wide whatever the screen is: no style, no script, colours by class.

use super::axis::FULL;
use super::words::{OTHER, codes};
use super::{Axis, By, Part, Row, Segment};
use crate::graph::markup::{class, escaped, line};

/// In tenths of a unit: a step of a millisecond can be seen, and be pointed at.
const LEAST: i64 = 30;
const HEIGHT: u32 = 20;

/// The page makes a link of the whole row: a bar alone may be too small for a finger.
pub fn bars(row: &Row, axis: &Axis) -> String {
    let mut out = String::new();
    let said = escaped(&row.said());
    line(
        &mut out,
        format_args!(
            r#"<svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" class="bars" role="img" aria-label="{said}">"#
        ),
    );
    for (segment, (from, to)) in row.segments.iter().zip(spread(&row.segments, axis)) {
        let (class, title) = (segment.class_words(), escaped(&segment.title));
        let (x, width) = (units(from), units(to - from));
        // Who does not tell colours apart sees that waits are lower.
        let (y, height) = match segment.part {
            Part::Wait { .. } => (6, 8),
            Part::Run { .. } | Part::Earlier { .. } => (2, 16),
        };
        let fill = fill(&segment.part);
        line(
            &mut out,
            format_args!(
                r#"  <rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"><title>{title}</title></rect>"#
            ),
        );
    }
    if let Some(now) = axis.now_permille {
        line(
            &mut out,
            format_args!(
                r#"  <line class="now" x1="{now}" y1="0" x2="{now}" y2="{HEIGHT}" stroke="currentColor" vector-effect="non-scaling-stroke"/>"#
            ),
        );
    }
    out.push_str("</svg>\n");
    out
}

impl Segment {
    /// By which a page paints it.
    fn class_words(&self) -> String {
        let mut words = match &self.part {
            Part::Wait { code } => format!("seg wait wait-{}", class(code)),
            Part::Run { outcome, by } => {
                let by = match by {
                    By::Worker => "",
                    By::ChildJob => " child_job",
                    By::Instances => " instances",
                };
                format!("seg run run-{}{by}", class(outcome))
            }
            Part::Earlier { .. } => "seg earlier".to_string(),
        };
        if self.is_open {
            words.push_str(" open");
        }
        words
    }
}

/// Left and right of each segment in tenths of a unit: none too small, each behind the other, none outside.
fn spread(segments: &[Segment], axis: &Axis) -> Vec<(i64, i64)> {
    let least = LEAST.min(FULL / segments.len().max(1) as i64);
    let mut free = 0;
    let placed = segments.iter().map(|segment| {
        let from = axis.place(segment.from_ms).max(free);
        free = axis.place(segment.to_ms).max(from + least);
        (from, free)
    });
    let mut placed: Vec<(i64, i64)> = placed.collect();
    // What was pushed out on the right goes back to the left.
    let mut limit = FULL;
    for (from, to) in placed.iter_mut().rev() {
        *to = (*to).min(limit);
        *from = (*from).min(*to - least);
        limit = *from;
    }
    placed
}

fn units(tenths: i64) -> String {
    match (tenths / 10, tenths % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenth) => format!("{whole}.{tenth}"),
    }
}

/// For a page without our stylesheet.
fn fill(part: &Part) -> String {
    match part {
        Part::Wait { code } => {
            let hatch = codes().find(|known| known == code).unwrap_or(OTHER);
            format!("url(#hatch-{hatch}) #9e9e9e")
        }
        Part::Run { outcome, .. } => match outcome.as_str() {
            "completed" => "#2e7d32",
            "failed" => "#c62828",
            "running" => "#1565c0",
            _ => "#757575",
        }
        .to_string(),
        Part::Earlier { .. } => "#757575".to_string(),
    }
}

/// The hatches of all waits, once for a page. They have the `color` that the page gives to `wait-…`.
pub fn hatches() -> String {
    let mut out = String::new();
    out.push_str("<svg class=\"hatches\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n");
    for code in codes() {
        line(
            &mut out,
            format_args!(
                r#"  <pattern id="hatch-{code}" class="wait-{code}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="currentColor" fill-opacity="0.25"/><path d="M1 0V6" stroke="currentColor" stroke-width="2" stroke-opacity="0.7"/></pattern>"#
            ),
        );
    }
    out.push_str("</defs></svg>\n");
    out
}
