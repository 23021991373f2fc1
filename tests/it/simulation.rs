//! Seeded random verbs on random tasks, honest and hostile, with the invariants checked as they go. At the end everybody
//! behaves, and every job must end.
//!
//! A failure prints its seed; `SEED=n cargo test --test it simulation` plays that one alone, `SEEDS=n` the first n.

use stepward::domain::depends::{Accept, DependsOn, Outcome};
use stepward::domain::job::JobState;
use stepward::domain::reason::Reason;
use stepward::domain::retry::{Backoff, OnWorkerLoss, RetryPolicy};
use stepward::domain::step::StepState;
use stepward::domain::task::{Concurrency, ForEach, Hook, HookOn, StepDraft, TaskDraft, WhenFull};
use stepward::domain::{AttemptRef, JobId, Json, StepId, Timestamp};
use stepward::engine::{
    Beat, Decision, EngineError, Finished, HeldAttempt, HeldPhase, News, Poll, Reports, RetryScope,
    Spooled, Submission, Verdict,
};

use crate::house::{TestHouse, checked, frozen, registration};

const SEEDS: u64 = 12;
const EVENTS: usize = 300;

/// SplitMix64: the same seed, the same story, on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            None
        } else {
            Some(&from[self.roll(from.len() as u64) as usize])
        }
    }
}

/// A worker of the simulation: its current life and what it believes to hold.
struct Player {
    name: String,
    tags: &'static [&'static str],
    session_key: String,
    seq: i64,
    assigned: Vec<AttemptRef>,
    running: Vec<AttemptRef>,
}

struct Story {
    house: TestHouse,
    dice: Dice,
    players: Vec<Player>,
    lives: u64,
    /// Attempts that were once given to somebody, for those who guess and replay.
    seen: Vec<AttemptRef>,
    /// Attempts whose end was accepted: none may be accepted twice.
    finished: Vec<AttemptRef>,
}

#[test]
fn whatever_happens_the_invariants_hold_and_every_job_ends() {
    if let Ok(seed) = std::env::var("SEED") {
        return play(seed.parse().unwrap());
    }
    let seeds = std::env::var("SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        if let Err(panic) = played {
            eprintln!("SIMULATION FAILED, replay it: SEED={seed} cargo test --test it simulation");
            std::panic::resume_unwind(panic);
        }
    }
}

fn play(seed: u64) {
    let mut story = Story {
        house: TestHouse::new(),
        dice: Dice(seed),
        players: Vec::new(),
        lives: 0,
        seen: Vec::new(),
        finished: Vec::new(),
    };
    for (name, tags) in [("ann", &["gpu"][..]), ("bob", &[]), ("cid", &["gpu"])] {
        let player = Player {
            name: name.to_string(),
            tags,
            session_key: String::new(),
            seq: 0,
            assigned: Vec::new(),
            running: Vec::new(),
        };
        story.players.push(player);
        story.new_life(story.players.len() - 1);
    }
    for event in 0..EVENTS {
        let advance_ms = story.dice.roll(3_000) as i64;
        story.house.clock.advance_ms(advance_ms);
        story.something_happens();
        if event % 10 == 0 {
            assert_eq!(
                story.house.breaches(),
                Vec::<String>::new(),
                "event {event}"
            );
        }
    }
    story.everybody_behaves();
}

impl Story {
    fn something_happens(&mut self) {
        let at = self.dice.roll(self.players.len() as u64) as usize;
        match self.dice.roll(100) {
            0..8 => self.submit(),
            8..33 => self.poll(at),
            33..53 => self.start(at),
            53..68 => self.finish(at),
            68..78 => self.report_all(at),
            78..81 => self.decline(at),
            81..84 => self.heartbeat(at),
            84..86 => self.new_life(at),
            86..90 => self.lie(at),
            90..92 => self.cancel(),
            92..94 => self.retry_job(),
            94..96 => self.decide(),
            96 => self.put_out_of_use(at),
            _ => {
                self.house.engine.release_due(self.house.now()).unwrap();
            }
        }
    }

