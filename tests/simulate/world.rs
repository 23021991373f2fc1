//! The world of one seed: a server that crashes, stalls and comes back, workers that do the same, a network that loses,
//! doubles and delays, people who want things, and liars. Engine, sweeper, store and the workers' minds are the real ones;
//! time, processes and the network are made up. One thread, one queue of what happens next.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use stepward::clock::ServiceClock;
use stepward::domain::outbox::Target;
use stepward::domain::protocol::Registration;
use stepward::domain::reason::Reason;
use stepward::domain::recovery::{Deed, Foreseen, Recovery};
use stepward::domain::task::Definition;
use stepward::domain::{AttemptRef, JobId, Json, Now, StepId, Timestamp, WorkerId};
use stepward::engine::{
    Assignment, Beat, Decision, Engine, EngineError, Finished, HeldAttempt, HeldPhase, News, Poll,
    Reports, Retry, RetryScope, Settings, Spooled, Submission, Verdict,
};
use stepward::store::{Frozen, Store, StoreOptions};
use stepward::sweeper::{LastRound, Round, recovery_forecast, round, sweep_once};
use stepward::worker::{Event, Machine, Order, Trouble};
use tempfile::TempDir;

use crate::dice::Dice;
use crate::oracle::Oracle;
use crate::tasks::some_tasks;

/// What a panic of ours says when it plays a crash.
pub const CRASH: &str = "the simulated server crashes here";

/// A call that is not answered by then is called unreachable by the worker's side.
const CALL_TIMEOUT_MS: i64 = 10_000;

/// An empty poll is held open for this long.
const POLL_HOLD_MS: i64 = 20_000;

/// With no faults left, every job must have ended by then: the sum of all bounds, with room.
const QUIET_MS: i64 = 900_000;

/// And by then nothing runs, and no result is on any worker's disk.
const SETTLE_MS: i64 = 60_000;

/// How often things go wrong in this seed, in percent; each may be off.
#[derive(Debug)]
struct Faults {
    loss: u64,
    doubling: u64,
    slowness: u64,
    server_crash: u64,
    worker_crash: u64,
    hang: u64,
    lies: u64,
}

impl Faults {
    fn none() -> Faults {
        Faults {
            loss: 0,
            doubling: 0,
            slowness: 0,
            server_crash: 0,
            worker_crash: 0,
            hang: 0,
            lies: 0,
        }
    }

    fn some(dice: &mut Dice) -> Faults {
        let mut rate = |rare: u64, frequent: u64| match dice.roll(3) {
            0 => 0,
            1 => rare,
            _ => frequent,
        };
        Faults {
            loss: rate(3, 15),
            doubling: rate(2, 10),
            slowness: rate(5, 20),
            server_crash: rate(1, 3),
            worker_crash: rate(1, 3),
            hang: rate(2, 10),
            lies: rate(10, 100),
        }
    }
}

/// A worker's call on its way to the server.
#[derive(Debug, Clone)]
enum Call {
    Open(Registration, Vec<Spooled>),
    Beat(Beat),
    Poll(Poll, i64),
    Report(Reports),
    Drain(String),
}

#[derive(Debug, Clone)]
enum What {
    /// Something of everyday life or a calamity, drawn when its time comes.
    Life,
    Submit(String, usize),
    Sweep(u64),
    ServerStart,
    /// Worker, its life, whether it waits for the answer.
    ToServer(usize, u64, Call, bool),
    ToWorker(usize, u64, Box<Event>),
    Wake(usize, u64, u64),
    WorkerStart(usize),
}

struct Server {
    engine: Engine,
    clock: ServiceClock,
    sweep: u64,
    sweep_due_up: i64,
    last_round: LastRound,
    /// Signs of life are not written before this.
    contacts_due_up: i64,
    /// When the state last changed other than by a sweep: a forecast from then must have seen what a sweep does.
    changed: Now,
}

/// Counts statements down to the one at which the server crashes.
#[derive(Default)]
struct CrashPoint {
    left: AtomicI64,
    fired: AtomicBool,
}

struct Player {
    name: String,
    tags: Vec<String>,
    slots: u32,
    life: Option<Life>,
    lives: u64,
    /// What survives its process: results that nobody has answered for.
    disk: BTreeMap<AttemptRef, Spooled>,
    unreachable_until: i64,
    deaf_until: i64,
}

struct Life {
    number: u64,
    machine: Machine,
    /// Its clock is nobody else's.
    skew_ms: i64,
    wake: u64,
    stopped_until: i64,
    running: BTreeSet<AttemptRef>,
}

pub struct World {
    dice: Dice,
    faults: Faults,
    settings: Settings,
    mono: i64,
    wall_ms: i64,
    queue: BTreeMap<(i64, u64), What>,
    queued: u64,
    server: Option<Server>,
    stalled_until: i64,
    crash: Arc<CrashPoint>,
    players: Vec<Player>,
    definitions: Vec<Frozen>,
    submissions: u64,
    oracle: Oracle,
    /// Session keys that somebody has seen, for those who guess.
    keys: Vec<String>,
    /// What was ready, and since when, when polls were last woken.
    claimable: BTreeSet<(i64, i64)>,
    /// What went wrong, and what was done about it, how often.
    counts: BTreeMap<String, u64>,
    quiet: bool,
    trace: DefaultHasher,
    print: bool,
    pub events: u64,
    folder: TempDir,
}

/// What one seed was like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub trace: u64,
    pub events: u64,
    pub recoveries: u64,
    pub jobs: usize,
    pub counts: BTreeMap<String, u64>,
}

/// Plays one seed to its end. Panics at the first breach.
pub fn play(seed: u64, print: bool) -> Told {
    let mut world = World::new(seed, print);
    let faults_end = world.mono + world.dice.between(90_000, 240_000);
    while world.mono < faults_end {
        world.step();
    }
    world.everybody_behaves();
    let quiet_end = world.mono + QUIET_MS;
    while world.has_more_to_do() {
        world.step();
        assert!(
            world.mono < quiet_end,
            "I40: jobs {:?} have not ended: {:?}",
            world.oracle.unended(),
            world.oracle.open_steps()
        );
    }
    // Whoever still runs what nobody wants any more hears of it.
    let lives = world
        .players
        .iter()
        .filter_map(|player| player.life.as_ref());
    let woken = lives.map(|life| life.stopped_until).max();
    let settled = woken.unwrap_or(0).max(world.mono) + SETTLE_MS;
    while world.mono < settled {
        world.step();
    }
    world.nothing_is_left();
    Told {
        trace: world.trace.finish(),
        events: world.events,
        recoveries: world.oracle.recoveries,
        jobs: world.oracle.sight.jobs.len(),
        counts: world.counts,
    }
}

