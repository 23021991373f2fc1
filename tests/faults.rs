//! Disks that fail: an I/O error at a commit, a disk that fills up and is emptied again, a full or read-only disk at start.
//!
//! This program is both sides: with `child` as its first argument it is the process that meets the fault, inside a mount
//! namespace of its own or under strace; without, it starts that process and judges what it printed and left behind.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use stepward::domain::event::{EventKind, NewEvent};
use stepward::domain::protocol::Registration;
use stepward::domain::{AttemptRef, EventSeq, JobId, Now, StepId, Timestamp, Uptime};
use stepward::engine::{Beat, Engine, Settings};
use stepward::logs::{LogLimits, Logs};
use stepward::store::{Store, StoreError, StoreOptions};
use stepward::sweeper::round;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["child", "write", folder, count] => {
            return write(Path::new(folder), count.parse().unwrap());
        }
        ["child", "fill", folder] => return fill_and_empty(Path::new(folder)),
        ["child", "sweep", folder] => return sweep_on_full_disk(Path::new(folder)),
        ["child", "log", folder] => return log_on_full_disk(Path::new(folder)),
        ["child", "open", folder] => return open(Path::new(folder), StoreOptions::default()),
        ["child", "accept", folder] => {
            let options = StoreOptions {
                accepted_older_at: Some(NOW.wall),
                ..StoreOptions::default()
            };
            return open(Path::new(folder), options);
        }
        ["child", "die", folder] => return write_and_die(Path::new(folder)),
        ["child", "inflate", folder] => return inflate(Path::new(folder)),
        ["child", "upgrade", folder] => return upgrade_on_crowded_disk(Path::new(folder)),
        ["child", "count", folder] => {
            return println!("found {}", recorded(Path::new(folder)).len());
        }
        _ => {}
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test(
            "an_io_error_at_a_commit_ends_the_process_and_says_so",
            io_error,
        ),
        Trial::test(
            "an_io_error_at_a_checkpoint_ends_the_process_and_says_so",
            checkpoint_error,
        ),
        Trial::test(
            "a_disk_that_fills_up_refuses_and_goes_on_once_there_is_room",
            full_and_emptied,
        ),
        Trial::test("a_full_disk_is_nobodys_silence", full_and_silent),
        Trial::test(
            "a_full_disk_leaves_a_log_as_it_was_before_the_piece_that_did_not_fit",
            full_and_logging,
        ),
        Trial::test("a_full_disk_is_refused_at_start", full_at_start),
        Trial::test(
            "a_first_start_on_a_full_disk_leaves_nothing_behind",
            full_at_first_start,
        ),
        Trial::test(
            "a_first_start_that_is_killed_leaves_a_folder_that_starts",
            killed_at_first_start,
        ),
        Trial::test(
            "a_kill_before_the_mark_of_a_new_lineage_is_written_keeps_nobody_out",
            killed_before_mark,
        ),
        Trial::test(
            "an_upgrade_without_room_is_refused_and_changes_nothing",
            upgrade_without_room,
        ),
        Trial::test(
            "an_upgrade_that_has_no_room_to_rewrite_the_database_is_complete",
            upgrade_without_rewrite,
        ),
        Trial::test("a_disk_that_is_nearly_full_is_a_problem", nearly_full),
        Trial::test("logs_leave_room_to_make_room", full_of_logs),
        Trial::test("a_read_only_disk_is_refused_at_start", read_only_at_start),
        Trial::test(
            "a_folder_without_permission_is_no_read_only_disk",
            without_permission,
        ),
        Trial::test(
            "a_step_runs_where_nobody_sees_the_group_of_its_worker",
            in_a_world_of_processes,
        ),
        Trial::test(
            "nothing_lives_on_of_a_step_that_killed_its_supervisor_in_a_pid_namespace",
            orphans_in_a_world_of_processes,
        ),
        Trial::test(
            "the_first_process_of_a_container_collects_orphans_and_ends_as_its_command_does",
            first_process,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

const NOW: Now = Now {
    wall: Timestamp(0),
    up: Uptime(0),
};

fn record(store: &Store, text: String) -> Result<(), StoreError> {
    store.write(move |tx| tx.record(&NewEvent::new(EventKind::WorkerActive, text.clone()), NOW))
}

fn recorded(folder: &Path) -> Vec<String> {
    let store = Store::open(folder, StoreOptions::default()).unwrap();
    let events = store
        .read(|tx| tx.events_after(EventSeq(0), 1_000_000))
        .unwrap();
    events.into_iter().map(|event| event.fact.message).collect()
}

/// The child: one row after the other, each said aloud once it was answered.
fn write(folder: &Path, count: usize) {
    let store = Store::open(folder, StoreOptions::default()).unwrap();
    for n in 0..count {
        record(&store, n.to_string()).unwrap();
        println!("{n}");
        std::io::stdout().flush().unwrap();
    }
}

/// The child, on a small disk: writes until it is full, makes room, and writes on.
fn fill_and_empty(folder: &Path) {
    let ballast = folder.join("ballast");
    let store = Store::open(folder, StoreOptions::default()).unwrap();
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut answered = 0;
    let refused = loop {
        match record(&store, format!("{answered} {}", "x".repeat(4_000))) {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
    };
    println!("refused: {refused}");
    // Still full: refused again, and what is there can be read.
    assert!(matches!(
        record(&store, "y".repeat(4_000)),
        Err(StoreError::Full)
    ));
    let events = || {
        store
            .read(|tx| tx.events_after(EventSeq(0), 1_000_000))
            .unwrap()
            .len()
    };
    assert_eq!(events(), answered);
    std::fs::remove_file(ballast).unwrap();
    for n in 0..50 {
        record(&store, format!("after {n}")).unwrap();
    }
    assert_eq!(events(), answered + 50);
    println!("went on with {}", answered + 50);
}

/// The child: the signs of life of a worker cannot be written, because the disk is full for longer than a worker may be silent.
fn sweep_on_full_disk(folder: &Path) {
    let ballast = folder.join("ballast");
    let at = |secs: i64| Now {
        wall: Timestamp(secs * 1_000),
        up: Uptime(secs * 1_000),
    };
    let store = Store::open(folder, StoreOptions::default()).unwrap();
    let engine = Engine::new(store.clone(), Settings::default());
    let ann = Registration {
        instance_key: "ann".to_string(),
        session_key: "its only life".to_string(),
        name: "ann".to_string(),
        tags: vec!["script".to_string()],
        slots: 1,
        version: String::new(),
        platform: String::new(),
        features: stepward::domain::peer::Features::NONE,
    };
    engine.open_session(ann, Vec::new(), at(0)).unwrap();
    let beat = |seq: i64| {
        let beat = Beat {
            session_key: "its only life".to_string(),
            seq,
            held: Vec::new(),
        };
        engine.heartbeat(beat, at(seq))
    };
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    while record(&store, "x".repeat(4_000)).is_ok() {}
    let swept = |secs: i64| {
        let report = round(&engine, at(secs)).report;
        report.map_or(0, |report| report.recoveries.len())
    };
    let (mut refused, mut given_up) = (0, 0);
    for secs in (30..=300).step_by(5) {
        refused += usize::from(beat(secs).is_err());
        given_up += swept(secs);
    }
    println!("heartbeats that were refused: {refused}");
    std::fs::remove_file(ballast).unwrap();
    println!("given up until 310 s: {}", given_up + swept(310));
    beat(320).unwrap();
    println!("given up at 439 s: {}", swept(439));
    println!("given up at 440 s: {}", swept(440));
}

fn full_and_silent() -> Result<(), Failed> {
    let said = on_small_disk("8m", "\"$me\" child sweep \"$disk/data\"")?;
    expect(
        said,
        "heartbeats that were refused: 0\ngiven up until 310 s: 0\ngiven up at 439 s: 0\ngiven up at 440 s: 1\n",
    )
}

/// The child: a worker sends a log for which there is no room until the ballast is gone.
fn log_on_full_disk(folder: &Path) {
    let (ballast, kept) = (folder.join("ballast"), folder.join("logs/1/2.1.log"));
    let logs = Logs::open(&folder.join("logs"), LogLimits::default()).unwrap();
    let job_id = JobId(1);
    let attempt = AttemptRef {
        step_id: StepId(2),
        attempt: 1,
    };
    let line = |n: usize| format!("{n} o {}\n", "x".repeat(90));
    let log: String = (0..100_000).map(line).collect();
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut length = 0;
    // No multiple of a page: the piece that does not fit is torn.
    for piece in log.as_bytes().chunks(50_001) {
        let append = || logs.append(job_id, attempt, length, piece);
        let appended = append().or_else(|error| {
            println!("refused: {error}");
            assert_eq!(std::fs::metadata(&kept).unwrap().len(), length);
            assert_eq!(logs.length(job_id, attempt).unwrap(), length);
            assert!(append().is_err(), "still full");
            // What is there can be read.
            assert_eq!(logs.tail(job_id, attempt, 10).unwrap().lines.len(), 10);
            std::fs::remove_file(&ballast).unwrap();
            append()
        });
        length = appended.unwrap().length;
    }
    assert!(std::fs::read(&kept).unwrap() == log.as_bytes());
    let page = logs.tail(job_id, attempt, 1).unwrap();
    println!("kept {} lines", page.total_lines);
}

fn full_and_logging() -> Result<(), Failed> {
    let said = on_small_disk(
        "10m",
        "mkdir \"$disk/data\"; \"$me\" child log \"$disk/data\"",
    )?;
    expect(
        said,
        "refused: the log cannot be written: No space left on device (os error 28)\nkept 100000 lines\n",
    )
}

/// The child: three rows, which are in the write-ahead log alone when it kills itself.
fn write_and_die(folder: &Path) {
    let store = Store::open(folder, StoreOptions::default()).unwrap();
    for text in ["one", "two", "three"] {
        record(&store, text.to_string()).unwrap();
    }
    let myself = rustix::process::getpid();
    rustix::process::kill_process(myself, rustix::process::Signal::KILL).unwrap();
}

/// Makes a database of version 0.1 that is 26 MB large.
fn inflate(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let sql = rusqlite::Connection::open(folder.join("stepward.db")).unwrap();
    sql.execute_batch(include_str!("it/store/released/version-3.sql"))
        .unwrap();
    let fill = "INSERT INTO event (at, kind, message)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
        SELECT 0, 'backup_made', hex(zeroblob(5000)) FROM n;
        UPDATE job SET input = '{}'";
    sql.execute_batch(fill).unwrap();
}

/// The child: before the upgrade is committed, somebody else takes all the room that the rewrite of the database needs.
fn upgrade_on_crowded_disk(folder: &Path) {
    let ballast = folder.with_file_name("ballast");
    let place = folder.to_path_buf();
    let observer = move |_: u64, text: &'static str| {
        if text == "COMMIT" && !ballast.exists() {
            let disk = rustix::fs::statvfs(&place).unwrap();
            let bytes = disk.f_bavail * disk.f_frsize - (4 << 20);
            std::fs::write(&ballast, vec![1; bytes as usize]).unwrap();
        }
    };
    let options = StoreOptions {
        on_statement: Some(std::sync::Arc::new(observer)),
        ..StoreOptions::default()
    };
    open(folder, options);
    let sql = rusqlite::Connection::open(folder.join("stepward.db")).unwrap();
    let version: i64 = sql
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, stepward::store::SCHEMA_VERSION);
    let shrinks: i64 = sql
        .pragma_query_value(None, "auto_vacuum", |row| row.get(0))
        .unwrap();
    println!("was rewritten: {}", shrinks != 0);
}