    fn submit(&mut self) {
        let tasks = self.some_tasks();
        if checked(tasks.clone()).is_ok() {
            let frozen = frozen(tasks);
            let priority = Some(self.dice.roll(3) as i32);
            let later = self.dice.chance(20).then(|| self.dice.roll(20_000) as i64);
            let not_before = later.map(|ms| Timestamp(self.house.now().wall.0 + ms));
            let submission = Submission {
                priority,
                not_before,
                ..Submission::of(&frozen)
            };
            self.house.submission(submission).unwrap();
        }
    }

    fn some_tasks(&mut self) -> Vec<TaskDraft> {
        let levels = self.dice.roll(3);
        (0..=levels)
            .map(|level| {
                let steps = 1 + self.dice.roll(6);
                let mut drafts = Vec::new();
                for at in 0..steps {
                    let calls = (level < levels).then(|| format!("t{}", level + 1));
                    drafts.push(self.some_step(at, calls.as_deref()));
                }
                let concurrency = self.dice.chance(20).then(|| Concurrency {
                    group: format!("g{}", self.dice.roll(2)),
                    limit: 1 + self.dice.roll(2) as u32,
                    when_full: *self.dice.pick(WhenFull::ALL).unwrap(),
                });
                let hook = |on| Hook {
                    on,
                    action: "tell".to_string(),
                    input: Json::empty_object(),
                };
                let hooks = HookOn::ALL.iter().map(|&on| hook(on)).collect();
                TaskDraft {
                    concurrency,
                    hooks,
                    ..TaskDraft::new(&format!("t{level}"), drafts)
                }
            })
            .collect()
    }

    fn some_step(&mut self, at: u64, calls: Option<&str>) -> StepDraft {
        let name = format!("s{at}");
        let mut step = match (self.dice.roll(10), calls) {
            (0..3, Some(task)) => StepDraft::task(&name, task),
            (3, _) => StepDraft::approval(&name, "go?"),
            _ => StepDraft::script(&name, "true"),
        };
        if at > 0 {
            step.depends_on = self.some_dependencies(at, 2);
        }
        let approval = matches!(step.action, stepward::domain::task::Action::Approval { .. });
        if self.dice.chance(20) && !approval {
            let items = (0..self.dice.roll(4))
                .map(|n| Json(n.to_string()))
                .collect();
            let max_parallel = self.dice.chance(50).then(|| 1 + self.dice.roll(2) as u32);
            step.for_each = Some(ForEach {
                items,
                max_parallel,
            });
        }
        if self.dice.chance(30) {
            step.retry = RetryPolicy {
                delay_ms: self.dice.roll(3) as i64 * 1_000,
                backoff: *self.dice.pick(Backoff::ALL).unwrap(),
                jitter: self.dice.chance(50),
                on: vec![
                    Reason::ExitCode,
                    Reason::ChildFailed,
                    Reason::WorkerRestarted,
                ],
                ..RetryPolicy::times(1 + self.dice.roll(3) as u32)
            };
        }
        if self.dice.chance(20) {
            step.tags = vec!["gpu".to_string()];
        }
        step.when = !self.dice.chance(10);
        step.continue_on_failure = self.dice.chance(20);
        step.on_worker_loss = *self.dice.pick(OnWorkerLoss::ALL).unwrap();
        step
    }

    fn some_dependencies(&mut self, at: u64, depth: u64) -> DependsOn<String> {
        let group: Vec<_> = (0..1 + self.dice.roll(2))
            .map(|_| {
                if depth > 0 && self.dice.chance(25) {
                    return self.some_dependencies(at, depth - 1);
                }
                let accept = match self.dice.roll(4) {
                    0 => Accept::TERMINAL,
                    1 => Accept::of(&[Outcome::Completed, Outcome::Skipped]),
                    _ => Accept::COMPLETED,
                };
                DependsOn::accepting(format!("s{}", self.dice.roll(at)), accept)
            })
            .collect();
        if self.dice.chance(70) {
            DependsOn::All(group)
        } else {
            DependsOn::Any(group)
        }
    }

