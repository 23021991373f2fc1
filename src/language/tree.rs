//! A workflow file as a tree in which every key and value knows its place. Bounded while it is read.
//!
//! Deliberately not here: what the keys mean.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use super::diagnostic::Problems;
use super::source::{Source, Span};

/// A step of a large file has about ten nodes; 10,000 of them must fit.
pub const NODES_MAX: usize = 500_000;
pub const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub struct Node {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Something was wrong with it, and that has been said.
    Broken,
}

#[derive(Debug)]
pub struct Scalar {
    pub text: String,
    pub style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

#[derive(Debug)]
pub struct Entry {
    pub key: Key,
    pub value: Node,
}

#[derive(Debug)]
pub struct Key {
    pub text: String,
    pub span: Span,
}

impl Node {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key.text == key),
            _ => None,
        }
    }

    pub fn scalar_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.is_null(),
            _ => false,
        }
    }

    pub fn is_broken(&self) -> bool {
        matches!(self.kind, Kind::Broken)
    }
}

impl Scalar {
    pub fn is_null(&self) -> bool {
        self.style == Style::Plain
            && super::scalar::meaning(&self.text) == super::scalar::Meaning::Null
    }
}

/// The one document of a file; `None` if it has none, or none that can be read.
pub fn read(source: &Source, file: u32, problems: &mut Problems) -> Option<Node> {
    if let Some(at) = memchr::memchr(0, source.text.as_bytes()) {
        problems
            .error(
                "E009",
                Span::new(file, at, at + 1),
                "the file holds a NUL byte",
            )
            .label("not text")
            .help("write the file again as plain UTF-8 text");
        return None;
    }
    let mut reader = Reader {
        source,
        file,
        bytes: Bytes::new(&source.text),
        problems,
        nodes: 0,
        open: Vec::new(),
        document: None,
        documents: 0,
        last_end: 0,
    };
    match reader.run() {
        Ok(()) => reader.document,
        Err(Stop) => None,
    }
}

/// The file is not read any further; why has been said.
struct Stop;

struct Reader<'a> {
    source: &'a Source,
    file: u32,
    bytes: Bytes,
    problems: &'a mut Problems,
    nodes: usize,
    /// From the outermost to the innermost.
    open: Vec<Open>,
    document: Option<Node>,
    documents: usize,
    /// Where the last thing ended: a block ends there, not where its parser notices.
    last_end: usize,
}

