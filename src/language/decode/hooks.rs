//! Hooks: what follows the end of a job.

use super::{Decoder, Owner, Place, Text, find};
use crate::domain::Json;
use crate::domain::task::HookOn;
use crate::language::source::Span;
use crate::language::tree::{Entry, Kind};

#[derive(Debug)]
pub struct HookParts<'t> {
    pub on: HookOn,
    pub owner: Owner,
    pub does: HookTarget<'t>,
    pub input: Json,
    pub input_entry: Option<&'t Entry>,
    pub texts: Vec<Text<'t>>,
}

#[derive(Debug)]
pub enum HookTarget<'t> {
    Action { name: &'t str, span: Span },
    Task { name: &'t str, span: Span },
    Notify { name: &'t str },
}

impl Decoder<'_> {
    pub fn hooks<'t>(
        &mut self,
        entry: &'t Entry,
        owner: &Owner,
        on: HookOn,
        hooks: &mut Vec<HookParts<'t>>,
    ) {
        let owner = owner.below(on.as_str(), &entry.key);
        let members = match &entry.value.kind {
            Kind::List(members) => members,
            _ if entry.value.is_null() => return,
            _ => {
                let expected = "a list such as [{ action: NAME }]";
                self.wrong_type(&entry.value, &owner.what, expected);
                return;
            }
        };
        for node in members {
            let Kind::Map(entries) = &node.kind else {
                self.wrong_type(
                    node,
                    &format!("a hook in {}", owner.what),
                    "such as { action: NAME }",
                );
                continue;
            };
            self.known_keys(entries, &owner, &["action", "task", "notify", "input"]);
            let targets = entries.iter();
            let mut targets = targets
                .filter(|entry| ["action", "task", "notify"].contains(&entry.key.text.as_str()));
            let Some(target) = targets.next() else {
                self.problems
                    .error("E010", super::first_line(node), "a hook does nothing")
                    .label("needs `action`, `task` or `notify`")
                    .also(owner.span, format!("in this {}", owner.kind));
                continue;
            };
            if let Some(second) = targets.next() {
                self.exclusive(&owner, &target.key.text, second);
                continue;
            }
            let mut texts = Vec::new();
            let input_entry = find(entries, "input");
            let input = input_entry
                .map(|entry| self.input_object(entry, &owner, Place::HookInput, &mut texts));
            let Some(name) = self.some_text(target, &owner) else {
                continue;
            };
            let span = target.value.span;
            let does = match target.key.text.as_str() {
                "action" => HookTarget::Action { name, span },
                "task" => HookTarget::Task { name, span },
                _ => HookTarget::Notify { name },
            };
            if let (HookTarget::Notify { .. }, Some(entry)) = (&does, input_entry) {
                self.problems
                    .error(
                        "E013",
                        entry.key.span,
                        "`input` is not a key of a notification",
                    )
                    .label("belongs to `action` or `task`")
                    .help("the server's settings say what a target is told");
            }
            hooks.push(HookParts {
                on,
                owner: owner.clone(),
                does,
                input: input.unwrap_or_else(Json::empty_object),
                input_entry,
                texts,
            });
        }
    }
}
