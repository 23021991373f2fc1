//! The picture as SVG: attributes and classes, no style and no script, so that a page may hold it as it is.
//!
//! Lines and texts have the colour of the text around the picture; a page that wants others says so by class.

use std::fmt::Write;

use super::layout::{NODE_WIDTH, NOTES_MAX};
use super::markup::{class, escaped, line};
use super::state::icon;
use super::{Edge, Graph, Layout, Node, Point, Rect, cut};

const FONT: &str = "system-ui, sans-serif";
const PADDING: u32 = 10;
const ICON_WIDTH: u32 = 18;

/// What a page adds: steps lead somewhere, and one of them may be chosen.
pub struct Picture<'p> {
    /// In front of every id: two pictures on a page must not share any.
    pub prefix: &'p str,
    /// Where a step leads, by its position in the graph. `None`: nowhere.
    pub href: &'p dyn Fn(usize) -> Option<String>,
    /// By its position in the graph.
    pub selected: Option<usize>,
}

/// For a file, which is looked at as a whole.
pub fn svg(graph: &Graph, layout: &Layout) -> String {
    Pen::new(graph, layout, None).drawn()
}

/// For a page, in which every step is a link. They come as they are read, row by row, so that nobody reaches a step before all that
/// it waits for.
pub fn svg_linked(graph: &Graph, layout: &Layout, picture: &Picture) -> String {
    Pen::new(graph, layout, Some(picture)).drawn()
}

/// Of texts, and how many columns of them fit into a box.
struct Sizes {
    label: u32,
    label_columns: usize,
    second: u32,
    note: u32,
    note_columns: usize,
}

const IN_FILE: Sizes = Sizes {
    label: 13,
    label_columns: (NODE_WIDTH - 2 * PADDING) as usize / 8,
    second: 11,
    note: 10,
    note_columns: (NODE_WIDTH - 2 * PADDING) as usize / 6,
};

/// Nobody should have to enlarge a page to read it.
const ON_PAGE: Sizes = Sizes {
    label: 14,
    label_columns: (NODE_WIDTH - 2 * PADDING - ICON_WIDTH) as usize / 8,
    second: 12,
    note: 12,
    note_columns: (NODE_WIDTH - 2 * PADDING) as usize / 7,
};

struct Pen<'p> {
    graph: &'p Graph,
    layout: &'p Layout,
    /// `None`: for a file.
    picture: Option<&'p Picture<'p>>,
    sizes: Sizes,
    /// The id of the arrow's head.
    arrow: String,
    out: String,
}

