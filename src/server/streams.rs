//! Server-sent events: everything that happens, as it happens, resumable by its number.
//!
//! One thread serves all streams. A stream owns its place in what happened and a channel to its client; one that reads slowly
//! lags behind, costs nothing meanwhile, and misses nothing; one that does not read at all is let go, and can resume.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::api::show;
use super::auth::Pass;
use super::error::ApiError;
use super::exchange::Response;
use super::http::{Answer, StreamWriter};
use super::mailbox::Mailbox;
use super::shares::{Limit, ShareOwner, Shares};
use crate::domain::{EventSeq, JobId};
use crate::engine::{Engine, EngineError};
use crate::essential::{catch_and_count, spawn_essential};
use crate::metrics::PanicPlace;
use crate::wire::api::JobChange;

/// Events that a slow reader may have in front of it. With that many in front of a sign of life it is let go: it can resume.
const PIECES_MAX: usize = 256;

/// A sign of life for whoever sits in between, while nothing happens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Told to one stream before the next has its turn.
const BATCH: u32 = 100;

/// Where in what happened a stream is: the last event and the last change of a job that it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub event: EventSeq,
    pub change: i64,
}

impl Place {
    /// As in `Last-Event-ID`: `120.4513`; a single number is an event's, and jobs are told of from now on.
    pub fn parse(text: &str) -> Result<Place, ApiError> {
        let (event, change) = text.split_once('.').unwrap_or((text, ""));
        let event = event.parse().ok();
        let change = match change {
            "" => Some(i64::MAX),
            change => change.parse().ok(),
        };
        let place = event.zip(change).map(|(event, change)| Place {
            event: EventSeq(event),
            change,
        });
        let fault = || ApiError::invalid(format!("{text:?} is not the number of an event"));
        place.ok_or_else(fault)
    }

    /// A place that is yet to come was noted elsewhere, or before a backup was put back: nothing since then is kept back.
    pub fn at_most(self, present: Place) -> Place {
        Place {
            event: self.event.min(present.event),
            change: self.change.min(present.change),
        }
    }
}

/// What somebody wants to be told.
pub struct Subscription {
    pub from: Place,
    pub job_id: Option<JobId>,
    pub pass: Pass,
    /// The caller whose share of the streams this stream takes. `None`: the caller is exempt.
    pub owner: Option<ShareOwner>,
}

pub enum Message {
    Open(Subscription, Answer),
    /// Somebody may not listen any more.
    Look,
    Stop,
}

