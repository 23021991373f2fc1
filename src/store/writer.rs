//! The writer thread: it owns the connection that writes, and commits what is queued as one group.
//!
//! Nobody is told "done" before the commit is on disk. A closure that fails or panics is rolled back alone: one that had
//! written something takes its group back, which then runs again with a savepoint around each. When the disk is full the
//! group is rolled back and its callers are told; any other error of a commit leaves open whether it happened, so the
//! process says so and aborts: the next start finds out.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, unbounded};
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};

use super::mark::MarkFile;
use super::schema::{LOCK_FILE, OpenError};
use super::{Shared, StoreError, StoreFailure, Tx, is_corruption};
use crate::essential::{
    abort_process, abort_with_advice, catch_and_count, panic_text, print_last_words,
    spawn_essential,
};
use crate::metrics::PanicPlace;
use crate::planted::{Bug, planted};

/// A group larger than this gains nothing and makes its first caller wait.
const GROUP_MAX: usize = 256;

/// Waking a caller costs microseconds. The writer does that for so many of a group; more are left to a thread of their own.
const ANSWERED_AT_ONCE: usize = 4;

/// New pages in the write-ahead log: worth a checkpoint when nothing is queued; and due.
const WAL_PAGES_WORTH: i32 = 1_000;
const WAL_PAGES_DUE: i32 = 4_000;
/// Readers that begin one after another can keep the log from ever beginning anew. At this length, 64 MB, the writer waits for them.
const WAL_PAGES_MAX: i32 = 16_000;
/// Each has what it reads in a fraction of this.
const READERS_WAITED_FOR: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_millis(50);

/// How often the files are looked for when nothing is written.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the write-ahead log has before its first page, and before each page.
const LOG_HEADER_BYTES: u64 = 32;
const LOG_PAGE_HEADER_BYTES: u64 = 24;

/// As a server that finds the corruption when it starts exits: `error` in the README's table of exit codes.
const CORRUPT_EXIT_CODE: i32 = 1;

/// A call's life, so that one whose caller gave up never runs.
const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const ABANDONED: u8 = 2;

/// What the writer runs and answers; the caller's types are erased.
trait Call: Send {
    /// Returns false if the caller has left.
    fn take(&self) -> bool;
    /// Runs the closure; returns whether its changes are to be kept.
    fn run(&mut self, tx: &Tx) -> bool;
    /// The closure's changes did not last; it answers this instead.
    fn undo(&mut self, error: StoreError);
    /// The transaction was given up during this call: it says so, unless it has an error of its own to tell.
    fn lose(&mut self);
    /// Returns the message of SQLite if the closure met a corrupt database.
    fn corruption(&self, shared: &Shared) -> Option<String>;
    fn answer(self: Box<Self>);
}

/// Whoever a call is answered to.
trait Recipient<R>: Send {
    /// Returns false if it has left.
    fn take(&self) -> bool;
    fn give(self, answer: R);
}

struct TypedCall<T, E, F, R>
where
    E: StoreFailure,
    R: Recipient<Result<T, E>>,
{
    /// Gone before the answer is given: what it owns is then the recipient's alone.
    work: Option<F>,
    result: Option<Result<T, E>>,
    /// Gone once it is answered.
    recipient: Option<R>,
}

