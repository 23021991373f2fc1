//! Pictures of graphs: where things go, and what each way of writing them makes of names that nobody should trust.
//!
//! `STEPWARD_GOLDEN=write` writes the expected pictures anew; read the difference.

mod collapse;
mod grammar;
mod linked;
mod timeline;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use grammar::{Dot, Element, Mermaid, elements};
use stepward::graph::{self, Edge, Graph, Layout, Node, Point, Rect, Style};
use stepward::language::{CheckOptions, load_files};
use stepward::wire::api::TaskJson;

/// Each step with the numbers of those that it waits for.
fn graph(waits: &[&[usize]]) -> Graph {
    let nodes = (0..waits.len()).map(|at| node(&format!("s{at}")));
    let edges = waits.iter().enumerate().flat_map(|(to, waits)| {
        let edge = move |&from| Edge {
            from,
            to,
            label: None,
        };
        waits.iter().map(edge)
    });
    Graph {
        title: "test".to_string(),
        nodes: nodes.collect(),
        edges: edges.collect(),
    }
}

fn node(label: &str) -> Node {
    Node {
        label: label.to_string(),
        kind: "script".to_string(),
        ..Node::default()
    }
}

/// A xorshift, so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn random(dice: &mut Dice, steps: usize, edges: usize) -> Graph {
    let mut waits = vec![Vec::new(); steps];
    for _ in 0..edges {
        let to = dice.below(steps);
        if to > 0 {
            let from = dice.below(to);
            if !waits[to].contains(&from) {
                waits[to].push(from);
            }
        }
    }
    let waits: Vec<&[usize]> = waits.iter().map(Vec::as_slice).collect();
    let mut made = graph(&waits);
    for node in &mut made.nodes {
        let count = dice.below(4);
        node.notes = (0..count).map(|at| format!("note {at}")).collect();
        node.is_loop = dice.below(5) == 0;
    }
    made
}

fn overlap(a: &Rect, b: &Rect) -> bool {
    let apart = a.x + a.width <= b.x
        || b.x + b.width <= a.x
        || a.y + a.height <= b.y
        || b.y + b.height <= a.y;
    !apart
}

/// A piece of an edge is straight; its inside must not be in the inside of a step.
fn crosses(from: Point, to: Point, rect: &Rect) -> bool {
    let (left, right) = (from.x.min(to.x), from.x.max(to.x));
    let (top, bottom) = (from.y.min(to.y), from.y.max(to.y));
    left < rect.x + rect.width && right > rect.x && top < rect.y + rect.height && bottom > rect.y
}

fn check(graph: &Graph) -> Layout {
    let layout = graph::layout(graph);
    assert_eq!(layout, graph::layout(graph), "always the same");
    assert_eq!(layout.nodes.len(), graph.nodes.len());
    assert_eq!(layout.edges.len(), graph.edges.len());
    // By row: only neighbours can overlap.
    let mut rows: BTreeMap<u32, Vec<Rect>> = BTreeMap::new();
    for rect in &layout.nodes {
        assert!(rect.x + rect.width <= layout.width && rect.y + rect.height <= layout.height);
        rows.entry(rect.y).or_default().push(*rect);
    }
    let rows: Vec<Vec<Rect>> = rows.into_values().collect();
    for (at, row) in rows.iter().enumerate() {
        let next = rows.get(at + 1).into_iter().flatten();
        let near: Vec<&Rect> = row.iter().chain(next).collect();
        for (at, a) in near.iter().enumerate() {
            assert!(near[at + 1..].iter().all(|b| !overlap(a, b)));
        }
    }
    for (edge, points) in graph.edges.iter().zip(&layout.edges) {
        let (source, target) = (layout.nodes[edge.from], layout.nodes[edge.to]);
        assert!(source.y + source.height < target.y, "edges go down");
        let (first, last) = (points[0], points[points.len() - 1]);
        assert_eq!(first.y, source.y + source.height);
        assert_eq!(last.y, target.y);
        for corner in points.windows(2) {
            let (from, to) = (corner[0], corner[1]);
            assert!(
                from.x == to.x || from.y == to.y,
                "no slanted lines: {points:?}"
            );
            assert!(from.y <= to.y, "never up: {points:?}");
            assert!(from.x.max(to.x) <= layout.width);
        }
    }
    layout
}