fn open(folder: &Path, options: StoreOptions) {
    match Store::open(folder, options) {
        Ok(_) => println!("opened"),
        Err(error) => println!("{error}"),
    }
}

fn myself() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Runs the child's part under strace, which makes the n-th sync of the whole process fail.
fn under_strace(folder: &Path, nth: usize, count: usize) -> std::io::Result<Output> {
    Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fdatasync,fsync",
            "-e",
        ])
        .arg(format!("inject=fdatasync,fsync:error=EIO:when={nth}"))
        .arg(myself())
        .args([
            "child",
            "write",
            &folder.to_string_lossy(),
            &count.to_string(),
        ])
        .output()
}

fn io_error() -> Result<(), Failed> {
    let mut aborted = 0;
    // Past those that making the database takes.
    for nth in [25, 30, 40] {
        let folder = tempfile::tempdir()?;
        let child = under_strace(folder.path(), nth, 200)?;
        let stderr = String::from_utf8_lossy(&child.stderr).into_owned();
        if child.status.success() || !stderr.contains("a commit failed and its outcome is unknown")
        {
            return Err(format!("{:?}: {stderr}", child.status).into());
        }
        if !stderr.contains("stopping at once") {
            return Err(format!("it must say what it does: {stderr}").into());
        }
        aborted += 1;
        let answered: Vec<String> = String::from_utf8(child.stdout)?
            .lines()
            .map(str::to_string)
            .collect();
        let found = recorded(folder.path());
        // All that was answered is there; the one whose outcome was unknown may be.
        let more = found.len().checked_sub(answered.len());
        if !found.starts_with(&answered) || more.is_none_or(|more| more > 1) {
            return Err(format!("answered {}, found {}", answered.len(), found.len()).into());
        }
    }
    assert_eq!(aborted, 3);
    Ok(())
}

