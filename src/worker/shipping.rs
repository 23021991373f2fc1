//! The sending of logs. One thread and one connection for all attempts: a log endpoint that hangs holds up logs and nothing else.
//!
//! What is to be sent is on disk, so nothing grows in memory, and what was sent and not answered is sent again: the server
//! says where it goes on. A log is done when its attempt is over and all of it was sent; then its folder goes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::fs::OFlags;

use super::WorkerEvent;
use super::folder::Folder;
use super::machine::Event;
use crate::client::{CallError, Client, UNKNOWN};
use crate::domain::AttemptRef;
use crate::essential::spawn_essential;
use crate::wire::worker::{LOG_NOT_WRITTEN, LogAnswer};

/// In one piece.
const PIECE_BYTES: usize = 256 << 10;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Between two pieces of one log, so that a step that prints line by line does not make a call of each.
const PAUSE: Duration = Duration::from_millis(100);

const TROUBLE_PAUSE: Duration = Duration::from_millis(500);
const TROUBLE_PAUSE_MAX: Duration = Duration::from_secs(30);

enum Message {
    Begin {
        attempt: AttemptRef,
        session_key: String,
        file: PathBuf,
    },
    More(AttemptRef),
    /// No more will be written. Whoever waits for all of it to be sent is told.
    /// `is_held`: the server has not yet said that it has all of it, so the log stays here until `Release`.
    Over {
        attempt: AttemptRef,
        sent: Option<Sender<()>>,
        is_held: bool,
    },
    /// The server has the log only up to this offset.
    Resend {
        attempt: AttemptRef,
        offset: u64,
    },
    /// The server has answered for the attempt: once all is sent, the log may go.
    Release(AttemptRef),
    /// The server is one that this worker belongs to.
    ServerKnown,
}

/// Where logs are handed in. Clones hand in to the same thread.
#[derive(Clone)]
pub struct Shipping {
    messages: Sender<Message>,
}

impl Shipping {
    pub fn start(
        client: Client,
        folder: Arc<Folder>,
        events: Sender<WorkerEvent>,
    ) -> io::Result<(Shipping, JoinHandle<()>)> {
        let (messages, inbox) = unbounded();
        let shipper = Shipper {
            client,
            folder,
            events,
            parcels: BTreeMap::new(),
            trouble_pause: TROUBLE_PAUSE,
            not_before: Instant::now(),
            may_send: false,
            is_held_back: false,
            is_shut_out: false,
        };
        let thread = spawn_essential("worker-logs", move || shipper.run(&inbox))?;
        Ok((Shipping { messages }, thread))
    }

    /// Lets logs be sent. Before that the server may belong to another installation, which must not see them.
    pub fn server_known(&self) {
        self.send(Message::ServerKnown);
    }

    pub fn begin(&self, attempt: AttemptRef, session_key: String, file: PathBuf) {
        self.send(Message::Begin {
            attempt,
            session_key,
            file,
        });
    }

    pub fn more(&self, attempt: AttemptRef) {
        self.send(Message::More(attempt));
    }

    pub fn over(&self, attempt: AttemptRef) {
        self.send(Message::Over {
            attempt,
            sent: None,
            is_held: false,
        });
    }

    /// As `over`, and the log stays here until `release`.
    pub fn over_and_held(&self, attempt: AttemptRef) {
        self.send(Message::Over {
            attempt,
            sent: None,
            is_held: true,
        });
    }

    /// The server asks for the log from this offset on.
    pub fn resend(&self, attempt: AttemptRef, offset: u64) {
        self.send(Message::Resend { attempt, offset });
    }

    /// The server has answered for the attempt.
    pub fn release(&self, attempt: AttemptRef) {
        self.send(Message::Release(attempt));
    }

    /// As `over`, and waits until all of it was sent, or the time is up: then it is sent later. `is_held`: it stays here until
    /// `release`, since the server may ask for some of it again.
    pub fn over_and_wait(&self, attempt: AttemptRef, is_held: bool, wait: Duration) {
        let (sender, sent) = bounded(1);
        let sender = Some(sender);
        self.send(Message::Over {
            attempt,
            sent: sender,
            is_held,
        });
        // Whatever became of it, the result is not to wait any longer.
        let _ = sent.recv_timeout(wait);
    }

