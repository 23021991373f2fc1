//! Where it is kept: the only SQL in the house.
//!
//! `Store::write` runs a closure on the writer thread, in a transaction that it shares with whatever else is queued, and
//! returns when the commit is on disk. `Store::read` runs one on a snapshot. Both hand out a `Tx`: domain-worded methods,
//! one file per noun, no SQLite type in a signature.
//!
//! Deliberately not here: decisions. A method loads, or changes what the caller has decided, guarded by what it had read.

mod assignments;
mod attempts;
mod audit;
mod census;
mod contacts;
mod copy;
mod definitions;
mod events;
mod examine;
mod invariants;
mod job_search;
mod jobs;
mod lineage;
mod log_faults;
mod loops;
mod mark;
mod opening;
mod outbox;
mod queue;
mod recovery;
mod requirements;
mod retention;
mod rows;
mod schedules;
mod schema;
mod steps;
mod tokens;
mod workers;
mod writer;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Params, Rows};

use crate::domain::audit::{Actor, AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::outbox::Target;
use crate::domain::task::Definition;
use crate::domain::token::CONSOLE;
use crate::domain::{DefinitionId, EventSeq, JobId, Now, Timestamp, Uptime, WorkerId};
use crate::metrics::{Fact, Metrics, StoreErrorKind};
use crate::sealer::{SealPlace, Sealer};

pub use assignments::{Claim, Demand, Held, JobPayload, NextClaim};
pub use attempts::{FormerAttempt, FormerOutcome};
pub use audit::{AUDIT_SCAN_MAX, AuditFilter, AuditPage, AuditSubject};
pub use census::{ClaimableSteps, OpenRows};
pub use contacts::Contact;
pub use copy::{Copy, CopyError, GoOn, Stopped, Taken, take_copy};
pub use definitions::{Frozen, hex_sha256};
pub use examine::{Depth, ExamineError, Examined, Standing, examine};
pub use invariants::Breach;
pub use job_search::PAGE_BYTES_MAX;
pub use jobs::{ChangedJob, JobStanding, NewJob, PastJob, RelatedJob};
pub use log_faults::FaultyLog;
pub use mark::{MARK_FILE, mark_fault};
pub use opening::Opening;
pub use outbox::{MessageFilter, Tried};
pub use queue::QueuePlace;
pub use requirements::{Requirement, requirement_words};
pub use retention::{FileSize, FireRef, Named, OwnedKey, RemovedPiece, RootJob};
pub use schema::accepting_command;
pub use schema::{
    DATABASE_FILE, FolderLock, LOCK_FILE, OpenError, RESTORING_FILE, SCHEMA_VERSION,
    UNPACKING_FOLDER, compact, hold_folder, random_key,
};
pub use steps::{Ending, NewStep};
pub use workers::SessionView;
pub use writer::Joiner;

/// What a caller of the store must be ready for.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store is busy: nothing was written after {waited_ms} ms, try again")]
    Busy { waited_ms: u64 },
    #[error("the disk is full: nothing was written, make room and try again")]
    Full,
    #[error(
        "the write was begun but not confirmed in time: it may or may not have happened, look before repeating it"
    )]
    OutcomeUnknown,
    #[error("the database gave the transaction up: nothing was written, try again")]
    Lost,
    #[error("the store is stopped")]
    Stopped,
    #[error("a bug was met and its change undone: {message}")]
    Panicked { message: String },
    #[error("the database holds {found:?} where {expected} belongs, run: stepward db check")]
    Unreadable {
        expected: &'static str,
        found: String,
    },
    #[error("the database refused: {}", in_one_line(.0))]
    Sqlite(rusqlite::Error),
    #[error("no connection to read with: {0}")]
    Pool(r2d2::Error),
}

impl StoreError {
    fn kind(&self) -> StoreErrorKind {
        match self {
            StoreError::Busy { .. } => StoreErrorKind::Busy,
            StoreError::Full => StoreErrorKind::Full,
            StoreError::OutcomeUnknown => StoreErrorKind::OutcomeUnknown,
            StoreError::Lost => StoreErrorKind::Lost,
            StoreError::Stopped => StoreErrorKind::Stopped,
            StoreError::Panicked { .. } => StoreErrorKind::Panicked,
            StoreError::Unreadable { .. } => StoreErrorKind::Unreadable,
            StoreError::Sqlite(_) => StoreErrorKind::Sqlite,
            StoreError::Pool(_) => StoreErrorKind::Pool,
        }
    }