/// Enough rows for a checkpoint while the process runs; then the same again, and its sync fails.
fn checkpoint_error() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let counted = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-y", "-o"])
        .arg(folder.path().join("trace"))
        .arg(myself())
        .args([
            "child",
            "write",
            &folder.path().join("data").to_string_lossy(),
            "3000",
        ])
        .output()?;
    assert!(counted.status.success());
    let trace = std::fs::read_to_string(folder.path().join("trace"))?;
    let syncs: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains("sync("))
        .collect();
    // After the schema is made, the database file itself is synced by checkpoints alone; the last one is the closing one.
    let of_database = |(_, line): &(usize, &&str)| line.contains("stepward.db>");
    let checkpoints: Vec<usize> = syncs
        .iter()
        .enumerate()
        .skip(100)
        .filter(of_database)
        .map(|(at, _)| at)
        .collect();
    let [first, _, ..] = checkpoints[..] else {
        return Err(format!("no checkpoint among {} syncs: {checkpoints:?}", syncs.len()).into());
    };
    let again = tempfile::tempdir()?;
    let child = under_strace(&again.path().join("data"), first + 1, 3000)?;
    let stderr = String::from_utf8_lossy(&child.stderr);
    if !child.status.success() && stderr.contains("stopping at once") {
        recorded(&again.path().join("data"));
        return Ok(());
    }
    Err(format!("{:?}: {stderr}", child.status).into())
}

