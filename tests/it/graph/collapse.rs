//! Large graphs: what is left of them says what matters, and is small whatever they look like.

use super::{Dice, check, graph, random};
use stepward::graph::{Collapsed, Edge, Graph, SHOWN_MAX, collapsed};

/// A step in front, `count` beside each other, one behind.
fn wide(count: usize) -> Graph {
    let all: Vec<usize> = (1..=count).collect();
    let mut waits: Vec<&[usize]> = vec![&[]];
    waits.extend(std::iter::repeat_n(&[0][..], count));
    waits.push(&all);
    let mut made = graph(&waits);
    for at in 1..=count {
        made.nodes[at].label = format!("build-{at}");
    }
    made
}

fn chain(count: usize) -> Graph {
    let mut made = graph(&vec![&[][..]; count]);
    made.edges = (1..count).map(|to| edge(to - 1, to)).collect();
    made
}

/// Each waits for the one above it and the one to its left.
fn lattice(side: usize) -> Graph {
    let mut made = graph(&vec![&[][..]; side * side]);
    for row in 0..side {
        for column in 0..side {
            let at = row * side + column;
            made.edges.extend((column > 0).then(|| edge(at - 1, at)));
            made.edges.extend((row > 0).then(|| edge(at - side, at)));
        }
    }
    made
}

/// Two beside each other, and both within the next two: every round finds only one pair.
fn nested(levels: usize) -> Graph {
    let mut made = graph(&vec![&[][..]; 3 * levels]);
    for at in 0..levels {
        let (open, other, close) = (at, levels + at, 2 * levels + at);
        made.edges.extend([edge(open, other), edge(other, close)]);
        match at + 1 < levels {
            true => made
                .edges
                .extend([edge(open, at + 1), edge(close + 1, close)]),
            false => made.edges.push(edge(open, close)),
        }
    }
    made
}

fn edge(from: usize, to: usize) -> Edge {
    Edge {
        from,
        to,
        label: None,
    }
}

fn labels(collapsed: &Collapsed) -> Vec<&str> {
    let nodes = collapsed.graph.nodes.iter();
    nodes.map(|node| node.label.as_str()).collect()
}

/// Every step is somewhere, once; and no more is drawn than a page can hold.
fn check_collapsed(graph: &Graph, most: usize) -> Collapsed {
    let small = collapsed(graph, most);
    assert!(
        small.graph.nodes.len() <= most,
        "{}",
        small.graph.nodes.len()
    );
    assert_eq!(small.members.len(), small.graph.nodes.len());
    let mut found: Vec<&String> = small.members.iter().flatten().collect();
    let mut all: Vec<&String> = graph.nodes.iter().map(|node| &node.label).collect();
    found.sort();
    all.sort();
    assert_eq!(found, all);
    for (node, members) in small.graph.nodes.iter().zip(&small.members) {
        let count = (members.len() > 1).then_some(members.len());
        assert_eq!(node.stands_for, count);
    }
    check(&small.graph);
    assert_eq!(small, collapsed(graph, most), "always the same");
    small
}

#[test]
fn a_small_graph_stays_as_it_is() {
    let mut dice = Dice(1);
    for steps in [0, 1, SHOWN_MAX] {
        let graph = random(&mut dice, steps.max(1), steps);
        assert_eq!(check_collapsed(&graph, SHOWN_MAX).graph, graph);
    }
}

#[test]
fn steps_that_are_alike_become_one_that_says_how_they_are() {
    let mut job = wide(200);
    for (at, node) in job.nodes.iter_mut().enumerate() {
        let state = if at == 7 || at == 9 {
            "failed"
        } else {
            "completed"
        };
        node.state = Some(state.to_string());
    }
    let small = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(labels(&small), ["s0", "200 × build-1 … build-200", "s201"]);
    let node = &small.graph.nodes[1];
    assert_eq!(node.state.as_deref(), Some("failed"));
    assert_eq!(node.notes, ["2 failed, 198 completed"]);
    assert_eq!((node.kind.as_str(), node.stands_for), ("script", Some(200)));
    assert_eq!(small.members[1][6], "build-7");
    assert_eq!(small.holding("build-200"), Some(1));
    assert_eq!(small.holding("nobody"), None);
    assert_eq!(small.graph.edges, [edge(0, 1), edge(1, 2)]);
}

/// Between the same neighbours, but one of them does something else, and one accepts something else.
#[test]
fn what_differs_is_not_alike() {
    let mut job = wide(200);
    job.nodes[5].kind = "docker".to_string();
    let conditional = job.edges.iter_mut().find(|edge| edge.to == 8);
    conditional.unwrap().label = Some("failed".to_string());
    let small = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(
        labels(&small),
        [
            "s0",
            "198 × build-1 … build-200",
            "build-5",
            "build-8",
            "s201"
        ]
    );
    let to_eighth = small.graph.edges.iter().find(|edge| edge.to == 3);
    assert_eq!(to_eighth.unwrap().label.as_deref(), Some("failed"));
}

