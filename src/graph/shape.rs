//! What a node of a collapsed graph stands for, and what it says of it.

use std::collections::BTreeSet;

use super::state::{counted, weight};
use super::{Graph, Node};

/// What a node stands for; steps by their position.
#[derive(Debug, Clone)]
pub enum Shape {
    Step(usize),
    /// Several of the same kind between the same neighbours.
    Alike(Vec<Shape>),
    Chain(Vec<Shape>),
    /// Steps of these ranks.
    Layers(usize, usize, Vec<usize>),
}

impl Shape {
    pub fn add_steps(&self, steps: &mut Vec<usize>) {
        match self {
            Shape::Step(at) => steps.push(*at),
            Shape::Alike(shapes) | Shape::Chain(shapes) => {
                shapes.iter().for_each(|shape| shape.add_steps(steps));
            }
            Shape::Layers(_, _, all) => steps.extend(all),
        }
    }

    /// What must be the same of two that are alike.
    pub fn likeness(&self, graph: &Graph) -> String {
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

    /// `steps`: all of them, in their order.
    pub fn drawn(&self, steps: &[usize], graph: &Graph) -> Node {
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
