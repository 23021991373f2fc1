//! Where everything goes: rows from top to bottom, each step below all that it waits for.
//!
//! Steps stand in the cells of a grid that is never wider than `COLUMNS_MAX`; a longer row is broken into several. Edges run between
//! the cells only, along channels between rows and gutters between columns, so that none crosses a step. All edges of a step share
//! the line on which they leave it. Time and space grow with steps and edges, not with how far an edge goes.

use std::collections::BTreeMap;

use super::{Graph, Ranked};

pub const NODE_WIDTH: u32 = 184;
/// A name and what it is; each further line of the row's longest note makes it higher.
const NODE_HEIGHT: u32 = 42;
const NOTE_HEIGHT: u32 = 14;
const COLUMNS_MAX: usize = 6;
const GUTTER: u32 = 36;
const MARGIN: u32 = 12;
/// Of a channel without lines, above and below them.
const CHANNEL_EDGE: u32 = 12;
const TRACK: u32 = 6;
/// Lines next to each other in a gutter; more share.
const GUTTER_TRACKS: usize = 5;
/// Down, up, down, up: more changes little.
const SWEEPS: usize = 4;
/// As many lines below the name and the kind.
pub const NOTES_MAX: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub width: u32,
    pub height: u32,
    /// By step, as in the graph.
    pub nodes: Vec<Rect>,
    /// By edge, as in the graph: corners from the lower side of one step to the upper side of another. Empty: it would lead back.
    pub edges: Vec<Vec<Point>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub x: u32,
    pub y: u32,
}

pub fn layout(graph: &Graph) -> Layout {
    let ranked = graph.ranked();
    let neighbours = Neighbours::new(graph, &ranked);
    let rows = broken(ordered(layers(graph, &ranked), &neighbours));
    let grid = Grid::new(rows, graph.nodes.len(), &neighbours);
    grid.placed(graph, &ranked)
}

struct Neighbours {
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

impl Neighbours {
    fn new(graph: &Graph, ranked: &Ranked) -> Neighbours {
        let mut before = vec![Vec::new(); graph.nodes.len()];
        let mut after = vec![Vec::new(); graph.nodes.len()];
        for edge in graph.edges.iter().filter(|edge| ranked.is_forward(edge)) {
            before[edge.to].push(edge.from);
            after[edge.from].push(edge.to);
        }
        Neighbours { before, after }
    }
}

/// Steps by their rank, in the order in which they were written.
fn layers(graph: &Graph, ranked: &Ranked) -> Vec<Vec<usize>> {
    let count = ranked.ranks.iter().max().map_or(0, |last| last + 1);
    let mut layers = vec![Vec::new(); count];
    for at in 0..graph.nodes.len() {
        layers[ranked.ranks[at]].push(at);
    }
    layers
}

/// Each step as near as possible to the middle of its neighbours, so that few edges cross.
fn ordered(mut layers: Vec<Vec<usize>>, neighbours: &Neighbours) -> Vec<Vec<usize>> {
    let count = layers.iter().map(Vec::len).sum();
    let mut places = vec![0.0; count];
    let put = |layer: &[usize], places: &mut Vec<f64>| {
        for (at, &step) in layer.iter().enumerate() {
            places[step] = (at as f64 + 0.5) / layer.len() as f64;
        }
    };
    layers.iter().for_each(|layer| put(layer, &mut places));
    for sweep in 0..SWEEPS {
        let goes_down = sweep % 2 == 0;
        let look_at = match goes_down {
            true => &neighbours.before,
            false => &neighbours.after,
        };
        let mut turn = |layer: &mut Vec<usize>| {
            let middle = |step: usize| match look_at[step].as_slice() {
                [] => places[step],
                found => found.iter().map(|&at| places[at]).sum::<f64>() / found.len() as f64,
            };
            let mut wished: Vec<(f64, usize)> =
                layer.iter().map(|&step| (middle(step), step)).collect();
            wished.sort_by(|a, b| a.0.total_cmp(&b.0));
            *layer = wished.into_iter().map(|(_, step)| step).collect();
            put(layer, &mut places);
        };
        match goes_down {
            true => layers.iter_mut().for_each(&mut turn),
            false => layers.iter_mut().rev().for_each(&mut turn),
        }
    }
    layers
}

/// No row longer than the grid is wide; of a longer one, several of about the same length.
fn broken(layers: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut rows = Vec::new();
    for layer in layers.into_iter().filter(|layer| !layer.is_empty()) {
        let count = layer.len().div_ceil(COLUMNS_MAX);
        let length = layer.len().div_ceil(count);
        rows.extend(layer.chunks(length).map(<[usize]>::to_vec));
    }
    rows
}

struct Grid {
    rows: Vec<Vec<usize>>,
    columns: usize,
    /// By step: row and column.
    cells: Vec<(usize, usize)>,
}

impl Grid {
    fn new(rows: Vec<Vec<usize>>, steps: usize, neighbours: &Neighbours) -> Grid {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut grid = Grid {
            cells: vec![(0, 0); steps],
            columns,
            rows: Vec::new(),
        };
        for (row, steps) in rows.iter().enumerate() {
            let centre = (columns.max(1) - 1) as f64 / 2.0;
            let wished = steps.iter().map(|&step| {
                let before = &neighbours.before[step];
                let sum: usize = before.iter().map(|&at| grid.cells[at].1).sum();
                match before.len() {
                    0 => centre,
                    count => sum as f64 / count as f64,
                }
            });
            let wished: Vec<f64> = wished.collect();
            for (&step, column) in steps.iter().zip(spread(&wished, columns)) {
                grid.cells[step] = (row, column);
            }
        }
        grid.rows = rows;
        grid
    }