    /// Returns the message of SQLite about a corrupt database, or `None` if the error is another one.
    fn corruption(&self) -> Option<String> {
        match self {
            StoreError::Sqlite(error) if is_corruption(error) => Some(in_one_line(error)),
            _ => None,
        }
    }

    /// Through no fault of the call.
    pub fn is_refusal(&self) -> bool {
        use StoreError::*;
        matches!(self, Busy { .. } | Full | OutcomeUnknown | Lost | Stopped)
    }
}

/// An error of a closure that the store runs: the store counts the errors that are its own.
pub trait StoreFailure: From<StoreError> {
    /// The error of the store, if it is one.
    fn store_error(&self) -> Option<&StoreError>;
}

impl StoreFailure for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}

fn is_corruption(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// What SQLite said, without the statement that it said it about.
fn in_one_line(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            _ => StoreError::Sqlite(error),
        }
    }
}

/// Called before each statement with its number and its text. Tests count with it, and end the process at a chosen one.
pub type StatementObserver = Arc<dyn Fn(u64, &'static str) + Send + Sync>;

/// What a commit may mean to those who wait for something. A hint: whoever gets it looks for himself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    /// Steps became claimable.
    pub steps_ready: bool,
    /// Workers from whom something was taken, or whose flags or session changed, not through a call of their own.
    pub workers: BTreeSet<WorkerId>,
    /// Jobs changed or events were recorded.
    pub news: bool,
    /// Messages were posted, or are to be sent at once.
    pub posted: bool,
}

impl Notice {
    pub fn is_empty(&self) -> bool {
        !self.steps_ready && !self.news && !self.posted && self.workers.is_empty()
    }

    pub fn absorb(&mut self, other: Notice) {
        self.steps_ready |= other.steps_ready;
        self.news |= other.news;
        self.posted |= other.posted;
        self.workers.extend(other.workers);
    }
}

/// Called on the writer's thread before a commit that makes steps claimable, with what is about to be committed: the calls
/// that it returns become part of it. It must not block, nor keep the store alive.
pub type Joiners = Arc<dyn Fn(&Tx) -> Vec<Joiner> + Send + Sync>;

/// Called on the writer's thread after each commit that means something to others: it must not block.
pub type CommitObserver = Arc<dyn Fn(Notice) + Send + Sync>;

#[derive(Clone)]
pub struct StoreOptions {
    /// Calls that may wait for the writer; one more waits for room, up to the deadline.
    pub queue_max: usize,
    pub write_deadline: Duration,
    pub readers_max: u32,
    pub on_statement: Option<StatementObserver>,
    pub on_commit: Option<CommitObserver>,
    /// What links to this server begin with, without a slash at its end. Empty: whoever reads them knows.
    pub public_url: String,
    /// `false`: a database of an older version is refused and stays as it is.
    pub upgrades: bool,
    /// The folder has everything that belongs to its database: the key of sealed inputs, and no logs of other jobs. `false` for a copy
    /// of the database alone.
    pub is_whole_folder: bool,
    /// When a person said that a database older than its mark, or another one than the mark names, is accepted. It begins a new
    /// lineage. `None`: it is refused.
    pub accepted_older_at: Option<Timestamp>,
    /// A call that meets a corrupt page ends the process, because what is acknowledged after that may not be readable again. The next
    /// start refuses the database, unless it is too large for a start to check every page. `false` for a command that looks at a
    /// database to report what is wrong with it.
    pub ends_on_corruption: bool,
}

impl StoreOptions {
    /// For a copy, which may have been made without the key.
    pub fn of_copy() -> StoreOptions {
        StoreOptions {
            is_whole_folder: false,
            ends_on_corruption: false,
            ..StoreOptions::default()
        }
    }

    /// For whoever only looks: an older stepward may be what the folder is used with.
    pub fn looking() -> StoreOptions {
        StoreOptions {
            upgrades: false,
            ends_on_corruption: false,
            ..StoreOptions::default()
        }
    }
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            queue_max: 4096,
            write_deadline: Duration::from_secs(5),
            readers_max: 4,
            on_statement: None,
            on_commit: None,
            public_url: String::new(),
            is_whole_folder: true,
            upgrades: true,
            accepted_older_at: None,
            ends_on_corruption: true,
        }
    }
}