fn check_that_edges_pass_between_steps(graph: &Graph, layout: &Layout) {
    for (points, edge) in layout.edges.iter().zip(&graph.edges) {
        for corner in points.windows(2) {
            for rect in &layout.nodes {
                assert!(
                    !crosses(corner[0], corner[1], rect),
                    "{edge:?}: {points:?} {rect:?}"
                );
            }
        }
    }
}

#[test]
fn steps_never_overlap_and_edges_go_down_between_them() {
    for waits in [
        &[][..],
        &[&[][..]],
        &[&[], &[0]],
        &[&[], &[0], &[0], &[1, 2]],
        &[&[], &[0], &[1], &[0, 2], &[0]],
        &[&[], &[], &[], &[0, 1, 2], &[], &[3, 4]],
    ] {
        let graph = graph(waits);
        let layout = check(&graph);
        check_that_edges_pass_between_steps(&graph, &layout);
    }
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..300 {
        let (steps, edges) = (1 + dice.below(40), dice.below(120));
        let graph = random(&mut dice, steps, edges);
        let layout = check(&graph);
        check_that_edges_pass_between_steps(&graph, &layout);
    }
}

/// Whatever the steps are, a page can hold the picture.
#[test]
fn thousands_of_steps_make_a_picture_of_bounded_width() {
    const STEPS: usize = 5_000;
    let chain: Vec<Vec<usize>> = (0..STEPS)
        .map(|at| (at > 0).then(|| at - 1).into_iter().collect())
        .collect();
    let star: Vec<Vec<usize>> = (0..STEPS)
        .map(|at| if at > 0 { vec![0] } else { Vec::new() })
        .collect();
    let join: Vec<Vec<usize>> = (0..STEPS)
        .map(|at| {
            if at + 1 < STEPS {
                Vec::new()
            } else {
                (0..at).collect()
            }
        })
        .collect();
    // Each waits for the one before and for the very first: edges across everything.
    let ladder: Vec<Vec<usize>> = (0..STEPS)
        .map(|at| match at {
            0 => Vec::new(),
            1 => vec![0],
            _ => vec![0, at - 1],
        })
        .collect();
    for waits in [chain, star, join, ladder] {
        let waits: Vec<&[usize]> = waits.iter().map(Vec::as_slice).collect();
        let graph = graph(&waits);
        let layout = check(&graph);
        assert!(layout.width <= 1_400, "{}", layout.width);
        assert_eq!(graph::svg(&graph, &layout).matches("<g ").count(), STEPS);
        assert!(text(&graph, true, Some(80)).lines().count() >= STEPS);
    }
    let mut dice = Dice(7);
    let graph = random(&mut dice, STEPS, 4 * STEPS);
    assert!(check(&graph).width <= 1_400);
}

/// A server is not trusted to have checked them.
#[test]
fn circles_are_drawn_without_what_leads_back() {
    let circle = graph(&[&[2], &[0], &[1], &[2]]);
    let layout = graph::layout(&circle);
    let back = layout.edges.iter().filter(|points| points.is_empty());
    assert_eq!(back.count(), 1);
    let lines = text(&circle, true, None);
    assert_eq!(
        lines.lines().filter(|line| line.contains("script")).count(),
        4
    );
    assert!(graph::svg(&circle, &layout).ends_with("</svg>\n"));
}

fn text(graph: &Graph, unicode: bool, width: Option<usize>) -> String {
    let sign = |_: &Node| if unicode { "○" } else { "o" }.to_string();
    let style = Style {
        unicode,
        width,
        sign: &sign,
        faint: &str::to_string,
    };
    graph::text(graph, &style)
}

#[test]
fn text_is_drawn_with_rails_and_fits_the_terminal() {
    let diamond = graph(&[&[], &[0], &[0], &[1, 2]]);
    let expected = "\
○    s0  script
├─╮
○ │  s1  script
│ ○  s2  script
├─╯
○    s3  script
";
    assert_eq!(text(&diamond, true, None), expected);
    let ascii = "\
o    s0  script
+-.
o |  s1  script
| o  s2  script
+-'
o    s3  script
";
    assert_eq!(text(&diamond, false, None), ascii);
    assert!(ascii.is_ascii());

    let mut dice = Dice(99);
    for _ in 0..100 {
        let (steps, edges) = (1 + dice.below(60), dice.below(150));
        let mut graph = random(&mut dice, steps, edges);
        graph.nodes[0].label = "名前".repeat(40);
        for line in text(&graph, true, Some(60)).lines() {
            let columns = unicode_width::UnicodeWidthStr::width(line);
            assert!(columns <= 60, "{columns}: {line}");
        }
    }
}