    fn placed(&self, graph: &Graph, ranked: &Ranked) -> Layout {
        let lines = Lines::new(self, graph, ranked);
        let lines_of = |step: usize| graph.nodes[step].notes.len().min(NOTES_MAX) as u32;
        let mut tops = Vec::with_capacity(self.rows.len());
        let mut y = MARGIN;
        let mut heights = Vec::with_capacity(self.rows.len());
        for (row, steps) in self.rows.iter().enumerate() {
            let notes = steps.iter().map(|&step| lines_of(step)).max().unwrap_or(0);
            let height = NODE_HEIGHT + notes * NOTE_HEIGHT;
            tops.push(y);
            heights.push(height);
            y += height + 2 * CHANNEL_EDGE + lines.channel(row) * TRACK;
        }
        let last_channel = 2 * CHANNEL_EDGE;
        let height = match self.rows.is_empty() {
            true => 2 * MARGIN,
            false => y - last_channel + MARGIN,
        };
        let cells = self.cells.iter();
        let nodes: Vec<Rect> = cells
            .map(|&(row, column)| Rect {
                x: MARGIN + GUTTER + column as u32 * (NODE_WIDTH + GUTTER),
                y: tops[row],
                width: NODE_WIDTH,
                height: heights[row],
            })
            .collect();
        let edges = graph.edges.iter().map(|edge| {
            if !ranked.is_forward(edge) {
                return Vec::new();
            }
            self.route(edge.from, edge.to, &nodes, &lines)
        });
        Layout {
            width: 2 * MARGIN + GUTTER + self.columns as u32 * (NODE_WIDTH + GUTTER),
            height,
            edges: edges.collect(),
            nodes,
        }
    }

    /// Down into the channel below, along it, and down: at once if the target is in the next row, else through a gutter.
    fn route(&self, from: usize, to: usize, nodes: &[Rect], lines: &Lines) -> Vec<Point> {
        let (source, target) = (nodes[from], nodes[to]);
        let start = Point {
            x: source.x + NODE_WIDTH / 2,
            y: source.y + source.height,
        };
        let end = Point {
            x: target.x + NODE_WIDTH / 2,
            y: target.y,
        };
        let row = self.cells[from].0;
        let line_y = |row: usize, line: Line| {
            let any = self.rows[row][0];
            let below = nodes[any].y + nodes[any].height;
            below + CHANNEL_EDGE + lines.track(row, line) * TRACK
        };
        let leaves_at = line_y(row, Line::Leaves(from));
        let mut points = vec![start];
        let mut go = |x: u32, y: u32| {
            if points.last() != Some(&Point { x, y }) {
                points.push(Point { x, y });
            }
        };
        let Some(gutter) = self.gutter(from, to) else {
            if start.x != end.x {
                go(start.x, leaves_at);
                go(end.x, leaves_at);
            }
            go(end.x, end.y);
            return points;
        };
        let gutter_x = MARGIN
            + gutter as u32 * (NODE_WIDTH + GUTTER)
            + GUTTER / 2
            + lines.gutter(gutter, from) * TRACK
            - (GUTTER_TRACKS as u32 / 2) * TRACK;
        let arrives_at = line_y(self.cells[to].0 - 1, Line::Arrives(to));
        go(start.x, leaves_at);
        go(gutter_x, leaves_at);
        go(gutter_x, arrives_at);
        go(end.x, arrives_at);
        go(end.x, end.y);
        points
    }