impl World {
    fn new(seed: u64, print: bool) -> World {
        let mut dice = Dice::new(seed);
        let interval_ms = dice.between(4, 8) * 1_000;
        let settings = Settings {
            heartbeat_interval_ms: interval_ms,
            heartbeat_timeout_ms: interval_ms * dice.between(3, 4),
            sweep_interval_ms: 60_000,
            unmatched_step_timeout_ms: dice.between(4, 20) * 1_000,
            ack_timeout_ms: dice.between(6, 15) * 1_000,
            prepare_timeout_ms: dice.between(20, 40) * 1_000,
            report_grace_ms: dice.between(3, 10) * 1_000,
            cancel_grace_ms: 10_000,
            step_timeout_ms: 60_000,
            job_timeout_ms: 240_000,
        };
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        drop(Store::open(folder.path(), StoreOptions::default()).unwrap());
        let mut world = World {
            faults: Faults::some(&mut dice),
            settings,
            mono: 1_000_000,
            wall_ms: 1_700_000_000_000,
            queue: BTreeMap::new(),
            queued: 0,
            server: None,
            stalled_until: 0,
            crash: Arc::new(CrashPoint::default()),
            players: Vec::new(),
            definitions: Vec::new(),
            submissions: 0,
            oracle: Oracle::new(folder.path(), settings),
            keys: Vec::new(),
            claimable: BTreeSet::new(),
            counts: BTreeMap::new(),
            quiet: false,
            trace: DefaultHasher::new(),
            print,
            events: 0,
            folder,
            dice,
        };
        world.say(&format!("{:?} {:?}", world.faults, world.settings));
        for n in 0..world.dice.between(1, 5) {
            let tags = (0..3).filter(|_| world.dice.chance(50));
            let tags = tags.map(|tag| format!("tag{tag}"));
            let tags: Vec<String> = tags.chain(["script".to_string()]).collect();
            let slots = world.dice.between(1, 3) as u32;
            world.add_player(&format!("w{n}"), tags, slots);
        }
        world.after(0, What::ServerStart);
        world.after(1_000, What::Life);
        world
    }

    fn add_player(&mut self, name: &str, tags: Vec<String>, slots: u32) {
        self.players.push(Player {
            name: name.to_string(),
            tags,
            slots,
            life: None,
            lives: 0,
            disk: BTreeMap::new(),
            unreachable_until: 0,
            deaf_until: 0,
        });
        let at = self.players.len() - 1;
        let delay_ms = self.dice.between(0, 5_000);
        self.after(delay_ms, What::WorkerStart(at));
    }

    /// A line of the story. The same seed tells the same lines.
    fn say(&mut self, line: &str) {
        self.trace.write(line.as_bytes());
        if self.print {
            println!("{:>9} {line}", self.mono - 1_000_000);
        }
    }

    fn after(&mut self, ms: i64, what: What) {
        self.queued += 1;
        self.queue.insert((self.mono + ms, self.queued), what);
    }

    fn step(&mut self) {
        let ((at, _), what) = self.queue.pop_first().expect("life goes on");
        self.pass_time(at);
        self.events += 1;
        match what {
            What::Life => self.life(),
            What::Submit(key, definition) => self.submit(key, definition),
            What::Sweep(number) => self.sweep(number),
            What::ServerStart => self.start_server(),
            What::ToServer(at, life, call, awaited) => self.server_hears(at, life, call, awaited),
            What::ToWorker(at, life, event) => self.worker_hears(at, life, *event),
            What::Wake(at, life, wake) => {
                let current = self.players[at].life.as_ref();
                if current.is_some_and(|now| now.number == life && now.wake == wake) {
                    self.worker_hears(at, life, Event::Tick);
                }
            }
            What::WorkerStart(at) => self.start_worker(at),
        }
    }

    /// A server that is there reads its clock all the time.
    fn pass_time(&mut self, until: i64) {
        const READ_MS: i64 = 1_000;
        let until = until.max(self.mono);
        if let Some(server) = &mut self.server {
            // After a stall, the first thing that it does is to look at the clock.
            let mut at = self.mono.max(self.stalled_until);
            while at < until {
                server.clock.read(at);
                at += READ_MS;
            }
        }
        self.mono = until;
    }

    // --- the server ---

    fn start_server(&mut self) {
        if self.server.is_some() {
            return;
        }
        let crash = self.crash.clone();
        let observer = move |_: u64, text: &'static str| {
            // What the writer does around a call is not the call's: a crash there is one before or after it.
            let bookkeeping = ["BEGIN", "COMMIT", "SAVE", "RELEASE", "ROLLBACK"];
            let text = text.trim_start();
            let around = bookkeeping.iter().any(|word| text.starts_with(word))
                || text.starts_with("UPDATE server")
                || text.starts_with("UPDATE job SET change_seq");
            if around || crash.left.load(Ordering::Relaxed) == 0 {
                return;
            }
            if crash.left.load(Ordering::Relaxed) > 1 {
                crash.left.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            crash.fired.store(true, Ordering::Relaxed);
            panic!("{CRASH}");
        };
        let options = StoreOptions {
            write_deadline: Duration::from_secs(60),
            readers_max: 1,
            on_statement: Some(Arc::new(observer)),
            ..StoreOptions::default()
        };
        let store = Store::open(self.folder.path(), options).unwrap();
        let clock =
            ServiceClock::continuing(store.begun_up(), self.mono, self.settings.absence_ms());
        let begun_up = store.begun_up();
        self.oracle.undisturbed = self.mono;
        self.oracle.undisturbed_up = begun_up.0;
        let engine = Engine::new(store, self.settings);
        engine.set_targets(vec![Target::of_hooks("tell")]);
        self.say(&format!("the server starts at {}", begun_up.0));
        let changed = Now {
            wall: Timestamp(self.wall_ms + self.mono),
            up: begun_up,
        };
        self.server = Some(Server {
            engine,
            clock,
            sweep: 0,
            sweep_due_up: begun_up.0,
            last_round: LastRound {
                at_up: begun_up,
                retry_ms: None,
                gap_ms: 0,
            },
            contacts_due_up: begun_up.0,
            changed,
        });
        self.oracle.look(begun_up.0);
        self.oracle.changed = true;
        self.check_rules();
        self.plan_sweep();
    }

