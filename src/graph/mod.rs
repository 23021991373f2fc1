//! Steps and what they wait for, as a picture: as text, as SVG, for Mermaid and for Graphviz.
//!
//! A `Graph` is what there is, a `Layout` is where it goes; the writers know nothing else. `collapsed` makes a small graph of a large
//! one. All of it is pure and gives the same picture for the same steps. What others wrote is cleaned when it comes in (`clean`) and
//! escaped by each writer in its own way.
//!
//! Deliberately not here: files, servers, terminals.

mod collapse;
mod dot;
mod layout;
pub(crate) mod markup;
mod mermaid;
mod of;
mod shape;
mod state;
mod svg;
mod text;

use std::collections::HashMap;

use serde::Serialize;

pub use collapse::{Collapsed, SHOWN_MAX, collapsed};
pub use dot::dot;
pub use layout::{Layout, Point, Rect, layout};
pub use mermaid::mermaid;
pub(crate) use of::loop_of;
pub use of::{of_job, of_task};
pub use state::{counted, icon, weight};
pub use svg::{Picture, svg, svg_linked};
pub use text::{Style, text};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    pub title: String,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

/// A step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    pub label: String,
    /// What it does: `script`, `docker`, `pod`, `task`, `approval`.
    pub kind: String,
    /// It does that for each item of a list.
    pub is_loop: bool,
    /// How far it is. `None`: this is a task, and not a job.
    pub state: Option<String>,
    /// What else is to know, a few words each.
    pub notes: Vec<String>,
    /// How many steps it stands for, where that is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<usize>,
}

/// What a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    /// What it accepts, if that is not that the step completed.
    pub label: Option<String>,
}

impl Graph {
    /// Every step by its position, and those that it names. Names that are not there, and steps that name themselves, are left out.
    pub fn connect<'s>(
        &mut self,
        waits: impl IntoIterator<Item = (usize, &'s str, Option<String>)>,
    ) {
        let nodes = self.nodes.iter().enumerate();
        let positions: HashMap<String, usize> =
            nodes.map(|(at, node)| (node.label.clone(), at)).collect();
        for (to, name, label) in waits {
            let label = label.map(|label| clean(&label));
            match positions.get(&clean(name)) {
                Some(&from) if from != to => self.edges.push(Edge { from, to, label }),
                _ => {}
            }
        }
    }

    /// The steps in an order in which they could run, and how many steps at least run before each. Edges that would lead back are
    /// not followed: whoever sent them is not trusted to have checked them.
    fn ranked(&self) -> Ranked {
        let mut dependents = vec![Vec::new(); self.nodes.len()];
        let mut unmet = vec![0usize; self.nodes.len()];
        for edge in &self.edges {
            dependents[edge.from].push(edge.to);
            unmet[edge.to] += 1;
        }
        let mut ranks = vec![0usize; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut is_placed = vec![false; self.nodes.len()];
        // Depth first: what belongs together stays together.
        let mut ready: Vec<usize> = (0..self.nodes.len())
            .rev()
            .filter(|&at| unmet[at] == 0)
            .collect();
        let mut next_stuck = 0;
        while order.len() < self.nodes.len() {
            let Some(at) = ready.pop() else {
                // A circle: the first of its steps goes first.
                while is_placed[next_stuck] {
                    next_stuck += 1;
                }
                ready.push(next_stuck);
                continue;
            };
            if std::mem::replace(&mut is_placed[at], true) {
                continue;
            }
            order.push(at);
            for &dependent in dependents[at].iter().rev() {
                unmet[dependent] = unmet[dependent].saturating_sub(1);
                if is_placed[dependent] {
                    continue;
                }
                ranks[dependent] = ranks[dependent].max(ranks[at] + 1);
                if unmet[dependent] == 0 {
                    ready.push(dependent);
                }
            }
        }
        let mut places = vec![0; order.len()];
        for (place, &at) in order.iter().enumerate() {
            places[at] = place;
        }
        Ranked {
            ranks,
            order,
            places,
        }
    }
}

struct Ranked {
    /// By step: how many are before it on the longest way.
    ranks: Vec<usize>,
    /// Steps, each behind all that it waits for.
    order: Vec<usize>,
    /// By step: where it is in that order.
    places: Vec<usize>,
}

impl Ranked {
    fn is_forward(&self, edge: &Edge) -> bool {
        self.places[edge.from] < self.places[edge.to]
    }
}

/// One line, without what would move a cursor, turn the direction of reading, or be no XML.
pub fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if c.is_control() => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{2028}' | '\u{2029}' => ' ',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The same of a line in which white space matters.
pub fn clean_line(text: &str) -> String {
    let parts: Vec<String> = text.split('\t').map(clean).collect();
    parts.join("\t")
}

/// As much of the beginning as fits.
fn cut(text: &str, columns: usize, ellipsis: &str) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    if text.width() <= columns {
        return text.to_string();
    }
    let room = columns.saturating_sub(ellipsis.width());
    let mut used = 0;
    let taken = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= room
    });
    taken.collect::<String>() + ellipsis
}
