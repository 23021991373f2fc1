//! Which lines are headings: `::group::` of GitHub, `---`, `+++` and `~~~` of Buildkite. What merely looks like one is none.

use crate::domain::log::LogStream;
use crate::words::turns_reading;

const TITLE_CHARS_MAX: usize = 200;

/// What a line is, as far as its beginning tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Text,
    /// `::group::TITLE`
    Group(String),
    /// `::endgroup::`
    EndGroup,
    /// `--- TITLE`, or the old file of a diff.
    Minuses(String),
    /// `+++ TITLE`, or the new file of a diff.
    Pluses(String),
    /// The same on stderr, where a shell traces what it does three levels deep.
    TracePluses(String),
    /// `~~~ TITLE`
    Tildes(String),
    /// `^^^ +++`: the section that has begun is to be shown open.
    Open,
    /// `++ command`: a shell traces a command within a command.
    Trace,
    /// `@@ -1,2 +1,2 @@`
    Hunk,
    /// `*** file`, the old file of another kind of diff.
    Stars,
}

impl Shape {
    pub fn of(text: &[u8], stream: LogStream) -> Shape {
        // Nearly all lines begin with something else.
        match text.first() {
            Some(b':' | b' ' | b'\t') => command(text.trim_ascii_start()),
            Some(b'-') => titled(text, b"--- ").map_or(Shape::Text, Shape::Minuses),
            Some(b'~') => titled(text, b"~~~ ").map_or(Shape::Text, Shape::Tildes),
            Some(b'+') if text.starts_with(b"++ ") => Shape::Trace,
            Some(b'+') => match (titled(text, b"+++ "), stream) {
                (None, _) => Shape::Text,
                (Some(title), LogStream::Stderr) => Shape::TracePluses(title),
                (Some(title), _) => Shape::Pluses(title),
            },
            Some(b'^') if text.trim_ascii_end() == b"^^^ +++" => Shape::Open,
            Some(b'@') if text.starts_with(b"@@") => Shape::Hunk,
            Some(b'*') if text.starts_with(b"*** ") => Shape::Stars,
            _ => Shape::Text,
        }
    }
}

/// GitHub's commands may be indented.
fn command(text: &[u8]) -> Shape {
    if text.starts_with(b"::endgroup::") {
        return Shape::EndGroup;
    }
    match text.strip_prefix(b"::group::") {
        Some(rest) => Shape::Group(title(rest)),
        None => Shape::Text,
    }
}

fn titled(text: &[u8], sign: &[u8]) -> Option<String> {
    let rest = text.strip_prefix(sign)?.trim_ascii();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80;
    // `--- 10 packets ---` is an ornament, not a heading of all that follows.
    let is_ornament = rest.ends_with(&sign[..3]);
    // Go tells of its tests like this, and YAML of what a document is.
    let words = ["FAIL:", "PASS:", "SKIP:", "BENCH:"];
    let is_test = words.iter().any(|word| rest.starts_with(word.as_bytes()));
    let is_document = sign == b"--- " && matches!(rest.first(), Some(b'#' | b'!' | b'|' | b'>'));
    let is_title = rest.iter().any(is_word) && !is_ornament && !is_test && !is_document;
    is_title.then(|| title(rest))
}

fn title(text: &[u8]) -> String {
    let show = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() || turns_reading(c) => '\u{FFFD}',
        c => c,
    };
    let text = String::from_utf8_lossy(text.trim_ascii());
    let mut chars = text.chars().map(show);
    let mut title: String = chars.by_ref().take(TITLE_CHARS_MAX).collect();
    if chars.next().is_some() {
        title.pop();
        title.push('…');
    }
    title
}

/// A line between those before and behind it.
#[derive(Default)]
pub(super) struct Neighbours {
    pub before: Shape,
    pub line: Shape,
    pub behind: Shape,
    pub second_behind: Shape,
}

/// What a line does to the groups of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heading {
    /// Up to its own end.
    Group(String),
    EndGroup,
    /// Up to the next.
    Section {
        title: String,
        is_open: bool,
    },
    Open,
}

impl Neighbours {
    pub fn heading(&self) -> Option<Heading> {
        match &self.line {
            Shape::Group(title) => Some(Heading::Group(title.clone())),
            Shape::EndGroup => Some(Heading::EndGroup),
            Shape::Open => Some(Heading::Open),
            Shape::Tildes(title) => Some(Heading::section(title, false)),
            Shape::Minuses(title) => {
                let is_diff = match &self.behind {
                    Shape::Pluses(new) | Shape::TracePluses(new) => {
                        is_diff(title, new, &self.second_behind)
                    }
                    _ => self.before == Shape::Stars,
                };
                (!is_diff).then(|| Heading::section(title, false))
            }
            Shape::Pluses(title) => {
                let is_diff = match &self.before {
                    Shape::Minuses(old) => is_diff(old, title, &self.behind),
                    _ => false,
                };
                let is_trace = self.before == Shape::Trace || self.behind == Shape::Trace;
                (!is_diff && !is_trace).then(|| Heading::section(title, true))
            }
            _ => None,
        }
    }
}

impl Heading {
    fn section(title: &str, is_open: bool) -> Heading {
        Heading::Section {
            title: title.to_string(),
            is_open,
        }
    }
}

/// Whether these two lines, one right behind the other, name the files of a diff.
fn is_diff(old: &str, new: &str, behind: &Shape) -> bool {
    let is_file = |name: &str, prefix: &str| name.starts_with(prefix) || name == "/dev/null";
    *behind == Shape::Hunk || old == new || is_file(old, "a/") || is_file(new, "b/")
}
