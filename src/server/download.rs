//! An answer that is too long for one piece: read from disk and sent as fast as the client takes it, never held in memory.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::ApiError;
use super::exchange::Response;
use super::http::Answer;
use super::shares::{HeldShare, ShareOwner, Shares};
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
    /// Reserved before the answer was made. `None`: it is reserved when the download begins.
    place: Option<Place>,
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
            place: None,
        }
    }

    pub fn in_place(self, place: Place) -> Download {
        Download {
            place: Some(place),
            ..self
        }
    }
}

/// How many are under way.
pub struct Downloads {
    count: Arc<AtomicUsize>,
    shares: Arc<Shares>,
}

/// One of the downloads that may be under way, until this value is dropped.
pub struct Place {
    count: Arc<AtomicUsize>,
    _share: Option<HeldShare>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Downloads {
    pub fn new(shares: Arc<Shares>) -> Downloads {
        Downloads {
            count: Arc::default(),
            shares,
        }
    }

    /// Reserves a download, or says why there cannot be another one. `owner`: whose share of the downloads it takes. `None`: of a
    /// caller that is exempt.
    pub fn reserve(&self, owner: Option<ShareOwner>) -> Result<Place, ApiError> {
        let share = self.shares.begin_download(owner, DOWNLOADS_MAX)?;
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            count: self.count.clone(),
            _share: share,
        };
        match others < DOWNLOADS_MAX {
            true => Ok(place),
            false => {
                let message = format!("{DOWNLOADS_MAX} downloads are under way, try again");
                Err(ApiError::new(503, "busy", message))
            }
        }
    }

    pub fn begin(&self, mut download: Download, owner: Option<ShareOwner>, answer: Answer) {
        let place = match download
            .place
            .take()
            .map_or_else(|| self.reserve(owner), Ok)
        {
            Ok(place) => place,
            Err(refused) => return answer.give(refused.response()),
        };
        let spawned = std::thread::Builder::new()
            .name("download".to_string())
            .spawn(move || {
                let _place = place;
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