/// A line says that one waits for the other; without one, there is room between them.
#[test]
fn text_tells_a_chain_from_steps_that_have_nothing_to_do_with_each_other() {
    let chain = "\
○  s0  script
│
○  s1  script
│
○  s2  script
";
    assert_eq!(text(&graph(&[&[], &[0], &[1]]), true, None), chain);
    let alone = "\
○  s0  script

○  s1  script

○  s2  script
";
    assert_eq!(text(&graph(&[&[], &[], &[]]), true, None), alone);
    let pairs = text(&graph(&[&[], &[0], &[], &[2]]), false, None);
    let mut rows: Vec<&str> = pairs.lines().collect();
    rows.retain(|row| !row.contains("script") && !row.is_empty());
    assert!(rows.iter().all(|row| row.contains(['|', '+'])), "{pairs}");
    assert!(!rows.is_empty(), "{pairs}");
    assert_ne!(pairs, text(&graph(&[&[], &[0], &[1], &[2]]), false, None));

    // Whatever the graph: right below a step on its rail stands nothing but a line, or nothing.
    let mut dice = Dice(3);
    for _ in 0..300 {
        let (steps, edges) = (1 + dice.below(12), dice.below(20));
        let drawn = text(&random(&mut dice, steps, edges), false, None);
        let rows: Vec<Vec<char>> = drawn.lines().map(|row| row.chars().collect()).collect();
        for pair in rows.windows(2) {
            let own = pair[0].iter().position(|&c| c == 'o');
            let below = own.and_then(|own| pair[1].get(own));
            let is_step = pair[0].contains(&'s');
            assert!(!is_step || below != Some(&'o'), "{drawn}");
        }
    }
}

/// Nobody reads a pipe by its columns.
#[test]
fn names_are_whole_where_there_is_no_terminal() {
    let mut long = graph(&[&[]]);
    long.nodes[0].label = "n".repeat(100);
    assert!(text(&long, true, None).contains(&long.nodes[0].label));
    assert!(!text(&long, true, Some(80)).contains(&long.nodes[0].label));
}

/// Where there are too many rails, names tell what a step waits for.
#[test]
fn a_wide_graph_is_told_by_names() {
    let waits: Vec<Vec<usize>> = (0..50)
        .map(|at| if at > 0 { vec![0] } else { Vec::new() })
        .collect();
    let waits: Vec<&[usize]> = waits.iter().map(Vec::as_slice).collect();
    let lines = text(&graph(&waits), true, Some(80));
    assert_eq!(lines.lines().count(), 50);
    assert_eq!(lines.lines().nth(49), Some("○  s49  script · after s0"));
}

const HOSTILE: &[&str] = &[
    "\"quoted\"",
    "</text><script>alert(1)</script>",
    "a&b&lt;c",
    "back\\slash\\",
    "ends with \\",
    "new\nline\r\n",
    "\u{1b}[2Jcleared\u{7}",
    "\u{202e}turned",
    "`ticks` #quot; #35;",
    "]]> --> |x| {{y}} [z] (w) %%",
    "'; DROP TABLE step; --",
    "\u{0}nul",
    "<!-- no comment -->",
    "end",
    "日本語の名前がとても長い場合にはどうなるのだろうか",
    "",
];

fn hostile() -> Graph {
    let nodes = HOSTILE.iter().map(|name| Node {
        label: graph::clean(name),
        kind: graph::clean(name),
        is_loop: false,
        state: Some(graph::clean(name)),
        notes: vec![graph::clean(name)],
        stands_for: None,
    });
    let edges = (1..HOSTILE.len()).map(|to| Edge {
        from: to - 1,
        to,
        label: Some(graph::clean(HOSTILE[to])),
    });
    Graph {
        title: graph::clean(HOSTILE[1]),
        nodes: nodes.collect(),
        edges: edges.collect(),
    }
}