/// Runs shell text in a mount namespace of its own, with a fresh small disk at `$disk`.
fn on_small_disk(size: &str, shell: &str) -> Result<String, Failed> {
    let mount_point = tempfile::tempdir()?;
    let text = format!("mount -t tmpfs -o size={size} tmpfs \"$disk\" && {shell}");
    let child = Command::new("unshare")
        .args([
            "--mount",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["timeout", "60", "sh", "-euc", &text])
        .env("disk", mount_point.path())
        .env("me", myself())
        .env("stepward", env!("CARGO_BIN_EXE_stepward"))
        .output()?;
    let stdout = String::from_utf8(child.stdout)?;
    if !child.status.success() {
        let stderr = String::from_utf8_lossy(&child.stderr);
        return Err(format!("{:?}: {stdout}{stderr}", child.status).into());
    }
    Ok(stdout.replace(&mount_point.path().display().to_string(), "DISK"))
}

fn expect(found: String, expected: &str) -> Result<(), Failed> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found}\nexpected\n{expected}").into())
    }
}

fn full_and_emptied() -> Result<(), Failed> {
    let said = on_small_disk(
        "8m",
        "\"$me\" child fill \"$disk/data\"; mount -o remount,size=64m \"$disk\"; \"$me\" child count \"$disk/data\"",
    )?;
    let lines: Vec<&str> = said.lines().collect();
    let count = |line: &str, words: &str| line.strip_prefix(words)?.parse::<usize>().ok();
    match lines[..] {
        [refused, went_on, found]
            if refused
                == "refused: the disk is full: nothing was written, make room and try again"
                && count(went_on, "went on with ").is_some_and(|rows| rows > 100)
                && count(went_on, "went on with ") == count(found, "found ") =>
        {
            Ok(())
        }
        _ => Err(said.into()),
    }
}

