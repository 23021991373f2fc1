//! A large graph as a small one: steps that are alike become one, chains become one, and at last whole layers do.
//!
//! It goes only as far as it must: what would be a chain of everything says less than the few steps of which it is made.

use std::collections::HashMap;

use super::shape::Shape;
use super::{Edge, Graph};

/// More steps than these are shown collapsed.
pub const SHOWN_MAX: usize = 150;

/// How often every step and edge may be looked at, on average: a graph can be made so that each round finds only the next two steps.
const LOOKS_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collapsed {
    pub graph: Graph,
    /// By node of this graph: the names of the steps that it stands for, in the order in which they were written.
    pub members: Vec<Vec<String>>,
}

impl Collapsed {
    /// The node that a step is in.
    pub fn holding(&self, name: &str) -> Option<usize> {
        let holds = |members: &Vec<String>| members.iter().any(|member| member == name);
        self.members.iter().position(holds)
    }
}

/// At most `shown_max` nodes. A graph that is small enough stays as it is.
pub fn collapsed(graph: &Graph, shown_max: usize) -> Collapsed {
    if graph.nodes.len() <= shown_max {
        let names = graph.nodes.iter().map(|node| vec![node.label.clone()]);
        return Collapsed {
            members: names.collect(),
            graph: graph.clone(),
        };
    }
    let mut parts = Parts::new(graph);
    let mut looks = LOOKS_MAX * (graph.nodes.len() + graph.edges.len());
    while parts.shapes.len() > shown_max {
        let before = parts.shapes.len();
        parts = parts.with_alike_as_one(graph);
        if parts.shapes.len() > shown_max {
            parts = parts.with_chains_as_one();
        }
        looks = looks.saturating_sub(before + parts.edges.len());
        if parts.shapes.len() == before || looks == 0 {
            break;
        }
    }
    if parts.shapes.len() > shown_max {
        parts = Parts::layers(graph, shown_max.max(1));
    }
    parts.drawn(graph)
}

struct Parts {
    shapes: Vec<Shape>,
    /// Sorted, and no two between the same.
    edges: Vec<Way>,
    /// What edges accept, each once: nothing special, not the same everywhere, and what there is.
    labels: Vec<Option<String>>,
}

/// An edge. There may be a million of them: what is accepted is a number here.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: u32,
    to: u32,
    label: u32,
}

const PLAIN: u32 = 0;
const DIFFERENT: u32 = 1;

impl Parts {
    fn new(graph: &Graph) -> Parts {
        let mut labels = vec![None, Some("different outcomes".to_string())];
        let mut known: HashMap<&str, u32> = HashMap::new();
        let edges = graph.edges.iter().map(|edge| Way {
            from: edge.from as u32,
            to: edge.to as u32,
            label: match edge.label.as_deref() {
                None => PLAIN,
                Some(label) => *known.entry(label).or_insert_with(|| {
                    labels.push(Some(label.to_string()));
                    labels.len() as u32 - 1
                }),
            },
        });
        // A step may be named twice.
        let own: Vec<u32> = (0..graph.nodes.len() as u32).collect();
        let edges = edges_between(&edges.collect::<Vec<Way>>(), &own);
        Parts {
            shapes: (0..graph.nodes.len()).map(Shape::Step).collect(),
            edges,
            labels,
        }
    }

    fn with_alike_as_one(self, graph: &Graph) -> Parts {
        // Neighbour and label in one number: they are hashed all at once.
        let way = |at: u32, label: u32| u64::from(at) << 32 | u64::from(label);
        let mut before: Vec<Vec<u64>> = vec![Vec::new(); self.shapes.len()];
        let mut after: Vec<Vec<u64>> = vec![Vec::new(); self.shapes.len()];
        for &Way { from, to, label } in &self.edges {
            before[to as usize].push(way(from, label));
            after[from as usize].push(way(to, label));
        }
        let mut homes: HashMap<(String, &[u64], &[u64]), usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (at, shape) in self.shapes.iter().enumerate() {
            let home = homes.entry((shape.likeness(graph), &before[at], &after[at]));
            let home = *home.or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[home].push(at);
        }
        self.merged(groups, Shape::Alike)
    }

    /// Steps with one way in and one way out at most, as long as each leads to the next.
    fn with_chains_as_one(self) -> Parts {
        let mut before = vec![Vec::new(); self.shapes.len()];
        let mut after = vec![Vec::new(); self.shapes.len()];
        for way in &self.edges {
            // What is accepted must stay visible.
            let is_plain = way.label == PLAIN;
            let (from, to) = (way.from as usize, way.to as usize);
            before[to].push((from, is_plain));
            after[from].push((to, is_plain));
        }
        let is_link = |at: usize| before[at].len() <= 1 && after[at].len() <= 1;
        let next = |at: usize| match after[at].as_slice() {
            &[(to, true)] if is_link(at) && is_link(to) => Some(to),
            _ => None,
        };
        let is_first = |at: usize| match before[at].as_slice() {
            &[(from, _)] => next(from) != Some(at),
            _ => true,
        };
        let follow = |at: usize| std::iter::successors(Some(at), |&at| next(at)).collect();
        let starts = (0..self.shapes.len()).filter(|&at| is_first(at));
        let mut groups: Vec<Vec<usize>> = starts.map(follow).collect();
        // A circle has no first step; its steps stay as they are.
        let mut is_placed = vec![false; self.shapes.len()];
        groups.iter().flatten().for_each(|&at| is_placed[at] = true);
        let left = (0..self.shapes.len()).filter(|&at| !is_placed[at]);
        groups.extend(left.map(|at| vec![at]));
        self.merged(groups, Shape::Chain)
    }

