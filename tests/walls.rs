//! Who may know whom. Rust does not stop one module of a crate from using another, so this does.

use std::fs;
use std::path::{Path, PathBuf};

/// (room, words it may not mention, why)
const WALLS: &[(&str, &[&str], &str)] = &[
    (
        "domain",
        &[
            "crate::",
            "std::fs",
            "std::net",
            "std::thread",
            "std::time",
            "rusqlite",
            "serde",
        ],
        "domain is pure values",
    ),
    (
        "store",
        &[
            "crate::engine",
            "crate::cli",
            "crate::config",
            "crate::clock",
            "SystemTime",
        ],
        "store keeps, it does not decide",
    ),
    (
        "metrics",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::sweeper",
            "crate::worker",
            "crate::cli",
            "crate::config",
            "crate::clock",
            "std::time",
            "std::fs",
        ],
        "facts come in, numbers come out: what there is and what time it is, others know",
    ),
    (
        "logs",
        &[
            "crate::engine",
            "crate::store",
            "crate::sweeper",
            "crate::server",
            "crate::worker",
            "crate::cli",
            "crate::config",
            "crate::clock",
            "rusqlite",
            "std::time",
            "std::thread",
        ],
        "logs keep bytes, they know no job and no time",
    ),
    (
        "engine",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "crate::cli",
            "crate::config",
            "crate::clock",
            "std::process",
            "std::thread",
            "std::fs",
        ],
        "SQL lives in store, time and settings are arguments",
    ),
    (
        "sweeper",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "crate::cli",
            "crate::config",
        ],
        "a phase finds through store and acts through engine",
    ),
    (
        "reaper",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "std::fs",
            "crate::server",
            "crate::cli",
            "crate::config",
        ],
        "what is too old is found through store and goes through it, and files through logs",
    ),
    (
        "outbox",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "crate::server",
            "crate::worker",
            "crate::cli::",
        ],
        "a message comes from the engine and goes out; what becomes of it is written down there",
    ),
    (
        "cron.rs",
        &[
            "crate::engine",
            "crate::store",
            "crate::language",
            "crate::clock",
            "std::time",
            "std::thread",
        ],
        "when something is due follows from an expression and an instant",
    ),
    (
        "scheduler",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "crate::server",
            "crate::language",
            "crate::cli",
            "crate::config",
        ],
        "the scheduler knows when to look; what becomes of it is the engine's",
    ),
    (
        "worker",
        &[
            "crate::engine",
            "crate::store",
            "crate::sweeper",
            "crate::cli::",
            "crate::server",
            "rusqlite",
        ],
        "a worker knows the server only by its answers",
    ),
    (
        "language",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::clock",
        ],
        "a file becomes values, or a list of what is wrong with it",
    ),
    (
        "secrets.rs",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::language",
            "log::",
        ],
        "a secret is found, and told to nobody",
    ),
    (
        "sealer.rs",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::language",
            "log::",
        ],
        "a value is sealed and opened, and told to nobody",
    ),
    (
        "backup",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE ",
            "crate::engine",
            "crate::server",
            "crate::worker",
            "crate::cli",
            "crate::config",
            "crate::clock",
            "std::thread",
            "std::time",
        ],
        "files and a copy in, one file out, and back; when and for whom is for others to say",
    ),
    (
        "import",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::cli",
            "crate::clock",
            "std::fs",
        ],
        "texts in, texts and a report out",
    ),
    (
        "wire",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::clock",
        ],
        "what is said to others knows what exists, and nothing that happens",
    ),
    (
        "graph",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::cli",
            "crate::clock",
            "std::fs",
            "std::time",
        ],
        "steps in, a picture out",
    ),
    (
        "timeline",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
            "crate::cli",
            "crate::clock",
            "std::fs",
            "std::time",
        ],
        "times in, bars out",
    ),
    (
        "server",
        &[
            "rusqlite",
            "SELECT ",
            "UPDATE ",
            "INSERT ",
            "DELETE FROM",
            "crate::worker",
            "crate::client",
            "crate::cli::",
        ],
        "SQL lives in store; workers are known only by what they ask",
    ),
    (
        "client",
        &[
            "crate::engine",
            "crate::store",
            "crate::server",
            "crate::worker",
        ],
        "the other side of the API knows what goes over the wire",
    ),
    (
        "worker/machine.rs",
        &["crate::clock", "crate::client", "std::thread", "std::fs"],
        "the mind of a worker is pure: time is an argument",
    ),
    (
        "config",
        &["crate::engine", "crate::store", "crate::cli", "rusqlite"],
        "settings are values",
    ),
    (
        "cli",
        &["rusqlite", "SELECT ", "UPDATE "],
        "SQL lives in store",
    ),
];

