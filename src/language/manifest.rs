//! The manifest of a pod: read within bounds, and rendered scalar by scalar.
//!
//! A manifest is read before its templates are rendered. So a value becomes one scalar of the manifest and never a key, a list or
//! another container. A manifest that version 0.1 accepted as text is rendered as text first (`engine::render`), as 0.1 did.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::arguments::{self, Choice, Role};
use super::template::{self, Context, TemplateFault};
use super::values::kind;
use crate::domain::limits::shorten;
use crate::domain::task::is_template;
use crate::domain::value::input_variable;

const NODES_MAX: usize = 50_000;
const BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;
/// Length up to which references to variables are replaced in one text.
const EXPANDED_BYTES_MAX: usize = 1 << 16;
/// All texts in which references were replaced may together be so many times as long as the manifest, and some bytes longer. While a
/// manifest is rendered, its values decide how long they are.
const EXPANDED_TIMES_MAX: usize = 16;
const EXPANDED_SPARE_BYTES: usize = 1 << 14;
const EXPANDED_RENDERED_BYTES_MAX: usize = 4 * BYTES_MAX;

/// Lists of containers in the specification of a pod.
const CONTAINERS: &[&str] = &["containers", "initContainers", "ephemeralContainers"];
const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];

/// Maps whose values are texts.
const TEXT_MAPS: &[&str] = &[
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "volumeAttributes",
];
/// Lists of texts.
const TEXT_LISTS: &[&str] = &[
    "command",
    "args",
    "add",
    "drop",
    "hostnames",
    "nameservers",
    "searches",
    "values",
    "namespaces",
    "accessModes",
];
/// Keys of a pod whose values are texts, wherever they stand. A key is missing here if Kubernetes reads a number or a boolean under it,
/// or both text and a number, such as the port of a probe.
const TEXTS: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "image",
    "imagePullPolicy",
    "workingDir",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "value",
    "key",
    "prefix",
    "fieldPath",
    "containerName",
    "resource",
    "resourceName",
    "protocol",
    "hostIP",
    "mountPath",
    "mountPropagation",
    "subPath",
    "subPathExpr",
    "devicePath",
    "path",
    "host",
    "scheme",
    "service",
    "type",
    "level",
    "role",
    "user",
    "procMount",
    "localhostProfile",
    "dnsPolicy",
    "hostname",
    "subdomain",
    "nodeName",
    "preemptionPolicy",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "serviceAccount",
    "serviceAccountName",
    "operator",
    "effect",
    "topologyKey",
    "whenUnsatisfiable",
    "ip",
    "medium",
    "server",
    "secretName",
    "claimName",
    "driver",
    "fsType",
    "volumeName",
    "volumeMode",
    "audience",
];
/// A template for a value that anybody may have chosen.
const ANYTHING: &str = "{{ input }}";

/// Reads YAML or JSON. Aliases may multiply what is written: the bounds are on what it becomes.
pub fn read(text: &str) -> Result<Value, String> {
    if text.len() > BYTES_MAX {
        let bytes = text.len();
        return Err(format!(
            "the manifest is {bytes} bytes long, at most {BYTES_MAX} are allowed"
        ));
    }
    let mut spent = Spent::default();
    let bounded = Bounded {
        spent: &mut spent,
        depth: 0,
    };
    bounded
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| format!("the manifest cannot be read: {error}"))
}

/// The text of the variable with this name that the step adds to the environment of its container. `None`: it adds none. In a
/// definition the text may be a template.
pub type Variable<'v> = dyn Fn(&str) -> Option<String> + 'v;

/// A template for the variable of an environment.
pub fn variable_template(name: &str) -> String {
    format!("{{{{ env.{name} }}}}")
}

/// A template for an input, whose name may contain `-`.
pub fn input_template(name: &str) -> String {
    match name.contains('-') {
        true => format!("{{{{ input[\"{name}\"] }}}}"),
        false => format!("{{{{ input.{name} }}}}"),
    }
}

/// A template for what a loop adds to the environment under this name.
pub fn loop_template(name: &str) -> Option<&'static str> {
    match name {
        "EACH_ITEM" => Some("{{ each.item }}"),
        "EACH_INDEX" => Some("{{ each.index }}"),
        _ => None,
    }
}

/// A text of a manifest that contains a template, or a reference `$(NAME)` to a variable whose value comes from one.
#[derive(Debug, PartialEq)]
pub struct ManifestText {
    /// Where the text stands: `/spec/containers/0/image`.
    pub place: String,
    /// The text, with references replaced by the texts of their variables.
    pub text: String,
    pub role: Role,
    /// The references that were replaced, in their order.
    pub references: Vec<Reference>,
}

/// A reference `$(NAME)` that was replaced by the text of its variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    pub name: String,
    /// Bytes of the reference in the text as it is written.
    pub written: Range<usize>,
    /// Bytes of what replaces it.
    pub made: Range<usize>,
}

/// The texts of a manifest that are not fixed, with what each of them becomes.
pub fn texts(manifest: &Value, variable: &Variable<'_>) -> Vec<ManifestText> {
    texts_of(manifest, variable, None)
}