/// The database in one data folder. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// In the order in which they must end: readers, then the writer, then the lock on the folder.
struct Inner {
    readers: r2d2::Pool<SqliteConnectionManager>,
    writer: writer::Writer,
    shared: Arc<Shared>,
    folder: PathBuf,
    begun_up: Uptime,
    _lock: FolderLock,
}

/// What the writer thread and the readers have in common.
struct Shared {
    options: StoreOptions,
    definitions: Mutex<HashMap<DefinitionId, Arc<Definition>>>,
    change_seq: AtomicI64,
    /// The service clock as it is on disk; the writer alone moves it.
    service_clock_up: AtomicI64,
    /// The number of the last durable commit; the writer alone moves it.
    commit_number: Arc<AtomicI64>,
    /// The message of SQLite to a reader that met a corrupt page. The writer then ends the process.
    corruption: OnceLock<String>,
    joiners: OnceLock<Joiners>,
    sealer: Sealer,
    targets: RwLock<Arc<Vec<Target>>>,
    stats: Stats,
    metrics: Metrics,
    contacts: contacts::UnwrittenContacts,
}

#[derive(Default)]
struct Stats {
    statements: AtomicU64,
    groups: AtomicU64,
    durable_commits: AtomicU64,
    calls: AtomicU64,
    refusals: AtomicU64,
}

/// Frozen definitions kept parsed. They never change, so nothing of the state lives here.
const DEFINITIONS_KEPT_MAX: usize = 256;

impl Store {
    pub fn open(folder: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        Store::finish(Opening::check(folder, options)?)
    }

    /// Opens a folder that was checked before.
    pub fn finish(opening: Opening) -> Result<Store, OpenError> {
        let folder = opening.folder().to_path_buf();
        let in_folder = |source| OpenError::Folder {
            folder: folder.clone(),
            source,
        };
        let (database, options) = opening.finish()?;
        let sealer = Sealer::open(&folder).map_err(in_folder)?;
        let file = folder.join(schema::DATABASE_FILE);
        let refuse = |source| schema::sqlite_refusal(&folder, &file, source);
        let connection = database.connection;
        let change_seq = jobs::change_seq_max(&connection).map_err(refuse)?;
        let begun_up = jobs::service_clock(&connection).map_err(refuse)?;
        let readers = open_readers(&file, options.readers_max)?;
        let shared = Arc::new(Shared {
            options,
            definitions: Mutex::new(HashMap::new()),
            change_seq: AtomicI64::new(change_seq),
            service_clock_up: AtomicI64::new(begun_up.0),
            commit_number: Arc::new(AtomicI64::new(database.mark.number())),
            corruption: OnceLock::new(),
            joiners: OnceLock::new(),
            sealer,
            targets: RwLock::default(),
            stats: Stats::default(),
            metrics: Metrics::default(),
            contacts: contacts::UnwrittenContacts::default(),
        });
        let writer = writer::Writer::start(connection, database.mark, shared.clone());
        let inner = Inner {
            readers,
            writer: writer.map_err(in_folder)?,
            shared,
            folder: folder.clone(),
            begun_up,
            _lock: database.lock,
        };
        let store = Store {
            inner: Arc::new(inner),
        };
        if let Some(wall) = database.accepted_at {
            store
                .go_on_from_older(wall)
                .map_err(|error| in_folder(std::io::Error::other(error.to_string())))?;
        }
        Ok(store)
    }

    /// A person accepted a database that is older than the one the server and its workers knew. It begins a new lineage, and
    /// every worker opens a new session: what was assigned since is not known here.
    fn go_on_from_older(&self, wall: Timestamp) -> Result<(), StoreError> {
        let now = Now {
            wall,
            up: self.begun_up(),
        };
        self.write(move |tx| {
            tx.begin_new_lineage()?;
            let message = "the server goes on from an older database that a person accepted: what happened later is lost, and every \
                           worker opens a new session";
            let actor = Actor::named(CONSOLE);
            tx.audit_as(&actor, &AuditEntry::of(AuditAction::OlderDatabaseAccepted), now)?;
            tx.record(&NewEvent::new(EventKind::OlderDatabaseAccepted, message), now)
        })
    }