/// The handlers' side.
pub struct Streams {
    mailbox: Arc<Mailbox<Message>>,
    count: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Streams {
    pub fn start(
        engine: Engine,
        mailbox: Arc<Mailbox<Message>>,
        streams_max: usize,
        shares: Arc<Shares>,
    ) -> std::io::Result<Streams> {
        let count = Arc::<AtomicUsize>::default();
        let teller = Teller {
            engine,
            mailbox: mailbox.clone(),
            open: Vec::new(),
            streams_max,
            shares,
            count: count.clone(),
        };
        let thread = spawn_essential("event-streams", move || teller.run())?;
        Ok(Streams {
            mailbox,
            count,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// How many are open now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn open(&self, subscription: Subscription, answer: Answer) {
        self.mailbox.send(Message::Open(subscription, answer));
    }

    /// A token lets nobody in any more, or somebody has logged out: they are sent away.
    pub fn look(&self) {
        self.mailbox.send(Message::Look);
    }

    pub fn stop(&self) {
        self.mailbox.send(Message::Stop);
        let thread = self
            .thread
            .lock()
            .expect("no panic while it is held")
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the thread of event streams met a bug");
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Teller {
    engine: Engine,
    mailbox: Arc<Mailbox<Message>>,
    open: Vec<Stream>,
    streams_max: usize,
    shares: Arc<Shares>,
    count: Arc<AtomicUsize>,
}

struct Stream {
    writer: StreamWriter,
    /// Where it would resume.
    place: Place,
    /// The last change that it was told, and of which job.
    within: (i64, JobId),
    job_id: Option<JobId>,
    pass: Pass,
    owner: Option<ShareOwner>,
    /// There may be more to tell.
    lags: bool,
}

impl Teller {
    fn run(mut self) {
        let mut signed = Instant::now();
        loop {
            let engine = self.engine.clone();
            let (metrics, item) = (engine.store.metrics(), "a turn of the event streams");
            let turn = catch_and_count(metrics, PanicPlace::EventStreams, item, || {
                self.turn(&mut signed)
            });
            match turn {
                Some(false) => {}
                Some(true) => break,
                // All streams are cut off. Their clients resume where they were.
                None => self.open.clear(),
            }
        }
        self.count.store(0, Ordering::Relaxed);
        self.mailbox.close();
    }

    /// Does what there is to do. `true`: it is told to stop.
    fn turn(&mut self, signed: &mut Instant) -> bool {
        /// Who was told a full batch has more coming, and who had no room may have some.
        const SOON: Duration = Duration::from_millis(50);
        let someone_lags = self.open.iter().any(|stream| stream.lags);
        let until_sign = SIGN_OF_LIFE.saturating_sub(signed.elapsed());
        let mail = self.mailbox.wait(match someone_lags {
            true => SOON.min(until_sign),
            false => until_sign,
        });
        for message in mail.messages {
            match message {
                Message::Open(subscription, answer) => self.open(subscription, answer),
                // As at every turn.
                Message::Look => {}
                Message::Stop => return true,
            }
        }
        if signed.elapsed() >= SIGN_OF_LIFE {
            *signed = Instant::now();
            self.give_sign_of_life();
        }
        self.open
            .retain(|stream| !stream.writer.is_gone() && stream.pass.is_good());
        // Before the streams are told: what happens from now on rings, what happened before is found.
        self.mailbox.want_notices(!self.open.is_empty());
        for stream in &mut self.open {
            if mail.is_noticed || stream.lags {
                stream.lags = stream.tell(&self.engine).unwrap_or_else(|error| {
                    log::warn!("a stream could not be told what happened: {error}");
                    true
                });
            }
        }
        self.count.store(self.open.len(), Ordering::Relaxed);
        false
    }

    /// Whoever has not even room for that has not read for long, and is let go: it can resume.
    fn give_sign_of_life(&mut self) {
        let sign = Bytes::from_static(b": still here\n\n");
        self.open.retain(|stream| stream.writer.write(sign.clone()));
    }

    fn open(&mut self, subscription: Subscription, answer: Answer) {
        self.open.retain(|stream| !stream.writer.is_gone());
        let streams_max = self.streams_max;
        if let Some(owner) = subscription.owner {
            let own = self
                .open
                .iter()
                .filter(|stream| stream.owner == Some(owner));
            if own.count() >= self.shares.share_of(streams_max) {
                let refused = (self.shares).over_share(Limit::EventStreams, owner, streams_max);
                return answer.give(refused.response());
            }
        }
        if self.open.len() >= streams_max {
            let message = format!("{streams_max} streams are open already, close one");
            return answer.give(ApiError::new(503, "too_many_streams", message).response());
        }
        let head = Response {
            status: 200,
            content_type: "text/event-stream",
            headers: Vec::new(),
            body: Bytes::new(),
        };
        if let Some(writer) = answer.stream(head, PIECES_MAX) {
            // Headers go out with the first piece.
            writer.write(Bytes::from_static(b": here we go\n\n"));
            self.open.push(Stream {
                writer,
                place: subscription.from,
                within: (subscription.from.change, JobId(i64::MAX)),
                job_id: subscription.job_id,
                pass: subscription.pass,
                owner: subscription.owner,
                lags: true,
            });
        }
    }
}

impl Stream {
    /// Whether there may be more.
    fn tell(&mut self, engine: &Engine) -> Result<bool, EngineError> {
        let room = u32::try_from(self.writer.room()).unwrap_or(u32::MAX);
        let limit = BATCH.min(room / 2);
        if limit == 0 {
            return Ok(true);
        }
        let events = match self.job_id {
            None => engine.events_after(self.place.event, limit)?,
            Some(job_id) => engine.story(job_id, self.place.event, limit)?,
        };
        let told = events.len();
        for event in events {
            self.place.event = event.event.seq;
            let json = show::event(event);
            self.write("event", &serde_json::to_string(&json).expect("plain data"));
        }
        let (change, job_id) = self.within;
        let changes = engine.jobs_changed(change, job_id, limit)?;
        let found = changes.len();
        for change in changes {
            // Jobs of one commit share their number, which is passed only with the last of them.
            if change.change_seq > self.within.0 {
                self.place.change = self.within.0;
            }
            self.within = (change.change_seq, change.job_id);
            if self.job_id.is_none_or(|job_id| job_id == change.job_id) {
                let json = JobChange {
                    job_id: change.job_id.0,
                    task: change.task,
                    status: change.state.to_string(),
                    change: change.change_seq,
                };
                self.write("job", &serde_json::to_string(&json).expect("plain data"));
            }
        }
        Ok(told == limit as usize || found == limit as usize)
    }

    fn write(&self, kind: &str, data: &str) {
        let Place { event, change } = self.place;
        let mut frame = String::with_capacity(data.len() + 64);
        // Writing to a string cannot fail.
        let _ = write!(
            frame,
            "id: {event}.{change}\nevent: {kind}\ndata: {data}\n\n"
        );
        self.writer.write(frame.into());
    }
}
