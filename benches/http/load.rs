//! The other process: what workers and submitters ask of the server. Each load prints its findings as one JSON line.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepward::domain::log::{LogRecord, LogStream};
use stepward::domain::{AttemptRef, Timestamp};
use stepward::wire::worker::LogAnswer;

use super::crew::Crew;
use super::line::Line;
use super::{median, quantile};

/// As workers send them.
const LOG_PIECE_BYTES: usize = 256 << 10;

#[derive(Serialize, Deserialize)]
pub struct Load {
    pub address: SocketAddr,
    /// On the disk that the server uses.
    pub folder: PathBuf,
    pub kind: Kind,
}

#[derive(Serialize, Deserialize)]
pub enum Kind {
    /// Workers carry so many steps, submitted before, through their lives.
    Lives {
        workers: usize,
        slots: u32,
        steps: usize,
    },
    /// One step after the other is submitted to a server that has nothing else to do.
    Latency { submits: usize },
    /// Workers that wait. Says once that all of them do, and at the end how soon some of them were given a step.
    Waiting { workers: usize, secs: u64 },
    /// Running steps that print a lot.
    Logs {
        streams: usize,
        bytes_each: usize,
        rounds: usize,
    },
}

impl Load {
    pub fn run(&self) {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).unwrap();
        let found = match self.kind {
            Kind::Lives {
                workers,
                slots,
                steps,
            } => self.lives(workers, slots, steps),
            Kind::Latency { submits } => self.latency(submits),
            Kind::Waiting { workers, secs } => self.waiting(workers, secs),
            Kind::Logs {
                streams,
                bytes_each,
                rounds,
            } => self.logs(streams, bytes_each, rounds),
        };
        println!("{found}");
    }

    fn lives(&self, workers: usize, slots: u32, steps: usize) -> serde_json::Value {
        let (mut crew, opened) = Crew::open(self.address, workers, slots);
        let (begun, cpu_begun_s) = (Instant::now(), cpu_s());
        crew.begin(opened);
        crew.run_until(|seen| seen.finished >= steps);
        let secs = begun.elapsed().as_secs_f64();
        json!({
            "steps_per_s": steps as f64 / secs,
            "secs": secs,
            "load_cores": (cpu_s() - cpu_begun_s) / secs,
            "reports": crew.seen.reports,
            "polls": crew.seen.polls,
        })
    }

    fn latency(&self, submits: usize) -> serde_json::Value {
        let (mut crew, opened) = Crew::open(self.address, 1, 4);
        crew.begin(opened);
        let mut submitter = Submitter::new(self.address);
        let mut disk = Disk::new(&self.folder);
        let (mut assigned_us, mut fsync_us, mut in_place_us) = (Vec::new(), Vec::new(), Vec::new());
        // Until the poll waits again, and as long before each sync: a disk that has just been used is faster.
        const PAUSE: Duration = Duration::from_millis(30);
        for _ in 0..submits {
            crew.run_for(PAUSE);
            fsync_us.push(micros(disk.sync_appended()));
            crew.run_for(PAUSE);
            in_place_us.push(micros(disk.sync_in_place()));
            crew.run_for(PAUSE);
            assigned_us.push(micros(submitter.until_assigned(&mut crew)));
        }
        json!({
            "assigned_us": assigned_us,
            "fsync_us": fsync_us,
            "fsync_in_place_us": in_place_us,
        })
    }

    fn waiting(&self, workers: usize, secs: u64) -> serde_json::Value {
        const PROBES: usize = 20;
        let (mut crew, opened) = Crew::open(self.address, workers, 4);
        crew.begin(opened);
        // Long enough that a poll that is not held would have been answered.
        crew.run_for(Duration::from_secs(1));
        assert_eq!(crew.waiting(), workers);
        println!("{}", json!({"waiting": crew.waiting()}));
        crew.run_for(Duration::from_secs(secs));
        assert_eq!(crew.waiting(), workers);
        assert_eq!(crew.seen.polls_cut_short, 0, "a poll was not held");
        let mut submitter = Submitter::new(self.address);
        let mut assigned_us: Vec<f64> = Vec::new();
        for _ in 0..PROBES {
            assigned_us.push(micros(submitter.until_assigned(&mut crew)));
            crew.run_for(Duration::from_millis(100));
        }
        json!({
            "polls": crew.seen.polls,
            "assigned_p50_us": median(assigned_us.clone()),
            "assigned_max_us": quantile(assigned_us, 1.0),
        })
    }

    fn logs(&self, streams: usize, bytes_each: usize, rounds: usize) -> serde_json::Value {
        let (mut crew, opened) = Crew::open(self.address, 1, (streams * rounds) as u32);
        crew.keep_running();
        crew.begin(opened);
        let mut submitter = Submitter::new(self.address);
        for _ in 0..streams * rounds {
            submitter.line.call("POST", Submitter::PATH, b"");
        }
        crew.run_until(|seen| seen.running.len() == streams * rounds);
        let attempts: Vec<AttemptRef> = crew.seen.running.iter().copied().collect();
        let piece = log_piece();
        let pieces = bytes_each / piece.len();
        let per_s = |elapsed: Duration| {
            (streams * pieces * piece.len()) as f64 / 1e6 / elapsed.as_secs_f64()
        };
        let (mut plain, mut plain_at_once, mut ingest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ingest_secs, mut ingest_cpu_s) = (0.0, 0.0);
        let write_file = |n: usize| {
            let file = File::create(self.folder.join(format!("plain-{n}"))).unwrap();
            for at in 0..pieces {
                let offset = (at * piece.len()) as u64;
                file.write_all_at(&piece, offset).unwrap();
            }
        };
        let remove_files = || {
            for n in 0..streams {
                std::fs::remove_file(self.folder.join(format!("plain-{n}"))).unwrap();
            }
        };
        for attempts in attempts.chunks(streams) {
            plain.push(per_s(at_once(1, |_| (0..streams).for_each(write_file))));
            remove_files();
            plain_at_once.push(per_s(at_once(streams, write_file)));
            remove_files();
            let (session, cpu_begun_s) = (crew.session_key(0), cpu_s());
            let elapsed = at_once(streams, |n| {
                send_log(self.address, session, attempts[n], &piece, pieces);
            });
            ingest_cpu_s += cpu_s() - cpu_begun_s;
            ingest_secs += elapsed.as_secs_f64();
            ingest.push(per_s(elapsed));
        }
        json!({
            "plain_mb_per_s": plain,
            "plain_at_once_mb_per_s": plain_at_once,
            "ingest_mb_per_s": ingest,
            "load_cores": ingest_cpu_s / ingest_secs,
        })
    }
}

