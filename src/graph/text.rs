//! The graph as lines of text: one step per line, with rails beside it for what still waits, as `git log --graph` draws commits.

use std::collections::HashMap;

use unicode_width::UnicodeWidthStr;

use super::{Edge, Graph, Node, cut};

/// More rails than these say less than names do.
const RAILS_MAX: usize = 16;
const NAME_COLUMNS_MAX: usize = 32;

pub struct Style<'s> {
    pub unicode: bool,
    /// In columns. `None`: as long as it takes.
    pub width: Option<usize>,
    /// One column wide, in front of a step.
    pub sign: &'s dyn Fn(&Node) -> String,
    /// What is said about a step, behind its name.
    pub faint: &'s dyn Fn(&str) -> String,
}

pub fn text(graph: &Graph, style: &Style) -> String {
    let ranked = graph.ranked();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut dependencies: Vec<Vec<&Edge>> = vec![Vec::new(); graph.nodes.len()];
    for edge in graph.edges.iter().filter(|edge| ranked.is_forward(edge)) {
        dependents[edge.from].push(edge.to);
        dependencies[edge.to].push(edge);
    }
    for waiting in &mut dependents {
        waiting.sort_by_key(|&at| ranked.places[at]);
        waiting.dedup();
    }
    let room = style
        .width
        .map_or(RAILS_MAX, |width| (width / 5).min(RAILS_MAX));
    let drawn = draw(&ranked.order, &dependents, room);
    let has_rails = drawn.is_some();
    // Without rails, names say what a step waits for.
    let rows = drawn.unwrap_or_else(|| {
        let plain = |&at: &usize| Row {
            cells: vec![Cell::Step],
            step: Some(at),
        };
        ranked.order.iter().map(plain).collect()
    });
    let rails = rows
        .iter()
        .map(|row| 2 * row.cells.len())
        .max()
        .unwrap_or(0);
    let names = graph.nodes.iter().map(|node| node.label.width());
    // Programs get whole names.
    let widest = style
        .width
        .map_or(usize::MAX, |width| (width / 3).clamp(8, NAME_COLUMNS_MAX));
    let name_width = names.max().unwrap_or(0).min(widest);
    let ellipsis = if style.unicode { "…" } else { "..." };
    let mut out = String::new();
    for row in rows {
        let step = row.step.map(|at| (at, &graph.nodes[at]));
        let sign = step.map(|(_, node)| (style.sign)(node));
        let drawn = row.drawn(style.unicode, sign.as_deref().unwrap_or_default());
        out.push_str(drawn.trim_end());
        if let Some((at, node)) = step {
            let pad = " ".repeat(rails + 1 - row.columns());
            let name = cut(&node.label, name_width, ellipsis);
            let told = told(graph, node, &dependencies[at], has_rails, style.unicode);
            let used = rails + 1 + name_width + 2;
            let told = match style.width {
                Some(width) => cut(&told, width.saturating_sub(used + 1), ellipsis),
                None => told,
            };
            let gap = " ".repeat(name_width + 2 - name.width());
            out.push_str(&format!("{pad}{name}{gap}{}", (style.faint)(&told)));
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

fn told(graph: &Graph, node: &Node, waits: &[&Edge], has_rails: bool, unicode: bool) -> String {
    let mut told = Vec::new();
    told.extend(node.state.clone());
    told.push(match node.is_loop {
        true => format!("{} for each", node.kind),
        false => node.kind.clone(),
    });
    // Rails say the rest.
    let told_here = waits
        .iter()
        .filter(|edge| !has_rails || edge.label.is_some());
    let after: Vec<String> = told_here
        .map(|edge| match (&graph.nodes[edge.from].label, &edge.label) {
            (name, None) => name.clone(),
            (name, Some(label)) => format!("{name} ({label})"),
        })
        .collect();
    if !after.is_empty() {
        told.push(format!("after {}", after.join(", ")));
    }
    told.extend(node.notes.iter().cloned());
    told.join(if unicode { " · " } else { " - " })
}

/// What is at a place of a row: which of its four sides lines lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Empty,
    Step,
    /// Up, down, left, right.
    Lines(bool, bool, bool, bool),
    /// One line goes past under another.
    Crossing,
}

struct Row {
    cells: Vec<Cell>,
    step: Option<usize>,
}

impl Row {
    fn columns(&self) -> usize {
        (2 * self.cells.len()).saturating_sub(1)
    }

    fn drawn(&self, unicode: bool, sign: &str) -> String {
        let mut out = String::new();
        for (at, cell) in self.cells.iter().enumerate() {
            match cell {
                Cell::Step => out.push_str(sign),
                cell => out.push(letter(*cell, unicode)),
            }
            let goes_on = self.cells.get(at + 1).is_some_and(|next| {
                matches!(next, Cell::Lines(_, _, true, _) | Cell::Crossing)
                    && matches!(cell, Cell::Lines(_, _, _, true) | Cell::Crossing)
            });
            if at + 1 < self.cells.len() {
                out.push(match (goes_on, unicode) {
                    (false, _) => ' ',
                    (true, true) => '─',
                    (true, false) => '-',
                });
            }
        }
        out
    }
}

fn letter(cell: Cell, unicode: bool) -> char {
    let (unicode_letter, ascii) = match cell {
        Cell::Empty | Cell::Step => (' ', ' '),
        Cell::Crossing => ('│', '|'),
        Cell::Lines(up, down, left, right) => match (up, down, left, right) {
            (true, true, false, false) => ('│', '|'),
            (false, false, true, true) => ('─', '-'),
            (true, true, true, true) => ('┼', '+'),
            (true, true, false, true) => ('├', '+'),
            (true, true, true, false) => ('┤', '+'),
            (false, true, true, true) => ('┬', '+'),
            (true, false, true, true) => ('┴', '+'),
            (false, true, true, false) => ('╮', '.'),
            (false, true, false, true) => ('╭', '.'),
            (true, false, true, false) => ('╯', '\''),
            (true, false, false, true) => ('╰', '\''),
            _ => ('│', '|'),
        },
    };
    if unicode { unicode_letter } else { ascii }
}

/// Each rail leads to one step that waits; all that it waits for come to the same rail. `None`: there are too many of them.
fn draw(order: &[usize], dependents: &[Vec<usize>], rails_max: usize) -> Option<Vec<Row>> {
    let mut rails: Vec<Option<usize>> = Vec::new();
    let mut rail_of: HashMap<usize, usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    for (at, &step) in order.iter().enumerate() {
        let own = rail_of.remove(&step).unwrap_or_else(|| {
            let own = free(&mut rails);
            let above = rows.last().and_then(|row| row.cells.get(own));
            // Right below another it would look as if it waited for that.
            if above == Some(&Cell::Step) {
                rows.push(gap(&rails));
            }
            own
        });
        rails[own] = Some(step);
        let cell = |(at, rail): (usize, &Option<usize>)| match rail {
            _ if at == own => Cell::Step,
            Some(_) => Cell::Lines(true, true, false, false),
            None => Cell::Empty,
        };
        let cells = rails.iter().enumerate().map(cell).collect();
        rows.push(Row {
            cells,
            step: Some(step),
        });
        rails[own] = None;
        let before = rails.clone();
        let mut ends = Vec::new();
        for &waiting in &dependents[step] {
            let rail = *rail_of.entry(waiting).or_insert_with(|| {
                // Straight on, if nobody else does.
                match rails[own] {
                    None => own,
                    Some(_) => free(&mut rails),
                }
            });
            rails[rail] = Some(waiting);
            ends.push(rail);
        }
        if rails.len() > rails_max {
            return None;
        }
        // Where another step comes in between, the line is drawn beside it.
        let is_next = order
            .get(at + 1)
            .is_some_and(|next| dependents[step].contains(next));
        if is_next || ends.iter().any(|&rail| rail != own) {
            rows.push(links(own, &ends, &before, &rails));
        }
        while rails.last() == Some(&None) {
            rails.pop();
        }
    }
    Some(rows)
}

/// Nothing but the lines that go past.
fn gap(rails: &[Option<usize>]) -> Row {
    let cell = |rail: &Option<usize>| match rail {
        Some(_) => Cell::Lines(true, true, false, false),
        None => Cell::Empty,
    };
    Row {
        cells: rails.iter().map(cell).collect(),
        step: None,
    }
}

fn free(rails: &mut Vec<Option<usize>>) -> usize {
    let found = rails.iter().position(Option::is_none);
    found.unwrap_or_else(|| {
        rails.push(None);
        rails.len() - 1
    })
}

/// From one rail to others.
fn links(own: usize, ends: &[usize], before: &[Option<usize>], after: &[Option<usize>]) -> Row {
    let first = ends.iter().copied().chain([own]).min().unwrap_or(own);
    let last = ends.iter().copied().chain([own]).max().unwrap_or(own);
    let cells = (0..after.len()).map(|at| {
        let (up, down) = (
            at == own || before.get(at).is_some_and(Option::is_some),
            after[at].is_some(),
        );
        let is_end = at == own || ends.contains(&at);
        match (at > first && at < last, is_end) {
            (true, true) => Cell::Lines(up, down, true, true),
            (true, false) if up && down => Cell::Crossing,
            (true, false) => Cell::Lines(false, false, true, true),
            (false, true) => Cell::Lines(up, down, at > first, at < last),
            (false, false) if up && down => Cell::Lines(true, true, false, false),
            (false, false) => Cell::Empty,
        }
    });
    Row {
        cells: cells.collect(),
        step: None,
    }
}
