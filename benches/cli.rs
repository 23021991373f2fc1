//! The command line with a watch in hand: what `stepward run` costs over the bare script, how soon `dev` is ready, how soon
//! `--help` answers.
//!
//! `cargo bench --bench cli` prints one JSON line on stdout. `-- --quick` is a short run that shows that the benchmark works, not
//! how fast anything is. Times are medians; next to each stands what the same machine does without us, measured in turn with it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_stepward");

/// What is run, by us and by a shell.
const SCRIPT: &str = "echo done";

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if quick { 3 } else { 21 };
    let folder = tempfile::tempdir().unwrap();
    let workflow = format!("tasks:\n  one:\n    flow:\n      step: {{ script: {SCRIPT} }}\n");
    std::fs::write(folder.path().join("one.yaml"), workflow).unwrap();

    let (mut bare, mut run, mut help, mut ready) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        bare.push(timed(shell(folder.path())));
        run.push(timed(stepward(folder.path(), &["run", "one.yaml"])));
        help.push(timed(stepward(folder.path(), &["--help"])));
        ready.push(dev_ready(folder.path()));
    }
    let [bare, run, help, ready] = [bare, run, help, ready].map(median);
    let overhead = run - bare;
    let line = json!({
        "bench": "cli",
        "rounds": rounds,
        "run": {"bare_script_ms": bare, "run_ms": run, "overhead_ms": overhead},
        "help_ms": help,
        "dev_ready_ms": ready,
        "goals": {
            "run_overhead_ms": below(overhead, 100.0),
            "help_ms": below(help, 20.0),
            "dev_ready_ms": below(ready, 150.0),
        },
    });
    println!("{line}");
}

fn below(found: f64, goal: f64) -> Value {
    json!({"found": found, "goal": goal, "met": found < goal})
}

fn shell(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).current_dir(folder);
    command
}

fn stepward(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words).current_dir(folder);
    command.env_remove("STEPWARD_SERVER_URL");
    command
}

/// From its start to its end, in milliseconds. One that goes wrong is no measurement.
fn timed(mut command: Command) -> f64 {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status().unwrap();
    let ms = begun.elapsed().as_secs_f64() * 1_000.0;
    assert!(status.success(), "{command:?} ended with {status}");
    ms
}

/// Until it says so, on a data folder that is there already, as on every day but the first.
fn dev_ready(folder: &Path) -> f64 {
    let mut command = stepward(folder, &["dev", "--port", "0"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let begun = Instant::now();
    let mut dev = command.spawn().unwrap();
    let said = BufReader::new(dev.stderr.take().unwrap());
    let mut lines = said.lines().map_while(Result::ok);
    let ready = lines.any(|line| line.contains("ready in"));
    let ms = begun.elapsed().as_secs_f64() * 1_000.0;
    let pid = rustix::process::Pid::from_child(&dev);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // It says goodbye before it ends, and would stop for nobody who does not listen.
    lines.for_each(drop);
    dev.wait().unwrap();
    assert!(ready, "dev never was ready");
    ms
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
