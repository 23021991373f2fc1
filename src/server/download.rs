//! An answer that is too long for one piece: read from disk and sent as fast as the client takes it, never held in memory.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::ApiError;
use super::exchange::Response;
use super::http::Answer;
use super::shares::{ShareOwner, Shares};
use crate::essential::panic_text;

/// Downloads at a time, a thread each.
const DOWNLOADS_MAX: usize = 16;
const PIECE_BYTES: usize = 64 << 10;
/// Read ahead of the client.
const PIECES_MAX: usize = 4;

pub struct Download {
    /// Its head.
    response: Response,
    source: Box<dyn Read + Send>,
}

impl Download {
    /// Of bare text.
    pub fn new(source: impl Read + Send + 'static) -> Download {
        Download::of(Response::text(Vec::new()), source)
    }

    pub fn of(response: Response, source: impl Read + Send + 'static) -> Download {
        Download {
            response,
            source: Box::new(source),
        }
    }
}

/// How many are under way.
pub struct Downloads {
    count: Arc<AtomicUsize>,
    shares: Arc<Shares>,
}

/// One of the downloads that may be under way, however it ends.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Downloads {
    pub fn new(shares: Arc<Shares>) -> Downloads {
        Downloads {
            count: Arc::default(),
            shares,
        }
    }

    /// `owner`: whose share of the downloads it takes. `None`: of a caller that is exempt.
    pub fn begin(&self, download: Download, owner: Option<ShareOwner>, answer: Answer) {
        let share = match self.shares.begin_download(owner, DOWNLOADS_MAX) {
            Ok(share) => share,
            Err(refused) => return answer.give(refused.response()),
        };
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.count.clone());
        if others >= DOWNLOADS_MAX {
            let message = format!("{DOWNLOADS_MAX} downloads are under way, try again");
            return answer.give(ApiError::new(503, "busy", message).response());
        }
        let spawned = std::thread::Builder::new()
            .name("download".to_string())
            .spawn(move || {
                let _held = (place, share);
                send(download, answer);
            });
        if let Err(error) = spawned {
            log::error!("a download could not begin: {error}");
        }
    }
}

fn send(mut download: Download, answer: Answer) {
    let Some(writer) = answer.stream(download.response, PIECES_MAX) else {
        return;
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // Dropping the writer would look like the end of the download, so a panic breaks it off as an error does.
        let read = catch_unwind(AssertUnwindSafe(|| download.source.read(&mut piece)));
        match read.unwrap_or_else(|panic| Err(io::Error::other(panic_text(&*panic)))) {
            Ok(0) => return,
            Ok(bytes) if writer.write_patiently(piece[..bytes].to_vec().into()) => {}
            Ok(_) => return,
            Err(error) => {
                // The client sees a body that ends too soon.
                log::error!("a download could not be read to its end: {error}");
                return writer.break_off();
            }
        }
    }
}
