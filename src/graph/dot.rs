//! The graph for Graphviz.

use super::{Graph, Node};

pub fn dot(graph: &Graph) -> String {
    let mut out = format!("digraph {} {{\n", quoted(&[&graph.title]));
    out.push_str("  rankdir=TB;\n  node [shape=box, style=rounded];\n");
    for (at, node) in graph.nodes.iter().enumerate() {
        let mut lines = vec![node.label.as_str(), node.kind.as_str()];
        if node.is_loop {
            lines.push("for each");
        }
        lines.extend(node.state.as_deref());
        lines.extend(node.notes.iter().map(String::as_str));
        let looks = looks(node);
        out.push_str(&format!("  s{at} [label={}{looks}];\n", quoted(&lines)));
    }
    for edge in &graph.edges {
        let looks = match &edge.label {
            Some(label) => format!(" [label={}, style=dashed]", quoted(&[label])),
            None => String::new(),
        };
        out.push_str(&format!("  s{} -> s{}{looks};\n", edge.from, edge.to));
    }
    out.push_str("}\n");
    out
}

fn looks(node: &Node) -> String {
    let shape = match node.kind.as_str() {
        _ if node.is_loop => ", shape=box3d",
        "approval" => ", shape=octagon",
        "task" => ", shape=folder",
        _ => "",
    };
    let colour = match node.state.as_deref() {
        Some("completed") => ", color=darkgreen",
        Some("failed") => ", color=red3, penwidth=2",
        Some("running" | "assigned") => ", color=blue",
        Some("skipped" | "cancelled") => ", color=gray50",
        _ => "",
    };
    format!("{shape}{colour}")
}

/// Between quotes a backslash begins something, and so does an ampersand in what is shown.
fn quoted(lines: &[&str]) -> String {
    let safe = |line: &&str| {
        let line = line.replace('\\', "\\\\").replace('"', "\\\"");
        line.replace('&', "&amp;")
    };
    let lines: Vec<String> = lines.iter().map(safe).collect();
    format!("\"{}\"", lines.join("\\n"))
}
