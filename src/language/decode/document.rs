//! The top of a file: tasks, actions, secrets.

use super::{ActionParts, Decoder, Owner, TaskParts, find};
use crate::domain::secret::SecretRef;
use crate::language::source::Span;
use crate::language::tree::{Key, Kind, Node};
use crate::language::words::Where;

const KEYS: &[&str] = &["tasks", "actions", "secrets"];

/// What one file defines.
#[derive(Debug, Default)]
pub struct Document<'t> {
    pub tasks: Vec<TaskParts<'t>>,
    pub actions: Vec<ActionParts<'t>>,
    pub secrets: Vec<SecretParts<'t>>,
}

#[derive(Debug)]
pub struct SecretParts<'t> {
    pub key: &'t Key,
    /// `None`: it is broken, and that has been said.
    pub reference: Option<SecretRef>,
}

impl Decoder<'_> {
    pub fn document<'t>(&mut self, root: &'t Node) -> Document<'t> {
        let owner = Owner {
            what: "the file".to_string(),
            kind: "file",
            span: Span {
                end: root.span.start,
                ..root.span
            },
            at: Where::Document,
        };
        let mut document = Document::default();
        let Some(entries) = self.map(root, &owner) else {
            return document;
        };
        for entry in entries {
            if !KEYS.contains(&entry.key.text.as_str()) {
                self.unknown_top_key(entry, &owner);
            }
        }
        if let Some(entry) = find(entries, "tasks") {
            for (key, node) in self.named(entry, "tasks", "task") {
                document.tasks.push(self.task(key, node));
            }
        }
        if let Some(entry) = find(entries, "actions") {
            for (key, node) in self.named(entry, "actions", "action") {
                document.actions.push(self.action(key, node));
            }
        }
        if let Some(entry) = find(entries, "secrets") {
            for (key, node) in self.named(entry, "secrets", "secret") {
                let owner = Owner::new("secret", key, Where::Other);
                let reference = self.secret_reference(node, &owner);
                document.secrets.push(SecretParts { key, reference });
            }
        }
        document
    }

    fn unknown_top_key(&mut self, entry: &crate::language::tree::Entry, owner: &Owner) {
        let before = self.problems.iter().count();
        self.unknown_key(entry, owner, KEYS);
        // A whole file has no key of its own to point at.
        for problem in self.problems.iter_mut().skip(before) {
            problem.unrelated();
        }
        let has_flow = entry.value.entry("flow").is_some();
        if has_flow && let Some(problem) = self.problems.iter_mut().last() {
            let name = &entry.key.text;
            problem.help(format!("if `{name}` is a task, put it under `tasks:`"));
        }
    }

    /// Things that are named by their keys.
    pub fn named<'t>(
        &mut self,
        entry: &'t crate::language::tree::Entry,
        what: &str,
        kind: &str,
    ) -> Vec<(&'t Key, &'t Node)> {
        match &entry.value.kind {
            Kind::Map(entries) => {
                let mut named = Vec::with_capacity(entries.len());
                for entry in entries {
                    self.name(&entry.key, kind);
                    named.push((&entry.key, &entry.value));
                }
                named
            }
            Kind::Broken => Vec::new(),
            _ if entry.value.is_null() => Vec::new(),
            _ => {
                let expected = format!("a map in which each key is the name of a {kind}");
                self.wrong_type(&entry.value, &format!("`{what}`"), &expected);
                Vec::new()
            }
        }
    }

    /// `{ env: NAME }` or `{ file: PATH }`
    pub fn secret_reference(&mut self, node: &Node, owner: &Owner) -> Option<SecretRef> {
        if let Kind::Scalar(_) = &node.kind {
            let message = format!("{} is a value, expected where it is found", owner.what);
            self.problems
                .error("E011", node.span, message)
                .label("a secret is never written here")
                .help("write `{ env: NAME }` or `{ file: PATH }`, read by the server");
            return None;
        }
        let entries = self.map(node, owner)?;
        self.known_keys(entries, owner, &["env", "file"]);
        match (find(entries, "env"), find(entries, "file")) {
            (Some(_), Some(second)) => {
                self.exclusive(owner, "env", second);
                None
            }
            (Some(entry), None) => {
                let name = self.some_text(entry, owner)?;
                Some(SecretRef::Env(name.to_string()))
            }
            (None, Some(entry)) => {
                let path = self.some_text(entry, owner)?;
                Some(SecretRef::File(path.to_string()))
            }
            (None, None) => {
                let help = "write `{ env: NAME }` or `{ file: PATH }`";
                self.missing(owner, "env", help);
                None
            }
        }
    }

    /// Two keys of which only one may be there.
    pub fn exclusive(&mut self, owner: &Owner, first: &str, second: &crate::language::tree::Entry) {
        let message = format!(
            "{} has both `{first}` and `{}`",
            owner.what, second.key.text
        );
        self.problems
            .error("E014", second.key.span, message)
            .label(format!("not together with `{first}`"))
            .also(owner.span, format!("in this {}", owner.kind))
            .help("keep one of them");
    }
}
