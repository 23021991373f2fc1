//! The text that Prometheus reads, version 0.0.4: families of samples, each with its help and its type.

use std::fmt::Write;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 when the process began.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A text in the making.
#[derive(Default)]
pub struct Page {
    text: String,
    family: &'static str,
}

pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// What follows are its samples, until the next one begins.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.family = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {}", kind.word()));
    }

    pub fn sample(&mut self, labels: Labels, value: impl Into<Value>) {
        self.named("", labels, value);
    }

    /// A family of one sample.
    pub fn alone(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Into<Value>) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// A sample whose name goes on after its family's.
    pub fn named(&mut self, suffix: &str, labels: Labels, value: impl Into<Value>) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.text.extend(value.chars().flat_map(escaped));
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let Value(value) = value.into();
        self.line(format_args!(" {value}"));
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // A String takes everything.
        let _ = writeln!(self.text, "{line}");
    }
}

fn escaped(letter: char) -> impl Iterator<Item = char> {
    let (first, second) = match letter {
        '\\' => ('\\', Some('\\')),
        '"' => ('\\', Some('"')),
        '\n' => ('\\', Some('n')),
        letter => (letter, None),
    };
    std::iter::once(first).chain(second)
}

/// A number as the format has it: all of them are floating point there, and ours are small enough to be exact.
pub struct Value(f64);

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value(value as f64)
    }
}
