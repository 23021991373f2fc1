//! Hostile input, made by chance that can be replayed: for each place where something comes in that others wrote, cases without
//! end, and what must hold of every one of them.
//!
//! `cargo test --release --test fuzz -- --seconds 600` plays every target for ten minutes; `--target logs` only that one;
//! `--first 5000` begins elsewhere; `-- --target logs --seed 42` plays one case and tells what it tried. Without arguments it is
//! an ordinary test of the same few cases each. What once failed is in `corpus/TARGET/` and comes first, every time.

#[path = "../simulate/dice.rs"]
mod dice;
mod html;
mod imports;
#[path = "../it/server/line.rs"]
#[allow(dead_code)] // Its other words are for other tests.
mod line;
mod logs;
mod masks;
mod mutate;
#[path = "../it/logs/plain.rs"]
mod plain;
mod requests;
mod scripts;
mod settings;
mod site;
mod templates;
mod watch;
mod words;
mod worker_calls;
mod workflows;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use dice::Dice;
use watch::{Tried, Watch};

/// In the test suite, at most; and on the command line, where nothing else is asked.
const SECONDS: u64 = 10;

/// A place where something comes in that others wrote.
struct Target {
    name: &'static str,
    /// What holds of every case.
    promise: &'static str,
    /// In the test suite: the same ones everywhere, so that a fast machine does not find what the author's did not.
    cases: u64,
    play: fn(&mut Dice, &Tried),
    /// The same for one input of the corpus.
    again: Option<fn(&[u8], &Tried)>,
}

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    target("workflows",    "a_file_is_understood_or_refused_at_a_place_in_it",         200, workflows::play,    Some(workflows::again)),
    target("templates",    "a_template_ends_and_what_it_makes_is_bounded",              25, templates::play,    Some(templates::again)),
    target("scripts",      "what_the_checker_accepts_no_value_turns_into_a_command",    40, scripts::play,      Some(scripts::again)),
    target("logs",         "whatever_is_asked_of_a_log_its_bytes_answer",               30, logs::play,         None),
    target("html",         "a_line_of_a_log_is_never_markup",                          250, html::play,         Some(html::again)),
    target("masks",        "a_secret_is_never_seen",                                   600, masks::play,        None),
    target("worker_calls", "whatever_workers_say_the_rules_of_the_database_hold",       25, worker_calls::play, None),
    target("requests",     "whatever_is_asked_the_server_has_an_answer",                40, requests::play,     None),
    target("words",        "a_word_is_understood_or_refused",                          500, words::play,        Some(words::again)),
    target("settings",     "settings_are_taken_or_refused_in_one_line",                500, settings::play,     Some(settings::again)),
    target("imports",      "whatever_is_imported_there_is_a_report",                    60, imports::play,      Some(imports::again)),
];

const fn target(
    name: &'static str,
    promise: &'static str,
    cases: u64,
    play: fn(&mut Dice, &Tried),
    again: Option<fn(&[u8], &Tried)>,
) -> Target {
    Target {
        name,
        promise,
        cases,
        play,
        again,
    }
}

/// What somebody asks for on the command line, instead of the tests.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    target: Option<String>,
    seed: Option<u64>,
    first: u64,
    seconds: u64,
}

/// `None`: the tests.
fn wish(words: &[String]) -> Result<Option<Wish>, String> {
    const NAMES: [&str; 4] = ["--target", "--seed", "--first", "--seconds"];
    if !words.iter().any(|word| NAMES.contains(&word.as_str())) {
        return Ok(None);
    }
    let mut wish = Wish {
        target: None,
        seed: None,
        first: 1,
        seconds: SECONDS,
    };
    let mut words = words.iter();
    while let Some(name) = words.next() {
        let value = words.next().ok_or(format!("{name} needs a value"))?;
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| format!("{name} needs a number"))
        };
        match name.as_str() {
            "--target" => wish.target = Some(value.clone()),
            "--seed" => wish.seed = Some(number()?),
            "--first" => wish.first = number()?,
            "--seconds" => wish.seconds = number()?,
            _ => return Err(format!("{name} is none of {}", NAMES.join(", "))),
        }
    }
    let known = |name: &String| TARGETS.iter().any(|target| target.name == name);
    match (&wish.target, wish.seed) {
        (Some(name), _) if !known(name) => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            Err(format!("{name} is none of {}", names.join(", ")))
        }
        (None, Some(_)) => Err("--seed needs --target, whose seed it is".to_string()),
        _ => Ok(Some(wish)),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    watch::keep_panics();
    let wish = wish(&words).unwrap_or_else(|fault| fail(&fault));
    let Some(wish) = wish else {
        let arguments = Arguments::from_args();
        libtest_mimic::run(&arguments, trials()).exit()
    };
    let is_asked = |target: &&Target| {
        wish.target
            .as_deref()
            .is_none_or(|name| name == target.name)
    };
    for target in TARGETS.iter().filter(is_asked) {
        let played = match wish.seed {
            Some(seed) => play_one(target, seed, true).map(|()| 1),
            None => play_again(target)
                .and_then(|()| play_many(target, wish.first, u64::MAX, wish.seconds)),
        };
        match played {
            Ok(cases) => println!("{}: {cases} cases, {}", target.name, target.promise),
            Err(fault) => fail(&fault),
        }
    }
}