enum Open {
    List {
        start: usize,
        members: Vec<Node>,
    },
    Map {
        start: usize,
        entries: Vec<Entry>,
        /// Read, and waiting for its value. `None` inside: a key that cannot be one.
        key: Option<Option<Key>>,
        known: HashMap<String, usize>,
        /// It was not meant to be a map.
        broken: bool,
    },
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let source = self.source;
        let mut parser = Parser::new_from_str(&source.text);
        while let Some(event) = parser.next_event() {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => return Err(self.syntax(&error)),
            };
            let start = self.bytes.at(span.start.index());
            let end = self.bytes.at(span.end.index()).max(start);
            match event {
                Event::DocumentStart(_) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let span = Span::new(self.file, start, end);
                        self.problems
                            .error(
                                "E004",
                                span,
                                "a file holds one document, here a second begins",
                            )
                            .label("second document")
                            .help("move what follows into a file of its own, or remove the `---`");
                        return Err(Stop);
                    }
                }
                Event::Alias(_) => {
                    let span = Span::new(self.file, start, end);
                    self.no_anchors(span, "alias");
                    self.count(span)?;
                    self.place(Node {
                        span,
                        kind: Kind::Broken,
                    });
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let end = trimmed_end(&source.text, start, end);
                    let span = Span::new(self.file, start, end);
                    self.count(span)?;
                    self.last_end = self.last_end.max(end);
                    if anchor > 0 {
                        self.no_anchors(span, "anchor");
                    }
                    if let Some(tag) = tag {
                        self.no_tags(span, &tag);
                    }
                    let text = text.into_owned();
                    let style = match style {
                        ScalarStyle::Plain => Style::Plain,
                        ScalarStyle::SingleQuoted => Style::Single,
                        ScalarStyle::DoubleQuoted => Style::Double,
                        ScalarStyle::Literal => Style::Literal,
                        ScalarStyle::Folded => Style::Folded,
                    };
                    let kind = Kind::Scalar(Scalar { text, style });
                    self.place(Node { span, kind });
                }
                Event::SequenceStart(anchor, tag) => {
                    self.open(start, anchor, tag.as_deref())?;
                    let members = Vec::new();
                    self.open.push(Open::List { start, members });
                }
                Event::MappingStart(anchor, tag) => {
                    self.open(start, anchor, tag.as_deref())?;
                    self.open.push(Open::Map {
                        start,
                        entries: Vec::new(),
                        key: None,
                        known: HashMap::new(),
                        broken: false,
                    });
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(end),
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, span: Span) -> Result<(), Stop> {
        /// Nodes between two looks at the time.
        const NODES_AT_ONCE: usize = 256;
        self.nodes += 1;
        if self.nodes.is_multiple_of(NODES_AT_ONCE) && self.problems.is_out_of_time() {
            return Err(Stop);
        }
        if self.nodes > NODES_MAX {
            let message = format!("the file holds more than {NODES_MAX} keys and values");
            let problem = self.problems.error("E008", span, message);
            problem.label("read up to here").help("split the file");
            return Err(Stop);
        }
        Ok(())
    }

    fn open(&mut self, start: usize, anchor: usize, tag: Option<&Tag>) -> Result<(), Stop> {
        let span = Span::new(self.file, start, start);
        self.count(span)?;
        if self.open.len() >= DEPTH_MAX {
            let message = format!("values are nested more than {DEPTH_MAX} deep");
            let problem = self.problems.error("E008", span, message);
            problem.label("one level too deep");
            return Err(Stop);
        }
        if anchor > 0 {
            self.no_anchors(span, "anchor");
        }
        if let Some(tag) = tag {
            self.no_tags(span, tag);
        }
        self.last_end = self.last_end.max(start);
        Ok(())
    }

    fn close(&mut self, end: usize) {
        let Some(closed) = self.open.pop() else {
            return;
        };
        let (start, kind) = match closed {
            Open::List { start, members } => (start, Kind::List(members)),
            Open::Map {
                start,
                broken: true,
                ..
            } => (start, Kind::Broken),
            Open::Map { start, entries, .. } => (start, Kind::Map(entries)),
        };
        let in_brackets = matches!(self.source.text.as_bytes().get(start), Some(b'{' | b'['));
        let end = if in_brackets { end } else { self.last_end };
        let end = end.max(start);
        self.last_end = self.last_end.max(end);
        let span = Span::new(self.file, start, end);
        self.place(Node { span, kind });
    }

    /// Puts a whole node where it belongs.
    fn place(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.document = Some(node),
            Some(Open::List { members, .. }) => members.push(node),
            Some(Open::Map { key, .. }) if key.is_none() => {
                let in_braces = matches!(node.kind, Kind::Map(_));
                let read = self.key(node);
                if let Some(Open::Map { key, broken, .. }) = self.open.last_mut() {
                    *key = Some(read);
                    *broken |= in_braces;
                }
            }
            Some(Open::Map {
                entries,
                key,
                known,
                ..
            }) => {
                let Some(Some(key)) = key.take() else {
                    return;
                };
                if let Some(&first) = known.get(&key.text) {
                    let first = entries[first].key.span;
                    self.problems.duplicate(&key, first);
                    return;
                }
                known.insert(key.text.clone(), entries.len());
                entries.push(Entry { key, value: node });
            }
        }
    }

    fn key(&mut self, node: Node) -> Option<Key> {
        let span = node.span;
        match node.kind {
            Kind::Scalar(scalar) if scalar.text == "<<" && scalar.style == Style::Plain => {
                self.problems
                    .error("E005", span, "merge keys are not used here")
                    .label("merges another map")
                    .help("write the keys out, or make a named action of what is shared");
                None
            }
            Kind::Scalar(scalar) => Some(Key {
                text: scalar.text,
                span,
            }),
            Kind::Broken => None,
            Kind::Map(_) if self.source.slice(span).starts_with('{') => {
                self.problems
                    .error("E064", span, "a template must be in quotes")
                    .label("YAML reads braces as a map")
                    .help("put quotes around the whole value: \"{{ … }}\"");
                None
            }
            Kind::Map(_) | Kind::List(_) => {
                self.problems
                    .error("E011", span, "a key is a text, this is a list or a map")
                    .label("expected text");
                None
            }
        }
    }

    fn no_anchors(&mut self, span: Span, what: &str) {
        self.problems
            .error("E005", span, format!("an {what} is not used here"))
            .label(format!("{what} of YAML"))
            .help("write the value out, or make a named action of what is shared");
    }

    fn no_tags(&mut self, span: Span, tag: &Tag) {
        let tag = match tag.is_yaml_core_schema() {
            true => format!("!!{}", tag.suffix),
            false => tag.to_string(),
        };
        self.problems
            .error(
                "E006",
                span,
                format!("the YAML tag `{tag}` is not used here"),
            )
            .label("has a tag")
            .help("remove the tag; put quotes around the value if it is to be text");
    }

    /// Whether the line is part of a `|` or `>` above it, where a tab behind the indentation is text.
    fn is_block_text(&self, line: usize, indent: usize) -> bool {
        let mut indent = indent;
        for above in (0..line).rev() {
            let shown = self.source.line(above);
            let spaces = shown.len() - shown.trim_start_matches(' ').len();
            if shown.trim().is_empty() || spaces >= indent {
                continue;
            }
            let mark = shown.split(" #").next().unwrap_or_default().trim_end();
            let mark = mark.trim_end_matches(|c: char| "+-".contains(c) || c.is_ascii_digit());
            if [" |", " >"].iter().any(|end| mark.ends_with(end)) {
                return true;
            }
            indent = spaces;
        }
        false
    }

    fn syntax(&mut self, error: &ScanError) -> Stop {
        let at = self.bytes.at(error.marker().index());
        let text: &str = &self.source.text;
        let line = self.source.line_of(at as u32);
        // The scanner stops behind a tab; the line that has one in its indentation is this or the last one.
        for line in [line, line.saturating_sub(1)] {
            let shown = self.source.line(line);
            let blank = shown.len() - shown.trim_start_matches([' ', '\t']).len();
            if let Some(tab) = shown[..blank].find('\t')
                && !self.is_block_text(line, tab)
            {
                let start = self.source.line_start(line).unwrap_or(0) as usize;
                let span = Span::new(self.file, start + tab, start + blank);
                self.problems
                    .error("E002", span, "a tab in the indentation")
                    .label("YAML indents with spaces alone")
                    .help("replace the tab by two spaces for each level")
                    .fix(span, "  ".repeat(blank - tab));
                return Stop;
            }
        }
        let info = error.info();
        if info.contains("unknown anchor") {
            let end = (at + 1).min(text.len());
            self.no_anchors(Span::new(self.file, at.min(end), end), "alias");
            return Stop;
        }
        if info.contains("recursion limit") {
            let message = format!("values are nested more than {DEPTH_MAX} deep");
            let span = Span::new(self.file, at, at);
            self.problems
                .error("E008", span, message)
                .label("one level too deep");
            return Stop;
        }
        let (message, help) = in_our_words(info);
        let end = text[at..]
            .char_indices()
            .nth(1)
            .map_or(text.len(), |(len, _)| at + len);
        let problem = self
            .problems
            .error("E001", Span::new(self.file, at, end), message)
            .label("the file cannot be read any further");
        if let Some(help) = help {
            problem.help(help);
        }
        Stop
    }
}