/// `rendered` is the same manifest after rendering, with the values of the variables: then the words of commands are what they
/// really are.
fn texts_of(
    manifest: &Value,
    variable: &Variable<'_>,
    rendered: Option<(&Value, &Variable<'_>)>,
) -> Vec<ManifestText> {
    let mut lists = BTreeMap::new();
    let leaves = leaves(manifest);
    let bytes: usize = leaves.iter().map(|(_, text)| text.len()).sum();
    let left = Cell::new(match rendered {
        None => EXPANDED_TIMES_MAX * bytes + EXPANDED_SPARE_BYTES,
        Some(_) => EXPANDED_RENDERED_BYTES_MAX,
    });
    let mut written = Expansions::of(manifest, variable, &left);
    let mut rendered = rendered.map(|(manifest, values)| Expansions::of(manifest, values, &left));
    let mut found = Vec::new();
    for (place, text) in leaves {
        let path = segments(&place);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (expanded, role) = match (argument_place(&path), &path[..]) {
            (Some((owner, container)), _) => {
                let lists = lists.entry(pointer(owner)).or_insert_with(|| {
                    let container = pointer(container);
                    ArgumentRoles::of(&pointer(owner), &container, &mut written, &mut rendered)
                });
                let at = path[owner.len()..].join("/");
                let Some(word) = lists.0.remove(&at) else {
                    continue;
                };
                word
            }
            (None, [.., "value"]) => {
                let role = variable_role(manifest, &path[..path.len() - 1]);
                let value = match is_expanded(&path) {
                    true => written.variable(&path),
                    false => None,
                };
                let expanded = value.unwrap_or_else(|| Expanded::unchanged(text));
                (expanded, role)
            }
            (None, _) => {
                let expanded = match is_expanded(&path) {
                    true => written.container(&pointer(&path[..3])).expanded(text),
                    false => Expanded::unchanged(text),
                };
                (expanded, place_role(&path))
            }
        };
        // Text that is only data may still say which variable is read.
        let (expanded, role) = match role {
            Role::Data if is_expanded(&path) && has_value_in_reference(text) => {
                (Expanded::unchanged(text), Role::Choice(Choice::Reference))
            }
            role => (expanded, role),
        };
        if is_template(&expanded.text) {
            found.push(ManifestText {
                place,
                text: expanded.text,
                role,
                references: expanded.references,
            });
        }
    }
    found
}

/// What a text becomes, by its place. Places that are not listed may decide what the pod can do and reach: volumes, secrets,
/// networks, security, nodes, annotations and whatever Kubernetes adds in the future.
fn place_role(path: &[&str]) -> Role {
    match path {
        ["metadata", "name" | "generateName"] | ["metadata", "labels", _] => Role::Data,
        [
            "spec",
            "activeDeadlineSeconds" | "terminationGracePeriodSeconds",
        ] => Role::Data,
        ["spec", list, _, below @ ..] if CONTAINERS.contains(list) => match below {
            ["name"] | ["resources", "requests" | "limits", _] => Role::Data,
            ["image"] => Role::Choice(Choice::Image),
            ["workingDir"] => Role::Choice(Choice::WorkingFolder),
            // A value that is the name of a variable could be the name of one that loads code.
            ["env", _, "name"] => Role::Choice(Choice::Variable),
            _ => Role::Choice(Choice::PodField),
        },
        _ => Role::Choice(Choice::PodField),
    }
}

/// The role of the value of a variable of a container.
fn variable_role(manifest: &Value, variable: &[&str]) -> Role {
    match variable {
        ["spec", list, _, "env", _] if CONTAINERS.contains(list) => {}
        _ => return Role::Choice(Choice::PodField),
    }
    let name = manifest
        .pointer(&pointer(variable))
        .and_then(|variable| variable["name"].as_str())
        .unwrap_or_default();
    match arguments::is_loader_variable(name) || is_template(name) {
        true => Role::Choice(Choice::Variable),
        false => Role::Data,
    }
}

/// For a word of an argument list: the object that has the list, and its container.
fn argument_place<'p>(path: &'p [&'p str]) -> Option<(&'p [&'p str], &'p [&'p str])> {
    let ["spec", list, _, below @ ..] = path else {
        return None;
    };
    if !CONTAINERS.contains(list) {
        return None;
    }
    let is_list = match below {
        ["command" | "args", _] => true,
        [probe, "exec", "command", _] => PROBES.contains(probe),
        ["lifecycle", _, "exec", "command", _] => true,
        _ => false,
    };
    is_list.then(|| (&path[..path.len() - 2], &path[..3]))
}

/// Whether the text at this place is a word of a command line, or the folder in which a container starts.
pub fn is_on_command_line(place: &str) -> bool {
    let path = segments(place);
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_folder =
        matches!(path[..], ["spec", list, _, "workingDir"] if CONTAINERS.contains(&list));
    is_folder || argument_place(&path).is_some()
}

/// Whether Kubernetes replaces `$(NAME)` in the text at this place.
fn is_expanded(path: &[&str]) -> bool {
    match path {
        ["spec", list, _, "env", _, "value"]
        | ["spec", list, _, "volumeMounts", _, "subPathExpr"] => CONTAINERS.contains(list),
        path => argument_place(path).is_some() && path.get(3) != Some(&"lifecycle"),
    }
}

/// Whether Kubernetes expects text at this place, so that a number or a boolean has to become text. Elsewhere a value keeps its type.
fn is_text(path: &[&str]) -> bool {
    match path {
        ["apiVersion" | "kind"] => true,
        [.., map, _] if TEXT_MAPS.contains(map) => true,
        [.., list, at] if TEXT_LISTS.contains(list) => at.parse::<usize>().is_ok(),
        [.., key] => TEXTS.contains(key),
        [] => false,
    }
}

/// The words of `command` and `args` of a container, which are one argument list, by their places. A probe has only a `command`.
struct ArgumentRoles(BTreeMap<String, (Expanded, Role)>);

impl ArgumentRoles {
    fn of(
        owner: &str,
        container: &str,
        written: &mut Expansions<'_>,
        rendered: &mut Option<Expansions<'_>>,
    ) -> ArgumentRoles {
        fn texts(words: &[Expanded]) -> Vec<&str> {
            words.iter().map(|word| word.text.as_str()).collect()
        }
        let words = written.words(owner, container);
        let roles = match rendered {
            None => arguments::roles(written.image(container), &[], &texts(&words)),
            Some(rendered) => {
                let made = rendered.words(owner, container);
                arguments::rendered_roles(
                    rendered.image(container),
                    (&[], &texts(&words)),
                    (&[], &texts(&made)),
                )
            }
        };
        let places = ["command", "args"].into_iter().flat_map(|key| {
            let list = written.manifest.pointer(&format!("{owner}/{key}"));
            let count = list.and_then(Value::as_array).map_or(0, Vec::len);
            (0..count).map(move |at| format!("{key}/{at}"))
        });
        ArgumentRoles(places.zip(words.into_iter().zip(roles)).collect())
    }
}

/// A manifest with the variables of its containers.
struct Expansions<'m> {
    manifest: &'m Value,
    added: &'m Variable<'m>,
    containers: BTreeMap<String, Expansion<'m>>,
    /// Bytes that all texts of the manifest may still become.
    left: &'m Cell<usize>,
}

impl<'m> Expansions<'m> {
    fn of(manifest: &'m Value, added: &'m Variable<'m>, left: &'m Cell<usize>) -> Expansions<'m> {
        Expansions {
            manifest,
            added,
            containers: BTreeMap::new(),
            left,
        }
    }

    fn container(&mut self, container: &str) -> &mut Expansion<'m> {
        let (manifest, added, left) = (self.manifest, self.added, self.left);
        let containers = &mut self.containers;
        containers
            .entry(container.to_string())
            .or_insert_with(|| Expansion::of(manifest.pointer(container), added, left))
    }

    /// The value of a variable that a container sets.
    fn variable(&mut self, path: &[&str]) -> Option<Expanded> {
        let at = path[4].parse::<usize>().ok()?;
        let container = self.container(&pointer(&path[..3]));
        container.values.get_mut(at).map(std::mem::take)
    }

    /// The words of an argument list.
    fn words(&mut self, owner: &str, container: &str) -> Vec<Expanded> {
        let Some(value) = self.manifest.pointer(owner) else {
            return Vec::new();
        };
        let expansion = self.container(container);
        let lists = [&value["command"], &value["args"]].map(Value::as_array);
        let items = lists.into_iter().flatten().flatten();
        items
            .map(|item| expansion.expanded(item.as_str().unwrap_or_default()))
            .collect()
    }

    fn image(&self, container: &str) -> Option<&'m str> {
        let image = self.manifest.pointer(&format!("{container}/image"))?;
        image.as_str()
    }
}