fn full_at_start() -> Result<(), Failed> {
    let said = on_small_disk(
        "2m",
        "head -c 1900000 /dev/zero > \"$disk/ballast\"; \"$me\" child open \"$disk/data\"",
    )?;
    let full = said.starts_with("the disk of data folder DISK/data is full (")
        && said.ends_with(" bytes free), make room and try again\n");
    if full { Ok(()) } else { Err(said.into()) }
}

/// Somebody has put the key of the server into its new folder.
fn full_at_first_start() -> Result<(), Failed> {
    let said = on_small_disk(
        "4m",
        "mkdir \"$disk/data\"; umask 077; head -c 32 /dev/zero > \"$disk/data/secret.key\"
        cat /dev/zero > \"$disk/ballast\" 2> /dev/null || \"$me\" child open \"$disk/data\"; ls \"$disk/data\"
        rm \"$disk/ballast\"; \"$me\" child open \"$disk/data\"",
    )?;
    expect(
        said,
        "the disk of data folder DISK/data is full (0 bytes free), make room and try again\nsecret.key\nopened\n",
    )
}

/// How many changes of files by a first start are tried. After these, the database is there.
const FIRST_CHANGES: usize = 24;

fn killed_at_first_start() -> Result<(), Failed> {
    for nth in 1..=FIRST_CHANGES {
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("secret.key");
        std::fs::write(&key, [7; 32])?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
        let changes = "write,pwrite64,ftruncate,fsync,fdatasync,unlink,rename,link,linkat";
        let child = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("inject={changes}:signal=SIGKILL:when={nth}"))
            .arg(myself())
            .args(["child", "open", &folder.path().to_string_lossy()])
            .output()?;
        if child.status.success() {
            return Err(format!("there is no change {nth}").into());
        }
        if let Err(error) = Store::open(folder.path(), StoreOptions::default()) {
            return Err(format!("killed at change {nth}: {error}").into());
        }
    }
    Ok(())
}

/// A person accepts a database without its write-ahead log, and the server is killed when it is about to write that into the mark.
fn killed_before_mark() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let name = data.to_string_lossy().into_owned();
    let dead = Command::new(myself())
        .args(["child", "die", &name])
        .status()?;
    assert_eq!(dead.signal(), Some(9));
    std::fs::remove_file(data.join("stepward.db-wal"))?;
    let mark = data.join("stepward.mark");
    let before = std::fs::read(&mark)?;
    let killed = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-P"])
        .arg(&mark)
        .args(["-e", "inject=pwrite64:signal=SIGKILL:when=1"])
        .arg(myself())
        .args(["child", "accept", &name])
        .output()?;
    if killed.status.success() || !killed.stdout.is_empty() {
        return Err(format!("it must be killed: {killed:?}").into());
    }
    assert_eq!(std::fs::read(&mark)?, before, "the mark is the former one");
    let found = recorded(&data);
    match &found[..] {
        [accepted] if accepted.contains("a person accepted") => {}
        _ => return Err(format!("{found:?}").into()),
    }
    assert_ne!(std::fs::read(&mark)?, before, "the mark is the current one");
    Ok(())
}

