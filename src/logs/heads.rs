//! The beginning of every line, without escapes: all that is needed to know what kind of line it is.

use std::io;
use std::ops::ControlFlow;

use super::escapes::without_escapes;
use super::index::Mark;
use super::scan::Snapshot;
use crate::domain::log::LogStream;

/// Of a longer line, nobody reads further to see what it is about.
const HEAD_BYTES_MAX: usize = 4 << 10;

pub(super) struct Head<'a> {
    pub n: u64,
    pub stream: LogStream,
    pub text: &'a [u8],
}

/// Shows them in their order, until one of them is enough.
pub(super) fn for_each_head(
    log: Snapshot,
    mut visit: impl FnMut(Head<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut scan = log.scan(Mark::FIRST);
    let mut line: Option<(u64, LogStream)> = None;
    let mut text = Vec::with_capacity(HEAD_BYTES_MAX);
    let mut flow = ControlFlow::Continue(());
    let mut show = |line: &mut Option<(u64, LogStream)>, text: &[u8]| match line.take() {
        Some((n, stream)) => {
            let text = &without_escapes(text);
            visit(Head { n, stream, text })
        }
        None => ControlFlow::Continue(()),
    };
    while flow.is_continue() {
        let more = scan.next_block(|piece| {
            if flow.is_break() {
                return;
            }
            if let Some(begin) = piece.begin {
                flow = show(&mut line, &text);
                text.clear();
                line = Some((piece.n, begin.stream));
            }
            let room = HEAD_BYTES_MAX - text.len();
            text.extend_from_slice(&piece.text[..piece.text.len().min(room)]);
        })?;
        if !more {
            // The last line has nobody behind it who would end it.
            let _ = show(&mut line, &text);
            break;
        }
    }
    Ok(())
}
