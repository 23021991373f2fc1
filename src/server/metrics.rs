//! `GET /metrics`: what was counted, and what there is now, for Prometheus.
//!
//! What there is now is read when somebody asks: once a second at most, and by one at a time, so that many who ask cost no more
//! than one. What cannot be read is left out: a 0 would be a lie.

use std::sync::Mutex;

use bytes::Bytes;

use super::App;
use super::error::ApiError;
use super::exchange::{Reply, Request, Response};
use super::web::gzip;
use crate::backup;
use crate::clock::monotonic_ms;
use crate::disk::free_bytes;
use crate::domain::reason::Waiting;
use crate::domain::step::StepState;
use crate::engine::Census;
use crate::metrics::text::{CONTENT_TYPE, Kind, Page};
use crate::store::DATABASE_FILE;

/// For so long an answer is good for whoever else asks.
const SHARED_MS: i64 = 1_000;

/// Why a step that is ready for a worker has none.
const QUEUE_REASONS: [Waiting; 5] = [
    Waiting::Paused,
    Waiting::NoMatchingWorker,
    Waiting::MatchingWorkersSilent,
    Waiting::WorkersBusy,
    Waiting::Claimable,
];

/// The last answer, and when it was made.
#[derive(Default)]
pub struct Scrape {
    last: Mutex<Option<(i64, Bytes)>>,
}

pub fn show(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let text = app.scrape.text(app)?;
    let response = Response {
        status: 200,
        content_type: CONTENT_TYPE,
        headers: Vec::new(),
        body: text,
    };
    Ok(gzip::squeezed(response, &request.headers).into())
}

impl Scrape {
    fn text(&self, app: &App) -> Result<Bytes, ApiError> {
        // Whoever comes while it is made waits for it, and takes it too.
        let mut last = self.last.lock().unwrap_or_else(|poisoned| {
            self.last.clear_poison();
            poisoned.into_inner()
        });
        let now_ms = monotonic_ms();
        match &*last {
            Some((made_ms, text)) if now_ms - made_ms < SHARED_MS => return Ok(text.clone()),
            _ => {}
        }
        let mut page = Page::default();
        write(app, &mut page)?;
        let text = Bytes::from(page.into_text());
        *last = Some((now_ms, text.clone()));
        Ok(text)
    }
}

fn write(app: &App, page: &mut Page) -> Result<(), ApiError> {
    let help = "Which program this is.";
    page.family("stepward_build_info", Kind::Gauge, help);
    let version = env!("CARGO_PKG_VERSION");
    page.sample(
        &[
            ("version", version),
            ("sqlite", crate::store::sqlite_version()),
        ],
        1.0,
    );
    write_census(page, &app.engine.census(app.clock.now())?);
    app.engine.store.metrics().write(page);
    let help = "Commits that changed the database, each of which cost one sync of the disk.";
    let commits = app.engine.store.durable_commits();
    page.alone("stepward_store_commits_total", Kind::Counter, help, commits);
    let last = app.sweeper.last_sweep();
    let help = "When recovery last went through all its phases. 0: not yet.";
    let name = "stepward_recovery_last_sweep_timestamp_seconds";
    let last_secs = last.map_or(0.0, |last| last.at.0 as f64 / 1e3);
    page.alone(name, Kind::Gauge, help, last_secs);
    let help = "When the last backup was made, into backup.dir or by hand. 0: never.";
    let name = "stepward_backup_last_success_timestamp_seconds";
    let noted = backup::noted(&app.config.data_dir);
    let made_secs = noted.map_or(0.0, |noted| noted.made_at.0.0 as f64 / 1e3);
    page.alone(name, Kind::Gauge, help, made_secs);
    let help =
        "When the certificate ends that is shown now. 0: there is none, plain HTTP is spoken.";
    let name = "stepward_certificate_expires_timestamp_seconds";
    let holds = app.certificate.as_ref().and_then(|shown| shown.holds());
    let ends_secs = holds.map_or(0.0, |(_, ends)| ends.0 as f64 / 1e3);
    page.alone(name, Kind::Gauge, help, ends_secs);
    app.meter.write(page);
    app.shares.write(page, app.gate.refused_guesses());
    let help = "Polls of workers that wait for something to do.";
    let polls = app.waiting.count() as u64;
    page.alone("stepward_long_polls", Kind::Gauge, help, polls);
    let help = "Event streams that somebody listens to.";
    let streams = app.streams.count() as u64;
    page.alone("stepward_event_streams", Kind::Gauge, help, streams);
    write_disk(app, page);
    write_process(app, page);
    Ok(())
}