/// The variables of a container, as far as their texts are known: those that the container sets and those that the step adds.
struct Expansion<'m> {
    added: &'m Variable<'m>,
    own: BTreeMap<String, String>,
    /// Values of variables whose names are known only after rendering.
    unnamed: String,
    /// The values of `env`, in their order.
    values: Vec<Expanded>,
    /// Bytes that all texts of the manifest may still become.
    left: &'m Cell<usize>,
}

/// A text in which references are replaced.
#[derive(Debug, Default, PartialEq)]
struct Expanded {
    text: String,
    references: Vec<Reference>,
}

impl Expanded {
    fn unchanged(text: &str) -> Expanded {
        Expanded {
            text: text.to_string(),
            references: Vec::new(),
        }
    }
}

impl<'m> Expansion<'m> {
    fn of(
        container: Option<&Value>,
        added: &'m Variable<'m>,
        left: &'m Cell<usize>,
    ) -> Expansion<'m> {
        let mut expansion = Expansion {
            added,
            own: BTreeMap::new(),
            unnamed: String::new(),
            values: Vec::new(),
            left,
        };
        let env = container.and_then(|container| container["env"].as_array());
        for variable in env.into_iter().flatten() {
            let name = variable["name"].as_str().unwrap_or_default();
            // A variable may refer to those in front of it.
            let value = variable["value"].as_str().unwrap_or_default();
            let value = expansion.expanded(value);
            match is_template(name) {
                true => expansion.unnamed.push_str(&value.text),
                false => drop(expansion.own.insert(name.to_string(), value.text.clone())),
            }
            expansion.values.push(value);
        }
        expansion
    }

    /// The text with references replaced, as far as the variables are known.
    fn expanded(&mut self, text: &str) -> Expanded {
        if !text.contains("$(") {
            return Expanded::unchanged(text);
        }
        let unnamed = Some(&self.unnamed).filter(|values| !values.is_empty());
        let value = |name: &str| match is_template(name) {
            // Any variable may be meant.
            true => Some(ANYTHING.to_string()),
            false => {
                let own = self.own.get(name).cloned();
                let known = own.or_else(|| (self.added)(name));
                known.or_else(|| unnamed.cloned())
            }
        };
        let left = self.left.get();
        let expanded = expand(text, value).filter(|expanded| expanded.text.len() <= left);
        // Kubernetes also replaces references inside `{% raw %}`, where a template of ours would not be seen.
        let has_raw = text.contains("{%") && text.contains("raw");
        let expanded = expanded.filter(|expanded| {
            let mut made = expanded.references.iter().map(|reference| &reference.made);
            !has_raw || !made.any(|made| is_template(&expanded.text[made.clone()]))
        });
        // A text that becomes too long counts as one that anybody may have written.
        let expanded = expanded.unwrap_or_else(|| Expanded::unchanged(ANYTHING));
        self.left.set(left.saturating_sub(expanded.text.len()));
        expanded
    }
}