    /// One node for each layer; where there are too many layers, one for several that follow each other. Every way from one to a
    /// later one leads through all between them, so that these edges are enough.
    fn layers(graph: &Graph, shown_max: usize) -> Parts {
        let ranks = graph.ranked().ranks;
        let count = ranks.iter().max().map_or(0, |last| last + 1);
        let height = count.div_ceil(shown_max).max(1);
        let mut shapes: Vec<Shape> = (0..count.div_ceil(height))
            .map(|at| {
                let (first, behind) = (at * height, ((at + 1) * height).min(count));
                Shape::Layers(first, behind - 1, Vec::new())
            })
            .collect();
        for (at, rank) in ranks.into_iter().enumerate() {
            if let Shape::Layers(_, _, steps) = &mut shapes[rank / height] {
                steps.push(at);
            }
        }
        let alone = |shape: Shape| match shape {
            Shape::Layers(_, _, steps) if steps.len() == 1 => Shape::Step(steps[0]),
            shape => shape,
        };
        let to_next = |to: u32| Way {
            from: to - 1,
            to,
            label: PLAIN,
        };
        Parts {
            edges: (1..shapes.len() as u32).map(to_next).collect(),
            shapes: shapes.into_iter().map(alone).collect(),
            labels: vec![None],
        }
    }

    /// Each group becomes one, its members in their order.
    fn merged(self, groups: Vec<Vec<usize>>, make: fn(Vec<Shape>) -> Shape) -> Parts {
        let mut homes = vec![0; self.shapes.len()];
        for (home, group) in (0..).zip(&groups) {
            group.iter().for_each(|&at| homes[at] = home);
        }
        let edges = edges_between(&self.edges, &homes);
        let mut shapes: Vec<Option<Shape>> = self.shapes.into_iter().map(Some).collect();
        let mut take = |at: usize| shapes[at].take().expect("a shape is in one group");
        let one = |group: Vec<usize>| match group.as_slice() {
            &[at] => take(at),
            _ => make(group.into_iter().map(&mut take).collect()),
        };
        Parts {
            shapes: groups.into_iter().map(one).collect(),
            edges,
            labels: self.labels,
        }
    }

    fn drawn(self, graph: &Graph) -> Collapsed {
        let mut members = Vec::with_capacity(self.shapes.len());
        let mut nodes = Vec::with_capacity(self.shapes.len());
        for shape in &self.shapes {
            let mut steps = Vec::new();
            shape.add_steps(&mut steps);
            nodes.push(shape.drawn(&steps, graph));
            // Chains have them as they run.
            steps.sort_unstable();
            let names = steps.iter().map(|&at| graph.nodes[at].label.clone());
            members.push(names.collect());
        }
        let edges = self.edges.iter().map(|way| Edge {
            from: way.from as usize,
            to: way.to as usize,
            label: self.labels[way.label as usize].clone(),
        });
        Collapsed {
            graph: Graph {
                title: graph.title.clone(),
                nodes,
                edges: edges.collect(),
            },
            members,
        }
    }
}

/// Sorted, for it is cheaper to put a million edges than to compare them. `homes`: by shape, where it goes.
fn edges_between(edges: &[Way], homes: &[u32]) -> Vec<Way> {
    let count = homes.iter().max().map_or(0, |last| *last as usize + 1);
    let mut by_target: Vec<Vec<(u32, u32)>> = vec![Vec::new(); count];
    for way in edges {
        let (from, to) = (homes[way.from as usize], homes[way.to as usize]);
        if from != to {
            by_target[to as usize].push((from, way.label));
        }
    }
    let mut by_source: Vec<Vec<(u32, u32)>> = vec![Vec::new(); count];
    for (to, sources) in (0..).zip(by_target) {
        for (from, label) in sources {
            by_source[from as usize].push((to, label));
        }
    }
    let mut between: Vec<Way> = Vec::new();
    for (from, targets) in (0..).zip(by_source) {
        for (to, label) in targets {
            match between.last_mut() {
                Some(last) if (last.from, last.to) == (from, to) => {
                    if last.label != label {
                        last.label = DIFFERENT;
                    }
                }
                _ => between.push(Way { from, to, label }),
            }
        }
    }
    between
}