impl<T, E, F, R> Call for TypedCall<T, E, F, R>
where
    F: Fn(&Tx) -> Result<T, E> + Send,
    T: Send,
    E: StoreFailure + Send,
    R: Recipient<Result<T, E>>,
{
    fn take(&self) -> bool {
        self.recipient.as_ref().is_some_and(Recipient::take)
    }

    fn run(&mut self, tx: &Tx) -> bool {
        let work = self
            .work
            .as_ref()
            .expect("a call runs before it is answered");
        let result = catch_unwind(AssertUnwindSafe(|| work(tx))).unwrap_or_else(|panic| {
            tx.shared.metrics.panics.add(PanicPlace::Transaction);
            Err(StoreError::Panicked {
                message: panic_text(&*panic),
            }
            .into())
        });
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn undo(&mut self, error: StoreError) {
        self.result = Some(Err(error.into()));
    }

    fn lose(&mut self) {
        if matches!(self.result, Some(Ok(_))) {
            self.undo(StoreError::Lost);
        }
    }

    fn corruption(&self, shared: &Shared) -> Option<String> {
        match &self.result {
            Some(Err(error)) => shared.corruption_in(error),
            _ => None,
        }
    }

    fn answer(mut self: Box<Self>) {
        self.work = None;
        let result = self
            .result
            .take()
            .expect("a call is run before it is answered");
        if let Some(recipient) = self.recipient.take() {
            recipient.give(result);
        }
    }
}

impl<T, E, F, R> Drop for TypedCall<T, E, F, R>
where
    E: StoreFailure,
    R: Recipient<Result<T, E>>,
{
    /// A call that is dropped unanswered leaves nobody waiting.
    fn drop(&mut self) {
        // A bug of ours is about to end the process; what was committed must not be called undone before that.
        if std::thread::panicking() {
            return;
        }
        self.work = None;
        if let Some(recipient) = self.recipient.take() {
            recipient.give(Err(StoreError::Stopped.into()));
        }
    }
}

/// Where one caller waits for its answer. A channel would do, but its receiver spins before it sleeps, and hundreds of
/// spinning callers take the processor from the writer that they wait for.
struct Reply<R> {
    status: AtomicU8,
    answer: Mutex<Option<R>>,
    caller: Thread,
}

impl<R> Reply<R> {
    fn new() -> Reply<R> {
        let status = AtomicU8::new(QUEUED);
        Reply {
            status,
            answer: Mutex::new(None),
            caller: std::thread::current(),
        }
    }

    fn change_status(&self, from: u8, to: u8) -> bool {
        self.status
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The answer, or `None` at the deadline.
    fn wait_until(&self, deadline: Instant) -> Option<R> {
        loop {
            if let Some(answer) = self
                .answer
                .lock()
                .expect("no panic while it is held")
                .take()
            {
                return Some(answer);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            std::thread::park_timeout(left);
        }
    }
}

impl<R: Send> Recipient<R> for Arc<Reply<R>> {
    fn take(&self) -> bool {
        self.change_status(QUEUED, TAKEN)
    }

    fn give(self, answer: R) {
        *self.answer.lock().expect("no panic while it is held") = Some(answer);
        self.caller.unpark();
    }
}

/// A call that becomes part of a group on its way to the disk. No thread waits for it: its answer is handed on.
pub struct Joiner(Box<dyn Call>);

impl Joiner {
    /// `hand_on` is called when the outcome is known, on a thread of the store: it must not block.
    pub fn new<T, E, F, H>(work: F, hand_on: H) -> Joiner
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
        H: FnOnce(Result<T, E>) + Send + 'static,
    {
        Joiner(Box::new(TypedCall {
            work: Some(work),
            result: None,
            recipient: Some(HandOn(hand_on)),
        }))
    }
}

struct HandOn<H>(H);

impl<R, H: FnOnce(R) + Send> Recipient<R> for HandOn<H> {
    fn take(&self) -> bool {
        true
    }

    fn give(self, answer: R) {
        (self.0)(answer);
    }
}

/// A file that this process has open. SQLite goes on writing into a file that was removed, and the next start would not find it. A
/// lock on a file that was removed keeps no other server out.
struct WatchedFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl WatchedFile {
    fn of(path: PathBuf) -> io::Result<WatchedFile> {
        let found = path.metadata()?;
        Ok(WatchedFile {
            path,
            identity: (found.dev(), found.ino()),
        })
    }

    /// The write-ahead log of a database. A connection that has written has it open.
    fn of_log(database: &Path) -> io::Result<WatchedFile> {
        let mut path = database.as_os_str().to_os_string();
        path.push("-wal");
        WatchedFile::of(path.into())
    }

    fn state(&self) -> FileState {
        match self.path.metadata() {
            Ok(found) if (found.dev(), found.ino()) == self.identity => {
                FileState::There { bytes: found.len() }
            }
            Ok(found) => FileState::Replaced { bytes: found.len() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileState::Removed,
            // Nothing is known of it, and the next write shows whether it can be used.
            Err(_) => FileState::There { bytes: u64::MAX },
        }
    }
}

/// What has the name of a watched file now.
enum FileState {
    There { bytes: u64 },
    Removed,
    Replaced { bytes: u64 },
}

/// The callers' side of the writer thread.
pub struct Writer {
    calls: Option<Sender<Box<dyn Call>>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Writer {
    pub fn start(
        connection: Connection,
        mark: MarkFile,
        shared: Arc<Shared>,
    ) -> io::Result<Writer> {
        let (calls_tx, calls_rx) = bounded(shared.options.queue_max);
        let (groups_tx, groups_rx) = unbounded::<Vec<Box<dyn Call>>>();
        let kept = shared.clone();
        let database = WatchedFile::of(connection.path().unwrap_or_default().into())?;
        let log = WatchedFile::of_log(&database.path)?;
        let lock = WatchedFile::of(database.path.with_file_name(LOCK_FILE))?;
        let database_bytes = database.path.metadata()?.len();
        let page_bytes: u32 = connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(io::Error::other)?;
        let answers = spawn_essential("answers", move || {
            let groups = groups_rx.iter();
            groups.for_each(|group| group.into_iter().for_each(Call::answer));
        })?;
        let writer = spawn_essential("writer", move || {
            let thread = WriterThread {
                database,
                log,
                lock,
                database_bytes: Cell::new(database_bytes),
                page_bytes: page_bytes.into(),
                mark: RefCell::new(mark),
                checked_at: Cell::new(Instant::now()),
                connection,
                shared,
                answers: groups_tx,
                wal_pages_old: 0,
            };
            thread.run(&calls_rx);
        })?;
        Ok(Writer {
            calls: Some(calls_tx),
            threads: vec![writer, answers],
            shared: kept,
        })
    }

    pub fn queued(&self) -> usize {
        self.calls.as_ref().map_or(0, Sender::len)
    }

    pub fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        self.wait(self.queue(work))
    }

    pub fn write_many<T, E, F>(&self, works: Vec<F>) -> Vec<Result<T, E>>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        let queued: Vec<_> = works.into_iter().map(|work| self.queue(work)).collect();
        queued.into_iter().map(|queued| self.wait(queued)).collect()
    }

    fn queue<T, E, F>(&self, work: F) -> Queued<Result<T, E>>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        let begun = Instant::now();
        let reply = Arc::new(Reply::new());
        let call = TypedCall {
            work: Some(work),
            result: None,
            recipient: Some(reply.clone()),
        };
        let calls = self
            .calls
            .as_ref()
            .expect("there until the writer is dropped");
        let refused = match calls.send_timeout(Box::new(call), self.deadline()) {
            Ok(()) => None,
            Err(SendTimeoutError::Timeout(_)) => Some(self.busy(begun)),
            Err(SendTimeoutError::Disconnected(_)) => Some(StoreError::Stopped),
        };
        Queued {
            reply,
            begun,
            refused,
        }
    }

    fn wait<T, E: From<StoreError>>(&self, queued: Queued<Result<T, E>>) -> Result<T, E> {
        let Queued {
            reply,
            begun,
            refused,
        } = queued;
        if let Some(error) = refused {
            return Err(error.into());
        }
        if let Some(result) = reply.wait_until(begun + self.deadline()) {
            return result;
        }
        if reply.change_status(QUEUED, ABANDONED) {
            return Err(self.busy(begun).into());
        }
        // It is being carried out: "busy" would be a lie now.
        match reply.wait_until(Instant::now() + self.deadline()) {
            Some(result) => result,
            None => {
                self.shared.count_refusal();
                Err(StoreError::OutcomeUnknown.into())
            }
        }
    }

    fn busy(&self, begun: Instant) -> StoreError {
        self.shared.count_refusal();
        StoreError::Busy {
            waited_ms: begun.elapsed().as_millis() as u64,
        }
    }

    fn deadline(&self) -> Duration {
        self.shared.options.write_deadline
    }
}

/// A call on its way, or why it did not get on it.
struct Queued<R> {
    reply: Arc<Reply<R>>,
    begun: Instant,
    refused: Option<StoreError>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.calls = None;
        // A call that outlived its caller may own the last handle of the store: then this is one of our own threads.
        let current = std::thread::current().id();
        if (self.threads.iter()).any(|thread| thread.thread().id() == current) {
            return;
        }
        for thread in self.threads.drain(..) {
            thread
                .join()
                .expect("a panic of these threads ends the process");
        }
    }
}

thread_local! {
    /// Pages in the write-ahead log after the last commit of this thread. The hook is a plain function.
    static WAL_PAGES: Cell<i32> = const { Cell::new(0) };
}

fn note_wal_pages(_: &Wal, pages: i32) -> rusqlite::Result<()> {
    WAL_PAGES.set(pages);
    Ok(())
}

/// Says what happened to a file that is shorter than it must be.
fn shortening_word(bytes: u64) -> &'static str {
    match bytes {
        0 => "emptied",
        _ => "truncated",
    }
}