/// Reads a text as Kubernetes does and replaces the references for which there is a value. `$$` is a sign and begins no reference.
/// `None`: the text becomes too long.
fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> Option<Expanded> {
    let mut expanded = Expanded::default();
    let out = &mut expanded.text;
    let mut at = 0;
    while let Some(next) = text[at..].find('$') {
        out.push_str(&text[at..at + next]);
        at += next;
        let behind = &text[at + 1..];
        let reference = behind
            .strip_prefix('(')
            .and_then(|name| name.split_once(')'));
        let (bytes, replaced) = match reference {
            Some((name, _)) => (name.len() + 3, value(name).map(|value| (name, value))),
            None if behind.starts_with('$') => (2, None),
            None => (1, None),
        };
        match replaced {
            Some((name, value)) => {
                expanded.references.push(Reference {
                    name: name.to_string(),
                    written: at..at + bytes,
                    made: out.len()..out.len() + value.len(),
                });
                out.push_str(&value);
            }
            None => out.push_str(&text[at..at + bytes]),
        }
        at += bytes;
        if out.len() > EXPANDED_BYTES_MAX.max(text.len()) {
            return None;
        }
    }
    out.push_str(&text[at..]);
    Some(expanded)
}

/// Whether a template stands behind a `$(` and in front of the `)` that ends it: its value is part of the name of a variable. The value
/// may also have the `)`, so it does not matter whether the text has one.
fn has_value_in_reference(text: &str) -> bool {
    let mut rest = text;
    let mut is_open = false;
    while !rest.is_empty() {
        let tag = ["{{", "{%"].iter().filter_map(|begin| rest.find(begin));
        let (literal, tag) = rest.split_at(tag.min().unwrap_or(rest.len()));
        let mut letters = literal.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '$' if !is_open && letters.peek() == Some(&'$') => drop(letters.next()),
                '$' if !is_open && letters.peek() == Some(&'(') => is_open = true,
                ')' => is_open = false,
                _ => {}
            }
        }
        let inner = tag.get(2..).unwrap_or_default();
        let inner = inner.trim_start_matches(['-', '+']).trim_start();
        let prints = ["call", "filter"];
        let is_printed = tag.starts_with("{{") || prints.iter().any(|word| inner.starts_with(word));
        if is_open && is_printed {
            return true;
        }
        let end = if tag.starts_with("{{") { "}}" } else { "%}" };
        rest = match tag.find(end) {
            Some(at) => &tag[at + end.len()..],
            None => "",
        };
    }
    false
}

/// The keys and positions of a JSON pointer.
fn segments(place: &str) -> Vec<String> {
    let segments = place.split('/').skip(1);
    segments
        .map(|segment| segment.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn pointer(path: &[&str]) -> String {
    path.iter()
        .map(|key| format!("/{}", escaped(key)))
        .collect()
}

/// A key as it stands in a JSON pointer.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The first key that contains a template, if there is one. Keys are never rendered.
pub fn key_with_template(manifest: &Value) -> Option<&str> {
    match manifest {
        Value::Object(members) => members
            .iter()
            .find_map(|(key, member)| match is_template(key) {
                true => Some(key.as_str()),
                false => key_with_template(member),
            }),
        Value::Array(items) => items.iter().find_map(key_with_template),
        _ => None,
    }
}

/// Every text with a template, with its place.
pub fn templates(manifest: &Value) -> Vec<(String, &str)> {
    let mut found = leaves(manifest);
    found.retain(|(_, text)| is_template(text));
    found
}

/// Every text, with its place.
fn leaves(manifest: &Value) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    find_leaves(manifest, String::new(), &mut found);
    found
}

fn find_leaves<'v>(value: &'v Value, place: String, found: &mut Vec<(String, &'v str)>) {
    match value {
        Value::String(text) => found.push((place, text)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find_leaves(item, format!("{place}/{at}"), found);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                find_leaves(member, format!("{place}/{}", escaped(key)), found);
            }
        }
        _ => {}
    }
}

/// The manifest with every scalar rendered. A value that is a list or an object is refused, because it would change the structure of
/// the manifest, and so is an untrusted value that would be run. `envs` are those of the definition, of which a later one wins; the
/// context has their values.
pub fn render<'e>(
    manifest: &Value,
    envs: impl Iterator<Item = &'e BTreeMap<String, String>>,
    context: &Context,
) -> Result<Value, TemplateFault> {
    let rendered = render_scalars(manifest, "", context)?;
    let added = added_variables(envs, context);
    let variable = |name: &str| added.get(name).cloned();
    let value = |name: &str| {
        let text = added.get(name)?;
        let value = template::render_text(text, context);
        Some(value.unwrap_or_else(|_| text.clone()))
    };
    for found in texts_of(manifest, &variable, Some((&rendered, &value))) {
        if let Role::Code(program) = found.role {
            template::check_code(&found.text, program)
                .map_err(|fault| at_place(&found.place, fault))?;
        }
    }
    Ok(rendered)
}

