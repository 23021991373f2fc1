//! The graph for Mermaid, which GitHub and others draw from Markdown.

use super::{Graph, Node};

const STATES: [(&str, &str); 4] = [
    ("completed", "stroke:#2e7d32"),
    ("failed", "stroke:#c62828,stroke-width:3px"),
    ("running", "stroke:#1565c0"),
    ("skipped", "stroke-dasharray:4"),
];

pub fn mermaid(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    for (at, node) in graph.nodes.iter().enumerate() {
        let mut lines = vec![node.label.as_str(), node.kind.as_str()];
        if node.is_loop {
            lines.push("for each");
        }
        lines.extend(node.state.as_deref());
        lines.extend(node.notes.iter().map(String::as_str));
        let lines: Vec<String> = lines.into_iter().map(safe).collect();
        let (open, close) = shape(node);
        let class = match node.state.as_deref() {
            Some(state) if STATES.iter().any(|(known, _)| *known == state) => format!(":::{state}"),
            _ => String::new(),
        };
        let label = lines.join("<br/>");
        out.push_str(&format!("  s{at}{open}\"{label}\"{close}{class}\n"));
    }
    for edge in &graph.edges {
        let (from, to) = (edge.from, edge.to);
        match &edge.label {
            Some(label) => out.push_str(&format!("  s{from} -. \"{}\" .-> s{to}\n", safe(label))),
            None => out.push_str(&format!("  s{from} --> s{to}\n")),
        }
    }
    let is_used = |state: &str| {
        graph
            .nodes
            .iter()
            .any(|node| node.state.as_deref() == Some(state))
    };
    for (state, looks) in STATES.iter().filter(|(state, _)| is_used(state)) {
        out.push_str(&format!("  classDef {state} {looks}\n"));
    }
    out
}

fn shape(node: &Node) -> (&'static str, &'static str) {
    match node.kind.as_str() {
        _ if node.is_loop => ("[[", "]]"),
        "approval" => ("{{", "}}"),
        "task" => ("[/", "/]"),
        _ => ("[", "]"),
    }
}

/// Everything that could mean something is written by its number, even in quotes: Mermaid reads some of it there.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_alphanumeric() || " -_.,:/".contains(c) => safe.push(c),
            c => safe.push_str(&format!("#{};", u32::from(c))),
        }
    }
    safe
}