/// Leaves `$room` KiB free on the disk.
const LEAVE_ROOM: &str = "free=$(df --output=avail -k \"$disk\" | tail -1)
    head -c $(((free - room) * 1024)) /dev/zero > \"$disk/ballast\"";

fn upgrade_without_room() -> Result<(), Failed> {
    // The room that the upgrade takes: two copies, and a little more.
    let shell = format!(
        "\"$me\" child inflate \"$disk/data\"; cd \"$disk\"; kib=$(($(stat -c %s data/stepward.db) / 1024))
        for room in $((kib + 3000)) $((kib * 3 / 2)) $((kib * 2 + 1000)); do
            {LEAVE_ROOM}
            find data -type f | sort | xargs sha256sum > before
            \"$me\" child open data | sed 's/[0-9][0-9]*/N/g'
            find data -type f | sort | xargs sha256sum | cmp before - && echo unchanged
            rm ballast
        done
        room=$((kib * 2 + 1100)); {LEAVE_ROOM}; \"$me\" child open data"
    );
    let said = on_small_disk("128m", &shell)?;
    let refused = "the upgrade of the database needs N bytes of free disk space in data folder data, and N bytes are free; \
                   make room and try again\nunchanged\n";
    expect(said, &format!("{}opened\n", refused.repeat(3)))
}

fn upgrade_without_rewrite() -> Result<(), Failed> {
    let said = on_small_disk(
        "128m",
        "\"$me\" child inflate \"$disk/data\"; \"$me\" child upgrade \"$disk/data\"; \"$me\" child open \"$disk/data\"",
    )?;
    expect(said, "opened\nwas rewritten: false\nopened\n")
}

fn full_of_logs() -> Result<(), Failed> {
    let line = "0123456789".repeat(10);
    let shell = format!(
        "cd \"$disk\"; mkdir workflows
        echo 'tasks: {{ loud: {{ flow: {{ a: {{ script: \"yes {line} | head -c 9000000\" }} }} }} }}' > workflows/loud.yaml
        start() {{
            \"$stepward\" server --embedded-worker --listen 127.0.0.1:0 --workflows-dir workflows --data-dir .stepward \\
                > said 2>&1 & server=$!
            while kill -0 $server && ! [ -e .stepward/server.json ]; do sleep 0.02; done
        }}
        start; for job in 1 2 3 4; do \"$stepward\" run loud > said 2>&1; done
        kill $server; wait $server; start
        until \"$stepward\" prune --jobs-older 1s --dry-run | grep -q '^4 jobs would go'; do sleep 0.1; done
        \"$stepward\" prune --jobs-older 1s
        \"$stepward\" run loud > said 2>&1; kill $server; wait $server; echo went on"
    );
    let said = on_small_disk("24m", &shell)?;
    match said.starts_with("4 jobs removed, with ") && said.ends_with("went on\n") {
        true => Ok(()),
        false => Err(said.into()),
    }
}

fn nearly_full() -> Result<(), Failed> {
    let said = on_small_disk(
        "64m",
        "cd \"$disk\"
        \"$stepward\" server --listen 127.0.0.1:0 --data-dir .stepward 2> said & server=$!
        while kill -0 $server && ! [ -e .stepward/server.json ]; do sleep 0.02; done
        \"$stepward\" status --json; kill $server; wait $server",
    )?;
    let status: serde_json::Value = serde_json::from_str(&said)?;
    let problems = status["problems"].as_array().ok_or("no problems")?;
    let is_told = |problem: &serde_json::Value| problem["code"] == "disk_nearly_full";
    match problems.iter().any(is_told) && status["ready"] == true {
        true => Ok(()),
        false => Err(said.into()),
    }
}