/// What only one place may do: (word, the file that may, why)
const ALONE: &[(&str, &str, &str)] = &[
    (
        "SystemTime::now",
        "src/clock.rs",
        "only the clock asks the time",
    ),
    ("Local::now", "src/clock.rs", "only the clock asks the time"),
    (
        "hyper::",
        "src/server/http.rs",
        "bytes become requests in one place",
    ),
    (
        "hyper_util::",
        "src/server/http.rs",
        "bytes become requests in one place",
    ),
    (
        "tokio",
        "src/server/http.rs",
        "everything but that place is plain threads",
    ),
    (
        "unsafe ",
        "src/worker/descriptors.rs",
        "only a descriptor that nobody here opened needs it",
    ),
    (
        "process::abort",
        "src/essential.rs",
        "only an unknown commit or the end of an essential thread ends the process",
    ),
];

/// Monotonic time that measures waiting for a lock or an answer, and decides nothing about jobs.
const MAY_MEASURE: &[&str] = &[
    "src/clock.rs",
    "src/server/streams.rs",
    "src/server/waiting/mod.rs",
    "src/store/writer.rs",
    "src/worker/shipping.rs",
    "src/worker/capture.rs",
    "src/worker/supervisor.rs",
    "src/worker/tree.rs",
];

/// Threads whose panic the process survives, because their owner notices it. All others are started by `spawn_essential`.
const MAY_START_A_THREAD: &[&str] = &[
    "src/cli/",
    "src/essential.rs",
    "src/outbox/mod.rs", // one delivery
    "src/program.rs",    // the output of one program
    "src/server/download.rs",
    "src/worker/capture.rs",
    "src/worker/executor/",
    "src/worker/folder.rs", // the removal of folders
    "src/worker/slot.rs",
    "src/worker/supervised.rs",
    "src/worker/supervisor.rs",
];

#[test]
fn a_thread_that_nobody_misses_is_started_where_that_was_thought_of() {
    for path in sources(Path::new("src")) {
        let name = path.display().to_string();
        for (line, text) in code(&path) {
            let starts = text.contains("thread::Builder") || text.contains("thread::spawn");
            let may = MAY_START_A_THREAD
                .iter()
                .any(|place| name.starts_with(place));
            assert!(!starts || may, "{name}:{line}: use spawn_essential");
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.into()];
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The lines of a file that are code: comments may speak of anything, and tests may do anything.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let (body, tests) = text.split_once("#[cfg(test)]\n").unwrap_or((&text, ""));
    let tests_are_last = tests.is_empty()
        || tests.starts_with("mod tests {\n")
            && tests.lines().filter(|line| *line == "}").count() == 1;
    assert!(
        tests_are_last,
        "{}: tests are the last thing in a file",
        path.display()
    );
    let lines = body.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line.to_string()))
        .collect()
}

#[test]
fn every_room_keeps_to_itself() {
    let mut breaches = Vec::new();
    for (room, words, why) in WALLS {
        let files = sources(&Path::new("src").join(room));
        assert!(!files.is_empty(), "room {room} is empty");
        for path in files {
            for (line, text) in code(&path) {
                for word in words.iter().filter(|word| text.contains(**word)) {
                    breaches.push(format!("{}:{line}: {word}: {why}", path.display()));
                }
            }
        }
    }
    assert_eq!(breaches, Vec::<String>::new());
}

/// The walls are read word by word: `use crate::{a, b}` would hide the words.
#[test]
fn every_room_is_named_in_full() {
    for path in sources(Path::new("src")) {
        for (line, text) in code(&path) {
            let hides = ["crate::{", "std::{", "use crate::*"];
            let hidden = hides.iter().any(|word| text.contains(word));
            assert!(!hidden, "{}:{line}: {text}: name the room", path.display());
        }
    }
}

#[test]
fn what_only_one_place_may_do_no_other_does() {
    let mut breaches = Vec::new();
    for path in sources(Path::new("src")) {
        let name = path.display().to_string();
        for (line, text) in code(&path) {
            for (word, owner, why) in ALONE {
                if text.contains(word) && name != *owner {
                    breaches.push(format!("{name}:{line}: {word}: {why}"));
                }
            }
            if text.contains("Instant::now") && !MAY_MEASURE.contains(&name.as_str()) {
                breaches.push(format!(
                    "{name}:{line}: Instant::now: only the clock asks the time"
                ));
            }
        }
    }
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in sources(Path::new("src"))
        .into_iter()
        .chain(sources(Path::new("tests")))
    {
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} does not begin with //!",
            path.display()
        );
    }
}

/// A statement that does not name the state it leaves would let a late writer overwrite an early one.
#[test]
fn every_update_of_a_state_names_the_state_it_leaves() {
    let mut seen = 0;
    for path in sources(Path::new("src/store")) {
        let text = fs::read_to_string(&path).unwrap();
        for statement in text.split("const ").filter(|part| part.contains("UPDATE ")) {
            let set = statement.split("SET ").nth(1).unwrap_or_default();
            let (changes, guard) = set.split_once("WHERE").unwrap_or((set, ""));
            let of_step_or_job =
                statement.contains("UPDATE step") || statement.contains("UPDATE job");
            if of_step_or_job && changes.contains("state ") | changes.contains("state=") {
                seen += 1;
                let guarded = guard.contains("state ") || guard.contains("ended_at IS NULL");
                assert!(guarded, "{}: {statement}", path.display());
            }
        }
    }
    assert!(seen >= 8, "{seen}");
}