/// Whoever gives the server something to do.
struct Submitter {
    line: Line,
}

impl Submitter {
    const PATH: &str = "/api/tasks/one/jobs";

    fn new(address: SocketAddr) -> Submitter {
        Submitter {
            line: Line::new(address),
        }
    }

    /// From the request's first byte until a worker has the step.
    fn until_assigned(&mut self, crew: &mut Crew) -> Duration {
        let (assigned, finished) = (crew.seen.assigned, crew.seen.finished);
        let begun = Instant::now();
        self.line.send("POST", Submitter::PATH, b"");
        crew.run_until(|seen| seen.assigned > assigned);
        let elapsed = crew.seen.assigned_at.unwrap() - begun;
        while self.line.is_busy() {
            self.line.receive();
        }
        crew.run_until(|seen| seen.finished > finished);
        elapsed
    }
}

/// The disk alone, as a commit uses it: some pages, then a sync.
struct Disk {
    file: File,
    length: u64,
}

impl Disk {
    fn new(folder: &Path) -> Disk {
        let file = File::create(folder.join("fsync")).unwrap();
        Disk { file, length: 0 }
    }

    /// Over pages that the file has, as in a write-ahead log after its first checkpoint.
    fn sync_in_place(&self) -> Duration {
        self.sync_at(0)
    }

    /// Pages that are new to the file, whose length is to be kept as well.
    fn sync_appended(&mut self) -> Duration {
        self.length += Disk::PAGES.len() as u64;
        self.sync_at(self.length)
    }

    fn sync_at(&self, offset: u64) -> Duration {
        let begun = Instant::now();
        self.file.write_all_at(&Disk::PAGES, offset).unwrap();
        self.file.sync_data().unwrap();
        begun.elapsed()
    }

    const PAGES: [u8; 4 * 4096] = [7; 4 * 4096];
}

/// Whole lines of a hundred bytes, as many as go into one piece.
fn log_piece() -> Vec<u8> {
    let mut piece = Vec::new();
    let record = LogRecord {
        at: Timestamp(1_763_312_345_678),
        stream: LogStream::Stdout,
        continues: false,
        text: &[b'x'; 83],
    };
    while piece.len() + 100 <= LOG_PIECE_BYTES {
        record.write(&mut piece);
    }
    piece
}

fn send_log(address: SocketAddr, session: &str, attempt: AttemptRef, piece: &[u8], pieces: usize) {
    let mut line = Line::new(address);
    let AttemptRef { step_id, attempt } = attempt;
    for at in 0..pieces {
        let offset = at * piece.len();
        let path = format!(
            "/api/worker/steps/{step_id}/attempts/{attempt}/log?session={session}&offset={offset}"
        );
        let answer: LogAnswer = line.call("PUT", &path, piece).json();
        assert_eq!(answer.length, (offset + piece.len()) as u64);
        assert!(!answer.abort && !answer.full);
    }
}

fn at_once(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let work = &work;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..threads {
            scope.spawn(move || work(n));
        }
    });
    begun.elapsed()
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Of this process.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