#[test]
fn hostile_names_stay_names_in_svg() {
    let graph = hostile();
    let svg = graph::svg(&graph, &graph::layout(&graph));
    assert!(
        !svg.contains(|c: char| c.is_control() && c != '\n'),
        "{svg:?}"
    );
    let found: Vec<Element> = elements(&svg);
    for element in &found {
        let known = [
            "svg", "title", "defs", "marker", "path", "g", "rect", "text",
        ];
        assert!(known.contains(&element.name.as_str()), "{}", element.name);
        for (key, value) in &element.attributes {
            assert!(key != "style" && !key.starts_with("on"), "{key}");
            assert!(!value.contains("javascript"), "{value}");
        }
    }
    // What was said comes back as it was.
    let steps = found
        .iter()
        .filter_map(|element| element.attributes.get("data-step"));
    let said: Vec<String> = graph.nodes.iter().map(|node| node.label.clone()).collect();
    assert_eq!(steps.cloned().collect::<Vec<String>>(), said);
    // Long names are cut where they are drawn.
    let drawn = found.iter().filter(|element| element.name == "text");
    for text in drawn {
        assert!(
            unicode_width::UnicodeWidthStr::width(text.text.as_str()) <= 30,
            "{}",
            text.text
        );
    }
}

#[test]
fn hostile_names_stay_names_for_graphviz() {
    let graph = hostile();
    let dot = Dot::parse(&graph::dot(&graph));
    assert_eq!(dot.title, graph.title);
    assert_eq!(dot.nodes.len(), graph.nodes.len());
    for (label, node) in dot.nodes.iter().zip(&graph.nodes) {
        assert_eq!(label.split('\n').next(), Some(node.label.as_str()));
    }
    let edges: Vec<(usize, usize, Option<String>)> = graph
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to, edge.label.clone()))
        .collect();
    assert_eq!(dot.edges, edges);
}

#[test]
fn hostile_names_stay_names_for_mermaid() {
    let graph = hostile();
    let mermaid = Mermaid::parse(&graph::mermaid(&graph));
    for (label, node) in mermaid.nodes.iter().zip(&graph.nodes) {
        assert_eq!(label.split("<br/>").next(), Some(node.label.as_str()));
    }
    assert_eq!(mermaid.nodes.len(), graph.nodes.len());
    let labels: Vec<Option<String>> = graph.edges.iter().map(|edge| edge.label.clone()).collect();
    let found: Vec<Option<String>> = mermaid
        .edges
        .into_iter()
        .map(|(_, _, label)| label)
        .collect();
    assert_eq!(found, labels);
}

fn example(name: &str) -> Graph {
    let file = PathBuf::from(format!("examples/{name}.yaml"));
    let options = CheckOptions::default();
    let checked = load_files(&[file], Path::new("examples"), None, &options);
    let (_, definition) = checked.workflows.tasks().next().unwrap();
    graph::of_task(&TaskJson::from(definition.root()))
}

#[test]
fn two_examples_look_as_they_should() {
    let write = std::env::var("STEPWARD_GOLDEN").is_ok_and(|word| word == "write");
    for name in ["build-test-deploy", "fan-out"] {
        let graph = example(name);
        let layout = check(&graph);
        check_that_edges_pass_between_steps(&graph, &layout);
        for (ending, drawn) in [
            ("txt", text(&graph, true, Some(100))),
            ("ascii.txt", text(&graph, false, Some(100))),
            ("mmd", graph::mermaid(&graph)),
            ("dot", graph::dot(&graph)),
            ("svg", graph::svg(&graph, &layout)),
        ] {
            let file = format!("tests/it/graph/golden/{name}.{ending}");
            if write {
                std::fs::write(&file, &drawn).unwrap();
            }
            let expected = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(drawn, expected, "{file}");
        }
        Dot::parse(&graph::dot(&graph));
        Mermaid::parse(&graph::mermaid(&graph));
    }
}

/// What a file says about a step is in the picture.
#[test]
fn an_example_tells_kinds_conditions_and_what_is_accepted() {
    let graph = example("build-test-deploy");
    let of = |name: &str| {
        graph
            .nodes
            .iter()
            .position(|node| node.label == name)
            .unwrap()
    };
    assert_eq!(graph.nodes[of("approve")].kind, "approval");
    assert_eq!(
        graph.nodes[of("approve")].notes,
        ["when {{ not input.dry_run }}"]
    );
    assert!(graph.nodes[of("test")].is_loop);
    let label = |from: &str, to: &str| {
        let edge = graph
            .edges
            .iter()
            .find(|edge| (edge.from, edge.to) == (of(from), of(to)));
        edge.unwrap().label.clone()
    };
    assert_eq!(label("build", "test"), None);
    assert_eq!(label("scan", "approve").as_deref(), Some("however it ends"));
    assert_eq!(
        label("approve", "withdraw").as_deref(),
        Some("failed or cancelled")
    );
    let graph = example("fan-out");
    let any = graph
        .edges
        .iter()
        .filter(|edge| edge.label.as_deref() == Some("any"));
    assert_eq!(any.count(), 3);
}