    /// The answer may be lost on its way: then the worker does not know what it was given.
    fn poll(&mut self, at: usize) {
        let lost = self.dice.chance(20);
        let player = &mut self.players[at];
        let held = player
            .assigned
            .iter()
            .chain(&player.running)
            .copied()
            .collect();
        let session_key = player.session_key.clone();
        let poll = Poll {
            session_key,
            free_slots: 2,
            held,
        };
        let answer = self.house.engine.poll(poll, self.house.now()).unwrap();
        let mine = |attempt: &AttemptRef| !answer.abort.contains(attempt);
        player.assigned.retain(mine);
        player.running.retain(mine);
        self.seen
            .extend(answer.assignments.iter().map(|found| found.attempt));
        if !lost {
            player
                .assigned
                .extend(answer.assignments.iter().map(|found| found.attempt));
        }
    }

    fn start(&mut self, at: usize) {
        let player = &mut self.players[at];
        let Some(attempt) = player.assigned.pop() else {
            return;
        };
        let now = self.house.now();
        let verdict = self
            .house
            .engine
            .start(&player.session_key, attempt, now)
            .unwrap();
        if verdict == Verdict::Accepted {
            player.running.push(attempt);
        }
    }

    fn finish(&mut self, at: usize) {
        let finished = if self.dice.chance(70) {
            Finished::completed()
        } else {
            Finished::exited(1)
        };
        let twice = self.dice.chance(10);
        let player = &mut self.players[at];
        let Some(attempt) = player.running.pop() else {
            return;
        };
        for _ in 0..1 + u32::from(twice) {
            let now = self.house.now();
            let verdict = self
                .house
                .engine
                .finish(&player.session_key, attempt, finished.clone(), now)
                .unwrap();
            if verdict == Verdict::Accepted {
                assert!(!self.finished.contains(&attempt), "{attempt} ended twice");
                self.finished.push(attempt);
            }
        }
    }

    /// Everything it knows in one call, in any order, some of it twice, and a wish for more.
    fn report_all(&mut self, at: usize) {
        let player = &mut self.players[at];
        let mut items: Vec<(AttemptRef, News)> = Vec::new();
        for &attempt in &player.assigned {
            items.push((attempt, News::Started));
            if self.dice.chance(30) {
                items.push((attempt, News::Started));
            }
            if self.dice.chance(20) {
                items.push((attempt, News::KeepAlive));
            }
        }
        for &attempt in player.assigned.iter().chain(&player.running) {
            if self.dice.chance(50) {
                let finished = match self.dice.chance(70) {
                    true => Finished::completed(),
                    false => Finished::exited(1),
                };
                let at = self.dice.roll(items.len() as u64 + 1) as usize;
                items.insert(at, (attempt, News::Finished(finished.clone())));
                if self.dice.chance(20) {
                    items.push((attempt, News::Finished(finished)));
                }
            }
        }
        let reports = Reports {
            session_key: player.session_key.clone(),
            items: items.clone(),
            poll: Some((2, player.running.clone())),
        };
        let answer = self.house.engine.report(reports, self.house.now()).unwrap();
        assert_eq!(answer.verdicts.len(), items.len());
        for ((attempt, news), verdict) in items.into_iter().zip(answer.verdicts) {
            match (news, verdict) {
                (News::Started, Verdict::Accepted) => {
                    player.assigned.retain(|held| *held != attempt);
                    if !player.running.contains(&attempt) {
                        player.running.push(attempt);
                    }
                }
                (News::Finished(_), Verdict::Accepted) => {
                    assert!(!self.finished.contains(&attempt), "{attempt} ended twice");
                    self.finished.push(attempt);
                    player.running.retain(|held| *held != attempt);
                }
                // Finished before it was started: the worker forgets it, the next poll brings it again.
                (_, Verdict::Abort { .. }) => {
                    player.assigned.retain(|held| *held != attempt);
                    player.running.retain(|held| *held != attempt);
                }
                _ => {}
            }
        }
        let Some(poll) = answer.poll else {
            return;
        };
        let mine = |attempt: &AttemptRef| !poll.abort.contains(attempt);
        player.assigned.retain(mine);
        player.running.retain(mine);
        for found in poll.assignments {
            self.seen.push(found.attempt);
            if !player.assigned.contains(&found.attempt) {
                player.assigned.push(found.attempt);
            }
        }
    }