    fn now(&mut self) -> Now {
        let wall = Timestamp(self.wall_ms + self.mono);
        let server = self.server.as_mut().expect("the server is there");
        let up = server.clock.read(self.mono);
        Now { wall, up }
    }

    /// One call of the server. `None`: it crashed on the way, or its answer did not make it.
    fn serve<T>(&mut self, call: impl FnOnce(&Engine, Now) -> T) -> Option<T> {
        let crashes =
            self.faults.server_crash > 0 && self.dice.roll(200) < self.faults.server_crash;
        let statement = self.dice.between(1, 20);
        let now = self.now();
        if crashes {
            self.crash.left.store(statement, Ordering::Relaxed);
        }
        let engine = self.server.as_ref().expect("just read").engine.clone();
        let result = catch_unwind(AssertUnwindSafe(|| call(&engine, now)));
        drop(engine);
        self.crash.left.store(0, Ordering::Relaxed);
        let fired = self.crash.fired.swap(false, Ordering::Relaxed);
        let result = match result {
            Ok(result) => Some(result),
            Err(_) if fired => None,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if fired || (crashes && self.dice.chance(50)) {
            let word = if fired { "before" } else { "after" };
            self.count(&format!("crash {word} a commit"));
            self.crash_server(&format!("{word} its commit"));
            self.oracle.look(now.up.0);
            return None;
        }
        if let Some(server) = &mut self.server {
            server.changed = now;
        }
        result
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_string()).or_default() += 1;
    }

    fn crash_server(&mut self, how: &str) {
        let down_ms = match self.dice.chance(70) {
            true => self.dice.between(100, 20_000),
            false => self.dice.between(20_000, 120_000),
        };
        self.say(&format!("the server crashes {how}, for {down_ms} ms"));
        self.server = None;
        self.after(down_ms, What::ServerStart);
    }

    fn check_rules(&mut self) {
        if let Some(server) = &self.server
            && std::mem::take(&mut self.oracle.changed)
        {
            self.oracle.check_rules(&server.engine);
        }
    }

    /// After whatever the server did: what is there now, whether it may be so, and when to sweep.
    fn look(&mut self) {
        self.write_contacts();
        let Some(server) = &mut self.server else {
            return;
        };
        let up = server.clock.read(self.mono);
        self.oracle.look(up.0);
        self.oracle.add_contacts(&server.engine);
        self.check_rules();
        let now = self.now();
        if self.mono > self.stalled_until + 1_200 {
            // The next round is due at the deadline, or a second after the last one for what has a grace.
            self.oracle.nothing_is_overdue(now, 1_200);
        }
        self.plan_sweep();
        self.wake_polls();
    }

    /// As the sweeper's thread does: signs of life are written once a second at most.
    fn write_contacts(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        let up = server.clock.read(self.mono);
        if up.0 >= server.contacts_due_up && server.engine.store.has_unwritten_contacts() {
            server.contacts_due_up = up.0 + 1_000;
            let changed = server.changed;
            let written = self.serve(|engine, now| engine.write_contacts(now));
            if let (Some(written), Some(server)) = (written, &mut self.server) {
                written.expect("nothing else is wrong with the store");
                server.changed = changed;
            }
        }
    }

    /// As the sweeper's thread does: at the next deadline.
    fn plan_sweep(&mut self) {
        let now = self.now();
        let server = self.server.as_mut().expect("just read");
        let due_up = server.last_round.next_due(&server.engine, now).unwrap().0;
        if due_up < server.sweep_due_up || server.sweep_due_up <= now.up.0 {
            server.sweep_due_up = due_up;
            server.sweep += 1;
            let number = server.sweep;
            self.after((due_up - now.up.0).max(0), What::Sweep(number));
        }
    }

    fn sweep(&mut self, number: u64) {
        let current = self.server.as_ref().map(|server| server.sweep);
        if current != Some(number) {
            return;
        }
        if self.mono < self.stalled_until {
            let ms = self.stalled_until - self.mono;
            return self.after(ms, What::Sweep(number));
        }
        let now = self.now();
        let server = self.server.as_mut().expect("just seen");
        let undisturbed_up = server.clock.undisturbed_since();
        server.engine.was_absent_until(undisturbed_up);
        self.oracle.undisturbed_up = self.oracle.undisturbed_up.max(undisturbed_up.0);
        server.last_round = LastRound {
            at_up: now.up,
            retry_ms: None,
            gap_ms: 100,
        };
        server.sweep_due_up = now.up.0;
        let changed = server.changed;
        let lookahead_ms = self.settings.heartbeat_interval_ms / 2;
        let before = self.oracle.sight.clone();
        let foresee = move |engine: &Engine| {
            let ahead = (now.up.0 - changed.up.0).clamp(0, lookahead_ms);
            let then = Now {
                wall: Timestamp(now.wall.0 - ahead),
                up: now.up.plus_ms(-ahead),
            };
            let forecast = recovery_forecast(engine, then).unwrap();
            assert!(forecast.failures.is_empty() && !forecast.more);
            forecast.foreseen
        };
        type Swept = (Vec<Foreseen>, Round);
        let swept: Option<Swept> = self.serve(|engine, now| (foresee(engine), round(engine, now)));
        if self.server.is_none() {
            return;
        }
        if let Some(server) = &mut self.server {
            server.changed = changed;
        }
        let told = self.oracle.look(now.up.0);
        if let Some((forecast, round)) = swept {
            let report = round.report.expect("nothing else is wrong with the store");
            assert!(report.failures.is_empty(), "sweep: {:?}", report.failures);
            let done = &report.recoveries;
            for recovery in done {
                self.say(&format!("sweep: {recovery:?}"));
                self.check_fenced(recovery);
                *self.counts.entry(told_as(recovery)).or_default() += 1;
            }
            self.oracle
                .swept(&before, done, &told, &forecast, now, self.mono);
            if !told.is_empty()
                && let Some(server) = &mut self.server
            {
                server.changed = now;
            }
            if let Some(server) = &mut self.server {
                server.last_round.retry_ms = round.retry_ms;
                self.oracle.add_contacts(&server.engine);
            }
            self.oracle.nothing_is_overdue(now, 0);
            if self.dice.chance(20) {
                let server = self.server.as_ref().expect("it did not crash");
                let again = sweep_once(&server.engine, now);
                let nothing = again.recoveries.is_empty() && again.failures.is_empty();
                assert!(nothing, "I17: a second sweep did {again:?}");
                let told = self.oracle.look(now.up.0);
                assert!(told.is_empty(), "I17: a second sweep told {told:?}");
            }
        }
        self.look();
    }

