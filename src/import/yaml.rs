//! Writes YAML that reads as if somebody had written it by hand: plain words plain, scripts as blocks, remarks kept.

use std::fmt::Write;

use serde_yaml::Value;

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A text, quoted if it has to be.
    Text(String),
    /// A number or a flag, as it stands.
    Plain(String),
    List(Vec<Node>),
    Map(Map),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Map {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    remarks: Vec<String>,
    key: String,
    value: Node,
}

impl Map {
    pub fn put(&mut self, key: &str, value: impl Into<Node>) {
        self.put_remarked(key, value, Vec::new());
    }

    pub fn put_remarked(&mut self, key: &str, value: impl Into<Node>, remarks: Vec<String>) {
        let value = value.into();
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.value = value,
            None => self.entries.push(Entry {
                remarks,
                key: key.to_string(),
                value,
            }),
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map(|entry| &entry.value)
    }

    pub fn map_mut(&mut self, key: &str) -> &mut Map {
        if self.get(key).is_none() {
            self.put(key, Map::default());
        }
        let entry = self.entries.iter_mut().find(|entry| entry.key == key);
        match &mut entry.expect("it was put above").value {
            Node::Map(map) => map,
            _ => panic!("{key} is a map wherever it is filled"),
        }
    }

    /// In front of all others.
    pub fn put_first(&mut self, key: &str, value: impl Into<Node>) {
        let entry = Entry {
            remarks: Vec::new(),
            key: key.to_string(),
            value: value.into(),
        };
        self.entries.insert(0, entry);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    /// The key of the last entry; empty if there is none.
    pub fn last_key(&self) -> String {
        self.entries
            .last()
            .map_or_else(String::new, |entry| entry.key.clone())
    }

    /// The value that these keys lead to.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        let (first, rest) = path.split_first()?;
        match (self.get(first)?, rest) {
            (found, []) => Some(found),
            (Node::Map(map), rest) => map.at(rest),
            _ => None,
        }
    }

    pub fn at_mut(&mut self, path: &[String]) -> Option<&mut Node> {
        let (first, rest) = path.split_first()?;
        let entry = self.entries.iter_mut().find(|entry| entry.key == *first)?;
        match (&mut entry.value, rest) {
            (found, []) => Some(found),
            (Node::Map(map), rest) => map.at_mut(rest),
            _ => None,
        }
    }

    /// Removes what these keys lead to, and every map that is empty then. Removes all if there are no keys.
    pub fn remove_at(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else {
            self.entries.clear();
            return;
        };
        self.entries.retain_mut(|entry| {
            if entry.key != *first {
                return true;
            }
            match (&mut entry.value, rest) {
                (_, []) => false,
                (Node::Map(map), rest) => {
                    map.remove_at(rest);
                    !map.is_empty()
                }
                _ => false,
            }
        });
    }

    /// The texts of all keys of this name, at any depth.
    pub fn texts_of(&self, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in &self.entries {
            match &entry.value {
                Node::Text(text) if entry.key == key => found.push(text.clone()),
                Node::Map(map) => found.extend(map.texts_of(key)),
                _ => {}
            }
        }
        found
    }

    pub fn document(&self, head: &[String]) -> String {
        let mut out = String::new();
        for line in head {
            remark(&mut out, 0, line);
        }
        write_map(&mut out, self, 0, true);
        out
    }
}

impl From<&str> for Node {
    fn from(text: &str) -> Node {
        Node::Text(text.to_string())
    }
}

impl From<String> for Node {
    fn from(text: String) -> Node {
        Node::Text(text)
    }
}

impl From<bool> for Node {
    fn from(flag: bool) -> Node {
        Node::Plain(flag.to_string())
    }
}

impl From<u64> for Node {
    fn from(number: u64) -> Node {
        Node::Plain(number.to_string())
    }
}

impl From<Map> for Node {
    fn from(map: Map) -> Node {
        Node::Map(map)
    }
}

impl From<Vec<Node>> for Node {
    fn from(list: Vec<Node>) -> Node {
        Node::List(list)
    }
}