    fn decline(&mut self, at: usize) {
        let player = &mut self.players[at];
        if let Some(attempt) = player.assigned.pop() {
            let now = self.house.now();
            self.house
                .engine
                .decline(&player.session_key, attempt, "no", now)
                .unwrap();
        }
    }

    fn heartbeat(&mut self, at: usize) {
        let player = &mut self.players[at];
        player.seq += 1;
        let held = |phase| move |&attempt: &AttemptRef| HeldAttempt { attempt, phase };
        let preparing = player.assigned.iter().map(held(HeldPhase::Preparing));
        let held = preparing
            .chain(player.running.iter().map(held(HeldPhase::Running)))
            .collect();
        let beat = Beat {
            session_key: player.session_key.clone(),
            seq: player.seq,
            held,
        };
        let answer = self.house.engine.heartbeat(beat, self.house.now()).unwrap();
        let mine = |attempt: &AttemptRef| !answer.abort.contains(attempt);
        player.assigned.retain(mine);
        player.running.retain(mine);
    }

    /// The worker dies and comes back, with some of its results in its spool.
    fn new_life(&mut self, at: usize) {
        self.lives += 1;
        let key = format!("life {}", self.lives);
        let spool = self.dice.chance(50);
        let player = &mut self.players[at];
        let spooled: Vec<Spooled> = player
            .running
            .drain(..)
            .filter(|_| spool)
            .map(|attempt| Spooled {
                attempt,
                session_key: player.session_key.clone(),
                finished: Finished::completed(),
            })
            .collect();
        let attempts: Vec<AttemptRef> = spooled.iter().map(|result| result.attempt).collect();
        let registration = registration(&player.name, &key, player.tags, 3);
        let opened = self
            .house
            .engine
            .open_session(registration, spooled, self.house.now())
            .unwrap();
        for (attempt, verdict) in attempts.into_iter().zip(opened.spooled) {
            if verdict == Verdict::Accepted {
                assert!(!self.finished.contains(&attempt), "{attempt} ended twice");
                self.finished.push(attempt);
            }
        }
        player.assigned.clear();
        (player.session_key, player.seq) = (key, 0);
    }

    /// A hostile worker: guesses attempts, replays old ones, uses a session that is none.
    fn lie(&mut self, at: usize) {
        let guess = match self.dice.pick(&self.seen).copied() {
            Some(seen) if self.dice.chance(70) => seen,
            _ => AttemptRef {
                step_id: StepId(self.dice.roll(50) as i64),
                attempt: 1,
            },
        };
        let player = &self.players[at];
        if player.assigned.contains(&guess) || player.running.contains(&guess) {
            return;
        }
        let now = self.house.now();
        let key = if self.dice.chance(20) {
            "life 1"
        } else {
            &player.session_key
        };
        let others = self.players.iter().any(|other| {
            other.session_key == key
                && (other.assigned.contains(&guess) || other.running.contains(&guess))
        });
        if others {
            return;
        }
        // An assignment whose answer was lost is this session's to start, whatever it knows of it.
        let verdict = self
            .house
            .engine
            .finish(key, guess, Finished::completed(), now)
            .unwrap();
        assert_ne!(verdict, Verdict::Accepted, "{guess} of nobody was accepted");
    }

    /// An administrator pauses, drains or deletes a worker; it comes back with a new life.
    fn put_out_of_use(&mut self, at: usize) {
        let (engine, now) = (&self.house.engine, self.house.now());
        let key = &self.players[at].session_key;
        let session = engine.store.read(|tx| tx.session(key)).unwrap().unwrap();
        match self.dice.roll(4) {
            0 => engine.pause(session.worker_id, now).unwrap(),
            1 => engine.resume(session.worker_id, now).unwrap(),
            2 => engine.drain(session.worker_id, now).unwrap(),
            _ => {
                engine.delete_worker(session.worker_id, true, now).unwrap();
                self.players[at].running.clear();
                self.new_life(at);
            }
        }
    }

