//! The deterministic simulation: seeded stories in virtual time, on the real engine, sweeper and store, with the workers'
//! real minds. After every event everything that must hold is checked; at the end, with all faults off, every job ends.
//!
//! `cargo test --release --test simulate -- --seeds 10000 --first 1` plays seeds; `-- --seed 42 --trace` plays one and prints
//! its story. Without arguments it is an ordinary test. With the feature `planted-bugs` it also shows that it finds them.

mod dice;
mod oracle;
#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
mod planted;
mod schedules;
mod tasks;
mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};

use world::{CRASH, Told};

/// In the test suite: about a minute, in a debug build far fewer than in a release build.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 150 };

/// What somebody asks for on the command line, instead of the tests.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Seeds { first: u64, seeds: u64 },
    Seed { seed: u64, trace: bool },
}

/// `None`: the tests.
fn wish(words: &[String]) -> Result<Option<Wish>, String> {
    let has = |name: &str| words.iter().any(|word| word == name);
    let value = |name: &str| -> Result<Option<u64>, String> {
        let Some(at) = words.iter().position(|word| word == name) else {
            return Ok(None);
        };
        let value = words.get(at + 1).and_then(|value| value.parse().ok());
        value.map(Some).ok_or(format!("{name} needs a number"))
    };
    if let Some(seed) = value("--seed")? {
        let trace = has("--trace");
        return Ok(Some(Wish::Seed { seed, trace }));
    }
    let first = value("--first")?.unwrap_or(1);
    let seeds = value("--seeds")?.map(|seeds| Wish::Seeds { first, seeds });
    match (&seeds, has("--first"), has("--trace")) {
        (None, true, _) => Err("--first needs --seeds, how many".to_string()),
        (_, _, true) => Err("--trace needs --seed, which one".to_string()),
        _ => Ok(seeds),
    }
}

/// Plays one seed to its end: the whole system, and then schedules under a hostile wall clock.
fn play(seed: u64, trace: bool) -> Told {
    let mut told = world::play(seed, trace);
    let scheduled = schedules::play(seed, trace);
    told.jobs += scheduled.jobs;
    for (what, count) in scheduled.counts {
        *told.counts.entry(what.to_string()).or_default() += count;
    }
    told
}

/// What some of so many seeds must have met, or they have shown nothing about it.
const MUST_HAPPEN: &[&str] = &[
    "answer lost",
    "booted in 1970",
    "booted slightly behind",
    "cancel job_timeout",
    "cancel queue_timeout",
    "clock beyond the year 10000",
    "clock corrected after the boot",
    "clock in 1970",
    "clock in the year 6000",
    "clock right",
    "clock ten years ahead",
    "clock ten years behind",
    "crash after a commit",
    "crash before a commit",
    "fail approval_timeout",
    "fail step_timeout",
    "fail unmatched",
    "fail worker_lost",
    "hold worker_lost",
    "killed and its clock set",
    "mark_inactive",
    "new in 1970",
    "request doubled",
    "request lost",
    "requeue",
    "retry step_timeout",
    "retry worker_forgot",
    "retry worker_lost",
    "server stalled",
    "spool of another",
    "spooled result accepted: false",
    "spooled result accepted: true",
    "suspended",
    "wait_longer",
    "wall clock stepped",
    "worker crashed",
    "worker stopped",
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let failed = |text: &str| {
        eprintln!("simulate: {text}");
        std::process::exit(1);
    };
    let wish = wish(&words).unwrap_or_else(|fault| failed(&fault));
    quiet_panics(matches!(wish, Some(Wish::Seed { .. })));
    match wish {
        Some(Wish::Seed { seed, trace }) => {
            let told = play(seed, trace);
            return println!("seed {seed}: {told:?}");
        }
        Some(Wish::Seeds { first, seeds }) => {
            if let Err(fault) = play_many(first, seeds) {
                failed(fault.message().unwrap_or_default());
            }
            return;
        }
        None => {}
    }
    let mut trials = vec![
        Trial::test("whatever_happens_the_promises_hold", || play_many(1, SEEDS)),
        Trial::test("the_same_seed_tells_the_same_story", same_story),
        Trial::test("the_command_of_the_readme_is_understood", readme),
    ];
    #[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
    trials.extend(planted::trials());
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    // Planted bugs are the whole process's: one trial at a time.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    libtest_mimic::run(&arguments, trials).exit();
}

fn readme() -> Result<(), Failed> {
    let text = std::fs::read_to_string("README.md")?;
    let command = "cargo test --release --test simulate -- ";
    let line = text.lines().find_map(|line| line.strip_prefix(command));
    let words = line.ok_or("the command is gone")?.split(' ');
    let words: Vec<String> = words.map(str::to_string).collect();
    let expected = Wish::Seeds {
        first: 1,
        seeds: 100,
    };
    assert_eq!(wish(&words)?, Some(expected));
    Ok(())
}

/// Crashes that are played are no news; a breach is told by whoever catches it.
fn quiet_panics(loud: bool) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if loud && words_of(info.payload()) != CRASH {
            usual(info);
        }
    }));
}

/// What went wrong in a seed, if anything did.
fn breach_of(seed: u64) -> Result<Told, String> {
    catch_unwind(|| play(seed, false)).map_err(|panic| words_of(&*panic))
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
    text.unwrap_or_else(|| "a panic without words".to_string())
}

fn play_many(first: u64, seeds: u64) -> Result<(), Failed> {
    let begun = Instant::now();
    let (mut events, mut recoveries, mut jobs) = (0, 0, 0);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        match breach_of(seed) {
            Ok(told) => {
                events += told.events;
                recoveries += told.recoveries;
                jobs += told.jobs;
                for (what, count) in told.counts {
                    *counts.entry(what).or_default() += count;
                }
            }
            Err(breach) => {
                let command =
                    format!("cargo test --release --test simulate -- --seed {seed} --trace");
                return Err(format!("SEED {seed} FAILED: {breach}\nreplay it: {command}").into());
            }
        }
    }
    let secs = begun.elapsed().as_secs_f64();
    println!(
        "simulated seeds {first} to {}: {events} events, {jobs} jobs, {recoveries} recoveries, no breach, {secs:.1} s",
        first + seeds - 1
    );
    let counts_told: Vec<String> = counts
        .iter()
        .map(|(what, n)| format!("{n} {what}"))
        .collect();
    println!("{}", counts_told.join(", "));
    let missing = MUST_HAPPEN
        .iter()
        .filter(|what| !counts.contains_key(**what));
    let missing: Vec<&&str> = missing.collect();
    if seeds >= 200 && !missing.is_empty() {
        return Err(format!("never happened, so nothing was shown: {missing:?}").into());
    }
    Ok(())
}

fn same_story() -> Result<(), Failed> {
    for seed in 1..=8 {
        let (first, second) = (breach_of(seed)?, breach_of(seed)?);
        if first != second {
            return Err(format!("seed {seed}: {first:?}, then {second:?}").into());
        }
    }
    Ok(())
}