/// What the parser of YAML says, for people who do not know its insides.
fn in_our_words(info: &str) -> (String, Option<&'static str>) {
    let says = |words: &[&str]| words.iter().any(|word| info.contains(word));
    let (message, help) = if says(&["mapping values are not allowed"]) {
        (
            "a `:` that cannot be here",
            "put quotes around a text that holds `: `, or check the indentation",
        )
    } else if says(&[
        "simple key expect ':'",
        "could not find expected ':'",
        "simple key",
    ]) {
        (
            "a `:` is missing after this key",
            "write `key: value`, and check the indentation of the lines around it",
        )
    } else if says(&["did not find expected <document start>", "invalid content"]) {
        (
            "this does not belong to what comes before it",
            "check the indentation of the lines around it",
        )
    } else if says(&[
        "did not find expected key",
        "block mapping",
        "block collection",
    ]) {
        (
            "a key is expected here",
            "check the indentation: keys of the same map begin in the same column",
        )
    } else if says(&["',' or ']'", "flow sequence"]) {
        (
            "a `[` is not closed",
            "separate the members by `,` and close the list with `]`",
        )
    } else if says(&["',' or '}'", "flow mapping"]) {
        (
            "a `{` is not closed",
            "separate the keys by `,` and close the map with `}`",
        )
    } else if says(&["escape", "hex"]) {
        (
            "an unknown escape in a double-quoted text",
            "a backslash in double quotes begins an escape: use single quotes, or write `\\\\` for one",
        )
    } else if says(&["quoted scalar"]) {
        (
            "a quoted text is not closed",
            "put the same quote at its end, and double it inside '…' or escape it inside \"…\"",
        )
    } else if says(&["cannot start any token", "unexpected character"]) {
        (
            "a value cannot begin with this character",
            "put quotes around the value",
        )
    } else {
        return (format!("this is not YAML: {info}"), None);
    };
    (message.to_string(), Some(help))
}

/// A scalar's span may reach over the blanks and line ends behind it.
fn trimmed_end(text: &str, start: usize, end: usize) -> usize {
    start + text[start..end].trim_end().len()
}

/// From the parser's characters to bytes.
enum Bytes {
    Same,
    Table(Vec<u32>),
}

impl Bytes {
    fn new(text: &str) -> Bytes {
        if text.is_ascii() {
            return Bytes::Same;
        }
        let starts = text.char_indices().map(|(at, _)| at as u32);
        Bytes::Table(starts.chain([text.len() as u32]).collect())
    }

    fn at(&self, character: usize) -> usize {
        match self {
            Bytes::Same => character,
            Bytes::Table(table) => {
                let last = table.len() - 1;
                table[character.min(last)] as usize
            }
        }
    }
}