impl From<&Value> for Node {
    fn from(value: &Value) -> Node {
        match value {
            Value::Null => Node::Plain("null".to_string()),
            Value::Bool(flag) => Node::from(*flag),
            Value::Number(number) => Node::Plain(number.to_string()),
            Value::String(text) => Node::Text(text.clone()),
            Value::Sequence(list) => Node::List(list.iter().map(Node::from).collect()),
            Value::Mapping(mapping) => {
                let mut map = Map::default();
                for (key, value) in mapping {
                    map.put(&key_text(key), Node::from(value));
                }
                Node::Map(map)
            }
            Value::Tagged(tagged) => Node::from(&tagged.value),
        }
    }
}

/// A key as a text; others are written as what they look like.
pub fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        _ => "?".to_string(),
    }
}

pub fn remark(out: &mut String, indent: usize, text: &str) {
    for line in text.lines() {
        let line = line.replace(is_odd, " ");
        let line = format!("{:indent$}# {line}", "");
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Each task, action and such at the top stands by itself.
const SPACED_INDENT: usize = 2;

fn write_map(out: &mut String, map: &Map, indent: usize, is_top: bool) {
    for (index, entry) in map.entries.iter().enumerate() {
        let is_spaced = index > 0 && (is_top || indent == SPACED_INDENT);
        if is_spaced && inline(&entry.value).is_none() {
            out.push('\n');
        }
        for text in &entry.remarks {
            remark(out, indent, text);
        }
        let _ = write!(out, "{:indent$}{}:", "", inline_text(&entry.key));
        write_value(out, &entry.value, indent);
    }
}

/// What stands behind a key or a dash, with its line end.
fn write_value(out: &mut String, value: &Node, indent: usize) {
    if let Some(inline) = inline(value) {
        out.push(' ');
        out.push_str(&inline);
        out.push('\n');
        return;
    }
    match value {
        Node::Map(map) => {
            out.push('\n');
            write_map(out, map, indent + 2, false);
        }
        Node::List(list) => {
            out.push('\n');
            for item in list {
                write_item(out, item, indent + 2);
            }
        }
        Node::Text(text) => write_block(out, text, indent + 2),
        Node::Plain(_) => unreachable!("always on one line"),
    }
}

fn write_item(out: &mut String, item: &Node, indent: usize) {
    let Node::Map(map) = item else {
        let _ = write!(out, "{:indent$}-", "");
        write_value(out, item, indent);
        return;
    };
    if map.is_empty() {
        let _ = writeln!(out, "{:indent$}- {{}}", "");
        return;
    }
    let mut inner = String::new();
    write_map(&mut inner, map, indent + 2, false);
    // The dash takes the place of the first two columns.
    let first = inner.find(|c| c != ' ').unwrap_or(0);
    let _ = write!(out, "{:indent$}- {}", "", &inner[first..]);
}

/// A text of several lines, each as it is.
fn write_block(out: &mut String, text: &str, indent: usize) {
    let body = text.strip_suffix('\n');
    out.push_str(if body.is_some() { " |\n" } else { " |-\n" });
    for line in body.unwrap_or(text).split('\n') {
        if line.is_empty() {
            out.push('\n');
        } else {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
}

/// The value if it fits behind its key.
fn inline(value: &Node) -> Option<String> {
    const WIDTH_MAX: usize = 90;
    match value {
        Node::Plain(text) => Some(text.clone()),
        Node::Text(text) if is_block(text) => None,
        Node::Text(text) => Some(inline_text(text)),
        Node::Map(map) if map.is_empty() => Some("{}".to_string()),
        Node::Map(map) => {
            let scalar = |entry: &Entry| {
                entry.remarks.is_empty() && !matches!(entry.value, Node::Map(_) | Node::List(_))
            };
            if map.entries.len() > 4 || !map.entries.iter().all(scalar) {
                return None;
            }
            let pair = |entry: &Entry| {
                let value = flow(&entry.value)?;
                Some(format!("{}: {value}", inline_text(&entry.key)))
            };
            let pairs: Option<Vec<String>> = map.entries.iter().map(pair).collect();
            let line = format!("{{ {} }}", pairs?.join(", "));
            (line.chars().count() <= WIDTH_MAX / 2).then_some(line)
        }
        Node::List(list) => {
            let items: Option<Vec<String>> = list.iter().map(flow).collect();
            let line = format!("[{}]", items?.join(", "));
            (line.chars().count() <= WIDTH_MAX).then_some(line)
        }
    }
}

/// Inside brackets.
fn flow(value: &Node) -> Option<String> {
    match value {
        Node::Text(text) if is_block(text) => None,
        Node::Text(text) if is_plain(text) => Some(text.clone()),
        Node::Text(text) => Some(quoted(text)),
        other => inline(other),
    }
}

/// A line end or nothing to some readers, and refused by others.
fn is_odd(c: char) -> bool {
    c.is_control() || ['\u{feff}', '\u{2028}', '\u{2029}'].contains(&c)
}

/// Whether a text can and should stand as a block of lines.
fn is_block(text: &str) -> bool {
    let clean = text.chars().all(|c| !is_odd(c) || c == '\n' || c == '\t');
    // A block finds its indentation by its first line, and an end of several line ends by a mark of its own.
    let begins_well = !text.starts_with([' ', '\t', '\n']);
    text.trim_end().contains('\n') && clean && begins_well && !text.ends_with("\n\n")
}

fn inline_text(text: &str) -> String {
    match is_plain(text) {
        true => text.to_string(),
        false => quoted(text),
    }
}

/// A text that means itself to every reader of YAML, old or new, also inside brackets.
fn is_plain(text: &str) -> bool {
    let letters = |c: char| c.is_alphanumeric() || "_-./ '()+@".contains(c);
    let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '/');
    let lower = text.to_ascii_lowercase();
    let special = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf",
    ];
    begins
        && text.chars().all(letters)
        && !special.contains(&lower.as_str())
        && !text.ends_with(' ')
}

/// JSON's quotes are YAML's, but for characters that are odd.
pub fn quoted(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.contains(|c: char| c == '\'' || is_odd(c)) {
        return format!("'{text}'");
    }
    let mut out = String::new();
    for c in serde_json::Value::from(text).to_string().chars() {
        match is_odd(c) {
            true => out.push_str(&format!("\\u{:04x}", c as u32)),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is written is read back as it was, by the reader of others too.
    #[test]
    fn texts_come_back_as_they_were() {
        let hostile = [
            "",
            " ",
            "a",
            "no",
            "Yes",
            "~",
            "null",
            "012",
            "1e3",
            "0x1f",
            "1:30",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "'",
            "\"",
            "it's \"so\"",
            "\\n",
            "a\nb",
            "a\nb\n",
            "a\n\nb\n\n",
            "\na",
            "  a\n b",
            "\ta\n",
            "{{ x }}",
            "%a",
            "@a",
            "`a`",
            "|",
            ">",
            "!a",
            "&a",
            "*a",
            "a\r\nb",
            "\u{7f}\u{1}",
            "å – ø",
            "\u{feff}a\nb",
            "a\u{2028}b\nc",
            "key:",
            "[a]",
            "2026-11-16",
            ".5",
            "a\n---\nb\n",
            "trailing \nspace\n",
            "a, b",
            "}",
            "? a",
        ];
        for text in hostile {
            let mut map = Map::default();
            map.put("text", text);
            map.put(text, "as a key");
            map.put("list", vec![Node::from(text), Node::from("b")]);
            let mut inner = Map::default();
            inner.put("inner", text);
            map.put("in_list", vec![Node::from(inner.clone())]);
            map.put("map", inner);
            let document = map.document(&["A remark.".to_string()]);
            let back: Value = serde_yaml::from_str(&document)
                .unwrap_or_else(|error| panic!("{text:?}: {error}\n{document}"));
            assert_eq!(back["text"], Value::from(text), "{document}");
            assert_eq!(back["list"][0], Value::from(text), "{document}");
            assert_eq!(back["map"]["inner"], Value::from(text), "{document}");
            assert_eq!(back["in_list"][0]["inner"], Value::from(text), "{document}");
            assert_eq!(back[text], Value::from("as a key"), "{document}");
        }
    }
}