    fn open_jobs(&self) -> Vec<JobId> {
        self.jobs()
            .into_iter()
            .filter(|(_, state)| !state.is_terminal())
            .map(|(id, _)| id)
            .collect()
    }

    fn jobs(&self) -> Vec<(JobId, JobState)> {
        let mut jobs = Vec::new();
        for id in 1.. {
            match self.house.engine.job(JobId(id)) {
                Ok(view) => jobs.push((JobId(id), view.job.state)),
                Err(EngineError::JobNotFound { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        jobs
    }

    fn cancel(&mut self) {
        if let Some(&job) = self.dice.pick(&self.open_jobs()) {
            self.house
                .engine
                .cancel(job, "somebody", self.house.now())
                .unwrap();
        }
    }

    fn retry_job(&mut self) {
        let ended: Vec<JobId> = self
            .jobs()
            .into_iter()
            .filter(|(_, state)| state.is_terminal())
            .map(|(id, _)| id)
            .collect();
        let Some(&job) = self.dice.pick(&ended) else {
            return;
        };
        let scope = match self.dice.roll(3) {
            0 => RetryScope::All,
            1 => RetryScope::From("s0".to_string()),
            _ => RetryScope::Failed,
        };
        match self.house.engine.retry(job, scope, self.house.now()) {
            Ok(_) | Err(EngineError::NothingToRetry { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn suspended(&self) -> Vec<StepId> {
        let open = self.open_jobs();
        let steps = open.iter().flat_map(|&job| self.house.job(job).steps);
        steps
            .filter(|(_, step)| step.state == StepState::Suspended)
            .map(|(_, step)| step.step_id)
            .collect()
    }

    fn decide(&mut self) {
        let suspended = self.suspended();
        if let Some(&step_id) = self.dice.pick(&suspended) {
            let decision = if self.dice.chance(70) {
                Decision::Approve { output: None }
            } else {
                Decision::Reject {
                    why: "no".to_string(),
                }
            };
            self.house
                .engine
                .decide(step_id, decision, "somebody", self.house.now())
                .unwrap();
        }
    }

    /// Runs what it is given. One step's end may cancel another, so an abort on the way is no fault.
    fn work(&self, at: usize) {
        let (engine, now) = (&self.house.engine, self.house.now());
        let session_key = &self.players[at].session_key;
        loop {
            let session_key = session_key.clone();
            let poll = Poll {
                session_key: session_key.clone(),
                free_slots: 3,
                held: vec![],
            };
            let assignments = engine.poll(poll, now).unwrap().assignments;
            if assignments.is_empty() {
                return;
            }
            for found in assignments {
                engine.start(&session_key, found.attempt, now).unwrap();
                engine
                    .finish(&session_key, found.attempt, Finished::completed(), now)
                    .unwrap();
            }
        }
    }

    /// No more faults: workers restart and do their work, people answer, time passes.
    fn everybody_behaves(&mut self) {
        for at in 0..self.players.len() {
            self.players[at].running.clear();
            self.new_life(at);
            let key = &self.players[at].session_key;
            let session = self
                .house
                .engine
                .store
                .read(|tx| tx.session(key))
                .unwrap()
                .unwrap();
            self.house
                .engine
                .resume(session.worker_id, self.house.now())
                .unwrap();
        }
        for _ in 0..500 {
            if self.open_jobs().is_empty() {
                return;
            }
            self.house.clock.advance_ms(10_000);
            self.house.engine.release_due(self.house.now()).unwrap();
            for step_id in self.suspended() {
                let decision = Decision::Approve { output: None };
                match self
                    .house
                    .engine
                    .decide(step_id, decision, "somebody", self.house.now())
                {
                    // One approval may end the job of another.
                    Ok(()) | Err(EngineError::NotSuspended { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            for at in 0..self.players.len() {
                self.work(at);
            }
        }
        let stuck: Vec<String> = self
            .open_jobs()
            .into_iter()
            .map(|job| self.house.summary(job))
            .collect();
        panic!("these jobs never ended: {stuck:#?}");
    }
}