    /// The one beside the target on the source's side. `None`: the target is in the next row, and no gutter is needed.
    fn gutter(&self, from: usize, to: usize) -> Option<usize> {
        let (source, target) = (self.cells[from], self.cells[to]);
        if target.0 <= source.0 + 1 {
            return None;
        }
        Some(match source.1 > target.1 {
            true => target.1 + 1,
            false => target.1,
        })
    }
}

/// Columns for steps in their order, each as near to its wish as the others let it.
fn spread(wished: &[f64], columns: usize) -> Vec<usize> {
    let mut last = f64::NEG_INFINITY;
    let packed: Vec<f64> = wished
        .iter()
        .map(|&wish| {
            last = wish.max(last + 1.0);
            last
        })
        .collect();
    let too_far: f64 = packed
        .iter()
        .zip(wished)
        .map(|(put, wish)| put - wish)
        .sum();
    let shift = too_far / wished.len().max(1) as f64;
    let mut taken = Vec::with_capacity(wished.len());
    let mut free_from = 0;
    for (at, put) in packed.iter().enumerate() {
        let behind = wished.len() - 1 - at;
        let wish = (put - shift).round().max(0.0) as usize;
        let column = wish.clamp(free_from, (columns - 1 - behind).max(free_from));
        free_from = column + 1;
        taken.push(column);
    }
    taken
}

/// A line along a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// All edges that leave this step.
    Leaves(usize),
    /// All edges that come to this step through a gutter.
    Arrives(usize),
}

/// Who runs where in the channels and gutters.
struct Lines {
    /// By the row above it.
    channels: Vec<BTreeMap<Line, u32>>,
    gutters: Vec<BTreeMap<usize, u32>>,
}

impl Lines {
    fn new(grid: &Grid, graph: &Graph, ranked: &Ranked) -> Lines {
        let mut channels = vec![BTreeMap::new(); grid.rows.len()];
        let mut gutters = vec![BTreeMap::new(); grid.columns + 1];
        for edge in graph.edges.iter().filter(|edge| ranked.is_forward(edge)) {
            let (source, target) = (grid.cells[edge.from], grid.cells[edge.to]);
            let gutter = grid.gutter(edge.from, edge.to);
            if let Some(gutter) = gutter {
                gutters[gutter].insert(edge.from, 0);
                channels[target.0 - 1].insert(Line::Arrives(edge.to), 0);
            }
            if gutter.is_some() || source.1 != target.1 {
                channels[source.0].insert(Line::Leaves(edge.from), 0);
            }
        }
        for channel in &mut channels {
            (0..)
                .zip(channel.values_mut())
                .for_each(|(at, track)| *track = at);
        }
        for gutter in &mut gutters {
            let tracks = (0..GUTTER_TRACKS as u32).cycle();
            tracks
                .zip(gutter.values_mut())
                .for_each(|(at, track)| *track = at);
        }
        Lines { channels, gutters }
    }

    /// How many lines there are.
    fn channel(&self, row: usize) -> u32 {
        self.channels[row].len().saturating_sub(1) as u32
    }

    fn track(&self, row: usize, line: Line) -> u32 {
        self.channels[row].get(&line).copied().unwrap_or(0)
    }

    fn gutter(&self, gutter: usize, source: usize) -> u32 {
        self.gutters[gutter].get(&source).copied().unwrap_or(0)
    }
}