    /// What is tried elsewhere because its worker was lost does not run there any more, unless it is stopped itself.
    fn check_fenced(&self, recovery: &Recovery) {
        if recovery.deed != Deed::Retry || recovery.reason != Some(Reason::WorkerLost) {
            return;
        }
        let attempt = AttemptRef {
            step_id: recovery.step_id.expect("a step is retried"),
            attempt: recovery.attempt.expect("a step is retried"),
        };
        for player in &self.players {
            let Some(life) = &player.life else {
                continue;
            };
            let awake = life.stopped_until + 1_000 < self.mono;
            assert!(
                !awake || !life.running.contains(&attempt),
                "I42: {} still runs {attempt}",
                player.name
            );
        }
    }

    // --- people, and what befalls everybody ---

    fn life(&mut self) {
        let pause_ms = match self.quiet {
            true => 5_000,
            false => self.dice.between(200, 4_000),
        };
        self.after(pause_ms, What::Life);
        if self.quiet {
            return self.people_decide();
        }
        if self.faults.lies > 0 && self.dice.chance(self.faults.lies) {
            self.lie();
        }
        match self.dice.roll(100) {
            0..25 => self.new_submission(),
            25..32 => self.people_decide(),
            32..36 => self.cancel(),
            36..40 => self.retry_job(),
            40..46 => self.administer(),
            46..54 => self.befall_worker(),
            54..64 => self.befall_network(),
            64..68 => self.befall_server(),
            68..70 => {
                let years = self.dice.between(-10, 10);
                self.wall_ms += years * 365 * 86_400_000;
                self.count("wall clock stepped");
                self.say(&format!("the wall clock steps by {years} years"));
            }
            _ => {}
        }
    }

    /// Whether somebody could talk to the server now.
    fn is_there(&self) -> bool {
        self.server.is_some() && self.mono >= self.stalled_until
    }

    fn new_submission(&mut self) {
        if self.oracle.unended().len() > 6 {
            return;
        }
        let tasks = some_tasks(&mut self.dice);
        let root = tasks[0].name.clone();
        if let Ok(definition) = Definition::check(&root, tasks) {
            self.definitions.push(Frozen::new(Arc::new(definition)));
            self.submissions += 1;
            let key = format!("key {}", self.submissions);
            self.submit(key, self.definitions.len() - 1);
        }
    }

    /// A client that repeats what was not answered, with the same key.
    fn submit(&mut self, key: String, definition: usize) {
        if !self.is_there() {
            return self.after(3_000, What::Submit(key, definition));
        }
        let mut submission = Submission::of(&self.definitions[definition]);
        submission.idempotency_key = Some(key.clone());
        let answer = self.serve(|engine, now| engine.submit(submission, now));
        let answered = matches!(answer, Some(Ok(_)));
        match answer {
            Some(Ok(submitted)) => {
                self.say(&format!("{key} is job {}", submitted.job_id));
                self.look();
                self.oracle.submitted(&key, submitted.job_id.0);
            }
            None => {}
            Some(Err(error)) => panic!("submit: {error}"),
        }
        if answered && self.dice.chance(10) && self.server.is_some() {
            self.steal_key(&key, definition);
        }
        // The answer may be lost on its way to the client.
        if !answered || self.dice.chance(self.faults.loss) {
            self.after(3_000, What::Submit(key, definition));
        }
    }

    /// The same key for something else is refused.
    fn steal_key(&mut self, key: &str, definition: usize) {
        let mut submission = Submission::of(&self.definitions[definition]);
        submission.idempotency_key = Some(key.to_string());
        submission.input = Json("{\"other\":true}".to_string());
        let answer = self.serve(|engine, now| engine.submit(submission, now));
        match answer {
            Some(Err(EngineError::IdempotencyMismatch { .. })) | None => self.look(),
            Some(other) => panic!("I27: {key} for another body was answered {other:?}"),
        }
    }

    fn people_decide(&mut self) {
        if !self.is_there() {
            return;
        }
        let suspended = self.oracle.sight.steps.iter();
        let suspended = suspended.filter(|(_, step)| step.state == "suspended");
        let suspended: Vec<i64> = suspended.map(|(id, _)| *id).collect();
        let Some(&step_id) = self.dice.pick(&suspended) else {
            return;
        };
        let decision = match self.dice.chance(70) {
            true => Decision::Approve { output: None },
            false => Decision::Reject {
                why: "no".to_string(),
            },
        };
        self.say(&format!("step {step_id}: {decision:?}"));
        let outcome =
            self.serve(|engine, now| engine.decide(StepId(step_id), decision, "eve", now));
        self.allow(outcome, |error| {
            matches!(error, EngineError::NotSuspended { .. })
        });
    }

