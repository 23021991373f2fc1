//! The deterministic simulation: seeded stories in virtual time, on the real engine, sweeper and store, with the workers'
//! real minds. After every event everything that must hold is checked; at the end, with all faults off, every job ends.
//!
//! `cargo test --release --test simulate -- --seeds 10000 --first 1` plays seeds; `-- --seed 42 --trace` plays one and prints
//! its story. Without arguments it is an ordinary test. With the feature `planted-bugs` it also shows that it finds them.

mod dice;
mod oracle;
#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
mod planted;
mod tasks;
mod world;

use std::panic::catch_unwind;
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};

use world::{CRASH, play};

/// In the test suite: about a minute, in a debug build far fewer than in a release build.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 300 };

fn main() {
    quiet_panics();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| -> Option<u64> {
        let at = words.iter().position(|word| word == name)?;
        let value = words.get(at + 1).and_then(|value| value.parse().ok());
        Some(value.unwrap_or_else(|| panic!("{name} needs a number")))
    };
    let first = value("--first").unwrap_or(1);
    if let Some(seed) = value("--seed") {
        let trace = words.iter().any(|word| word == "--trace");
        let told = play(seed, trace);
        return println!("seed {seed}: {told:?}");
    }
    if let Some(seeds) = value("--seeds") {
        if let Err(failed) = play_many(first, seeds) {
            eprintln!("{}", failed.message().unwrap_or_default());
            std::process::exit(1);
        }
        return;
    }
    let arguments = Arguments::from_args();
    let mut trials = vec![
        Trial::test("whatever_happens_the_promises_hold", || play_many(1, SEEDS)),
        Trial::test("the_same_seed_tells_the_same_story", same_story),
    ];
    #[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
    trials.extend(planted::trials());
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    // Planted bugs are the whole process's: one trial at a time.
    let arguments = Arguments {
        test_threads: Some(1),
        ..arguments
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Crashes that are played are no news; a breach is told by whoever catches it.
fn quiet_panics() {
    let loud = std::env::args().any(|word| word == "--trace");
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if loud && text != CRASH {
            usual(info);
        }
    }));
}

/// What went wrong in a seed, if anything did.
fn breach_of(seed: u64) -> Result<world::Told, String> {
    catch_unwind(|| play(seed, false)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        text.unwrap_or_else(|| "a panic without words".to_string())
    })
}

fn play_many(first: u64, seeds: u64) -> Result<(), Failed> {
    let begun = Instant::now();
    let (mut events, mut recoveries, mut jobs) = (0, 0, 0);
    for seed in first..first + seeds {
        match breach_of(seed) {
            Ok(told) => {
                events += told.events;
                recoveries += told.recoveries;
                jobs += told.jobs;
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
    if recoveries == 0 {
        return Err("not a single recovery: the simulation is too tame".into());
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