    fn send(&self, message: Message) {
        // The thread ends with the worker: what is on disk is sent by its next life.
        let _ = self.messages.send(message);
    }
}

struct Shipper {
    client: Client,
    folder: Arc<Folder>,
    events: Sender<WorkerEvent>,
    parcels: BTreeMap<AttemptRef, Parcel>,
    trouble_pause: Duration,
    /// The server did not answer: nothing is sent before.
    not_before: Instant,
    /// The server is known to be of the installation that this worker belongs to.
    may_send: bool,
    /// The server answers, and does not take logs now: told once for each time that lasts.
    is_held_back: bool,
    /// Its token lets nobody in any more: whoever has a better one sends what is left.
    is_shut_out: bool,
}

struct Parcel {
    session_key: String,
    file: PathBuf,
    offset: u64,
    has_more: bool,
    over: bool,
    /// Nothing more of it is wanted.
    refused: bool,
    /// All was sent, and the server may still ask for some of it again.
    is_held: bool,
    /// How often in a row a proxy refused the next piece.
    troubles: u32,
    next: Instant,
    waiting: Vec<Sender<()>>,
}

impl Shipper {
    /// Ends when nobody can hand in anything any more, or nobody takes it. What is left is sent by the next life.
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let now = Instant::now();
            let due = self.parcels.values();
            let due = due.filter(|parcel| parcel.has_more && self.may_send);
            let due = due.map(|parcel| parcel.next.max(self.not_before)).min();
            let received = match due {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(now)),
            };
            match received {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for message in inbox.try_iter().collect::<Vec<_>>() {
                self.take(message);
            }
            self.send_what_is_due();
            if self.is_shut_out {
                return;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Begin {
                attempt,
                session_key,
                file,
            } => {
                let parcel = Parcel {
                    session_key,
                    file,
                    offset: 0,
                    has_more: false,
                    over: false,
                    refused: false,
                    is_held: false,
                    troubles: 0,
                    next: Instant::now(),
                    waiting: Vec::new(),
                };
                self.parcels.insert(attempt, parcel);
            }
            Message::More(attempt) => {
                if let Some(parcel) = self.parcels.get_mut(&attempt) {
                    parcel.has_more = true;
                }
            }
            Message::Resend { attempt, offset } => {
                if let Some(parcel) = self.parcels.get_mut(&attempt) {
                    parcel.offset = offset;
                    parcel.refused = false;
                    parcel.has_more = true;
                    parcel.next = Instant::now();
                }
            }
            Message::ServerKnown => self.may_send = true,
            Message::Release(attempt) => {
                if let Some(parcel) = self.parcels.get_mut(&attempt) {
                    parcel.is_held = false;
                    parcel.has_more = true;
                }
            }
            Message::Over {
                attempt,
                sent,
                is_held,
            } => {
                if let Some(parcel) = self.parcels.get_mut(&attempt) {
                    parcel.over = true;
                    parcel.is_held |= is_held;
                    parcel.has_more = true;
                    parcel.next = Instant::now();
                    parcel.waiting.extend(sent);
                }
            }
        }
    }

    fn send_what_is_due(&mut self) {
        let now = Instant::now();
        if self.not_before > now || !self.may_send {
            return;
        }
        let due = self.parcels.iter();
        let due = due.filter(|(_, parcel)| parcel.has_more && parcel.next <= now);
        let due: Vec<AttemptRef> = due.map(|(attempt, _)| *attempt).collect();
        for attempt in due {
            if self.send_piece(attempt).is_err() {
                self.not_before = Instant::now() + self.trouble_pause;
                self.trouble_pause = (self.trouble_pause * 2).min(TROUBLE_PAUSE_MAX);
                return;
            }
            self.trouble_pause = TROUBLE_PAUSE;
        }
    }

    /// `Err`: the server cannot be reached.
    fn send_piece(&mut self, attempt: AttemptRef) -> Result<(), ()> {
        let Some(parcel) = self.parcels.get_mut(&attempt) else {
            return Ok(());
        };
        let piece = match parcel.refused {
            true => Vec::new(),
            false => read_piece(&parcel.file, parcel.offset),
        };
        if piece.is_empty() {
            parcel.has_more = false;
            if parcel.over {
                for sent in parcel.waiting.drain(..) {
                    // Whoever waited has gone on.
                    let _ = sent.send(());
                }
                if !parcel.is_held {
                    self.finish(attempt);
                }
            }
            return Ok(());
        }
        let AttemptRef {
            step_id,
            attempt: n,
        } = attempt;
        let (session, offset) = (&parcel.session_key, parcel.offset);
        let path = format!(
            "/api/worker/steps/{step_id}/attempts/{n}/log?session={session}&offset={offset}"
        );
        match self.client.put::<LogAnswer>(&path, &piece, TIMEOUT) {
            Ok(answer) => {
                let session_key = parcel.session_key.clone();
                if std::mem::take(&mut self.is_held_back) {
                    log::info!("the server takes logs again");
                }
                parcel.troubles = 0;
                parcel.offset = answer.length;
                parcel.refused = answer.full;
                let is_last = piece.len() < PIECE_BYTES;
                parcel.next = match is_last && !parcel.over {
                    true => Instant::now() + PAUSE,
                    false => Instant::now(),
                };
                if answer.abort {
                    let aborted = Event::Aborted(session_key, attempt);
                    // The loop is gone only when the process is going.
                    let _ = self.events.send(WorkerEvent::Mind(aborted));
                }
                Ok(())
            }
            Err(CallError::Refused { status, error, .. })
                if is_refusal(status) && error.code != UNKNOWN =>
            {
                log::warn!("the server refuses the log of {attempt}: {}", error.message);
                parcel.refused = true;
                Ok(())
            }
            // A proxy in between refuses this piece. It may be too large for the proxy, so other logs must not wait for it.
            Err(CallError::Refused { status, error, .. })
                if is_refusal(status) && error.code == UNKNOWN =>
            {
                if parcel.troubles == 0 {
                    log::warn!(
                        "the log of {attempt} is refused on its way to the server and waits here: {}",
                        error.message
                    );
                }
                let pause = TROUBLE_PAUSE * 2_u32.saturating_pow(parcel.troubles.min(10));
                parcel.next = Instant::now() + pause.min(TROUBLE_PAUSE_MAX);
                parcel.troubles += 1;
                Ok(())
            }
            Err(error) => {
                log::debug!("the log of {attempt} could not be sent: {error}");
                if let CallError::Refused { error, .. } = &error
                    && error.code == LOG_NOT_WRITTEN
                    && !std::mem::replace(&mut self.is_held_back, true)
                {
                    log::warn!("logs are refused and wait here: {}", error.message);
                }
                self.is_shut_out = self.client.is_shut_out(&error);
                Err(())
            }
        }
    }

    fn finish(&mut self, attempt: AttemptRef) {
        if let Some(parcel) = self.parcels.remove(&attempt) {
            self.folder.clear(attempt, &parcel.session_key);
        }
    }
}

/// Whether this status refuses the piece itself. From the server that is final. A proxy, whose answer has no code of ours, may answer
/// so for a moment only.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400 | 404 | 409 | 410 | 413 | 422)
}

/// A step can put anything in the place of its log: what is no file is not waited for, and a link not followed.
fn open_plain(file: &PathBuf) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(file)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::other("it is no file")),
    }
}

/// What there is from the offset on, at most one piece. A file that is not there has nothing.
fn read_piece(file: &PathBuf, offset: u64) -> Vec<u8> {
    let mut piece = vec![0; PIECE_BYTES];
    let read = open_plain(file).and_then(|file| {
        let mut filled = 0;
        while filled < piece.len() {
            match file.read_at(&mut piece[filled..], offset + filled as u64)? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        Ok(filled)
    });
    piece.truncate(read.unwrap_or(0));
    piece
}
