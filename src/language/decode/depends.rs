//! What a step waits for: names, edges with what they accept, groups.

use super::{Decoder, Owner, find};
use crate::domain::depends::{Accept, DependsOn, Outcome};
use crate::domain::limits;
use crate::language::source::Span;
use crate::language::tree::{Entry, Kind, Node};

const OUTCOMES: &[&str] = &["completed", "failed", "cancelled", "skipped", "omitted"];

/// One name in the tree, with its place.
#[derive(Debug)]
pub struct Edge<'t> {
    pub step: &'t str,
    pub span: Span,
}

impl Decoder<'_> {
    pub fn depends_on<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        edges: &mut Vec<Edge<'t>>,
    ) -> Option<DependsOn<String>> {
        // `depends_on: []` says that there is nothing to wait for.
        if let Kind::List(members) = &entry.value.kind
            && members.is_empty()
        {
            return Some(DependsOn::nothing());
        }
        let owner = owner.below("depends_on", &entry.key);
        self.depends_node(&entry.value, &owner, 0, edges)
    }

    fn depends_node<'t>(
        &mut self,
        node: &'t Node,
        owner: &Owner,
        depth: usize,
        edges: &mut Vec<Edge<'t>>,
    ) -> Option<DependsOn<String>> {
        if depth > limits::DEPENDS_DEPTH_MAX {
            let max = limits::DEPENDS_DEPTH_MAX;
            self.problems
                .error(
                    "E038",
                    node.span,
                    format!("groups nested more than {max} deep"),
                )
                .label("one level too deep");
            return None;
        }
        match &node.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => {
                edges.push(Edge {
                    step: &scalar.text,
                    span: node.span,
                });
                Some(DependsOn::on(scalar.text.clone()))
            }
            Kind::List(members) => {
                let group = self.depends_group(node, members, owner, depth, edges)?;
                Some(DependsOn::All(group))
            }
            Kind::Map(entries) => self.depends_map(node, entries, owner, depth, edges),
            _ => {
                self.wrong_type(node, &owner.what, "a step, a list of steps, or a map");
                None
            }
        }
    }

    fn depends_group<'t>(
        &mut self,
        node: &Node,
        members: &'t [Node],
        owner: &Owner,
        depth: usize,
        edges: &mut Vec<Edge<'t>>,
    ) -> Option<Vec<DependsOn<String>>> {
        if members.is_empty() {
            self.problems
                .error("E035", node.span, "a group without steps")
                .label("nothing in it")
                .also(owner.span, "in this `depends_on`")
                .help("name at least one step in it, or remove the group");
            return None;
        }
        let group = members.iter();
        let group: Vec<Option<_>> = group
            .map(|member| self.depends_node(member, owner, depth + 1, edges))
            .collect();
        group.into_iter().collect()
    }

    fn depends_map<'t>(
        &mut self,
        node: &'t Node,
        entries: &'t [Entry],
        owner: &Owner,
        depth: usize,
        edges: &mut Vec<Edge<'t>>,
    ) -> Option<DependsOn<String>> {
        const FORMS: &str =
            "write a name, `{ step: NAME, accept: [failed] }`, `{ all: […] }` or `{ any: […] }`";
        let group = find(entries, "all").or_else(|| find(entries, "any"));
        if let Some(entry) = group {
            if let Some(other) = entries
                .iter()
                .find(|other| other.key.span != entry.key.span)
            {
                self.exclusive(owner, &entry.key.text, other);
                return None;
            }
            let Kind::List(members) = &entry.value.kind else {
                let what = format!("`{}` of {}", entry.key.text, owner.what);
                self.wrong_type(&entry.value, &what, "a list of steps");
                return None;
            };
            let group = self.depends_group(&entry.value, members, owner, depth, edges)?;
            return Some(match entry.key.text.as_str() {
                "all" => DependsOn::All(group),
                _ => DependsOn::Any(group),
            });
        }
        let Some(step) = find(entries, "step") else {
            self.problems
                .error("E010", super::first_line(node), "an edge has no `step`")
                .label("names no step")
                .also(owner.span, "in this `depends_on`")
                .help(FORMS);
            return None;
        };
        self.known_keys(entries, owner, &["step", "accept"]);
        let name = self.some_text(step, owner)?;
        edges.push(Edge {
            step: name,
            span: step.value.span,
        });
        let accept = match find(entries, "accept") {
            None => Accept::COMPLETED,
            Some(entry) => self.accept(entry, owner)?,
        };
        Some(DependsOn::accepting(name.to_string(), accept))
    }

    fn accept(&mut self, entry: &Entry, owner: &Owner) -> Option<Accept> {
        if let Kind::Scalar(scalar) = &entry.value.kind
            && scalar.text == "terminal"
        {
            return Some(Accept::TERMINAL);
        }
        let words = match &entry.value.kind {
            Kind::List(members) if members.is_empty() => {
                self.problems
                    .error("E036", entry.value.span, "an edge that accepts no outcome")
                    .label("nothing in it")
                    .help("leave `accept` out for `[completed]`, or write `terminal` for any");
                return None;
            }
            Kind::List(members) => members.iter().collect(),
            _ => vec![&entry.value],
        };
        let all: Vec<&str> = OUTCOMES.iter().copied().chain(["terminal"]).collect();
        let mut outcomes = Vec::new();
        let mut whole = true;
        for word in words {
            match self.word(word, "accept", owner, outcome, &all) {
                Some(Some(outcome)) => outcomes.push(outcome),
                Some(None) => return Some(Accept::TERMINAL),
                None => whole = false,
            }
        }
        whole.then(|| Accept::of(&outcomes))
    }
}

/// `None` inside: any.
fn outcome(word: &str) -> Option<Option<Outcome>> {
    match word {
        "terminal" => Some(None),
        _ => Outcome::from_word(word).map(Some),
    }
}