fn read_only_at_start() -> Result<(), Failed> {
    let said = on_small_disk(
        "8m",
        "\"$me\" child open \"$disk/data\"; mount -o remount,ro \"$disk\"; \"$me\" child open \"$disk/data\"",
    )?;
    expect(
        said,
        "opened\ndata folder DISK/data cannot be written: Read-only file system (os error 30), \
         make it writable or choose another data_dir\n",
    )
}

/// Root may write everywhere, unless it gives this privilege up. The files in the folder can be written, the folder cannot.
fn without_permission() -> Result<(), Failed> {
    let said = on_small_disk(
        "8m",
        "\"$me\" child open \"$disk/data\"; chmod 0500 \"$disk/data\"; \
         setpriv --bounding-set=-dac_override,-dac_read_search \"$me\" child open \"$disk/data\"",
    )?;
    expect(
        said,
        "opened\ndata folder DISK/data cannot be written: Permission denied (os error 13), \
         make it writable or choose another data_dir\n",
    )
}

/// As in a container that somebody started without a session of its own.
fn in_a_world_of_processes() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("hello.yaml");
    std::fs::write(
        &file,
        "tasks: { hello: { flow: { a: { script: 'echo ran' } } } }",
    )?;
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount-proc"])
        .arg(env!("CARGO_BIN_EXE_stepward"))
        .args(["run", "--logs"])
        .arg(&file)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    match ran.status.success() && said.contains("ran") {
        true => Ok(()),
        false => Err(format!("{ran:?}").into()),
    }
}

/// A step kills its supervisor, and leaves a process without the mark of the worker behind. Nothing of it may live on, also where the
/// worker has a process group that it cannot see.
fn orphans_in_a_world_of_processes() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("leave.yaml");
    let nap = format!("7{:07}", std::process::id());
    let script = format!("env -i sleep {nap} & sleep 0.2; kill -KILL $PPID; sleep 30");
    std::fs::write(
        &file,
        format!("tasks: {{ leave: {{ flow: {{ a: {{ script: '{script}' }} }} }} }}"),
    )?;
    let inside = "\"$me\" run \"$file\"; echo code $?; ps -e -o stat=,args= | grep -F \"sleep $nap\" | grep -v grep || echo none is left";
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount-proc"])
        .args(["sh", "-c", inside])
        .env("me", env!("CARGO_BIN_EXE_stepward"))
        .env("file", &file)
        .env("nap", &nap)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    match said.contains("code 10") && said.contains("none is left") {
        true => Ok(()),
        false => Err(format!("{ran:?}").into()),
    }
}

/// Processes that were seen as children of another one, and how they stand.
fn children(parent: u32) -> Vec<stepward::worker::processes::Process> {
    let all = stepward::worker::processes::all().into_iter();
    all.filter(|process| process.parent == parent as i32)
        .collect()
}

fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    for _ in 0..3_000 {
        if let Some(found) = look() {
            return Ok(found);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(format!("in vain: {what}").into())
}

/// A container in which a process loses its parent, as after `docker exec`, and which is stopped as docker does it.
fn first_process() -> Result<(), Failed> {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = tempfile::tempdir()?;
    let go = folder.path().join("go");
    let script = format!(
        "(while [ ! -e {} ]; do sleep 0.05; done) & exec \"$@\"",
        go.display()
    );
    let mut container = Command::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount-proc"])
        .args(["sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_stepward")])
        .args(["server", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path().join("data"))
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let id = container.id();
    let first = await_that("the first process", || children(id).pop())?;
    let first = first.pid.as_raw_nonzero().get() as u32;
    let server = folder.path().join("data/server.json");
    await_that("the server runs", || server.exists().then_some(()))?;
    // The orphan and the command itself.
    let before = children(first).len();
    std::fs::write(&go, "")?;
    await_that("the orphan is collected", || {
        (children(first).len() < before).then_some(())
    })?;
    let first = Pid::from_raw(first as i32).expect("a process has a number");
    kill_process(first, Signal::TERM)?;
    let status = container.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{status}").into()),
    }
}
