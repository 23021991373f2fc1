//! The manifest of a pod: read within bounds, and rendered scalar by scalar.
//!
//! A manifest is read before its templates are rendered. So a value becomes one scalar of the manifest and never a key, a list or
//! another container. A manifest that version 0.1 accepted as text is rendered as text first (`engine::render`), as 0.1 did.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::arguments::{self, Choice, Role};
use super::template::{self, Context, TemplateFault};
use super::values::kind;
use crate::domain::limits::shorten;
use crate::domain::task::is_template;

const NODES_MAX: usize = 50_000;
const BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;

/// Fields that decide with which rights a pod runs and what it can reach, wherever they stand in the manifest.
const POD_FIELDS: &[&str] = &[
    "serviceAccount",
    "serviceAccountName",
    "automountServiceAccountToken",
    "nodeName",
    "namespace",
    "runtimeClassName",
    "priorityClassName",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "secretName",
    "claimName",
    "mountPath",
    "subPath",
    "subPathExpr",
    "terminationMessagePath",
];
/// Maps all of whose scalars are such fields.
const POD_MAPS: &[&str] = &[
    "hostPath",
    "securityContext",
    "secretRef",
    "secretKeyRef",
    "configMapRef",
    "configMapKeyRef",
    "imagePullSecrets",
];

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

/// What each text with a template in a manifest becomes, by its place (`/spec/containers/0/image`). Texts that are not listed are
/// data. `rendered` is the same manifest after rendering, if that is known: then the words of commands are what they really are.
pub fn roles(manifest: &Value, rendered: Option<&Value>) -> BTreeMap<String, Role> {
    let mut roles = BTreeMap::new();
    find_roles(
        manifest,
        rendered.unwrap_or(manifest),
        "",
        false,
        &mut roles,
    );
    roles.retain(|place, _| {
        let text = manifest.pointer(place).and_then(Value::as_str);
        text.is_some_and(is_template)
    });
    roles
}

fn find_roles(
    value: &Value,
    rendered: &Value,
    place: &str,
    is_pod_map: bool,
    roles: &mut BTreeMap<String, Role>,
) {
    match value {
        Value::Object(members) => {
            for (place_below, role) in argument_roles(value, rendered) {
                roles.insert(format!("{place}/{place_below}"), role);
            }
            let names_loader = members
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| arguments::is_loader_variable(name) || is_template(name));
            for (key, member) in members {
                let below = format!("{place}/{}", escaped(key));
                let role = match key.as_str() {
                    "image" => Some(Role::Choice(Choice::Image)),
                    "workingDir" => Some(Role::Choice(Choice::WorkingFolder)),
                    "value" if names_loader => Some(Role::Choice(Choice::Variable)),
                    // A value that is the name of a variable could be the name of one that loads code.
                    "name" if members.contains_key("value") => Some(Role::Choice(Choice::Variable)),
                    key if is_pod_map || POD_FIELDS.contains(&key) => {
                        Some(Role::Choice(Choice::PodField))
                    }
                    _ => None,
                };
                if let Some(role) = role {
                    roles.insert(below.clone(), role);
                }
                let is_pod_map = is_pod_map || POD_MAPS.contains(&key.as_str());
                find_roles(member, &rendered[key.as_str()], &below, is_pod_map, roles);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let below = format!("{place}/{at}");
                if is_pod_map && item.is_string() {
                    roles.insert(below.clone(), Role::Choice(Choice::PodField));
                }
                find_roles(item, &rendered[at], &below, is_pod_map, roles);
            }
        }
        _ => {}
    }
}

/// The roles of `command` and `args` of a container, which are one argument list. A probe has only a `command`.
fn argument_roles(value: &Value, rendered: &Value) -> Vec<(String, Role)> {
    fn words(value: &Value) -> Vec<&str> {
        let lists = [&value["command"], &value["args"]].map(Value::as_array);
        let items = lists.into_iter().flatten().flatten();
        items
            .map(|item| item.as_str().unwrap_or_default())
            .collect()
    }
    let (written, made) = (words(value), words(rendered));
    if written.is_empty() {
        return Vec::new();
    }
    let image = rendered["image"].as_str();
    let roles = match std::ptr::eq(value, rendered) {
        true => arguments::roles(image, &[], &written),
        false => arguments::rendered_roles(image, (&[], &written), (&[], &made)),
    };
    let places = ["command", "args"].into_iter().flat_map(|key| {
        let count = value[key].as_array().map_or(0, Vec::len);
        (0..count).map(move |at| format!("{key}/{at}"))
    });
    places.zip(roles).collect()
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
    let mut found = Vec::new();
    find_templates(manifest, String::new(), &mut found);
    found
}

fn find_templates<'v>(value: &'v Value, place: String, found: &mut Vec<(String, &'v str)>) {
    match value {
        Value::String(text) if is_template(text) => found.push((place, text)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find_templates(item, format!("{place}/{at}"), found);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                find_templates(member, format!("{place}/{}", escaped(key)), found);
            }
        }
        _ => {}
    }
}

/// The manifest with every scalar rendered. A value that is a list or an object is refused, because it would change the structure of
/// the manifest, and so is an untrusted value that would be run.
pub fn render(manifest: &Value, context: &Context) -> Result<Value, TemplateFault> {
    let rendered = render_scalars(manifest, "", context)?;
    for (place, role) in roles(manifest, Some(&rendered)) {
        if let (Role::Code(program), Some(Value::String(text))) = (role, manifest.pointer(&place)) {
            template::check_code(text, program).map_err(|fault| at_place(&place, fault))?;
        }
    }
    Ok(rendered)
}

fn render_scalars(value: &Value, place: &str, context: &Context) -> Result<Value, TemplateFault> {
    match value {
        Value::String(text) => {
            let value =
                template::evaluate(text, context).map_err(|fault| at_place(place, fault))?;
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
            Ok(value)
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
        roles(&read(text).unwrap(), None)
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
            ("/spec/containers/0/args/1", Role::Data),
            (
                "/spec/containers/0/env/0/value",
                Role::Choice(Choice::Variable),
            ),
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
    fn a_value_stays_one_scalar() {
        let context = Context::new().with(
            "input",
            json!({"evil": "x\nhostPID: true", "n": 7, "list": [1], "object": {"privileged": true}}),
        );
        let manifest =
            read("{ a: '{{ input.evil }}', n: '{{ input.n }}', t: 'n{{ input.n }}' }").unwrap();
        assert_eq!(
            render(&manifest, &context).unwrap(),
            json!({ "a": "x\nhostPID: true", "n": 7, "t": "n7" })
        );
        for text in [
            "{ a: ['{{ input.list }}'] }",
            "{ a: ['{{ input.object }}'] }",
        ] {
            let fault = render(&read(text).unwrap(), &context).unwrap_err();
            assert!(
                fault.message.starts_with("a/0: the template gives "),
                "{fault}"
            );
        }
        let code = read("{ command: ['{{ \"sh\" }}', -c, 'echo {{ input.evil }}'] }").unwrap();
        let fault = render(&code, &context).unwrap_err();
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