/// The texts of the variables that the step adds to the environment of its container.
fn added_variables<'e>(
    envs: impl Iterator<Item = &'e BTreeMap<String, String>>,
    context: &Context,
) -> BTreeMap<String, String> {
    let mut added = BTreeMap::new();
    for (name, text) in envs.flatten() {
        let text = match is_template(text) {
            true => variable_template(name),
            false => text.clone(),
        };
        added.insert(name.clone(), text);
    }
    if context.get("each").is_some() {
        for name in ["EACH_ITEM", "EACH_INDEX"] {
            added.extend(loop_template(name).map(|text| (name.to_string(), text.to_string())));
        }
    }
    let inputs = context.get("input").and_then(Value::as_object);
    for name in inputs.into_iter().flat_map(Map::keys) {
        added.insert(input_variable(name), input_template(name));
    }
    added
}

fn render_scalars(value: &Value, place: &str, context: &Context) -> Result<Value, TemplateFault> {
    match value {
        Value::String(text) => {
            let path = segments(place);
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let value = match is_expanded(&path) {
                true => template::evaluate_for_kubernetes(text, context),
                false => template::evaluate(text, context),
            };
            let value = value.map_err(|fault| at_place(place, fault))?;
            if value.is_array() || value.is_object() {
                let fault = TemplateFault {
                    message: format!(
                        "the template gives {}, which would change the structure of the manifest; write the structure \
                         into the manifest, or give JSON as a text with | json",
                        kind(&value)
                    ),
                    span: 0..text.len(),
                };
                return Err(at_place(place, fault));
            }
            Ok(match value {
                Value::Null if is_text(&path) => json!(""),
                Value::Bool(_) | Value::Number(_) if is_text(&path) => json!(value.to_string()),
                value => value,
            })
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items =
                items.map(|(at, item)| render_scalars(item, &format!("{place}/{at}"), context));
            items.collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, member)| {
                let below = format!("{place}/{}", escaped(key));
                Ok((key.clone(), render_scalars(member, &below, context)?))
            });
            members.collect::<Result<_, _>>().map(Value::Object)
        }
        plain => Ok(plain.clone()),
    }
}

fn at_place(place: &str, fault: TemplateFault) -> TemplateFault {
    TemplateFault {
        message: format!("{}: {}", place.trim_start_matches('/'), fault.message),
        ..fault
    }
}

#[derive(Default)]
struct Spent {
    nodes: usize,
    bytes: usize,
}

/// Reads any value, and stops once it has become too much.
struct Bounded<'a> {
    spent: &'a mut Spent,
    depth: usize,
}