/// A step named twice, once to accept its failure.
#[test]
fn edges_that_become_one_say_that_they_were_not_the_same() {
    let mut job = chain(200);
    job.edges.push(Edge {
        label: Some("failed".to_string()),
        ..edge(10, 11)
    });
    let small = check_collapsed(&job, SHOWN_MAX);
    let labels: Vec<Option<&str>> = small
        .graph
        .edges
        .iter()
        .map(|edge| edge.label.as_deref())
        .collect();
    assert_eq!(labels, [Some("different outcomes")]);
}

#[test]
fn a_chain_becomes_one_from_its_first_to_its_last_however_it_was_written() {
    let mut job = chain(200);
    let forward = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(labels(&forward), ["chain of 200 from s0 to s199"]);
    for edge in &mut job.edges {
        std::mem::swap(&mut edge.from, &mut edge.to);
    }
    let backward = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(labels(&backward), ["chain of 200 from s199 to s0"]);
}

/// It stops where a page can hold it: a chain of everything would say nothing.
#[test]
fn no_more_is_collapsed_than_must_be() {
    // Behind everything that is alike, three in a row.
    let mut job = wide(200);
    for at in 202..205 {
        job.nodes.push(super::node(&format!("s{at}")));
        job.edges.push(edge(at - 1, at));
    }
    let small = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(small.graph.nodes.len(), 6);
    let smaller = check_collapsed(&job, 3);
    assert_eq!(labels(&smaller), ["205 steps from s0 to s204"]);
}

#[test]
fn chains_beside_each_other_are_alike() {
    let (rows, length) = (300, 5);
    let mut job = graph(&vec![&[][..]; rows * length]);
    let steps = (0..rows * length).filter(|at| at % length > 0);
    job.edges = steps.map(|at| edge(at - 1, at)).collect();
    let small = check_collapsed(&job, SHOWN_MAX);
    assert_eq!(labels(&small), ["300 alike of 1500 steps, s0 … s1499"]);
}

#[test]
fn where_nothing_is_alike_layers_are_shown() {
    let job = lattice(20);
    let small = check_collapsed(&job, SHOWN_MAX);
    let labels = labels(&small);
    assert_eq!(labels.len(), 39);
    assert_eq!(labels[..3], ["s0", "layer 2: 2 steps", "layer 3: 3 steps"]);
    assert_eq!(small.members[2], ["s2", "s21", "s40"]);
    // Too many layers: several become one.
    let few = check_collapsed(&job, 10);
    assert_eq!(few.graph.nodes[0].label, "layers 1 to 4: 10 steps");
    assert_eq!(few.graph.nodes.len(), 10);
}

#[test]
fn the_state_that_matters_most_is_told() {
    let state_of = |states: &[&str]| {
        let mut job = wide(states.len());
        for (node, state) in job.nodes[1..].iter_mut().zip(states) {
            node.state = Some(state.to_string());
        }
        let small = collapsed(&job, 3);
        small.graph.nodes[1].clone()
    };
    let most = |states: &[&str]| state_of(states).state.unwrap();
    assert_eq!(most(&["completed", "failed", "running"]), "failed");
    assert_eq!(most(&["completed", "suspended", "running"]), "suspended");
    assert_eq!(most(&["pending", "ready", "running"]), "running");
    assert_eq!(most(&["pending", "ready", "assigned"]), "assigned");
    assert_eq!(most(&["completed", "pending", "skipped"]), "pending");
    assert_eq!(most(&["completed", "cancelled", "skipped"]), "cancelled");
    assert_eq!(most(&["completed", "skipped", "skipped"]), "skipped");
    let node = state_of(&["completed", "of tomorrow", "skipped", "failed"]);
    assert_eq!(
        node.notes,
        ["1 failed, 1 of tomorrow, 1 skipped, 1 completed"]
    );
}

/// A server is not trusted to have checked them.
#[test]
fn circles_are_collapsed_too() {
    let mut job = chain(300);
    job.edges.push(edge(299, 0));
    job.edges.push(edge(150, 150));
    job.edges.push(edge(3, 4));
    let small = collapsed(&job, SHOWN_MAX);
    assert!(small.graph.nodes.len() <= SHOWN_MAX);
    assert_eq!(small.members.iter().flatten().count(), 300);
}

#[test]
fn ten_thousand_steps_of_any_shape_become_a_page() {
    let mut dice = Dice(13);
    for job in [
        wide(9_998),
        chain(10_000),
        lattice(100),
        nested(3_333),
        random(&mut dice, 10_000, 10_000),
        random(&mut dice, 10_000, 40_000),
        graph(&vec![&[][..]; 10_000]),
    ] {
        check_collapsed(&job, SHOWN_MAX);
    }
}
