//! A large graph as a small one: steps that are alike become one, chains become one, and at last whole layers do.
//!
//! It goes only as far as it must: what would be a chain of everything says less than the few steps of which it is made.

use std::collections::{BTreeSet, HashMap};

use super::state::{counted, weight};
use super::{Edge, Graph, Node};

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

/// What a node stands for; steps by their position.
#[derive(Debug, Clone)]
enum Shape {
    Step(usize),
    /// Several of the same kind between the same neighbours.
    Alike(Vec<Shape>),
    Chain(Vec<Shape>),
    /// Steps of these ranks.
    Layers(usize, usize, Vec<usize>),
}

struct Parts {
    shapes: Vec<Shape>,
    /// From, to, and what is accepted; no two between the same.
    edges: Vec<(usize, usize, Option<String>)>,
}

impl Parts {
    fn new(graph: &Graph) -> Parts {
        let edges = graph.edges.iter();
        let parts = Parts {
            shapes: (0..graph.nodes.len()).map(Shape::Step).collect(),
            edges: edges
                .map(|edge| (edge.from, edge.to, edge.label.clone()))
                .collect(),
        };
        // A step may be named twice.
        let own: Vec<usize> = (0..graph.nodes.len()).collect();
        Parts {
            edges: parts.edges_between(&own),
            ..parts
        }
    }

    fn with_alike_as_one(self, graph: &Graph) -> Parts {
        type Ways<'p> = Vec<(usize, Option<&'p str>)>;
        let mut before: Vec<Ways> = vec![Vec::new(); self.shapes.len()];
        let mut after: Vec<Ways> = vec![Vec::new(); self.shapes.len()];
        // Edges are sorted, and so is what each shape has of them.
        for (from, to, label) in &self.edges {
            before[*to].push((*from, label.as_deref()));
            after[*from].push((*to, label.as_deref()));
        }
        let mut homes: HashMap<(String, &Ways, &Ways), usize> = HashMap::new();
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
        for (from, to, label) in &self.edges {
            // What is accepted must stay visible.
            let is_plain = label.is_none();
            before[*to].push((*from, is_plain));
            after[*from].push((*to, is_plain));
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
        Parts {
            edges: (1..shapes.len()).map(|to| (to - 1, to, None)).collect(),
            shapes: shapes.into_iter().map(alone).collect(),
        }
    }

    /// Each group becomes one, its members in their order.
    fn merged(self, groups: Vec<Vec<usize>>, make: fn(Vec<Shape>) -> Shape) -> Parts {
        let mut homes = vec![0; self.shapes.len()];
        for (home, group) in groups.iter().enumerate() {
            group.iter().for_each(|&at| homes[at] = home);
        }
        let edges = self.edges_between(&homes);
        let mut shapes: Vec<Option<Shape>> = self.shapes.into_iter().map(Some).collect();
        let mut take = |at: usize| shapes[at].take().expect("a shape is in one group");
        let one = |group: Vec<usize>| match group.as_slice() {
            &[at] => take(at),
            _ => make(group.into_iter().map(&mut take).collect()),
        };
        Parts {
            shapes: groups.into_iter().map(one).collect(),
            edges,
        }
    }

    /// `homes`: by shape, where it goes.
    fn edges_between(&self, homes: &[usize]) -> Vec<(usize, usize, Option<String>)> {
        let mut between: Vec<(usize, usize, &Option<String>)> = self
            .edges
            .iter()
            .map(|(from, to, label)| (homes[*from], homes[*to], label))
            .filter(|(from, to, _)| from != to)
            .collect();
        between.sort_unstable();
        between.dedup();
        let mut edges: Vec<(usize, usize, Option<String>)> = Vec::with_capacity(between.len());
        for (from, to, label) in between {
            match edges.last_mut() {
                // Not all of them accept the same.
                Some((last_from, last_to, last)) if (*last_from, *last_to) == (from, to) => {
                    *last = Some("different outcomes".to_string());
                }
                _ => edges.push((from, to, label.clone())),
            }
        }
        edges
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
        let edges = self.edges.into_iter();
        Collapsed {
            graph: Graph {
                title: graph.title.clone(),
                nodes,
                edges: edges
                    .map(|(from, to, label)| Edge { from, to, label })
                    .collect(),
            },
            members,
        }
    }
}

impl Shape {
    fn add_steps(&self, steps: &mut Vec<usize>) {
        match self {
            Shape::Step(at) => steps.push(*at),
            Shape::Alike(shapes) | Shape::Chain(shapes) => {
                shapes.iter().for_each(|shape| shape.add_steps(steps));
            }
            Shape::Layers(_, _, all) => steps.extend(all),
        }
    }

    /// What must be the same of two that are alike.
    fn likeness(&self, graph: &Graph) -> String {
        match self {
            Shape::Step(at) if graph.nodes[*at].is_loop => {
                format!("{} for each", graph.nodes[*at].kind)
            }
            Shape::Step(at) => graph.nodes[*at].kind.clone(),
            Shape::Alike(shapes) => format!("several {}", shapes[0].likeness(graph)),
            // As long as the other: a chain of two is not like a chain of a hundred.
            Shape::Chain(shapes) => {
                format!("{} in a row of {}", shapes.len(), shapes[0].likeness(graph))
            }
            Shape::Layers(..) => String::new(),
        }
    }

    fn drawn(&self, steps: &[usize], graph: &Graph) -> Node {
        let name = |at: usize| &graph.nodes[at].label;
        let (Some(&first), Some(&last), count) = (steps.first(), steps.last(), steps.len()) else {
            return Node::default();
        };
        let (first, last) = (name(first), name(last));
        let are_steps =
            |shapes: &[Shape]| shapes.iter().all(|shape| matches!(shape, Shape::Step(_)));
        // Numbers come first: the rest is cut where a box is too small for it.
        let label = match self {
            Shape::Step(at) => return graph.nodes[*at].clone(),
            Shape::Alike(shapes) if are_steps(shapes) => format!("{count} × {first} … {last}"),
            Shape::Alike(shapes) => {
                let alike = shapes.len();
                format!("{alike} alike of {count} steps, {first} … {last}")
            }
            Shape::Chain(shapes) if are_steps(shapes) => {
                format!("chain of {count} from {first} to {last}")
            }
            Shape::Chain(_) => format!("{count} steps from {first} to {last}"),
            Shape::Layers(from, to, _) if from == to => {
                format!("layer {}: {count} steps", from + 1)
            }
            Shape::Layers(from, to, _) => {
                format!("layers {} to {}: {count} steps", from + 1, to + 1)
            }
        };
        let kinds: BTreeSet<&str> = steps
            .iter()
            .map(|&at| graph.nodes[at].kind.as_str())
            .collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let states = steps
            .iter()
            .filter_map(|&at| graph.nodes[at].state.as_deref());
        let counts = counted(states.clone());
        Node {
            label,
            kind: match kinds.as_slice() {
                [kind] => kind.to_string(),
                _ => "several kinds".to_string(),
            },
            is_loop: steps.iter().all(|&at| graph.nodes[at].is_loop),
            state: states.max_by_key(|state| weight(state)).map(str::to_string),
            notes: (!counts.is_empty()).then_some(counts).into_iter().collect(),
            stands_for: Some(count),
        }
    }
}