    /// Runs the closure on the writer thread and returns when its changes are on disk, or none of them happened.
    ///
    /// The closure may run more than once, so it touches nothing but `tx`.
    pub fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        let result = self.inner.writer.write(work);
        self.inner.shared.count_error(&result);
        result
    }

    /// The same for many closures, each as if it were alone, all queued at once so that they share commits.
    pub fn write_many<T, E, F>(&self, works: Vec<F>) -> Vec<Result<T, E>>
    where
        F: Fn(&Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: StoreFailure + Send + 'static,
    {
        let results = self.inner.writer.write_many(works);
        for result in &results {
            self.inner.shared.count_error(result);
        }
        results
    }

    /// Runs the closure on one snapshot of what is committed.
    pub fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx) -> Result<T, E>,
        E: StoreFailure,
    {
        let result = self.read_snapshot(work);
        self.inner.shared.count_error(&result);
        if let Err(error) = &result
            && let Some(detail) = self.inner.shared.corruption_in(error)
        {
            // The writer ends the process. It looks at the files first, and saves what a removed write-ahead log holds.
            let _ = self.inner.shared.corruption.set(detail);
            let _: Result<(), StoreError> = self.inner.writer.write(|_| Ok(()));
        }
        result
    }

    fn read_snapshot<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx) -> Result<T, E>,
        E: StoreFailure,
    {
        let connection = self.inner.readers.get().map_err(StoreError::Pool)?;
        let snapshot = connection
            .unchecked_transaction()
            .map_err(StoreError::from)?;
        let tx = Tx::new(&snapshot, &self.inner.shared);
        let result = work(&tx)?;
        self.inner.shared.remember(tx.into_changes().definitions);
        Ok(result)
    }

    /// Lets calls join commits that make steps claimable. For one who asks, the first.
    pub fn let_join(&self, joiners: Joiners) {
        let taken = self.inner.shared.joiners.set(joiners);
        assert!(taken.is_ok(), "one lets polls wait, and no other");
    }

    /// Opens a value that was sealed for this place. An error says why not, and nothing of the value.
    pub fn unseal(
        &self,
        place: SealPlace<'_>,
        value: &serde_json::Value,
    ) -> Result<serde_json::Value, String> {
        self.inner.shared.sealer.unseal(place, value)
    }

    /// Of a text that only this installation can have made.
    pub fn fingerprint(&self, text: &str) -> String {
        self.inner.shared.sealer.fingerprint(text)
    }

    /// Whom events are posted to from now on.
    pub fn set_targets(&self, targets: Vec<Target>) {
        let shared = &self.inner.shared.targets;
        *shared.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(targets);
    }

    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// The service clock as the last life of the server left it.
    pub fn begun_up(&self) -> Uptime {
        self.inner.begun_up
    }

    /// The number of the last durable commit, for as long as somebody looks at it.
    pub fn commit_number(&self) -> Arc<AtomicI64> {
        self.inner.shared.commit_number.clone()
    }

    /// The service clock as it is on disk.
    pub fn saved_up(&self) -> Uptime {
        Uptime(self.inner.shared.service_clock_up.load(Ordering::Relaxed))
    }

    /// How often calls were turned away through no fault of their own: a full disk, a lost transaction, no time.
    pub fn refusals(&self) -> u64 {
        self.inner.shared.stats.refusals.load(Ordering::Relaxed)
    }

    /// Statements executed so far.
    pub fn statements(&self) -> u64 {
        self.inner.shared.stats.statements.load(Ordering::Relaxed)
    }

    /// What was counted since it was opened.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.shared.metrics
    }

    /// Calls that wait for the writer.
    pub fn queued(&self) -> usize {
        self.inner.writer.queued()
    }

    /// Commits so far that changed the database, each of which costs one sync of the disk.
    pub fn durable_commits(&self) -> u64 {
        let stats = &self.inner.shared.stats;
        stats.durable_commits.load(Ordering::Relaxed)
    }

    /// Commits so far, and the calls that shared them.
    pub fn groups(&self) -> (u64, u64) {
        let stats = &self.inner.shared.stats;
        (
            stats.groups.load(Ordering::Relaxed),
            stats.calls.load(Ordering::Relaxed),
        )
    }
}

fn open_readers(
    file: &Path,
    readers_max: u32,
) -> Result<r2d2::Pool<SqliteConnectionManager>, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let manager = SqliteConnectionManager::file(file)
        .with_flags(flags)
        .with_init(|connection| {
            schema::configure(connection)?;
            connection.pragma_update(None, "query_only", true)
        });
    r2d2::Pool::builder()
        .max_size(readers_max)
        .min_idle(Some(1))
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connection_timeout(Duration::from_secs(5))
        .build(manager)
        .map_err(|error| OpenError::Folder {
            folder: file.into(),
            source: std::io::Error::other(error.to_string()),
        })
}