impl<'p> Pen<'p> {
    fn new(graph: &'p Graph, layout: &'p Layout, picture: Option<&'p Picture<'p>>) -> Pen<'p> {
        Pen {
            graph,
            layout,
            picture,
            sizes: if picture.is_some() { ON_PAGE } else { IN_FILE },
            arrow: match picture {
                Some(picture) => format!("{}-arrow", class(picture.prefix)),
                None => "arrow".to_string(),
            },
            out: String::new(),
        }
    }

    fn line(&mut self, text: std::fmt::Arguments) {
        line(&mut self.out, text);
    }

    fn drawn(mut self) -> String {
        let Layout { width, height, .. } = self.layout;
        let title = escaped(&self.graph.title);
        // The inside of an image is not there for those who do not see it; links are.
        let role = match self.picture {
            Some(_) => format!(r#"class="graph linked" role="group" aria-label="{title}""#),
            None => r#"class="graph" role="img""#.to_string(),
        };
        self.line(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" {role} width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{FONT}" fill="currentColor">"#
        ));
        if self.picture.is_none() {
            self.line(format_args!("  <title>{title}</title>"));
        }
        let arrow = self.arrow.clone();
        self.line(format_args!(
            r#"  <defs><marker id="{arrow}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>"#
        ));
        self.edges();
        let layout = self.layout;
        let mut order: Vec<usize> = (0..self.graph.nodes.len()).collect();
        if self.picture.is_some() {
            order.sort_by_key(|&at| (layout.nodes[at].y, layout.nodes[at].x));
        }
        for at in order {
            self.node(at);
        }
        self.out.push_str("</svg>\n");
        self.out
    }

    fn edges(&mut self) {
        let (graph, layout) = (self.graph, self.layout);
        // What a step waits for is said with the step's page; lines say nothing to those who do not see them.
        if self.picture.is_some() {
            self.out
                .push_str("  <g class=\"edges\" aria-hidden=\"true\">\n");
        }
        for (edge, points) in graph.edges.iter().zip(&layout.edges) {
            if !points.is_empty() {
                self.edge(edge, points);
            }
        }
        if self.picture.is_some() {
            self.out.push_str("  </g>\n");
        }
    }

    fn edge(&mut self, edge: &Edge, points: &[Point]) {
        let (from, to) = (&self.graph.nodes[edge.from], &self.graph.nodes[edge.to]);
        let (mut said, mut dashes, mut class_words) = (String::new(), "", "edge".to_string());
        if let Some(label) = &edge.label {
            said = format!(": {}", escaped(label));
            dashes = r#" stroke-dasharray="5 4""#;
            class_words.push_str(" conditional");
        }
        if let Some(picture) = self.picture {
            let state = from.state.as_deref().unwrap_or("none");
            class_words.push_str(&format!(" from-{}", class(state)));
            if picture.selected == Some(edge.from) || picture.selected == Some(edge.to) {
                class_words.push_str(" of-selected");
            }
        }
        let (from, to) = (escaped(&from.label), escaped(&to.label));
        let (path, arrow) = (path(points), self.arrow.clone());
        self.line(format_args!(
            r#"  <path class="{class_words}" d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.6"{dashes} marker-end="url(#{arrow})"><title>{from} to {to}{said}</title></path>"#
        ));
    }

    fn node(&mut self, at: usize) {
        let (node, rect) = (&self.graph.nodes[at], &self.layout.nodes[at]);
        let label = escaped(&node.label);
        let what = what(node);
        let second = match &node.state {
            Some(state) => format!("{state} · {what}"),
            None => what.clone(),
        };
        let state = node.state.as_deref().unwrap_or("none");
        let mut attributes = format!(
            r#"class="node kind-{} state-{}"#,
            class(&node.kind),
            class(state)
        );
        let href = self.picture.and_then(|picture| (picture.href)(at));
        let is_selected = self
            .picture
            .is_some_and(|picture| picture.selected == Some(at));
        if node.stands_for.is_some() {
            attributes.push_str(" collapsed");
        }
        attributes.push_str(if is_selected { r#" selected""# } else { "\"" });
        if node.stands_for.is_none() {
            attributes.push_str(&format!(r#" data-step="{label}""#));
        }
        if self.picture.is_some() {
            let mut said = vec![node.label.as_str()];
            said.extend(node.state.as_deref());
            said.extend(node.notes.iter().map(String::as_str));
            said.push(&what);
            attributes.push_str(&format!(r#" aria-label="{}""#, escaped(&said.join(", "))));
        }
        if is_selected {
            attributes.push_str(r#" aria-current="true""#);
        }
        let tag = match &href {
            Some(href) => {
                attributes.push_str(&format!(r#" href="{}""#, escaped(href)));
                "a"
            }
            None if self.picture.is_some() => {
                attributes.push_str(r#" role="img""#);
                "g"
            }
            None => "g",
        };
        self.line(format_args!("  <{tag} {attributes}>"));
        let notes = node.notes.join("; ");
        let all = [label, escaped(&second), escaped(&notes)];
        let all: Vec<String> = all.into_iter().filter(|text| !text.is_empty()).collect();
        self.line(format_args!("    <title>{}</title>", all.join("; ")));
        self.shape(node, rect);
        self.texts(node, rect, &second);
        self.line(format_args!("  </{tag}>"));
    }

    fn shape(&mut self, node: &Node, rect: &Rect) {
        let Rect {
            x,
            y,
            width,
            height,
        } = rect;
        let radius = if node.kind == "approval" { 18 } else { 6 };
        let (fill, opacity) = fill(node.state.as_deref().unwrap_or("none"));
        if node.is_loop || node.stands_for.is_some() {
            // Another one behind it.
            self.line(format_args!(
                r#"    <rect x="{}" y="{}" width="{width}" height="{height}" rx="{radius}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>"#,
                x + 4,
                y - 4
            ));
        }
        let class_word = if self.picture.is_some() {
            r#"class="box" "#
        } else {
            ""
        };
        self.line(format_args!(
            r#"    <rect {class_word}x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{fill}" fill-opacity="{opacity}" stroke="currentColor"/>"#
        ));
    }

    fn texts(&mut self, node: &Node, rect: &Rect, second: &str) {
        let Sizes {
            label,
            label_columns,
            second: second_size,
            note: note_size,
            note_columns,
        } = self.sizes;
        let (left, y) = (rect.x + PADDING, rect.y);
        let mut label_left = left;
        if self.picture.is_some()
            && let Some(state) = &node.state
        {
            label_left += ICON_WIDTH;
            self.line(format_args!(
                r#"    <text class="icon" x="{left}" y="{}" font-size="{label}">{}</text>"#,
                y + 18,
                icon(state)
            ));
        }
        let shown = escaped(&cut(&node.label, label_columns, "…"));
        self.line(format_args!(
            r#"    <text x="{label_left}" y="{}" font-size="{label}" font-weight="600">{shown}</text>"#,
            y + 18
        ));
        let second = escaped(&cut(second, note_columns, "…"));
        self.line(format_args!(
            r#"    <text x="{left}" y="{}" font-size="{second_size}" fill-opacity="0.8">{second}</text>"#,
            y + 33
        ));
        for (at, note) in (0..).zip(node.notes.iter().take(NOTES_MAX)) {
            let note = escaped(&cut(note, note_columns, "…"));
            self.line(format_args!(
                r#"    <text x="{left}" y="{}" font-size="{note_size}" fill-opacity="0.8">{note}</text>"#,
                y + 47 + at * 14
            ));
        }
    }
}

fn what(node: &Node) -> String {
    match node.is_loop {
        true => format!("{} for each", node.kind),
        false => node.kind.clone(),
    }
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
