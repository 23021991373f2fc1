//! Where in the file a part of a text stands.

use std::ops::Range;

use super::super::decode::Text;
use super::super::source::{Source, Span};
use super::super::tree::{Kind, Style};

/// The place of these bytes of a scalar's text. What YAML changed on reading is pointed at as a whole.
pub fn inside(sources: &[Source], text: &Text<'_>, range: Range<usize>) -> Span {
    let node = text.node;
    let source = &sources[node.span.file as usize];
    let Kind::Scalar(scalar) = &node.kind else {
        return node.span;
    };
    let found = match scalar.style {
        Style::Literal => in_literal(source, text, &range),
        Style::Folded => None,
        style => {
            let quote = u32::from(style != Style::Plain);
            verbatim(source, node.span.start + quote, text, &scalar.text, &range)
        }
    };
    match found {
        Some((start, end)) => Span::new(node.span.file, start, end),
        None => first_line(source, node.span),
    }
}

/// In the file as it is in the text, up to its end.
fn verbatim(
    source: &Source,
    start: u32,
    text: &Text<'_>,
    scalar: &str,
    range: &Range<usize>,
) -> Option<(usize, usize)> {
    let start = start as usize;
    let written = source.text.as_bytes().get(start..)?;
    // Compared once for all places in the text: there may be one in every few bytes.
    let verbatim_bytes = text.verbatim_bytes(scalar, written);
    (range.end <= verbatim_bytes).then_some((start + range.start, start + range.end))
}

/// Each line of the text is the end of a line of the file, behind its indentation.
fn in_literal(source: &Source, text: &Text<'_>, range: &Range<usize>) -> Option<(usize, usize)> {
    let (line, line_start) = text.line_of(range.start);
    let found = text.literal_line(line, || literal_line(source, text, line, line_start));
    let (file_start, bytes) = found?;
    let start = file_start + (range.start - line_start);
    let end = file_start + (range.end - line_start).min(bytes);
    Some((start, end.max(start)))
}

/// The first byte and the length of this line of the text in the file.
fn literal_line(
    source: &Source,
    text: &Text<'_>,
    line: usize,
    line_start: usize,
) -> Option<(usize, usize)> {
    let (node, text) = (text.node, &*text.text);
    let written = text[line_start..].lines().next().unwrap_or_default();
    // The scalar begins with its first line that is not blank, or with a blank one before it.
    let first = source.line_of(node.span.start) + line;
    let blank = text.bytes().take_while(|byte| *byte == b'\n').count();
    let lines = [Some(first), first.checked_sub(blank), Some(first + 1)];
    let mut lines = lines.into_iter().flatten();
    let (file_line, indent) = lines.find_map(|line| {
        let shown = source.line(line);
        let indent = shown.strip_suffix(written)?;
        indent
            .trim_start_matches(' ')
            .is_empty()
            .then_some((line, indent.len()))
    })?;
    let file_start = source.line_start(file_line)? as usize + indent;
    Some((file_start, written.len()))
}

fn first_line(source: &Source, span: Span) -> Span {
    let text = source.slice(span);
    let end = text.find('\n').unwrap_or(text.len());
    Span {
        end: span.start + text[..end].trim_end().len() as u32,
        ..span
    }
}