impl Shared {
    fn count_error<T, E: StoreFailure>(&self, result: &Result<T, E>) {
        if let Err(error) = result
            && let Some(error) = error.store_error()
        {
            self.metrics.count_store_error(error.kind());
        }
    }

    /// Returns the message of SQLite if the database is corrupt and this process must end because of that.
    fn corruption_in<E: StoreFailure>(&self, error: &E) -> Option<String> {
        match self.options.ends_on_corruption {
            true => error.store_error()?.corruption(),
            false => None,
        }
    }

    fn count_refusal(&self) {
        self.stats.refusals.fetch_add(1, Ordering::Relaxed);
    }

    fn count_statement(&self, text: &'static str) {
        let number = self.stats.statements.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(observer) = &self.options.on_statement {
            observer(number, text);
        }
    }

    /// After the commit: what readers and later writers may rely on.
    fn publish(&self, changes: Changes) {
        if let Some(up) = changes.up {
            self.service_clock_up.fetch_max(up.0, Ordering::Relaxed);
        }
        if let Some(rare) = &changes.rare {
            self.contacts.remove_written(&rare.contacts);
        }
        self.remember(changes.definitions);
        let mut notice = changes.notice;
        notice.news |= !changes.jobs.is_empty();
        if let Some(observer) = &self.options.on_commit
            && !notice.is_empty()
        {
            observer(notice);
        }
    }

    fn remember(&self, definitions: HashMap<DefinitionId, Arc<Definition>>) {
        if definitions.is_empty() {
            return;
        }
        let mut kept = self.definitions.lock().expect("no panic while it is held");
        let news = definitions
            .keys()
            .filter(|id| !kept.contains_key(id))
            .count();
        if kept.len() + news > DEFINITIONS_KEPT_MAX {
            // Those in use come back at the price of one read each.
            kept.clear();
        }
        kept.extend(definitions);
    }

    fn targets(&self) -> Arc<Vec<Target>> {
        let targets = self.targets.read();
        targets.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn definition(&self, definition_id: DefinitionId) -> Option<Arc<Definition>> {
        self.definitions
            .lock()
            .expect("no panic while it is held")
            .get(&definition_id)
            .cloned()
    }
}

/// What a transaction changed that others must learn of once it is committed, and not before.
#[derive(Default)]
struct Changes {
    /// The latest time that a call was made at.
    up: Option<Uptime>,
    jobs: BTreeSet<JobId>,
    definitions: HashMap<DefinitionId, Arc<Definition>>,
    notice: Notice,
    /// Whose call it is: what it did itself is no news to it.
    caller: Option<WorkerId>,
    /// Sets the actor of this transaction: events and the audit log name it.
    actor: Option<Arc<Actor>>,
    /// The event that was recorded last.
    recorded_last: Option<EventSeq>,
    /// What is counted of it.
    facts: Vec<Fact>,
    /// Boxed, so that the changes of an ordinary transaction stay small.
    rare: Option<Box<RareChanges>>,
}

/// What only few transactions change.
#[derive(Default)]
struct RareChanges {
    /// The transaction began a new lineage.
    begins_lineage: bool,
    /// Signs of life that the commit writes.
    contacts: Vec<Contact>,
}

impl Changes {
    fn absorb(&mut self, mut other: Changes) {
        if let Some(caller) = other.caller {
            other.notice.workers.remove(&caller);
        }
        self.notice.absorb(other.notice);
        self.up = self.up.max(other.up);
        self.jobs.extend(other.jobs);
        self.definitions.extend(other.definitions);
        self.facts.extend(other.facts);
        if let Some(other) = other.rare {
            let rare = self.rare.get_or_insert_default();
            rare.begins_lineage |= other.begins_lineage;
            rare.contacts.extend(other.contacts);
        }
    }
}

/// One transaction. Its methods are the store's vocabulary; they live beside their SQL, one file per noun.
pub struct Tx<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    changes: RefCell<Changes>,
}