fn write_census(page: &mut Page, census: &Census) {
    let help = "Jobs that have not ended; those that have are in stepward_jobs_finished_total. Counted up to a million.";
    page.family("stepward_jobs", Kind::Gauge, help);
    page.sample(&[("status", "pending")], census.jobs_pending);
    page.sample(&[("status", "running")], census.jobs_running);
    let help = "Steps that have not ended; those that have are in stepward_steps_finished_total. Counted up to a million of a kind.";
    page.family("stepward_steps", Kind::Gauge, help);
    for state in StepState::ALL.iter().filter(|state| !state.is_terminal()) {
        page.sample(&[("status", state.as_str())], census.steps[*state as usize]);
    }
    let help = "Steps that have not ended and do not run on a worker, by what they wait for: the code of `stepward why`.";
    page.family("stepward_waiting_steps", Kind::Gauge, help);
    for &waiting in Waiting::ALL {
        if waiting != Waiting::Running {
            let count = census.waiting[waiting as usize];
            page.sample(&[("reason", waiting.as_str())], count);
        }
    }
    let help = "How long the oldest step waits for a worker, by why no worker has it yet: the code of `stepward why`. 0: no step does.";
    page.family("stepward_queue_oldest_seconds", Kind::Gauge, help);
    for waiting in QUEUE_REASONS {
        let secs = census.oldest_ms[waiting as usize] as f64 / 1e3;
        page.sample(&[("reason", waiting.as_str())], secs);
    }
    let help =
        "Workers that are known. An inactive one has been silent for heartbeat_timeout_secs.";
    page.family("stepward_workers", Kind::Gauge, help);
    page.sample(&[("status", "active")], census.workers_active);
    page.sample(&[("status", "inactive")], census.workers_inactive);
    let help = "Slots of active workers. Those of a worker that is paused or drains are not free.";
    page.family("stepward_worker_slots", Kind::Gauge, help);
    page.sample(&[("state", "used")], census.slots_used);
    page.sample(&[("state", "free")], census.slots_free);
    let help = "How late the schedule is that is due for longest. 0: none is due.";
    let late_secs = census.schedule_late_ms as f64 / 1e3;
    page.alone(
        "stepward_schedule_lag_seconds",
        Kind::Gauge,
        help,
        late_secs,
    );
    let help = "Messages that are to be delivered.";
    page.alone(
        "stepward_outbox_pending",
        Kind::Gauge,
        help,
        census.messages_pending,
    );
}

fn write_disk(app: &App, page: &mut Page) {
    let folder = app.engine.store.folder();
    let files = [
        (
            "stepward_db_bytes",
            "Size of the database.",
            DATABASE_FILE.to_string(),
        ),
        (
            "stepward_wal_bytes",
            "Size of the write-ahead log of the database.",
            format!("{DATABASE_FILE}-wal"),
        ),
    ];
    for (name, help, file) in files {
        if let Ok(found) = folder.join(file).metadata() {
            page.alone(name, Kind::Gauge, help, found.len());
        }
    }
    if let Some(bytes) = app.logs.bytes_kept() {
        let help = "Size of the logs of steps, as they were last measured: a few seconds ago, longer if there are many.";
        page.alone("stepward_log_bytes", Kind::Gauge, help, bytes);
    }
    if let Ok(bytes) = free_bytes(folder) {
        let help = "Room that is left where the data folder is.";
        page.alone("stepward_disk_free_bytes", Kind::Gauge, help, bytes);
    }
}

/// Under the names that they have everywhere.
fn write_process(app: &App, page: &mut Page) {
    let help = "Start time of the process since unix epoch in seconds.";
    let begun_secs = app.begun_at.0 as f64 / 1e3;
    page.alone("process_start_time_seconds", Kind::Gauge, help, begun_secs);
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory size in bytes.";
        page.alone("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    // Reading the folder takes one.
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        let help = "Number of open file descriptors.";
        let open = open.count().saturating_sub(1) as u64;
        page.alone("process_open_fds", Kind::Gauge, help, open);
    }
}

/// Where the kernel does not tell, nobody does.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}
