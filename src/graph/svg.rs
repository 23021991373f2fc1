//! The picture as SVG: attributes and classes, no style and no script, so that a page may hold it as it is.
//!
//! Lines and texts have the colour of the text around the picture; a page that wants others says so by class.

use std::fmt::Write;

use super::layout::{NODE_WIDTH, NOTES_MAX};
use super::{Graph, Layout, Node, Point, Rect, cut};

const FONT: &str = "system-ui, sans-serif";
/// How many columns of text fit into a box at the size of its lines.
const LABEL_COLUMNS: usize = (NODE_WIDTH as usize - 20) / 8;
const NOTE_COLUMNS: usize = (NODE_WIDTH as usize - 20) / 6;

pub fn svg(graph: &Graph, layout: &Layout) -> String {
    let mut out = String::new();
    let Layout { width, height, .. } = layout;
    let title = escaped(&graph.title);
    line(
        &mut out,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{FONT}" fill="currentColor">"#
        ),
    );
    line(&mut out, format_args!("  <title>{title}</title>"));
    line(
        &mut out,
        format_args!(
            r#"  <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>"#
        ),
    );
    for (edge, points) in graph.edges.iter().zip(&layout.edges) {
        if points.is_empty() {
            continue;
        }
        let names = (&graph.nodes[edge.from].label, &graph.nodes[edge.to].label);
        let (mut said, mut dashes, mut class) = (String::new(), "", "edge");
        if let Some(label) = &edge.label {
            said = format!(": {}", escaped(label));
            dashes = r#" stroke-dasharray="5 4""#;
            class = "edge conditional";
        }
        let (from, to) = (escaped(names.0), escaped(names.1));
        line(
            &mut out,
            format_args!(
                r#"  <path class="{class}" d="{}" fill="none" stroke="currentColor" stroke-opacity="0.6"{dashes} marker-end="url(#arrow)"><title>{from} to {to}{said}</title></path>"#,
                path(points)
            ),
        );
    }
    for (node, rect) in graph.nodes.iter().zip(&layout.nodes) {
        draw(&mut out, node, rect);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, node: &Node, rect: &Rect) {
    let label = escaped(&node.label);
    let what = match node.is_loop {
        true => format!("{} for each", node.kind),
        false => node.kind.clone(),
    };
    let second = match &node.state {
        Some(state) => format!("{state} · {what}"),
        None => what,
    };
    let class = |word: &str| -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        word.chars().filter(is_plain).collect()
    };
    let state = node.state.as_deref().unwrap_or("none");
    line(
        out,
        format_args!(
            r#"  <g class="node kind-{} state-{}" data-step="{label}">"#,
            class(&node.kind),
            class(state)
        ),
    );
    let notes = node.notes.join("; ");
    let all = [label.clone(), escaped(&second), escaped(&notes)];
    let all: Vec<String> = all.into_iter().filter(|text| !text.is_empty()).collect();
    line(out, format_args!("    <title>{}</title>", all.join("; ")));
    let Rect {
        x,
        y,
        width,
        height,
    } = rect;
    let radius = if node.kind == "approval" { 18 } else { 6 };
    let (fill, opacity) = fill(state);
    if node.is_loop {
        // Another one behind it.
        line(
            out,
            format_args!(
                r#"    <rect x="{}" y="{}" width="{width}" height="{height}" rx="{radius}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>"#,
                x + 4,
                y - 4
            ),
        );
    }
    line(
        out,
        format_args!(
            r#"    <rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{fill}" fill-opacity="{opacity}" stroke="currentColor"/>"#
        ),
    );
    let shown = escaped(&cut(&node.label, LABEL_COLUMNS, "…"));
    let left = x + 10;
    line(
        out,
        format_args!(
            r#"    <text x="{left}" y="{}" font-size="13" font-weight="600">{shown}</text>"#,
            y + 18
        ),
    );
    let second = escaped(&cut(&second, NOTE_COLUMNS, "…"));
    line(
        out,
        format_args!(
            r#"    <text x="{left}" y="{}" font-size="11" fill-opacity="0.8">{second}</text>"#,
            y + 33
        ),
    );
    for (at, note) in (0..).zip(node.notes.iter().take(NOTES_MAX)) {
        let note = escaped(&cut(note, NOTE_COLUMNS, "…"));
        line(
            out,
            format_args!(
                r#"    <text x="{left}" y="{}" font-size="10" fill-opacity="0.8">{note}</text>"#,
                y + 47 + at * 14
            ),
        );
    }
    out.push_str("  </g>\n");
}

/// The word beside it says the same.
fn fill(state: &str) -> (&'static str, &'static str) {
    match state {
        "completed" => ("#2e7d32", "0.15"),
        "failed" => ("#c62828", "0.18"),
        "running" | "assigned" => ("#1565c0", "0.18"),
        "ready" | "suspended" => ("#f9a825", "0.18"),
        "skipped" | "cancelled" => ("#757575", "0.15"),
        _ => ("#757575", "0.04"),
    }
}

fn path(points: &[Point]) -> String {
    let mut path = String::new();
    for (at, Point { x, y }) in points.iter().enumerate() {
        let letter = if at == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{x} {y}");
    }
    path
}

fn line(out: &mut String, line: std::fmt::Arguments) {
    // A String takes everything.
    let _ = out.write_fmt(line);
    out.push('\n');
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}
