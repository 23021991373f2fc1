//! The texts of a pod's manifest: what each of them becomes with the variables that the step adds, and where it stands in the file.

use std::ops::Range;
use std::rc::Rc;

use super::super::decode::{ManifestPart, ManifestParts, Place, Text};
use super::super::diagnostic::Problems;
use super::super::manifest::{self, Reference};
use super::super::source::{Source, SourceFile, Span};
use super::super::tree::{self, Kind, Node};
use super::Checker;
use super::inside::inside;
use super::untrusted::Origins;

/// The text of a manifest, read as YAML that knows its places.
#[derive(Debug)]
pub struct PlacedManifest {
    source: Source,
    root: Option<Node>,
}

impl<'t> Checker<'_, 't> {
    /// Says which texts of a manifest become code or decide something.
    pub fn manifest(&mut self, manifest: &ManifestParts<'t>, origins: &Origins<'_, '_>) {
        for text in manifest.texts(origins) {
            if self.problems.is_out_of_time() {
                return;
            }
            self.judge(&text, origins);
        }
    }

    /// The place in the file of these bytes of a text of a manifest.
    pub fn in_manifest(&self, whole: &Text<'_>, part: &ManifestPart, range: Range<usize>) -> Span {
        // Looking costs as much as the manifest is long.
        if !self.may_suggest() {
            return whole.node.span;
        }
        let range = part.written(range);
        let Some(text) = whole.node.scalar_text() else {
            return match node_at(whole.node, &part.place) {
                Some(node) => span_in(self.sources, node, range),
                None => whole.node.span,
            };
        };
        let placed = self.placed_manifest(whole.node.span, text);
        let node = placed.root.as_ref();
        let node = node.and_then(|root| node_at(root, &part.place));
        let range = match node {
            Some(node) => {
                let span = span_in(std::slice::from_ref(&placed.source), node, range);
                span.start as usize..span.end as usize
            }
            None => 0..text.lines().next().map_or(0, str::len),
        };
        span_in(self.sources, whole.node, range)
    }

    fn placed_manifest(&self, span: Span, text: &str) -> Rc<PlacedManifest> {
        let mut last = self.placed_manifest.borrow_mut();
        if let Some((of, placed)) = &*last
            && *of == span
        {
            return placed.clone();
        }
        let source = Source::new(&SourceFile {
            path: "manifest".into(),
            text: text.to_string(),
        });
        let root = tree::read(&source, 0, &mut Problems::default());
        let placed = Rc::new(PlacedManifest { source, root });
        *last = Some((span, placed.clone()));
        placed
    }
}

impl<'t> ManifestParts<'t> {
    /// The texts that contain a template or a reference to a variable with one, with references replaced.
    pub fn texts(&self, origins: &Origins<'_, '_>) -> impl Iterator<Item = Text<'t>> {
        let variable = |name: &str| origins.variable(name);
        let texts = manifest::texts(&self.tree, &variable).into_iter();
        texts.map(|found| {
            let mut text = Text::new(self.node, found.text.into(), Place::Worker, false);
            text.role = found.role;
            text.part = Some(ManifestPart {
                place: found.place,
                references: found.references,
            });
            text
        })
    }
}

impl ManifestPart {
    /// The reference in whose replacement these bytes stand.
    pub fn reference(&self, range: &Range<usize>) -> Option<&Reference> {
        let mut references = self.references.iter();
        references.find(|reference| {
            reference.made.start <= range.start && range.end <= reference.made.end
        })
    }

    /// Where these bytes stand in the text as it is written.
    fn written(&self, range: Range<usize>) -> Range<usize> {
        if let Some(reference) = self.reference(&range) {
            return reference.written.clone();
        }
        let written = |byte: usize| {
            let mut before = self.references.iter().rev();
            match before.find(|reference| reference.made.end <= byte) {
                Some(last) => last.written.end + (byte - last.made.end),
                None => byte,
            }
        };
        written(range.start)..written(range.end)
    }
}

fn span_in(sources: &[Source], node: &Node, range: Range<usize>) -> Span {
    match node.scalar_text() {
        Some(text) => {
            let text = Text::new(node, text.into(), Place::Worker, false);
            inside(sources, &text, range)
        }
        None => node.span,
    }
}

fn node_at<'t>(node: &'t Node, place: &str) -> Option<&'t Node> {
    let mut node = node;
    for segment in place.split('/').skip(1) {
        node = match &node.kind {
            Kind::Map(entries) => {
                let mut entries = entries.iter();
                &entries
                    .find(|entry| manifest::escaped(&entry.key.text) == segment)?
                    .value
            }
            Kind::List(members) => members.get(segment.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(node)
}
