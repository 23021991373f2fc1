//! As much of three grammars as our pictures use, read strictly: what does not fit is a bug of whoever wrote it.

use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    /// What stands in it before its first child.
    pub text: String,
}

/// Every element of a well-formed document without declarations, comments or character data sections.
pub fn elements(xml: &str) -> Vec<Element> {
    let mut found: Vec<Element> = Vec::new();
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let text = unescaped(&rest[..start]);
        if let Some((_, at)) = open.last()
            && found.len() == at + 1
        {
            found[*at].text.push_str(&text);
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().map(|(name, _)| name).as_deref(), Some(name));
            continue;
        }
        let (tag, is_closed) = match tag.strip_suffix('/') {
            Some(tag) => (tag, true),
            None => (tag, false),
        };
        let (name, mut words) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(
            name.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{name:?}"
        );
        let mut attributes = BTreeMap::new();
        while !words.is_empty() {
            let (key, behind) = words.split_once("=\"").expect("a key has a value");
            let (value, behind) = behind.split_once('"').expect("a value ends");
            assert!(!value.contains('<'));
            attributes.insert(key.to_string(), unescaped(value));
            words = behind.trim_start();
        }
        if !is_closed {
            open.push((name.to_string(), found.len()));
        }
        found.push(Element {
            name: name.to_string(),
            attributes,
            text: String::new(),
        });
    }
    assert!(open.is_empty(), "{open:?}");
    found
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        let end = start + rest[start..].find(';').expect("an entity ends");
        out.push(match &rest[start..=end] {
            "&amp;" => '&',
            "&lt;" => '<',
            "&gt;" => '>',
            "&quot;" => '"',
            "&#39;" => '\'',
            other => panic!("{other}"),
        });
        rest = &rest[end + 1..];
    }
    assert!(!text.contains('>'), "{text:?}");
    out + rest
}

/// Label of each node, in order; edges with their label.
pub struct Dot {
    pub title: String,
    pub nodes: Vec<String>,
    pub edges: Vec<(usize, usize, Option<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(&'static str),
}

fn tokens(dot: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut chars = dot.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\n' => {}
            '"' => {
                let mut text = String::new();
                loop {
                    match chars.next().expect("a text ends") {
                        '"' => break,
                        '\\' => match chars.next().expect("an escape ends") {
                            'n' => text.push('\n'),
                            c @ ('\\' | '"') => text.push(c),
                            other => panic!("\\{other}"),
                        },
                        '\n' => panic!("a text is one line"),
                        c => text.push(c),
                    }
                }
                found.push(Token::Text(text.replace("&amp;", "&")));
            }
            '-' => {
                assert_eq!(chars.next(), Some('>'));
                found.push(Token::Sign("->"));
            }
            '{' => found.push(Token::Sign("{")),
            '}' => found.push(Token::Sign("}")),
            '[' => found.push(Token::Sign("[")),
            ']' => found.push(Token::Sign("]")),
            '=' => found.push(Token::Sign("=")),
            ',' => found.push(Token::Sign(",")),
            ';' => found.push(Token::Sign(";")),
            c if c.is_ascii_alphanumeric() => {
                let mut word = c.to_string();
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric()) {
                    word.push(c);
                }
                found.push(Token::Word(word));
            }
            other => panic!("{other:?} outside of a text"),
        }
    }
    found
}

impl Dot {
    pub fn parse(dot: &str) -> Dot {
        let all = tokens(dot);
        let [
            Token::Word(first),
            Token::Text(title),
            Token::Sign("{"),
            body @ ..,
            Token::Sign("}"),
        ] = all.as_slice()
        else {
            panic!("{dot}");
        };
        assert_eq!(first, "digraph");
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let statements = body.split(|token| *token == Token::Sign(";"));
        for statement in statements.filter(|tokens| !tokens.is_empty()) {
            match statement {
                [Token::Word(key), Token::Sign("="), Token::Word(_)] => assert_eq!(key, "rankdir"),
                [Token::Word(word), list @ ..] if word == "node" => {
                    attributes(list);
                }
                [
                    Token::Word(from),
                    Token::Sign("->"),
                    Token::Word(to),
                    list @ ..,
                ] => {
                    let label = attributes(list).remove("label");
                    edges.push((number(from), number(to), label));
                }
                [Token::Word(name), list @ ..] => {
                    assert_eq!(number(name), nodes.len());
                    nodes.push(attributes(list).remove("label").unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
        let title = title.clone();
        Dot {
            title,
            nodes,
            edges,
        }
    }
}

fn number(name: &str) -> usize {
    name.strip_prefix('s').unwrap().parse().unwrap()
}

fn attributes(list: &[Token]) -> BTreeMap<String, String> {
    let list = match list {
        [] => return BTreeMap::new(),
        [Token::Sign("["), list @ .., Token::Sign("]")] => list,
        other => panic!("{other:?}"),
    };
    let pairs = list.split(|token| *token == Token::Sign(","));
    let pair = |pair: &[Token]| match pair {
        [
            Token::Word(key),
            Token::Sign("="),
            Token::Word(value) | Token::Text(value),
        ] => (key.clone(), value.clone()),
        other => panic!("{other:?}"),
    };
    pairs.map(pair).collect()
}

/// Label of each node, in order; edges with their label.
pub struct Mermaid {
    pub nodes: Vec<String>,
    pub edges: Vec<(usize, usize, Option<String>)>,
}

impl Mermaid {
    pub fn parse(mermaid: &str) -> Mermaid {
        let mut lines = mermaid.lines();
        assert_eq!(lines.next(), Some("flowchart TD"));
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        for line in lines {
            let line = line.strip_prefix("  ").unwrap();
            if line.starts_with("classDef ") {
                continue;
            }
            if let Some((from, to)) = line.split_once(" --> ") {
                edges.push((number(from), number(to), None));
            } else if let Some((from, rest)) = line.split_once(" -. \"") {
                let (label, to) = rest.split_once("\" .-> ").unwrap();
                edges.push((number(from), number(to), Some(plain(label))));
            } else {
                let (name, rest) = line.split_once('"').unwrap();
                let (label, close) = rest.split_once('"').unwrap();
                let name = name.trim_end_matches(['[', '{', '/']);
                assert_eq!(number(name), nodes.len());
                let close = close.split_once(":::").map_or(close, |(close, _)| close);
                assert!(["]", "]]", "}}", "/]"].contains(&close), "{line}");
                let parts = label.split("<br/>").map(plain);
                nodes.push(parts.collect::<Vec<String>>().join("<br/>"));
            }
        }
        Mermaid { nodes, edges }
    }
}

/// Letters and a few signs stand for themselves, everything else by its number.
fn plain(label: &str) -> String {
    let mut out = String::new();
    let mut rest = label;
    while let Some(start) = rest.find('#') {
        out.push_str(&rest[..start]);
        let end = start + rest[start..].find(';').expect("a number ends");
        let code: u32 = rest[start + 1..end].parse().unwrap();
        out.push(char::from_u32(code).unwrap());
        rest = &rest[end + 1..];
    }
    let stands = |c: char| c.is_alphanumeric() || " -_.,:/".contains(c);
    assert!(rest.chars().all(stands), "{label}");
    out + rest
}