fn fail(fault: &str) -> ! {
    eprintln!("fuzz: {fault}");
    std::process::exit(1);
}

fn trials() -> Vec<Trial> {
    let again = TARGETS.iter().filter(|target| target.again.is_some());
    let again = again.map(|target| {
        let name = format!("{}::what_once_failed_does_not_fail_again", target.name);
        Trial::test(name, move || Ok(play_again(target)?))
    });
    let many = TARGETS.iter().map(|target| {
        let name = format!("{}::{}", target.name, target.promise);
        Trial::test(name, move || {
            let cases = play_many(target, 1, target.cases, SECONDS)?;
            println!("{}: {cases} cases", target.name);
            match cases {
                0 => Err(Failed::from("not one case was played")),
                _ => Ok(()),
            }
        })
    });
    let wishes = Trial::test("a_wish_is_understood_or_refused", understood);
    again.chain(many).chain([wishes]).collect()
}

fn understood() -> Result<(), Failed> {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_string).collect() };
    let wish = |text: &str| wish(&words(text));
    let expected = Wish {
        target: Some("logs".to_string()),
        seed: None,
        first: 7,
        seconds: 60,
    };
    assert_eq!(
        wish("--target logs --seconds 60 --first 7")?,
        Some(expected)
    );
    assert_eq!(wish("--nocapture")?, None);
    for refused in [
        "--target nothing",
        "--seed 1",
        "--seconds",
        "--seconds x",
        "--target logs --trace 1",
    ] {
        assert!(wish(refused).is_err(), "{refused}");
    }
    Ok(())
}

/// Every input of the corpus.
fn play_again(target: &Target) -> Result<(), String> {
    let Some(again) = target.again else {
        return Ok(());
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let Ok(entries) = std::fs::read_dir(folder.join(target.name)) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
        let watch = Watch::begin(target.name, path.display().to_string());
        let played = catch_unwind(AssertUnwindSafe(|| again(&bytes, watch.tried())));
        if played.is_err() {
            return Err(format!("{}: {}", path.display(), watch::last_panic()));
        }
    }
    Ok(())
}

/// As many cases as are asked for and the time allows; how many that were.
fn play_many(target: &Target, first: u64, most: u64, seconds: u64) -> Result<u64, String> {
    let begun = Instant::now();
    let mut cases = 0;
    while cases < most && begun.elapsed() < Duration::from_secs(seconds) {
        play_one(target, first + cases, false)?;
        cases += 1;
    }
    Ok(cases)
}

fn play_one(target: &Target, seed: u64, is_told: bool) -> Result<(), String> {
    let command = format!(
        "cargo test --test fuzz -- --target {} --seed {seed}",
        target.name
    );
    let watch = Watch::begin(target.name, command.clone());
    let mut dice = Dice::new(seed);
    let played = catch_unwind(AssertUnwindSafe(|| (target.play)(&mut dice, watch.tried())));
    if is_told {
        println!("{}", watch.tried().told());
    }
    match (played, watch::panics_elsewhere()) {
        (Ok(()), elsewhere) if elsewhere.is_empty() => Ok(()),
        (Ok(()), elsewhere) => Err(format!(
            "{}, seed {seed}: a thread of the server panicked: {}\nreplay it: {command}",
            target.name,
            elsewhere.join("; ")
        )),
        (Err(_), _) => Err(format!(
            "{}, seed {seed}: {}\ntried: {}\nreplay it: {command}",
            target.name,
            watch::last_panic(),
            watch.tried().told()
        )),
    }
}