    fn some_job(&mut self, ended: bool) -> Option<JobId> {
        let jobs = self.oracle.sight.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.has_ended() == ended);
        let jobs: Vec<i64> = jobs.map(|(id, _)| *id).collect();
        self.dice.pick(&jobs).map(|id| JobId(*id))
    }

    fn cancel(&mut self) {
        if let Some(job_id) = self.some_job(false).filter(|_| self.is_there()) {
            self.say(&format!("job {job_id} is cancelled"));
            let outcome = self.serve(|engine, now| engine.cancel(job_id, "eve", now));
            self.allow(outcome, |error| {
                matches!(error, EngineError::JobEnded { .. })
            });
        }
    }

    fn retry_job(&mut self) {
        if let Some(job_id) = self.some_job(true).filter(|_| self.is_there()) {
            self.say(&format!("job {job_id} is retried"));
            let scope = RetryScope::Failed;
            let outcome = self.serve(|engine, now| engine.retry(Retry::of(job_id, scope), now));
            self.allow(outcome.map(|retried| retried.map(|_| ())), |error| {
                matches!(error, EngineError::NothingToRetry { .. })
            });
        }
    }

    fn administer(&mut self) {
        let workers = self.oracle.sight.workers.iter();
        let workers = workers.filter(|(_, worker)| !worker.deleted);
        let workers: Vec<i64> = workers.map(|(id, _)| *id).collect();
        let Some(&id) = self.dice.pick(&workers).filter(|_| self.is_there()) else {
            return;
        };
        let worker_id = WorkerId(id);
        let what = self.dice.roll(10);
        self.say(&format!("worker {id}: administration {what}"));
        let outcome = self.serve(|engine, now| match what {
            0..3 => engine.pause(worker_id, now),
            3..7 => engine.resume(worker_id, now),
            7..9 => engine.drain(worker_id, now),
            _ => engine.delete_worker(worker_id, true, now),
        });
        self.allow(outcome, |error| {
            use EngineError::{WorkerDrained, WorkerNotFound};
            matches!(error, WorkerNotFound { .. } | WorkerDrained { .. })
        });
    }

    fn allow(
        &mut self,
        outcome: Option<Result<(), EngineError>>,
        may_be: impl Fn(&EngineError) -> bool,
    ) {
        match outcome {
            Some(Err(error)) if !may_be(&error) => panic!("refused: {error}"),
            Some(_) => self.look(),
            None => {}
        }
    }

    fn befall_worker(&mut self) {
        let at = self.dice.roll(self.players.len() as u64) as usize;
        if self.faults.worker_crash == 0 {
            return;
        }
        match self.dice.roll(10) {
            0..4 => self.crash_worker(at),
            4..7 => {
                // Stopped past its timeout and back: a zombie.
                let ms = self.dice.between(1_000, 120_000);
                let until = self.mono + ms;
                if let Some(life) = &mut self.players[at].life {
                    life.stopped_until = life.stopped_until.max(until);
                    self.count("worker stopped");
                    self.say(&format!("w{at} is stopped for {ms} ms"));
                }
            }
            7 => {
                // Another life begins while the former one is still there, which dies without knowing.
                self.say(&format!("w{at} restarts"));
                self.start_worker(at);
            }
            _ => {
                if let Some(life) = &self.players[at].life {
                    let number = life.number;
                    self.say(&format!("w{at} is told to drain"));
                    self.worker_hears(at, number, Event::Drain);
                }
            }
        }
    }

    fn befall_network(&mut self) {
        if self.faults.loss == 0 {
            return;
        }
        let until = self.mono + self.dice.between(5_000, 90_000);
        let everybody = self.dice.chance(20);
        let one_way = self.dice.chance(50);
        let chosen = self.dice.roll(self.players.len() as u64) as usize;
        for (at, player) in self.players.iter_mut().enumerate() {
            if everybody || at == chosen {
                match one_way {
                    true => player.deaf_until = until,
                    false => player.unreachable_until = until,
                }
            }
        }
        self.say(&format!(
            "partition: {chosen} all {everybody} one-way {one_way} until {until}"
        ));
    }

    fn befall_server(&mut self) {
        if self.faults.server_crash == 0 || !self.is_there() {
            return;
        }
        if self.dice.chance(50) {
            return self.crash_server("by itself");
        }
        let ms = self.dice.between(500, 90_000);
        self.stalled_until = self.mono + ms;
        if ms > self.settings.absence_ms() {
            self.oracle.undisturbed = self.stalled_until;
        }
        self.count("server stalled");
        self.say(&format!("the server stalls for {ms} ms"));
    }

    /// Somebody with a key that may be stolen, old or made up says something about any attempt.
    fn lie(&mut self) {
        if !self.is_there() {
            return;
        }
        let steps: Vec<(i64, u32)> = (self.oracle.sight.steps.iter())
            .map(|(id, step)| (*id, step.attempt))
            .collect();
        let (step_id, attempt) = self.dice.pick(&steps).copied().unwrap_or((1, 1));
        let attempt = match self.dice.roll(8) {
            0 => AttemptRef {
                step_id: StepId(self.dice.roll(u64::MAX) as i64),
                attempt: u32::MAX,
            },
            1..3 => AttemptRef {
                step_id: StepId(step_id),
                attempt: attempt.saturating_sub(1),
            },
            _ => AttemptRef {
                step_id: StepId(step_id),
                attempt,
            },
        };
        let made_up = "a guess".to_string();
        let session_key = self.dice.pick(&self.keys).cloned().unwrap_or(made_up);
        match self.dice.roll(12) {
            10 => {
                // What somebody really runs, if there is anything: a guess would hardly ever be right.
                let running = self.oracle.running();
                let aimed = self.dice.pick(&running).cloned();
                let (attempt, session_key) = aimed.unwrap_or((attempt, session_key));
                self.say(&format!("a liar hands over {attempt} of {session_key}"));
                self.hand_over_anothers(attempt, session_key);
            }
            0 => {
                let seq = [1, 1_000, i64::MAX][self.dice.roll(3) as usize];
                let phase = HeldPhase::Running;
                let held = vec![HeldAttempt { attempt, phase }];
                let beat = Beat {
                    session_key,
                    seq,
                    held,
                };
                self.say(&format!("a liar: {beat:?}"));
                self.hear_beat(beat);
            }
            1 => {
                let poll = Poll {
                    session_key,
                    free_slots: u32::MAX,
                    held: vec![attempt],
                };
                self.say(&format!("a liar: {poll:?}"));
                self.hear_poll(poll);
            }
            _ => {
                let news = match self.dice.roll(6) {
                    0 => News::Started,
                    1 => News::KeepAlive,
                    2 => News::Declined {
                        why: "\0".repeat(3),
                    },
                    3 => News::Finished(Finished::Completed {
                        output: Some(Json("{".to_string())),
                        exit_code: None,
                    }),
                    4 => News::Finished(Finished::exited(i32::MIN)),
                    _ => News::Finished(Finished::completed()),
                };
                let reports = Reports {
                    session_key,
                    items: vec![(attempt, news)],
                    poll: None,
                };
                self.say(&format!("a liar: {reports:?}"));
                self.hear_reports(reports);
            }
        }
    }

    /// A worker of its own, that can do nothing, with the result of somebody else.
    fn hand_over_anothers(&mut self, attempt: AttemptRef, session_key: String) {
        self.count("spool of another");
        let key = format!("mallory-{}", self.events);
        let said_key = key.clone();
        let registration = Registration {
            instance_key: "mallory".to_string(),
            session_key: key,
            name: "mallory".to_string(),
            tags: vec!["nothing".to_string()],
            slots: 1,
            version: String::new(),
            platform: String::new(),
            features: stepward::domain::peer::Features::NONE,
        };
        let spooled = vec![Spooled {
            attempt,
            session_key,
            finished: Finished::completed(),
        }];
        let answer = self.serve(|engine, now| engine.open_session(registration, spooled, now));
        if let Some(answer) = answer {
            let opened = answer.expect("anybody may come");
            assert_ne!(
                opened.spooled[0],
                Verdict::Accepted,
                "I3: it is not its own"
            );
            self.look();
            let mono = self.mono;
            self.oracle.heard(&said_key, mono);
        }
    }

    // --- workers ---

    fn start_worker(&mut self, at: usize) {
        let player = &mut self.players[at];
        player.lives += 1;
        let number = player.lives;
        let key = format!("{}-life-{number}", player.name);
        let offer = Registration {
            instance_key: format!("instance of {}", player.name),
            session_key: key.clone(),
            name: player.name.clone(),
            tags: player.tags.clone(),
            slots: player.slots,
            version: "0.1.0".to_string(),
            platform: "made up".to_string(),
            features: stepward::domain::peer::Features::NONE,
        };
        let skew_ms = self.dice.between(-1_000_000_000, 1_000_000_000);
        let player = &mut self.players[at];
        let spool = player.disk.values().cloned().collect();
        player.life = Some(Life {
            number,
            machine: Machine::new(offer, spool, self.mono + skew_ms),
            skew_ms,
            wake: 0,
            stopped_until: 0,
            running: BTreeSet::new(),
        });
        self.keys.push(key.clone());
        self.say(&format!("{key} begins"));
        self.worker_hears(at, number, Event::Tick);
    }

    fn crash_worker(&mut self, at: usize) {
        if self.players[at].life.take().is_some() {
            self.count("worker crashed");
            self.say(&format!("w{at} crashes"));
            let ms = match self.dice.chance(70) {
                true => self.dice.between(100, 10_000),
                false => self.dice.between(10_000, 120_000),
            };
            self.after(ms, What::WorkerStart(at));
        }
    }

    fn worker_hears(&mut self, at: usize, number: u64, event: Event) {
        let mono = self.mono;
        let Some(life) = self.players[at].life.as_mut() else {
            return;
        };
        if life.number != number {
            return;
        }
        if life.stopped_until > mono {
            let ms = life.stopped_until - mono;
            return self.after(ms, What::ToWorker(at, number, Box::new(event)));
        }
        if let Event::Ended { attempt, .. } = &event
            && !life.running.remove(attempt)
        {
            return;
        }
        let orders = life.machine.handle(event, mono + life.skew_ms);
        let crashes = self.faults.worker_crash > 0
            && !orders.is_empty()
            && self.dice.roll(1_000) < self.faults.worker_crash;
        let survives = match crashes {
            true => self.dice.roll(orders.len() as u64 + 1) as usize,
            false => orders.len(),
        };
        for order in orders.into_iter().take(survives) {
            self.carry_out(at, number, order);
        }
        if crashes {
            return self.crash_worker(at);
        }
        if let Some(life) = &mut self.players[at].life {
            life.wake += 1;
            let (wake, wakes_at) = (life.wake, life.machine.wakes_at());
            if wakes_at < i64::MAX {
                let ms = (wakes_at - life.skew_ms - mono).max(1);
                self.after(ms, What::Wake(at, number, wake));
            }
        }
    }

    fn carry_out(&mut self, at: usize, number: u64, order: Order) {
        match order {
            Order::Open {
                registration,
                spooled,
            } => {
                self.keys.push(registration.session_key.clone());
                self.send(at, number, Call::Open(registration, spooled));
            }
            Order::Beat(beat) => self.send(at, number, Call::Beat(beat)),
            Order::Poll(poll) => {
                let until = self.mono + POLL_HOLD_MS;
                self.send(at, number, Call::Poll(poll, until));
            }
            Order::Report(reports) => {
                for (attempt, news) in &reports.items {
                    let kept = self.players[at].disk.contains_key(attempt);
                    let ended = matches!(news, News::Finished(_));
                    assert!(kept || !ended, "R29: {attempt} is told before it is kept");
                }
                self.send(at, number, Call::Report(reports));
            }
            Order::Drain { session_key } => self.send(at, number, Call::Drain(session_key)),
            Order::Prepare { assignment, .. } => self.prepare(at, number, &assignment),
            Order::Run(assignment) => self.run(at, number, &assignment),
            Order::Kill { attempt, .. } => {
                let ms = self.dice.between(0, 2_000);
                let finished = Finished::Failed {
                    reason: Reason::Signal,
                    message: "killed".to_string(),
                    exit_code: None,
                };
                let event = Event::Ended { attempt, finished };
                self.after(ms, What::ToWorker(at, number, Box::new(event)));
            }
            Order::Keep(result) => {
                self.players[at].disk.insert(result.attempt, result);
            }
            Order::Forget(attempt) => {
                self.players[at].disk.remove(&attempt);
            }
            Order::Leave => {
                self.say(&format!("w{at} leaves"));
                if self.players[at].life.take().is_some() {
                    let ms = self.dice.between(500, 30_000);
                    self.after(ms, What::WorkerStart(at));
                }
            }
        }
    }

    fn prepare(&mut self, at: usize, number: u64, assignment: &Assignment) {
        let attempt = assignment.attempt;
        if self.dice.chance(self.faults.hang) {
            return; // for ever, as far as the worker knows
        }
        let ms = match self.dice.chance(80) {
            true => self.dice.between(0, 2_000),
            false => self.dice.between(2_000, 40_000),
        };
        let event = match !self.quiet && self.dice.chance(5) {
            true => Event::Unprepared {
                attempt,
                why: "no such image".to_string(),
            },
            false => Event::Prepared(attempt),
        };
        self.after(ms, What::ToWorker(at, number, Box::new(event)));
    }

    fn run(&mut self, at: usize, number: u64, assignment: &Assignment) {
        let attempt = assignment.attempt;
        self.say(&format!("w{at} runs {attempt}"));
        self.oracle.runs(attempt);
        if let Some(life) = &mut self.players[at].life {
            life.running.insert(attempt);
        }
        if self.dice.chance(self.faults.hang) {
            return;
        }
        let ms = match self.dice.chance(75) {
            true => self.dice.between(10, 15_000),
            false => self.dice.between(15_000, 90_000),
        };
        let finished = match self.dice.chance(75) {
            true => Finished::completed(),
            false => Finished::exited(1),
        };
        let event = Event::Ended { attempt, finished };
        self.after(ms, What::ToWorker(at, number, Box::new(event)));
    }

    // --- the network ---

    fn send(&mut self, at: usize, number: u64, call: Call) {
        let unreachable = self.players[at].unreachable_until > self.mono;
        if unreachable || self.dice.chance(self.faults.loss) {
            self.count("request lost");
            return self.unreachable(at, number, &call, CALL_TIMEOUT_MS);
        }
        let ms = self.delay_ms();
        if self.dice.chance(self.faults.doubling) {
            self.count("request doubled");
            let later_ms = ms + self.dice.between(0, 5_000);
            let again = What::ToServer(at, number, call.clone(), false);
            self.after(later_ms, again);
        }
        self.after(ms, What::ToServer(at, number, call, true));
    }

    fn delay_ms(&mut self) -> i64 {
        match self.dice.chance(self.faults.slowness) {
            true => self.dice.between(100, 3_000),
            false => self.dice.between(1, 50),
        }
    }

    fn unreachable(&mut self, at: usize, number: u64, call: &Call, ms: i64) {
        let event = answer_with(call, Trouble::Unreachable);
        self.after(ms, What::ToWorker(at, number, Box::new(event)));
    }

    fn reply(&mut self, at: usize, number: u64, call: &Call, event: Event) {
        let deaf = self.players[at].deaf_until > self.mono;
        if deaf || self.dice.chance(self.faults.loss) {
            self.count("answer lost");
            return self.unreachable(at, number, call, CALL_TIMEOUT_MS);
        }
        let ms = self.delay_ms();
        self.after(ms, What::ToWorker(at, number, Box::new(event)));
    }

    fn server_hears(&mut self, at: usize, number: u64, call: Call, awaited: bool) {
        if self.server.is_none() {
            if awaited {
                self.unreachable(at, number, &call, 50);
            }
            return;
        }
        if self.mono < self.stalled_until {
            // It is taken when the server is back, whether or not somebody still waits for the answer.
            let ms = self.stalled_until - self.mono;
            let waits = awaited && ms <= CALL_TIMEOUT_MS;
            if awaited && !waits {
                self.unreachable(at, number, &call, CALL_TIMEOUT_MS);
            }
            return self.after(ms, What::ToServer(at, number, call, waits));
        }
        let event = match &call {
            Call::Open(registration, spooled) => self.hear_open(registration, spooled),
            Call::Beat(beat) => {
                let key = beat.session_key.clone();
                let answer = self.hear_beat(beat.clone());
                answer.map(|answer| Event::Beaten(key, answer.map_err(trouble)))
            }
            Call::Report(reports) => {
                let key = reports.session_key.clone();
                let answer = self.hear_reports(reports.clone());
                answer.map(|answer| Event::Reported(key, answer.map_err(trouble)))
            }
            Call::Drain(key) => self.hear_drain(key),
            Call::Poll(poll, until) => {
                let asker = self.players[at].life.as_ref();
                if awaited && asker.is_none_or(|life| life.number != number) {
                    return; // its connection broke with it
                }
                let answer = self.hear_poll(poll.clone());
                if let Some(Ok(answer)) = &answer
                    && awaited
                    && answer.assignments.is_empty()
                    && answer.abort.is_empty()
                    && !answer.draining
                    && self.mono < *until
                {
                    // Held open until there is something to say.
                    let ms = *until - self.mono;
                    return self.after(ms, What::ToServer(at, number, call, true));
                }
                let key = poll.session_key.clone();
                answer.map(|answer| Event::Polled(key, answer.map_err(trouble)))
            }
        };
        match event {
            Some(event) if awaited => self.reply(at, number, &call, event),
            None if awaited => self.unreachable(at, number, &call, 50),
            _ => {}
        }
    }

    /// Polls that are held open are looked at again when there is something to claim.
    fn wake_polls(&mut self) {
        let ready = self.oracle.sight.steps.iter();
        let ready = ready.filter(|(_, step)| step.state == "ready" && !step.delayed);
        let ready: BTreeSet<(i64, i64)> = ready.map(|(id, step)| (*id, step.since_up)).collect();
        let known = std::mem::replace(&mut self.claimable, ready);
        if self.claimable.is_subset(&known) {
            return;
        }
        let soon = self.mono + 20;
        let held: Vec<(i64, u64)> = self
            .queue
            .range((soon + 1, 0)..)
            .filter(|(_, what)| match what {
                What::ToServer(at, _, Call::Poll(poll, until), true) => {
                    poll.free_slots > 0 && *until > soon && self.may_claim(*at)
                }
                _ => false,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            let what = self.queue.remove(&key).expect("just seen");
            self.after(20, what);
        }
    }

    /// Whether some claimable step fits this worker: others are not worth waking it for.
    fn may_claim(&self, at: usize) -> bool {
        let tags = &self.players[at].tags;
        self.oracle.sight.steps.values().any(|step| {
            step.state == "ready"
                && !step.delayed
                && step.requirement.as_ref().is_some_and(|(_, needed, _)| {
                    needed
                        .split_whitespace()
                        .all(|tag| tags.iter().any(|t| t == tag))
                })
        })
    }

    fn hear_open(&mut self, registration: &Registration, spooled: &[Spooled]) -> Option<Event> {
        let (offer, results) = (registration.clone(), spooled.to_vec());
        let before = self.oracle.sight.clone();
        let answer = self.serve(|engine, now| engine.open_session(offer, results, now))?;
        self.say(&format!(
            "{} opens: {}",
            registration.session_key,
            is_ok(&answer)
        ));
        let key = &registration.session_key;
        if let Ok(opened) = &answer {
            let same_worker = |result: &Spooled| {
                let (ours, theirs) = (life_of(key), life_of(&result.session_key));
                ours == theirs
            };
            for (result, verdict) in spooled.iter().zip(&opened.spooled) {
                assert!(same_worker(result), "a spool is its worker's own");
                self.counts
                    .entry(format!(
                        "spooled result accepted: {}",
                        *verdict == Verdict::Accepted
                    ))
                    .and_modify(|count| *count += 1)
                    .or_insert(1);
                // A second one of the same step in the same call would need the state in between.
                let news = News::Finished(result.finished.clone());
                let step = result.attempt;
                self.oracle
                    .judged(&before, &result.session_key, step, &news, verdict);
            }
        }
        self.look();
        if answer.is_ok() {
            let mono = self.mono;
            self.oracle.heard(key, mono);
        }
        Some(Event::Opened(answer.map_err(trouble)))
    }

    fn hear_drain(&mut self, key: &str) -> Option<Event> {
        let answer = self.serve(|engine, now| engine.drain_session(key, now))?;
        self.say(&format!("{key} drains: {}", is_ok(&answer)));
        self.look();
        if answer.is_ok() {
            let mono = self.mono;
            self.oracle.heard(key, mono);
        }
        Some(Event::Drained(key.to_string(), answer.map_err(trouble)))
    }

    fn hear_beat(
        &mut self,
        beat: Beat,
    ) -> Option<Result<stepward::engine::BeatAnswer, EngineError>> {
        let key = beat.session_key.clone();
        let line = format!("{beat:?}");
        let answer = self.serve(|engine, now| engine.heartbeat(beat, now))?;
        self.say(&format!("{line}: {}", is_ok(&answer)));
        self.look();
        if answer.is_ok() {
            let mono = self.mono;
            self.oracle.heard(&key, mono);
        }
        Some(answer)
    }

    fn hear_poll(
        &mut self,
        poll: Poll,
    ) -> Option<Result<stepward::engine::PollAnswer, EngineError>> {
        let key = poll.session_key.clone();
        let answer = self.serve(|engine, now| engine.poll(poll, now))?;
        if let Ok(answer) = &answer
            && !(answer.assignments.is_empty() && answer.abort.is_empty())
        {
            let given = answer.assignments.iter().map(|given| given.attempt);
            let given: Vec<AttemptRef> = given.collect();
            self.say(&format!(
                "{key} is given {given:?}, aborts {:?}",
                answer.abort
            ));
        }
        self.look();
        if answer.is_ok() {
            let mono = self.mono;
            self.oracle.heard(&key, mono);
        }
        Some(answer)
    }

    fn hear_reports(
        &mut self,
        reports: Reports,
    ) -> Option<Result<stepward::engine::ReportsAnswer, EngineError>> {
        let (key, items) = (reports.session_key.clone(), reports.items.clone());
        let before = self.oracle.sight.clone();
        let answer = self.serve(|engine, now| engine.report(reports, now))?;
        let said = answer.as_ref().map(|answer| &answer.verdicts);
        self.say(&format!("{key} reports {items:?}: {said:?}"));
        if let Ok(answer) = &answer {
            assert_eq!(
                answer.verdicts.len(),
                items.len(),
                "R25: a verdict for each"
            );
            for ((attempt, news), verdict) in items.iter().zip(&answer.verdicts) {
                self.oracle.judged(&before, &key, *attempt, news, verdict);
            }
            self.check_unmoved(&before, &items, &answer.verdicts);
        }
        self.look();
        if answer.is_ok() {
            let mono = self.mono;
            self.oracle.heard(&key, mono);
        }
        Some(answer)
    }

    /// A single item that was turned away has moved nothing.
    fn check_unmoved(
        &mut self,
        before: &crate::oracle::Sight,
        items: &[(AttemptRef, News)],
        verdicts: &[Verdict],
    ) {
        if let ([(attempt, _)], [verdict]) = (items, verdicts)
            && *verdict != Verdict::Accepted
        {
            let up = self.now().up.0;
            self.oracle.look(up);
            let id = attempt.step_id.0;
            let (was, is) = (before.steps.get(&id), self.oracle.sight.steps.get(&id));
            let moved = was.map(|step| (&step.state, step.attempt))
                != is.map(|step| (&step.state, step.attempt));
            let given_next = is.is_some_and(|step| step.state == "assigned");
            assert!(!moved || given_next, "I3: {was:?} → {is:?} by {items:?}");
        }
    }

    /// A job has not ended, or somebody still wants to submit one.
    fn has_more_to_do(&self) -> bool {
        let mut queued = self.queue.values();
        !self.oracle.unended().is_empty() || queued.any(|what| matches!(what, What::Submit(..)))
    }

    fn nothing_is_left(&self) {
        for player in &self.players {
            let name = &player.name;
            assert!(
                player.disk.is_empty(),
                "R30: {name} keeps {:?}",
                player.disk
            );
            let running = player.life.as_ref().map(|life| &life.running);
            assert!(
                running.is_none_or(BTreeSet::is_empty),
                "R24: {name} still runs {running:?}"
            );
        }
    }

    /// No faults any more: everybody is there, somebody can do everything, people decide.
    fn everybody_behaves(&mut self) {
        self.say("everybody behaves from now on");
        self.quiet = true;
        self.faults = Faults::none();
        if self.server.is_none() {
            self.start_server();
        }
        self.pass_time(self.mono.max(self.stalled_until));
        let starts = |what: &What| matches!(what, What::WorkerStart(_));
        self.queue.retain(|_, what| !starts(what));
        for at in 0..self.players.len() {
            self.players[at].unreachable_until = 0;
            self.players[at].deaf_until = 0;
            // Those that are stopped come back when their time comes: one last zombie each.
            if self.players[at].life.is_none() {
                self.start_worker(at);
            }
        }
        let everything = ["script", "tag0", "tag1", "tag2"].map(str::to_string);
        self.add_player("everyman", everything.to_vec(), 3);
        let workers: Vec<i64> = self.oracle.sight.workers.keys().copied().collect();
        for id in workers {
            let worker_id = WorkerId(id);
            let outcome = self.serve(|engine, now| engine.resume(worker_id, now));
            self.allow(outcome, |error| {
                use EngineError::{WorkerDrained, WorkerNotFound};
                matches!(error, WorkerNotFound { .. } | WorkerDrained { .. })
            });
        }
    }
}