impl<'a> Tx<'a> {
    fn new(connection: &'a Connection, shared: &'a Shared) -> Tx<'a> {
        Tx {
            connection,
            shared,
            changes: RefCell::default(),
        }
    }

    fn into_changes(self) -> Changes {
        self.changes.into_inner()
    }

    /// Opens a value that was sealed for this place. An error says why not, and nothing of the value.
    pub fn unseal(
        &self,
        place: SealPlace<'_>,
        value: &serde_json::Value,
    ) -> Result<serde_json::Value, String> {
        self.shared.sealer.unseal(place, value)
    }

    /// The same for the same text, and telling nothing of it to whoever has only the database.
    pub fn fingerprint(&self, text: &str) -> String {
        self.shared.sealer.fingerprint(text)
    }

    /// What links to this server begin with.
    pub fn public_url(&self) -> &str {
        &self.shared.options.public_url
    }

    /// Seals a value for this place, so that it may be kept where others read.
    pub fn seal_value(&self, place: SealPlace<'_>, value: &serde_json::Value) -> serde_json::Value {
        self.shared.sealer.seal(place, value)
    }

    /// The prepared statement, counted. After SQLite has given a transaction up by itself, none runs on its own.
    fn sql(&self, statement: &'static str) -> Result<CachedStatement<'_>, StoreError> {
        self.shared.count_statement(statement);
        Ok(self.sql_repeated(statement)?.statement)
    }

    /// The same for many rows, each execution counted: looking a statement up costs a tenth of what a small one does.
    fn sql_repeated(&self, statement: &'static str) -> Result<Repeated<'_>, StoreError> {
        if self.connection.is_autocommit() {
            return Err(StoreError::Lost);
        }
        Ok(Repeated {
            statement: self.connection.prepare_cached(statement)?,
            text: statement,
            shared: self.shared,
        })
    }

    /// When this is happening. The service clock on disk never falls behind what is written, so that a crash cannot turn
    /// it back.
    pub fn happens_at(&self, up: Uptime) {
        let mut changes = self.changes.borrow_mut();
        changes.up = changes.up.max(Some(up));
    }

    /// The call is this worker's own.
    pub fn called_by(&self, worker_id: WorkerId) {
        self.changes.borrow_mut().caller = Some(worker_id);
    }

    /// The call is made by this actor: every event and every audit row of the call says so.
    pub fn acted_by(&self, actor: &Arc<Actor>) {
        self.changes.borrow_mut().actor = Some(actor.clone());
    }

    fn note_ready(&self) {
        self.changes.borrow_mut().notice.steps_ready = true;
    }

    fn note_worker(&self, worker_id: WorkerId) {
        self.changes.borrow_mut().notice.workers.insert(worker_id);
    }

    /// For what is counted whether or not the transaction is committed, such as panics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// It is counted once it is committed.
    fn note(&self, fact: Fact) {
        self.changes.borrow_mut().facts.push(fact);
    }

    /// The job's row or one of its steps changed: streams will be told.
    fn touch_job(&self, job_id: JobId) {
        self.changes.borrow_mut().jobs.insert(job_id);
    }
}

/// A statement that is looked up once and executed for many rows.
struct Repeated<'a> {
    statement: CachedStatement<'a>,
    text: &'static str,
    shared: &'a Shared,
}

impl Repeated<'_> {
    fn execute(&mut self, params: impl Params) -> Result<usize, StoreError> {
        self.shared.count_statement(self.text);
        Ok(self.statement.execute(params)?)
    }

    fn query(&mut self, params: impl Params) -> Result<Rows<'_>, StoreError> {
        self.shared.count_statement(self.text);
        Ok(self.statement.query(params)?)
    }
}

/// Of the library that keeps it.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Every statement of the house, for the test that looks at their plans.
pub fn statements() -> Vec<&'static str> {
    [
        assignments::STATEMENTS,
        attempts::STATEMENTS,
        audit::STATEMENTS,
        census::STATEMENTS,
        copy::STATEMENTS,
        definitions::STATEMENTS,
        events::STATEMENTS,
        job_search::STATEMENTS,
        jobs::STATEMENTS,
        lineage::STATEMENTS,
        loops::STATEMENTS,
        outbox::STATEMENTS,
        queue::STATEMENTS,
        recovery::STATEMENTS,
        log_faults::STATEMENTS,
        requirements::STATEMENTS,
        retention::STATEMENTS,
        schedules::STATEMENTS,
        steps::STATEMENTS,
        tokens::STATEMENTS,
        workers::STATEMENTS,
    ]
    .concat()
}