struct WriterThread {
    database: WatchedFile,
    log: WatchedFile,
    lock: WatchedFile,
    /// Size of the database file after the last checkpoint. The file changes with checkpoints alone.
    database_bytes: Cell<u64>,
    /// Size of a page of the database.
    page_bytes: u64,
    mark: RefCell<MarkFile>,
    /// When the mark was last looked for.
    checked_at: Cell<Instant>,
    connection: Connection,
    shared: Arc<Shared>,
    /// Groups whose outcome is known and whose callers are to be told.
    answers: Sender<Vec<Box<dyn Call>>>,
    /// What the last checkpoint had to leave in the log.
    wal_pages_old: i32,
}

/// Calls that share a commit.
struct Group {
    calls: Vec<Box<dyn Call>>,
    /// Where those begin who joined it on its way, once they were asked.
    joined_from: Option<usize>,
}

impl Group {
    fn remove(&mut self, index: usize) -> Box<dyn Call> {
        if let Some(from) = &mut self.joined_from
            && index < *from
        {
            *from -= 1;
        }
        self.calls.remove(index)
    }

    fn split_off_joined(&mut self) -> Vec<Box<dyn Call>> {
        let from = self.joined_from.unwrap_or(self.calls.len());
        self.calls.split_off(from)
    }