impl Bounded<'_> {
    fn spend<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.spent.nodes += 1;
        self.spent.bytes += bytes;
        let too_much = self.spent.nodes > NODES_MAX || self.spent.bytes > BYTES_MAX;
        if too_much || self.depth > DEPTH_MAX {
            return Err(E::custom("it is too large or too deep"));
        }
        Ok(())
    }

    fn below(&mut self) -> Bounded<'_> {
        Bounded {
            spent: self.spent,
            depth: self.depth + 1,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Value, E> {
        self.spend(0)?;
        Ok(json!(value))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(json!(value))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(json!(value))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(json!(value))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(json!(value))
    }

    /// An empty document.
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_unit<E: Error>(mut self) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.below())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.spend(key.len())?;
            let value = map.next_value_seed(self.below())?;
            if members.contains_key(&key) {
                let key = shorten(&key);
                return Err(A::Error::custom(format!("key {key} is there twice")));
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::shell::Program;

    #[test]
    fn a_manifest_that_grows_when_it_is_read_is_refused() {
        let line = "x".repeat(20_000);
        let bomb = format!("a: &a {line}\nb: [{}]", "*a,".repeat(20_000));
        let error = read(&bomb).unwrap_err();
        assert!(error.contains("it is too large or too deep"), "{error}");
        let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                      c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                      e: [*d,*d,*d,*d,*d,*d,*d,*d,*d]";
        assert!(read(laughs).is_err());
        assert!(read(&"[".repeat(10_000)).is_err());
        assert!(read(&"a".repeat(2 << 20)).unwrap_err().contains("at most"));
    }

    #[test]
    fn what_is_no_plain_value_is_refused() {
        for text in ["a: 1\na: 2", "a: !tag x", "a: b\n---\nc: d", "a: [", "\t"] {
            let error = read(text).unwrap_err();
            assert!(
                error.starts_with("the manifest cannot be read: "),
                "{error}"
            );
        }
        assert_eq!(read("").unwrap(), Value::Null);
        assert_eq!(
            read(r#"{"a": [1, -2, 1.5, null, true]}"#).unwrap()["a"][1],
            -2
        );
    }

    fn found(text: &str) -> BTreeMap<String, Role> {
        let texts = texts(&read(text).unwrap(), &|_| None);
        let texts = texts.into_iter();
        texts.map(|found| (found.place, found.role)).collect()
    }

    /// The role of the text at one place of a pod that has this in its specification.
    fn role_in_spec(spec: &str) -> Role {
        let roles = found(&format!("spec: {spec}"));
        assert_eq!(roles.len(), 1, "{spec}: {roles:?}");
        *roles.values().next().unwrap()
    }

    #[test]
    fn the_texts_of_a_manifest_that_decide_what_runs_are_known() {
        let roles = found(
            "
metadata: { labels: { app: '{{ a }}' } }
spec:
  serviceAccountName: '{{ a }}'
  initContainers:
    - { name: i, image: '{{ a }}', args: [-c, '{{ a }}'] }
  containers:
    - name: main
      image: python:3
      workingDir: '{{ a }}'
      command: [sh, -c]
      args: ['{{ a }}', '{{ b }}']
      env:
        - { name: LD_PRELOAD, value: '{{ a }}' }
        - { name: WORDS, value: '{{ a }}' }
      livenessProbe: { exec: { command: [perl, -e, '{{ a }}'] } }
  volumes: [{ name: v, hostPath: { path: '/data/{{ a }}' } }]
",
        );
        let expected = [
            ("/spec/containers/0/args/0", Role::Code(Program::Shell)),
            ("/metadata/labels/app", Role::Data),
            ("/spec/containers/0/args/1", Role::Data),
            (
                "/spec/containers/0/env/0/value",
                Role::Choice(Choice::Variable),
            ),
            ("/spec/containers/0/env/1/value", Role::Data),
            (
                "/spec/containers/0/livenessProbe/exec/command/2",
                Role::Code(Program::Interpolating),
            ),
            (
                "/spec/containers/0/workingDir",
                Role::Choice(Choice::WorkingFolder),
            ),
            ("/spec/initContainers/0/args/1", Role::Data),
            ("/spec/initContainers/0/image", Role::Choice(Choice::Image)),
            ("/spec/serviceAccountName", Role::Choice(Choice::PodField)),
            (
                "/spec/volumes/0/hostPath/path",
                Role::Choice(Choice::PodField),
            ),
        ];
        let expected = expected.map(|(place, role)| (place.to_string(), role));
        assert_eq!(roles, BTreeMap::from(expected));
    }

    #[test]
    fn a_place_that_is_not_known_to_be_data_decides_what_the_pod_reaches() {
        for spec in [
            "{volumes: [{name: v, projected: {sources: [{secret: {name: '{{ a }}'}}]}}]}",
            "{volumes: [{name: v, secret: {secretName: '{{ a }}'}}]}",
            "{volumes: [{name: v, configMap: {name: '{{ a }}'}}]}",
            "{volumes: [{name: v, nfs: {server: '{{ a }}', path: /}}]}",
            "{volumes: [{name: v, csi: {driver: x, volumeAttributes: {share: '{{ a }}'}}}]}",
            "{containers: [{ports: [{hostPort: '{{ a }}'}]}]}",
            "{containers: [{envFrom: [{secretRef: {name: '{{ a }}'}}]}]}",
            "{containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: '{{ a }}', key: k}}}]}]}",
            "{containers: [{securityContext: {runAsUser: '{{ a }}'}}]}",
            "{containers: [{volumeMounts: [{name: v, mountPath: '{{ a }}'}]}]}",
            "{hostAliases: [{ip: '{{ a }}', hostnames: [db]}]}",
            "{dnsConfig: {nameservers: ['{{ a }}']}}",
            "{nodeSelector: {zone: '{{ a }}'}}",
            "{somethingNew: '{{ a }}'}",
            "{Containers: [{args: ['{{ a }}']}]}",
        ] {
            assert_eq!(role_in_spec(spec), Role::Choice(Choice::PodField), "{spec}");
        }
        let annotation = found("metadata: {annotations: {a: '{{ a }}'}}");
        assert_eq!(
            annotation["/metadata/annotations/a"],
            Role::Choice(Choice::PodField)
        );
        for spec in [
            "{activeDeadlineSeconds: '{{ a }}'}",
            "{containers: [{name: '{{ a }}'}]}",
            "{containers: [{resources: {limits: {memory: '{{ a }}'}}}]}",
            "{containers: [{args: [tool, '{{ a }}']}]}",
            "{containers: [{env: [{name: A, value: '{{ a }}'}]}]}",
        ] {
            assert_eq!(role_in_spec(spec), Role::Data, "{spec}");
        }
    }

    #[test]
    fn a_reference_to_a_variable_is_what_the_variable_is() {
        let env =
            "env: [{name: A, value: '{{ a }}'}, {name: B, value: 'x$(A)'}, {name: C, value: c}]";
        let roles = |words: &str| {
            let manifest = read(&format!(
                "spec: {{containers: [{{{env}, command: {words}}}]}}"
            ));
            let step = |name: &str| match name {
                "D" => Some(variable_template("D")),
                "INPUT_MY_TOOL" => Some(input_template("my-tool")),
                "FIXED" => Some("sh".to_string()),
                _ => None,
            };
            let texts = texts(&manifest.unwrap(), &step);
            let in_arguments = |found: &ManifestText| !found.place.contains("/env/");
            let texts = texts
                .into_iter()
                .filter(|found| !found.references.is_empty() && in_arguments(found));
            texts
                .map(|found| (found.text, found.role))
                .collect::<Vec<_>>()
        };
        let shell = Role::Code(Program::Shell);
        for (name, text) in [
            ("A", "echo {{ a }}"),
            ("B", "echo x{{ a }}"),
            ("D", "echo {{ env.D }}"),
            ("INPUT_MY_TOOL", "echo {{ input[\"my-tool\"] }}"),
            ("INPUT_{{ a }}", "echo {{ input }}"),
        ] {
            let words = format!("[sh, -c, 'echo $({name})']");
            assert_eq!(roles(&words), [(text.to_string(), shell)], "{name}");
        }
        for words in [
            "[sh, -c, 'echo $(C) $(date) $$(A)']",
            "[sh, -c, 'echo $A ${A}']",
            "[sh, -c, 'echo $(FIXED) $(INPUT_OTHER)']",
        ] {
            assert_eq!(roles(words), [], "{words}");
        }
        let program = Role::Choice(Choice::Program);
        assert_eq!(roles("[$(A)]"), [("{{ a }}".to_string(), program)]);
        assert_eq!(roles("[echo, $(A)]"), [("{{ a }}".to_string(), Role::Data)]);
        let raw = "[sh, -c, '{% raw %}echo $(A) {{ }}{% endraw %}']";
        let text = texts(
            &read(&format!(
                "spec: {{containers: [{{{env}, command: {raw}}}]}}"
            ))
            .unwrap(),
            &|_| None,
        );
        assert!(text.iter().any(|found| found.text == ANYTHING));
        // A fixed variable may name a shell.
        let code = roles("[$(FIXED), -c, 'echo $(A)']");
        assert_eq!(code, [("echo {{ a }}".to_string(), shell)]);
    }

    #[test]
    fn references_that_multiply_are_bounded() {
        let variables = (1..200).map(|at| {
            let before = at - 1;
            format!("{{name: V{at}, value: '$(V{before})$(V{before})'}}")
        });
        let variables: Vec<String> = variables.collect();
        let variables = variables.join(", ");
        let manifest = format!(
            "spec: {{containers: [{{env: [{{name: V0, value: xxxxxxxx}}, {variables}], command: [sh, -c, $(V199)]}}]}}"
        );
        let texts = texts(&read(&manifest).unwrap(), &|_| None);
        assert!(texts.iter().any(|found| {
            found.place.ends_with("command/2") && found.role == Role::Code(Program::Shell)
        }));
        // A long text without references is no such text.
        let long = format!("[sh, -c, '{} $(date)']", "x".repeat(EXPANDED_BYTES_MAX));
        assert_eq!(
            found(&format!("spec: {{containers: [{{command: {long}}}]}}")),
            BTreeMap::new()
        );
    }

    /// Each container has a text of its own that a few variables double again and again.
    #[test]
    fn references_of_many_containers_are_bounded_together() {
        let doubled: String = (1..12)
            .map(|at| format!(", {{name: V{at}, value: '$(V{0})$(V{0})'}}", at - 1))
            .collect();
        let container = format!(
            "{{env: [{{name: V0, value: '{{{{ job.id }}}}'}}{doubled}], args: [{}]}}",
            ["$(V11)"; 40].join(", ")
        );
        let manifest = format!("spec: {{containers: [{}]}}", [&*container; 50].join(", "));
        let texts = texts(&read(&manifest).unwrap(), &|_| None);
        let bytes: usize = texts.iter().map(|found| found.text.len()).sum();
        assert!(bytes < 20 * manifest.len(), "{bytes} of {}", manifest.len());
    }

    #[test]
    fn a_reference_in_a_variable_or_a_path_is_what_the_variable_is() {
        let env = "env: [{name: A, value: '{{ a }}'}, {name: LD_PRELOAD, value: '/lib/$(A)'}, \
                   {name: PATH, value: '$(B):/bin'}, {name: WORDS, value: '$(A)'}, {name: HOME, value: $(LATER)}, \
                   {name: LATER, value: '{{ a }}'}, {name: '{{ n }}', value: '{{ b }}'}, {name: BASH_ENV, value: $(X)}]";
        let mounts = "volumeMounts: [{name: v, subPathExpr: 'of/$(A)', subPath: $(A)}]";
        let manifest = format!("spec: {{containers: [{{{env}, {mounts}}}]}}");
        let step = |name: &str| (name == "B").then(|| variable_template("B"));
        let texts = texts(&read(&manifest).unwrap(), &step);
        let found = texts
            .iter()
            .filter(|found| !found.references.is_empty())
            .map(|found| {
                let place = found.place.trim_start_matches("/spec/containers/0/");
                (place, found.text.as_str(), found.role)
            });
        let variable = Role::Choice(Choice::Variable);
        let expected = [
            ("env/1/value", "/lib/{{ a }}", variable),
            ("env/2/value", "{{ env.B }}:/bin", variable),
            ("env/3/value", "{{ a }}", Role::Data),
            // The name of a variable is known only after rendering.
            ("env/7/value", "{{ b }}", variable),
            (
                "volumeMounts/0/subPathExpr",
                "of/{{ a }}",
                Role::Choice(Choice::PodField),
            ),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let reference = &texts
            .iter()
            .find(|found| found.place.ends_with("env/1/value"))
            .unwrap()
            .references[0];
        assert_eq!(reference.name, "A");
        assert_eq!(
            (reference.written.clone(), reference.made.clone()),
            (5..9, 5..12)
        );
    }

    #[test]
    fn a_number_becomes_text_where_kubernetes_expects_text() {
        let context =
            Context::new().with("input", json!({"n": 3, "b": true, "f": 1.5, "none": null}));
        let manifest = read(
            "
metadata: { name: '{{ input.n }}', labels: { n: '{{ input.n }}' }, annotations: { command: '{{ input.b }}' } }
spec:
  activeDeadlineSeconds: '{{ input.n }}'
  hostname: '{{ input.n }}'
  hostNetwork: '{{ input.b }}'
  nodeSelector: { gpus: '{{ input.n }}' }
  securityContext: { runAsUser: '{{ input.n }}' }
  tolerations: [{ key: '{{ input.n }}', value: '{{ input.b }}', tolerationSeconds: '{{ input.n }}' }]
  containers:
    - name: '{{ input.n }}'
      image: '{{ input.n }}'
      workingDir: '{{ input.n }}'
      command: [echo, '{{ input.f }}']
      args: ['{{ input.n }}', '{{ input.b }}', '{{ input.none }}']
      env: [{ name: A, value: '{{ input.n }}' }, { name: B, value: '{{ input.b }}' }, { name: C, value: '{{ input.none }}' }]
      ports: [{ containerPort: '{{ input.n }}' }]
      resources: { limits: { cpu: '{{ input.n }}' } }
      livenessProbe: { exec: { command: [test, '{{ input.n }}'] }, periodSeconds: '{{ input.n }}' }
      readinessProbe: { httpGet: { path: '{{ input.n }}', port: '{{ input.n }}' } }
",
        )
        .unwrap();
        let rendered = render(&manifest, std::iter::empty(), &context).unwrap();
        let expected = json!({
            "metadata": { "name": "3", "labels": { "n": "3" }, "annotations": { "command": "true" } },
            "spec": {
                "activeDeadlineSeconds": 3,
                "hostname": "3",
                "hostNetwork": true,
                "nodeSelector": { "gpus": "3" },
                "securityContext": { "runAsUser": 3 },
                "tolerations": [{ "key": "3", "value": "true", "tolerationSeconds": 3 }],
                "containers": [{
                    "name": "3",
                    "image": "3",
                    "workingDir": "3",
                    "command": ["echo", "1.5"],
                    "args": ["3", "true", ""],
                    "env": [
                        { "name": "A", "value": "3" },
                        { "name": "B", "value": "true" },
                        { "name": "C", "value": "" },
                    ],
                    "ports": [{ "containerPort": 3 }],
                    "resources": { "limits": { "cpu": 3 } },
                    "livenessProbe": { "exec": { "command": ["test", "3"] }, "periodSeconds": 3 },
                    "readinessProbe": { "httpGet": { "path": "3", "port": 3 } },
                }],
            },
        });
        assert_eq!(rendered, expected);
    }

    #[test]
    fn a_value_is_no_reference_of_kubernetes() {
        let context = Context::new().with(
            "input",
            json!({"x": "$(SECRET) $$(SECRET) $5", "y": "(SECRET)", "n": 7}),
        );
        let manifest = read(
            "
spec:
  containers:
    - args: ['{{ input.x }}', '$(HOME)/{{ input.x }}', '${{ input.y }}', '$ {{- input.y }}', '$${{ input.y }}', '{{ input.n }}']
      env: [{ name: A, value: 'a{{ input.x }}' }]
      livenessProbe: { exec: { command: [test, '{{ input.x }}'] } }
      lifecycle: { preStop: { exec: { command: [test, '{{ input.x }}'] } } }
",
        )
        .unwrap();
        let rendered = render(&manifest, std::iter::empty(), &context).unwrap();
        let container = &rendered["spec"]["containers"][0];
        // What Kubernetes makes of it is the value as it was given.
        let escaped = "$$(SECRET) $$$$(SECRET) $$5";
        assert_eq!(
            container["args"],
            json!([
                escaped,
                format!("$(HOME)/{escaped}"),
                "$$(SECRET)",
                "$$(SECRET)",
                "$$(SECRET)",
                "7"
            ])
        );
        assert_eq!(container["env"][0]["value"], format!("a{escaped}"));
        assert_eq!(
            container["livenessProbe"]["exec"]["command"][1],
            json!(escaped)
        );
        // Kubernetes replaces nothing in these.
        assert_eq!(
            container["lifecycle"]["preStop"]["exec"]["command"][1],
            "$(SECRET) $$(SECRET) $5"
        );
    }

    #[test]
    fn a_value_stays_one_scalar() {
        let context = Context::new().with(
            "input",
            json!({"evil": "x\nhostPID: true", "n": 7, "list": [1], "object": {"privileged": true}}),
        );
        let manifest =
            read("{ a: '{{ input.evil }}', n: '{{ input.n }}', t: 'n{{ input.n }}' }").unwrap();
        assert_eq!(
            render(&manifest, std::iter::empty(), &context).unwrap(),
            json!({ "a": "x\nhostPID: true", "n": 7, "t": "n7" })
        );
        for text in [
            "{ a: ['{{ input.list }}'] }",
            "{ a: ['{{ input.object }}'] }",
        ] {
            let fault = render(&read(text).unwrap(), std::iter::empty(), &context).unwrap_err();
            assert!(
                fault.message.starts_with("a/0: the template gives "),
                "{fault}"
            );
        }
        let command = "[ '{{ \"sh\" }}', -c, 'echo {{ input.evil }}']";
        let code = format!("{{ spec: {{ containers: [{{ command: {command} }}] }} }}");
        let code = read(&code).unwrap();
        let fault = render(&code, std::iter::empty(), &context).unwrap_err();
        assert!(fault.message.contains("would become code"), "{fault}");
        // A variable of the step that names the shell, which is known only now.
        let context = context.with("env", json!({"TOOL": "sh"}));
        let step = BTreeMap::from([("TOOL".to_string(), "{{ input.tool }}".to_string())]);
        let code = "spec: { containers: [{ command: [$(TOOL), -c, 'echo {{ input.evil }}'] }] }";
        let fault = render(&read(code).unwrap(), [&step].into_iter(), &context).unwrap_err();
        assert!(fault.message.contains("would become code"), "{fault}");
    }

    #[test]
    fn keys_are_not_templates() {
        assert_eq!(
            key_with_template(&read("{ a: [{ 'b{{ c }}': 1 }] }").unwrap()),
            Some("b{{ c }}")
        );
        assert_eq!(
            key_with_template(&read("{ a: ['{{ c }}'] }").unwrap()),
            None
        );
    }
}