fn trouble(error: EngineError) -> Trouble {
    match error {
        EngineError::SessionUnknown => Trouble::SessionUnknown,
        EngineError::SessionReplaced => Trouble::SessionReplaced,
        other => panic!("a worker was refused: {other}"),
    }
}

fn told_as(recovery: &Recovery) -> String {
    let reason = recovery.reason.map_or("", |reason| reason.as_str());
    format!("{} {reason}", recovery.deed).trim_end().to_string()
}

fn answer_with(call: &Call, trouble: Trouble) -> Event {
    match call {
        Call::Open(..) => Event::Opened(Err(trouble)),
        Call::Beat(beat) => Event::Beaten(beat.session_key.clone(), Err(trouble)),
        Call::Poll(poll, _) => Event::Polled(poll.session_key.clone(), Err(trouble)),
        Call::Report(reports) => Event::Reported(reports.session_key.clone(), Err(trouble)),
        Call::Drain(key) => Event::Drained(key.clone(), Err(trouble)),
    }
}

fn is_ok<T>(answer: &Result<T, EngineError>) -> String {
    match answer {
        Ok(_) => "yes".to_string(),
        Err(error) => error.to_string(),
    }
}

/// `w3-life-2-4` is of `w3`.
fn life_of(session_key: &str) -> &str {
    session_key.split("-life-").next().unwrap_or_default()
}