    fn undo(&mut self, error: impl Fn() -> StoreError) {
        self.calls.iter_mut().for_each(|call| call.undo(error()));
    }
}

/// How the calls of a group are kept from each other.
#[derive(Clone, Copy, PartialEq)]
enum Care {
    /// Not at all. A savepoint copies every page that its call touches, for calls that hardly ever fail after a write.
    Together,
    /// Each in its savepoint, since one of them did.
    Apart,
}

/// How a group's attempt to commit ended.
enum GroupEnd {
    Committed(super::Changes),
    /// A call failed after it had written something, and nothing stood between it and the others: all of it was undone.
    Spoiled,
    /// The whole transaction is gone: this call's error took the others with it.
    LostBy(usize),
    Full,
    /// Nothing was begun: another process holds the database.
    Refused,
}

/// How one call of a group ended.
enum Ran {
    Kept(super::Changes),
    /// It failed, and nothing of it is there.
    Undone,
    /// It failed, and what it wrote cannot be undone alone.
    Spoiled,
}

impl WriterThread {
    fn run(mut self, calls: &Receiver<Box<dyn Call>>) {
        self.connection.wal_hook(Some(note_wal_pages));
        loop {
            let first = if self.wal_pages_new() > WAL_PAGES_WORTH {
                match calls.recv_timeout(IDLE) {
                    Ok(call) => call,
                    Err(RecvTimeoutError::Timeout) => {
                        self.checkpoint();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            } else {
                match calls.recv_timeout(FILE_CHECK_INTERVAL) {
                    Ok(call) => call,
                    Err(RecvTimeoutError::Timeout) => {
                        self.stop_if_damaged();
                        self.look_for_mark();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            };
            self.serve_group(first, calls);
            self.look_for_mark();
            // What could not begin anew at its full length is tried again soon.
            let due = match WAL_PAGES.get() > WAL_PAGES_MAX {
                true => WAL_PAGES_WORTH,
                false => WAL_PAGES_DUE,
            };
            if self.wal_pages_new() > due {
                self.checkpoint();
            }
        }
        // Closing the last connection moves the rest of the log into the database.
    }

    fn wal_pages_new(&self) -> i32 {
        WAL_PAGES.get() - self.wal_pages_old
    }

    /// Takes what is queued, never waits for more, and answers after the commit.
    fn serve_group(&self, first: Box<dyn Call>, calls: &Receiver<Box<dyn Call>>) {
        let mut group: Vec<Box<dyn Call>> = Vec::new();
        let mut take = |call: Box<dyn Call>| {
            if call.take() {
                group.push(call);
            }
        };
        take(first);
        let mut taken = 1;
        while taken < GROUP_MAX
            && let Ok(call) = calls.try_recv()
        {
            take(call);
            taken += 1;
        }
        if group.is_empty() {
            return;
        }
        let mut group = Group {
            calls: group,
            joined_from: None,
        };
        let mut care = Care::Together;
        while !group.calls.is_empty() {
            let begun = Instant::now();
            match self.commit_group(&mut group, care) {
                GroupEnd::Committed(changes) => {
                    // Before anybody is told: whoever asks then finds it counted.
                    let metrics = &self.shared.metrics;
                    metrics.count(&changes.facts);
                    metrics.store_batch_size.observe(group.calls.len() as f64);
                    (metrics.store_write_seconds).observe(begun.elapsed().as_secs_f64());
                    // Those who joined come first: whoever hears of the commit then knows already what they got.
                    group.split_off_joined().into_iter().for_each(Call::answer);
                    self.shared.publish(changes);
                    break;
                }
                GroupEnd::Spoiled => care = Care::Apart,
                // The others run once more without it. Each round is one call shorter, so this ends.
                GroupEnd::LostBy(culprit) => {
                    self.shared.count_refusal();
                    let mut lost = group.remove(culprit);
                    lost.lose();
                    lost.answer();
                }
                GroupEnd::Full => {
                    self.shared.count_refusal();
                    group.undo(|| StoreError::Full);
                    break;
                }
                GroupEnd::Refused => {
                    self.shared.count_refusal();
                    group.undo(|| StoreError::Busy { waited_ms: 0 });
                    break;
                }
            }
        }
        let group = group.calls;
        let stats = &self.shared.stats;
        stats.groups.fetch_add(1, Ordering::Relaxed);
        stats.calls.fetch_add(group.len() as u64, Ordering::Relaxed);
        if group.len() <= ANSWERED_AT_ONCE {
            group.into_iter().for_each(Call::answer);
        } else {
            let taken = self.answers.send(group);
            assert!(taken.is_ok(), "that thread ends after this one");
        }
    }

    fn commit_group(&self, group: &mut Group, care: Care) -> GroupEnd {
        self.stop_if_damaged();
        if planted(Bug::ReplyBeforeCommit) && !self.connection.is_autocommit() {
            let late = self.statement("COMMIT");
            assert!(late.is_ok(), "a planted bug needs no care");
        }
        if let Err(error) = self.statement("BEGIN IMMEDIATE") {
            return match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => GroupEnd::Full,
                Some(ErrorCode::DatabaseBusy) => {
                    log::error!("another process holds the database: {error}");
                    GroupEnd::Refused
                }
                _ => self.stop("a transaction could not begin", &error),
            };
        }
        let mut has_changed_rows = false;
        let mut changes = super::Changes::default();
        let mut index = 0;
        loop {
            if index == group.calls.len() && changes.notice.steps_ready {
                self.let_join(group);
            }
            let Some(call) = group.calls.get_mut(index) else {
                break;
            };
            let rows_before = self.connection.total_changes();
            let run = match care {
                Care::Together => Ok(self.run_bare(call.as_mut())),
                Care::Apart => self.run_in_savepoint(call.as_mut()),
            };
            match run {
                Ok(Ran::Kept(kept)) => {
                    has_changed_rows |= self.connection.total_changes() != rows_before;
                    changes.absorb(kept);
                }
                Ok(Ran::Undone) => {}
                Ok(Ran::Spoiled) => return self.roll_back(GroupEnd::Spoiled),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                    return self.roll_back(GroupEnd::Full);
                }
                Err(error) => self.stop("a savepoint could not be kept", &error),
            }
            if let Some(detail) = call.corruption(&self.shared) {
                self.roll_back(GroupEnd::Spoiled);
                self.stop_if_damaged();
                self.stop_corrupt(detail);
            }
            if self.connection.is_autocommit() {
                return GroupEnd::LostBy(index);
            }
            index += 1;
        }
        let tx = Tx::new(&self.connection, &self.shared);
        let mut new_lineage = None;
        // A group that changed nothing needs no number, no service clock and no sync of the disk.
        let numbered = match has_changed_rows {
            true => {
                let expected = self.mark.borrow().number() + 1;
                let sealed = tx.seal(&changes);
                sealed.and_then(|()| tx.number_commit(expected)).map(Some)
            }
            false => Ok(None),
        };
        let committed = numbered.and_then(|number| {
            if changes
                .rare
                .as_ref()
                .is_some_and(|rare| rare.begins_lineage)
            {
                new_lineage = Some(tx.lineage()?.key);
            }
            if !planted(Bug::ReplyBeforeCommit) {
                self.statement("COMMIT")?;
            }
            Ok(number)
        });
        match committed {
            Ok(number) => {
                // A commit in a file that has no name any more is not durable, and must not be acknowledged.
                self.stop_if_damaged();
                if let Some(number) = number {
                    if !planted(Bug::ReplyBeforeCommit) {
                        self.mark.borrow_mut().advance(number, new_lineage);
                        self.shared.commit_number.store(number, Ordering::Release);
                    }
                    let commits = &self.shared.stats.durable_commits;
                    commits.fetch_add(1, Ordering::Relaxed);
                } else {
                    // The service clock on disk stays where it was.
                    changes.up = None;
                }
                GroupEnd::Committed(changes)
            }
            Err(StoreError::Full) => self.roll_back(GroupEnd::Full),
            Err(StoreError::Sqlite(error)) => {
                self.stop("a commit failed and its outcome is unknown", &error)
            }
            Err(error) => self.abort("a commit failed and its outcome is unknown", &error),
        }
    }

    /// Ends the process if the database or its write-ahead log was removed, replaced or truncated, if the lock file is another one, or if
    /// a reader has met a corrupt page. Not to be called in a transaction.
    fn stop_if_damaged(&self) {
        let path = self.database.path.display();
        match self.database.state() {
            FileState::There { bytes } if bytes >= self.database_bytes.get() => {}
            FileState::There { bytes } => {
                if bytes < self.database_bytes_min() {
                    self.abort_without_file(&format!(
                        "the database was {} while it is in use: {path}",
                        shortening_word(bytes)
                    ));
                }
                self.database_bytes.set(bytes);
            }
            FileState::Removed | FileState::Replaced { .. } => self.abort_without_file(&format!(
                "the database was removed or replaced while it is in use: {path}"
            )),
        }
        let path = self.log.path.display();
        let removed = "the write-ahead log was removed or replaced while it is in use";
        match self.log.state() {
            FileState::There { bytes } if bytes >= self.log_bytes_min() => {}
            FileState::There { bytes } => self.abort_without_file(&format!(
                "the write-ahead log was {} while it is in use: {path}",
                shortening_word(bytes)
            )),
            // This process still has the former log open. A new reader of this process may have made an empty one.
            FileState::Removed | FileState::Replaced { bytes: 0 } => {
                match self.save_removed_log() {
                    Ok(()) => abort_process(&format!(
                        "{removed}: {path}: all of its commits were moved into the database"
                    )),
                    Err(why) => self.abort_without_file(&format!("{removed}: {path}: {why}")),
                }
            }
            // The next start would add that to the database, so the database is left as it is.
            FileState::Replaced { .. } => {
                self.abort_without_file(&format!("{removed}: {path}: another file has its name"))
            }
        }
        // Another server may have taken the folder by now. It sees every commit of this one, so nothing is lost.
        if !matches!(self.lock.state(), FileState::There { .. }) {
            let path = self.lock.path.display();
            abort_process(&format!(
                "the lock file was removed or replaced while it is in use, so another server can use the data folder: {path}"
            ));
        }
        if let Some(detail) = self.shared.corruption.get() {
            self.stop_corrupt(detail.clone());
        }
    }

    /// Returns the size that the database file has at least. A checkpoint of another program may have made the file smaller than the
    /// last checkpoint of this process left it, but never smaller than the pages that are in use.
    fn database_bytes_min(&self) -> u64 {
        let pages = self
            .connection
            .pragma_query_value(None, "page_count", |row| row.get::<_, u32>(0));
        let bytes = self.database_bytes.get();
        pages.map_or(bytes, |pages| bytes.min(u64::from(pages) * self.page_bytes))
    }

    /// Ends the process because a file of the database is gone. The next start may be refused, so the message does not promise one.
    fn abort_without_file(&self, what: &str) -> ! {
        let file = &self.database.path;
        let folder = crate::words::shell_path(file.parent().unwrap_or(file));
        let advice = format!(
            "put the former file back, or restore a backup: stepward restore FILE --data-dir {folder} --force"
        );
        abort_with_advice(what, &advice)
    }

    /// Returns the length that the write-ahead log has at least, by the pages that the last commit left in it.
    fn log_bytes_min(&self) -> u64 {
        match WAL_PAGES.get() as u64 {
            0 => 0,
            pages => LOG_HEADER_BYTES + pages * (LOG_PAGE_HEADER_BYTES + self.page_bytes),
        }
    }

    /// Moves what a removed log holds into the database. The error says why a part of it could not be moved.
    fn save_removed_log(&self) -> Result<(), String> {
        match self.move_log("PRAGMA wal_checkpoint(FULL)") {
            Ok((pages, moved)) if pages == moved => Ok(()),
            Ok((pages, moved)) => Err(format!(
                "{moved} of its {pages} pages were moved into the database"
            )),
            Err(error) => Err(format!(
                "its commits could not be moved into the database ({error})"
            )),
        }
    }

    /// Writes the mark again if somebody has removed it. Looks for it once in a while.
    fn look_for_mark(&self) {
        if self.checked_at.get().elapsed() >= FILE_CHECK_INTERVAL {
            self.checked_at.set(Instant::now());
            self.mark.borrow_mut().restore_if_removed();
        }
    }

    /// Steps became claimable: whoever waits for them need not wait for the commit, they may share it. Asked once a group.
    fn let_join(&self, group: &mut Group) {
        let (Some(joiners), None) = (self.shared.joiners.get(), group.joined_from) else {
            return;
        };
        group.joined_from = Some(group.calls.len());
        let tx = Tx::new(&self.connection, &self.shared);
        let (metrics, item) = (
            &self.shared.metrics,
            "the search for polls that join a commit",
        );
        let joiners = catch_and_count(metrics, PanicPlace::Transaction, item, || joiners(&tx));
        let joiners = joiners.into_iter().flatten();
        group.calls.extend(joiners.map(|joiner| joiner.0));
    }

    fn run_bare(&self, call: &mut dyn Call) -> Ran {
        let rows_before = self.connection.total_changes();
        let tx = Tx::new(&self.connection, &self.shared);
        if call.run(&tx) {
            Ran::Kept(tx.into_changes())
        } else if self.connection.total_changes() == rows_before || self.connection.is_autocommit()
        {
            Ran::Undone
        } else {
            Ran::Spoiled
        }
    }

    fn run_in_savepoint(&self, call: &mut dyn Call) -> rusqlite::Result<Ran> {
        self.statement("SAVEPOINT one_call")?;
        let tx = Tx::new(&self.connection, &self.shared);
        let keep = call.run(&tx);
        if self.connection.is_autocommit() {
            return Ok(Ran::Undone);
        }
        if !keep {
            self.statement("ROLLBACK TO one_call")?;
        }
        self.statement("RELEASE one_call")?;
        Ok(match keep {
            true => Ran::Kept(tx.into_changes()),
            false => Ran::Undone,
        })
    }

    fn roll_back(&self, end: GroupEnd) -> GroupEnd {
        if !self.connection.is_autocommit()
            && let Err(error) = self.statement("ROLLBACK")
        {
            self.stop("a rollback failed", &error);
        }
        end
    }

    fn statement(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.shared.count_statement(sql);
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    /// Moves the log into the database, as far as no reader still needs it. Waits for readers only when it is too long.
    fn checkpoint(&mut self) {
        // A checkpoint into a file that was emptied would make a database with holes of it.
        self.stop_if_damaged();
        let moved = match WAL_PAGES.get() > WAL_PAGES_MAX {
            false => self.move_log("PRAGMA wal_checkpoint(PASSIVE)"),
            true => self.move_log_and_wait(),
        };
        if moved.is_ok()
            && let FileState::There { bytes } = self.database.state()
            && bytes != u64::MAX
        {
            self.database_bytes.set(bytes);
        }
        match moved {
            Ok((pages, pages_moved)) if pages_moved < pages => self.wal_pages_old = pages,
            // The next commit begins the log anew.
            Ok(_) => {
                self.wal_pages_old = 0;
                WAL_PAGES.set(0);
            }
            Err(error) => match error.sqlite_error_code() {
                // The log keeps what the database has no room for.
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    log::warn!("checkpoint put off: {error}");
                    self.wal_pages_old = WAL_PAGES.get();
                }
                _ => self.stop("a checkpoint failed", &error),
            },
        }
    }

    /// How many pages the log has, and how many of them are in the database.
    fn move_log(&self, how: &str) -> rusqlite::Result<(i32, i32)> {
        self.connection.query_row(how, [], |row| {
            let (busy, pages, moved): (bool, i32, i32) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(match busy {
                // All of it is moved, and somebody still reads from the log: it goes on growing.
                true => (WAL_PAGES.get(), moved.min(WAL_PAGES.get() - 1)),
                false => (pages, moved),
            })
        })
    }

    fn move_log_and_wait(&self) -> rusqlite::Result<(i32, i32)> {
        self.connection.busy_timeout(READERS_WAITED_FOR)?;
        let moved = self.move_log("PRAGMA wal_checkpoint(TRUNCATE)");
        self.connection.busy_timeout(super::schema::BUSY_TIMEOUT)?;
        moved
    }

    /// Ends the process because of an error of SQLite. A corrupt database is told as at the start, with the same exit code: starting
    /// again does not help.
    fn stop(&self, what: &str, error: &rusqlite::Error) -> ! {
        if is_corruption(error) {
            self.stop_corrupt(super::in_one_line(error));
        }
        self.abort(what, error)
    }

    fn stop_corrupt(&self, detail: String) -> ! {
        let corrupt = OpenError::Corrupt {
            file: self.database.path.clone(),
            detail,
        };
        print_last_words(&format!("stepward: {corrupt}"));
        std::process::exit(CORRUPT_EXIT_CODE);
    }

    fn abort(&self, what: &str, error: &dyn std::fmt::Display) -> ! {
        abort_process(&format!("{what}: {error}"))
    }
}
