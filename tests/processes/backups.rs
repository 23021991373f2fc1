//! Backups of servers at work, and what becomes of a server that goes on from one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stepward::client::Client;
use stepward::wire::api::{BackupsJson, JobJson, List};

use crate::house::{House, PATIENT, SETTINGS, await_that, check_database};
use crate::typed::{Typed, command, typed, typed_in};

const WORK: &str = "
tasks:
  count:
    input: { n: { type: integer, required: true } }
    flow:
      print: { script: 'echo \"number $INPUT_N\"' }
      twice: { depends_on: [print], script: 'echo \"twice $INPUT_N\"; test $((INPUT_N % 5)) -ne 0' }
  hush:
    input: { word: { type: string, secret: true, required: true } }
    flow:
      wait: { type: approval, message: go? }
      use: { depends_on: [wait], script: 'printf %s \"$INPUT_WORD\" | wc -c | tr -d \" \"' }
";

fn take(house: &House, file: &str) -> Typed {
    let taken = typed(house, &["backup", file]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    taken
}

fn restore(house: &House, words: &[&str]) -> Typed {
    let words: Vec<&str> = ["restore"].iter().chain(words).copied().collect();
    typed_in(house.folder.path(), &words)
}

/// The server of this house goes on from a backup in the place of what it had.
fn go_back(house: &mut House, file: &str) {
    let restored = restore(house, &[file, "--data-dir", "data", "--force"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    house.start_server();
}

#[test]
fn a_backup_under_load_holds_every_job_that_was_acknowledged_before_it() {
    let mut house = House::with_settings(WORK, PATIENT);
    let _workers = [house.worker(2), house.worker(2)];
    let secret = house.submit_with("hush", serde_json::json!({ "word": "hunter2" }));
    let secret = secret.unwrap().id;
    let over = AtomicBool::new(false);
    let mut backups = Vec::new();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    return n;
                }
                house
                    .submit_with("count", serde_json::json!({ "n": n }))
                    .unwrap();
            }
            unreachable!("numbers do not end")
        });
        let ended = || -> BTreeMap<i64, JobJson> {
            let jobs: List<JobJson> = house.get("/api/jobs?limit=500");
            let jobs = jobs.items.into_iter().filter(|job| job.ended_at.is_some());
            jobs.map(|job| (job.id, job)).collect()
        };
        for n in 1..=3 {
            await_that("some jobs have ended", || {
                (ended().len() >= 10 * n).then_some(())
            });
            let known = ended();
            let all: List<JobJson> = house.get("/api/jobs?limit=500");
            let file = format!("{n}.tar.gz");
            take(&house, &file);
            let all: Vec<i64> = all.items.into_iter().map(|job| job.id).collect();
            backups.push((file, known, all));
        }
        over.store(true, Ordering::Relaxed);
        assert!(busy.join().unwrap() >= 30);
    });
    house.stop_server();
    for (file, known, all) in backups {
        let verified = typed_in(house.folder.path(), &["backup", "verify", &file, "--json"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        let data = format!("restored-{file}");
        let restored = restore(&house, &[&file, "--data-dir", &data, "--json"]);
        assert_eq!(restored.code, Some(0), "{restored:?}");
        check_database(&house.path(&data));

        let mut other = House::with_settings(WORK, SETTINGS);
        other.stop_server();
        fs::remove_dir_all(other.path("data")).unwrap();
        fs::rename(house.path(&data), other.path("data")).unwrap();
        other.start_server();
        for (id, before) in &known {
            let after = other.job(*id);
            assert_eq!(
                (&after.status, &after.reason),
                (&before.status, &before.reason)
            );
            assert_eq!(
                (after.ended_at, after.started_at),
                (before.ended_at, before.started_at)
            );
            let n = after.input.value()["n"].as_i64().unwrap();
            for (step, said) in [
                ("print", format!("number {n}")),
                ("twice", format!("twice {n}")),
            ] {
                let lines = other.log_lines(*id, step);
                assert_eq!(lines.len(), 2, "job {id}: {lines:?}");
                assert_eq!(lines[0], said, "job {id}");
            }
        }
        for id in all {
            other.job(id);
        }
        // Sealed inputs open: the key came along.
        let _worker = other.worker(1);
        let path = format!("/api/jobs/{secret}/steps/wait/approve");
        let _: serde_json::Value = other.post(&path).unwrap();
        other.await_job(secret, "completed");
        assert_eq!(other.log_lines(secret, "use"), ["7", "exit code 0"]);
        let told = other.all_events();
        assert!(told.iter().any(|event| event.kind == "backup_restored"));
        // What was under way when the backup was made is settled like after any absence: nothing hangs.
        await_that("everything has ended", || {
            let open: List<JobJson> = other.get("/api/jobs?q=status:running&limit=500");
            let held: List<JobJson> = other.get("/api/jobs?q=status:pending&limit=500");
            (open.items.is_empty() && held.items.is_empty()).then_some(())
        });
        other.check();
    }
}

const GATED: &str = "
tasks:
  gated:
    flow:
      wait: { script: 'echo begun; while [ ! -e LEDGER.gate ]; do sleep 0.05; done; echo through' }
  hold:
    flow:
      nap: { script: 'echo napping; SLEEP' }
";

/// The worker was given attempts that the restored database knows nothing of, and some of their numbers are given again.
#[test]
fn a_worker_that_is_ahead_of_a_restored_server_is_fenced_and_everything_settles() {
    let mut house = House::with_settings(GATED, SETTINGS);
    let worker = house.worker(2);
    // Known to the backup as running, and running still when the server has gone back.
    let before = house.submit("hold");
    house.await_log_line(before, "nap", "napping");
    take(&house, "early.tar");
    // Not known to it.
    let ghost = house.submit("hold");
    house.await_log_line(ghost, "nap", "napping");
    house.await_asleep(2);
    house.stop_server();
    go_back(&mut house, "early.tar");

    // Its number, and those of its steps, are given to another job; what the worker still has of the ghost is not taken for it.
    let after = house.submit("gated");
    assert_eq!(after, ghost);
    house.await_nobody_asleep();
    house.await_log_line(after, "wait", "begun");
    let failed = house.await_job(before, "failed");
    assert_eq!(failed.reason.as_deref(), Some("worker_restarted"));
    house.open_gate();
    house.await_job(after, "completed");
    assert_eq!(
        house.log_lines(after, "wait"),
        ["begun", "through", "exit code 0"]
    );
    await_that("nothing is left in its spool", || {
        (worker.spooled() == 0).then_some(())
    });
    drop(worker);
    house.check();
}

/// A result that was on its way when the server went back belongs to an attempt that is another's by now.
#[test]
fn a_result_from_before_the_restore_is_not_taken_for_that_of_another_job() {
    let mut house = House::with_settings(GATED, PATIENT);
    let worker = house.worker(1);
    take(&house, "empty.tar");
    let ghost = house.submit("gated");
    house.await_log_line(ghost, "wait", "begun");
    house.stop_server();
    // It ends while nobody listens.
    house.open_gate();
    await_that("its result is spooled", || {
        (worker.spooled() == 1).then_some(())
    });
    fs::remove_file(house.path("ledger.gate")).unwrap();
    go_back(&mut house, "empty.tar");
    let after = house.submit("gated");
    assert_eq!(after, ghost);
    house.await_log_line(after, "wait", "begun");
    await_that("the old result is gone", || {
        (worker.spooled() == 0).then_some(())
    });
    assert_eq!(house.job(after).status, "running");
    house.open_gate();
    house.await_job(after, "completed");
    assert_eq!(
        house.log_lines(after, "wait"),
        ["begun", "through", "exit code 0"]
    );
    drop(worker);
    house.check();
}

#[test]
fn one_file_is_all_or_nothing_and_for_its_owner_alone() {
    let mut house = House::with(WORK);
    let taken = take(&house, "one.tar");
    assert!(taken.stdout.starts_with("one.tar: backup of "), "{taken:?}");
    assert!(
        taken.stderr.contains("keep it as safe as the data folder"),
        "{taken:?}"
    );
    let mode = fs::metadata(house.path("one.tar"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let again = typed(&house, &["backup", "one.tar"]);
    assert_eq!(again.code, Some(7), "{again:?}");
    assert!(again.stderr.contains("is there already"), "{again:?}");
    let forced = typed(&house, &["backup", "one.tar", "--force", "--json"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(forced.json()["workflows"], 1);
    let nowhere = typed(&house, &["backup", "no/such/folder/one.tar"]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
    let out = typed(&house, &["backup", "-", "--json"]);
    assert_eq!(out.code, Some(2), "{out:?}");

    let out = crate::typed::command(house.folder.path(), &["backup", "-"])
        .env("STEPWARD_SERVER_URL", house.url())
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    fs::write(house.path("out.tar"), &out.stdout).unwrap();
    // What is cut off is no backup, whoever wrote it.
    fs::write(house.path("cut.tar"), &out.stdout[..out.stdout.len() / 2]).unwrap();
    house.stop_server();
    let whole = typed_in(house.folder.path(), &["backup", "verify", "out.tar"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(
        whole.stdout.contains("whole, every rule holds"),
        "{whole:?}"
    );
    let cut = typed_in(house.folder.path(), &["backup", "verify", "cut.tar"]);
    assert_eq!(cut.code, Some(3), "{cut:?}");
    let missing = typed_in(house.folder.path(), &["backup", "verify", "none.tar"]);
    assert_eq!(missing.code, Some(5), "{missing:?}");

    // The same from its folder, now that it is stopped.
    let folder = &[
        "backup",
        "stopped.tar",
        "--data-dir",
        "data",
        "--config",
        "server.yaml",
    ];
    let stopped = typed_in(house.folder.path(), folder);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let dry = restore(&house, &["stopped.tar", "--dry-run", "--json"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(dry.json()["dry_run"], true);
    assert_eq!(dry.json()["backup"]["workflows"], 1);
    let parts: Vec<String> = fs::read_dir(house.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(parts, Vec::<String>::new());

    // A server that was killed left its log: it is taken in.
    house.start_server();
    let job_id = house
        .submit_with("count", serde_json::json!({ "n": 1 }))
        .unwrap()
        .id;
    house.kill_server();
    let killed = &["backup", "killed.tar", "--data-dir", "data"];
    let killed = typed_in(house.folder.path(), killed);
    assert_eq!(killed.code, Some(0), "{killed:?}");
    assert!(killed.stderr.contains("not known here"), "{killed:?}");
    go_back(&mut house, "killed.tar");
    assert_eq!(house.job(job_id).status, "pending");
    house.check();
}

/// As a package has it: the folder is the server's, what is around it is root's, and root follows the advice.
#[test]
fn root_restores_for_whoever_owns_the_folder() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const OWNER: u32 = 61_001;
    let mut house = House::with(WORK);
    take(&house, "one.tar");
    house.stop_server();
    fs::set_permissions(house.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = house.path("data");
    let chowned = std::process::Command::new("chown")
        .args(["-R", &format!("{OWNER}:{OWNER}")])
        .arg(&data)
        .status();
    assert!(chowned.unwrap().success());
    let restored = restore(&house, &["one.tar", "--data-dir", "data", "--force"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let others = std::process::Command::new("find")
        .arg(&data)
        .args(["!", "-user", &OWNER.to_string()])
        .output()
        .unwrap();
    assert!(
        others.status.success() && others.stdout.is_empty(),
        "{others:?}"
    );
    let aside = shelf(&data)
        .into_iter()
        .find(|it| it.starts_with("before-restore-"));
    assert!(data.join(aside.unwrap()).join("stepward.db").exists());
}

#[test]
fn a_server_that_stops_does_not_wait_for_a_copy_of_its_database() {
    let mut house = House::with(WORK);
    house.stop_server();
    let sql = rusqlite::Connection::open(house.path("data/stepward.db")).unwrap();
    sql.execute_batch(
        "CREATE TABLE ballast (bytes BLOB);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
         INSERT INTO ballast SELECT zeroblob(4000) FROM n",
    )
    .unwrap();
    drop(sql);
    house.start_server();
    let (folder, url) = (house.folder.path().to_path_buf(), house.url());
    let taking = std::thread::spawn(move || {
        let mut taking = crate::typed::command(&folder, &["backup", "large.tar"]);
        taking.env("STEPWARD_SERVER_URL", url).output().unwrap()
    });
    await_that("it is being copied", || {
        let names = shelf(&house.path("data"));
        names
            .iter()
            .any(|it| it.starts_with("backup-copy."))
            .then_some(())
    });
    house.stop_server();
    let told = taking.join().unwrap();
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("the server stops"), "{told}");
}

/// So that a server of a house makes backups by itself.
fn shelved(house_settings: &str, folder: &std::path::Path, keep: u32) -> String {
    let folder = folder.display();
    format!("{house_settings}backup: {{ dir: {folder}, every_hours: 1, keep: {keep} }}\n")
}

fn shelf(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn backups_are_made_by_themselves_go_on_after_a_restart_and_old_ones_go() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 2));
    let made = |house: &House| -> usize {
        let events = house.all_events();
        events
            .iter()
            .filter(|event| event.kind == "backup_made")
            .count()
    };
    await_that("the first is made at once", || {
        (made(&house) == 1).then_some(())
    });
    let names = shelf(&folder);
    assert_eq!(names.len(), 1, "{names:?}");
    let file = folder.join(&names[0]);
    let verified = typed_in(
        house.folder.path(),
        &["backup", "verify", file.to_str().unwrap()],
    );
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let told: BackupsJson = house.get("/api/backups");
    assert!(told.failed.is_none() && told.last.is_some() && told.next_at.is_some());

    // A restart makes none before its time; one that is two hours old and older ones have it make another, and go.
    let (prefix, _) = names[0].rsplit_once('-').unwrap();
    house.stop_server();
    for old in ["20200101T000000Z", "20200102T000000Z"] {
        fs::write(folder.join(format!("{prefix}-{old}.tar.gz")), "").unwrap();
    }
    fs::write(
        folder.join(format!("{prefix}-20200103T000000Z.tar.gz.part")),
        "",
    )
    .unwrap();
    house.start_server();
    house.await_sweep();
    assert_eq!(made(&house), 1);
    assert_eq!(shelf(&folder).len(), 4, "nothing goes without a successor");
    house.stop_server();
    fs::rename(
        &file,
        folder.join(format!("{prefix}-20200104T000000Z.tar.gz")),
    )
    .unwrap();
    house.start_server();
    await_that("another is made", || (made(&house) == 2).then_some(()));
    let names = shelf(&folder);
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0], format!("{prefix}-20200104T000000Z.tar.gz"));
    house.check();
}

/// The clock was years ahead when one was made, and was set right since.
#[test]
fn a_backup_of_a_time_to_come_does_not_keep_others_from_being_made() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 2));
    let made = |house: &House| {
        let events = house.all_events();
        events.iter().filter(|it| it.kind == "backup_made").count()
    };
    await_that("the first is made", || (made(&house) == 1).then_some(()));
    house.stop_server();
    let names = shelf(&folder);
    let (prefix, _) = names[0].rsplit_once('-').unwrap();
    let ahead = format!("{prefix}-20990101T000000Z.tar.gz");
    fs::rename(folder.join(&names[0]), folder.join(&ahead)).unwrap();
    house.start_server();
    await_that("another is made", || (made(&house) == 2).then_some(()));
    let names = shelf(&folder);
    assert_eq!(names.len(), 2, "{names:?}");
    let told: BackupsJson = house.get("/api/backups");
    assert!(told.last.unwrap().file.ends_with(&names[0]));
    assert!(told.ahead.unwrap().file.ends_with(&ahead));
    let status = typed(&house, &["status"]);
    assert!(status.stdout.contains("bears a time"), "{status:?}");
    let config = house.path("server.yaml");
    let doctor = ["doctor", "database", "--config", config.to_str().unwrap()];
    let doctor = typed(&house, &doctor);
    assert!(doctor.stdout.contains("still to come"), "{doctor:?}");
    house.check();
}

#[test]
fn a_backup_that_cannot_be_made_is_told_once_and_hurts_nobody() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    // A file where the folder would be.
    fs::write(&folder, "").unwrap();
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 2));
    let _worker = house.worker(1);
    let failed = await_that("it is told", || {
        let events = house.all_events();
        events
            .into_iter()
            .find(|event| event.kind == "backup_failed")
    });
    assert!(
        failed.message.contains("no backup could be made"),
        "{failed:?}"
    );
    let told: BackupsJson = house.get("/api/backups");
    assert!(told.failed.is_some() && told.last.is_none());
    let mut metrics = String::new();
    let client = Client::new(&house.url(), None);
    let mut answer = client.text("/metrics", Duration::from_secs(10)).unwrap();
    answer.read_to_string(&mut metrics).unwrap();
    for counted in ["failures_total 1", "last_success_timestamp_seconds 0"] {
        let line = format!("\nstepward_backup_{counted}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let status = typed(&house, &["status", "--json"]);
    let problems = status.json()["problems"].clone();
    assert_eq!(problems[0]["code"], "backup_failed", "{problems}");
    let config = house.path("server.yaml");
    let doctor = ["doctor", "database", "--config", config.to_str().unwrap()];
    let doctor = typed(&house, &doctor);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(
        doctor.stdout.contains("the server could make no backup"),
        "{doctor:?}"
    );
    let job = house
        .submit_with("count", serde_json::json!({ "n": 1 }))
        .unwrap();
    house.await_job(job.id, "completed");
    // By hand it goes somewhere else.
    take(&house, "by-hand.tar");
    house.check();
}

/// A command in the place of `age`: its output begins as that of `age` does, and the rest is turned back by `decrypted`.
const CIPHER: &str = "echo age-encryption.org/v1; tr a-z b-za";

fn decrypted(file: &std::path::Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let header = b"age-encryption.org/v1\n";
    let rest = bytes.strip_prefix(header).expect("it is encrypted");
    let back = |byte: &u8| match byte {
        b'a' => b'z',
        b'b'..=b'z' => byte - 1,
        other => *other,
    };
    rest.iter().map(back).collect()
}

/// The settings of the house with this command for backups.
/// Whether the only backup is complete. While one is made, its file has another name.
fn is_made(names: &[String]) -> bool {
    names.len() == 1 && names[0].ends_with("Z.tar.gz")
}

/// From the next start on, backups go through this command.
fn pipe_through(house: &mut House, command: &str) {
    let (begin, rest) = house.settings.split_once("keep: 1").unwrap();
    let end = &rest[rest.find(" }").unwrap()..];
    house.settings = format!("{begin}keep: 1, pipe: {command}{end}");
}

/// What a backup leaves in the data folder, while it is made or afterwards.
fn leftovers(house: &House) -> Vec<String> {
    let mut names = shelf(&house.path("data"));
    names.retain(|name| name.contains("copy") || name.contains("plain"));
    names
}

#[test]
fn backups_are_encrypted_once_the_settings_name_a_command() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 1));
    await_that("the first is made", || {
        is_made(&shelf(&folder)).then_some(())
    });
    let told: BackupsJson = house.get("/api/backups");
    assert_eq!(told.pipe, None);
    house.stop_server();
    let plain = shelf(&folder)[0].clone();
    assert!(plain.ends_with("Z.tar.gz"), "{plain}");

    pipe_through(&mut house, &format!("[sh, -c, '{CIPHER}']"));
    house.start_server();
    let name = await_that(
        "an encrypted one is made at once, and the plain one goes",
        || {
            let names = shelf(&folder);
            let is_there = names.len() == 1 && names[0].ends_with("Z.tar.gz.age");
            is_there.then(|| names[0].clone())
        },
    );
    let file = folder.join(&name);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let told: BackupsJson = house.get("/api/backups");
    assert_eq!(told.pipe.as_deref(), Some("sh"));
    assert!(told.failed.is_none() && told.last.unwrap().file.ends_with(&name));
    assert_eq!(leftovers(&house), Vec::<String>::new());

    // A restart makes none before its time.
    house.stop_server();
    house.start_server();
    house.await_sweep();
    assert_eq!(shelf(&folder), [name]);

    // By hand nothing is encrypted unless that is asked for.
    let by_hand = typed(&house, &["backup", "by-hand.tar.gz"]);
    assert_eq!(by_hand.code, Some(0), "{by_hand:?}");
    let told = "this backup is not encrypted: backup.pipe of the settings";
    assert!(by_hand.stderr.contains(told), "{by_hand:?}");
    let encrypted = typed(&house, &["backup", "by-hand.age", "--pipe", CIPHER]);
    assert_eq!(encrypted.code, Some(0), "{encrypted:?}");
    assert!(!encrypted.stderr.contains(told), "{encrypted:?}");
    let path = file.to_str().unwrap();
    for words in [
        &["backup", "verify", path][..],
        &["restore", path, "--data-dir", "restored"],
    ] {
        let refused = typed_in(house.folder.path(), words);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(
            refused.stderr.contains("age -d -i KEY_FILE FILE"),
            "{refused:?}"
        );
    }
    assert!(!house.path("restored").exists());
    fs::write(house.path("decrypted.tar.gz"), decrypted(&file)).unwrap();
    let restored = restore(&house, &["decrypted.tar.gz", "--data-dir", "restored"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    check_database(&house.path("restored"));
}

#[test]
fn a_command_that_cannot_be_run_is_told_before_a_backup_is_due() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 1));
    await_that("the first is made", || {
        is_made(&shelf(&folder)).then_some(())
    });
    house.stop_server();
    // As if it had been made by a command: the next one is due in hours.
    let plain = shelf(&folder)[0].clone();
    let piped = format!("{plain}.piped");
    fs::rename(folder.join(&plain), folder.join(&piped)).unwrap();
    pipe_through(&mut house, "[/no/such/age, -r, age1]");
    house.start_server();
    let failed = await_that("it is told", || {
        house.get::<BackupsJson>("/api/backups").failed
    });
    let why = "through /no/such/age: there is no such program; install it";
    assert!(failed.message.contains(why), "{failed:?}");
    assert_eq!(shelf(&folder), [piped]);
}

#[test]
fn a_command_of_the_command_line_has_to_read_the_whole_backup() {
    let house = House::with_settings(WORK, SETTINGS);
    for (command, code) in [
        ("cat", 0),
        ("head -c 100", 1),
        ("cat >/dev/null; exit 3", 1),
    ] {
        let typed = typed(
            &house,
            &["backup", "piped.tar", "--force", "--pipe", command],
        );
        assert_eq!(typed.code, Some(code), "{command}: {typed:?}");
        assert_eq!(house.path("piped.tar").exists(), code == 0, "{command}");
        if command.starts_with("head") {
            let why = "it ended before it had read all of its input";
            assert!(typed.stderr.contains(why), "{typed:?}");
        }
        let _ = fs::remove_file(house.path("piped.tar"));
    }
}

#[test]
fn a_backup_that_cannot_be_encrypted_is_a_problem_and_leaves_nothing() {
    for (command, why) in [
        (
            "[sh, -c, 'echo half; echo first >&2; echo no such recipient >&2; exit 3']",
            "through sh: it ended with exit status: 3: first; no such recipient",
        ),
        (
            "[/no/such/age, -r, age1]",
            "there is no such program; install it",
        ),
        ("['true']", "through true: it wrote nothing"),
        (
            "[head, -c, '100']",
            "through head: it ended without an error before it had read the whole backup",
        ),
    ] {
        let shelf_folder = tempfile::tempdir().unwrap();
        let folder = shelf_folder.path().join("backups");
        let mut house = House::with_settings(WORK, SETTINGS);
        house.stop_server();
        house.settings = shelved(SETTINGS, &folder, 1);
        pipe_through(&mut house, command);
        house.start_server();
        let failed = await_that("it is told", || {
            house.get::<BackupsJson>("/api/backups").failed
        });
        assert!(failed.message.contains(why), "{failed:?}");
        assert_eq!(shelf(&folder), Vec::<String>::new(), "{command}");
        assert_eq!(leftovers(&house), Vec::<String>::new(), "{command}");
        let status = typed(&house, &["status", "--json"]);
        let problems = status.json()["problems"].clone();
        let mut codes = problems.as_array().unwrap().iter();
        assert!(
            codes.any(|problem| problem["code"] == "backup_failed"),
            "{problems}"
        );
    }
}

#[test]
fn a_server_that_stops_does_not_wait_for_the_command_of_a_backup() {
    let shelf_folder = tempfile::tempdir().unwrap();
    let folder = shelf_folder.path().join("backups");
    let mut house = House::with_settings(WORK, &shelved(SETTINGS, &folder, 1));
    await_that("the first is made", || {
        is_made(&shelf(&folder)).then_some(())
    });
    house.stop_server();
    let mark = house.path("begun");
    pipe_through(
        &mut house,
        &format!("[sh, -c, 'echo x; touch {}; sleep 1000']", mark.display()),
    );
    house.start_server();
    await_that("the command runs", || mark.exists().then_some(()));
    house.stop_server();
    let names = shelf(&folder);
    assert!(
        names.len() == 1 && names[0].ends_with("Z.tar.gz"),
        "{names:?}"
    );
    assert_eq!(leftovers(&house), Vec::<String>::new());
}

#[test]
fn one_types_a_backup_that_a_command_encrypts() {
    let house = House::with_settings(WORK, SETTINGS);
    let taken = typed(&house, &["backup", "one.tar.gz.age", "--pipe", CIPHER]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let file = house.path("one.tar.gz.age");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let plain = decrypted(&file);
    assert_eq!(plain[..2], [0x1f, 0x8b], "gzip, as the name says");
    fs::write(house.path("plain"), plain).unwrap();
    let verified = typed(&house, &["backup", "verify", "plain"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");

    // Other processes of the same user could read the token in the environment of the command.
    let listing = "cat >/dev/null; env";
    let mut list = command(
        house.folder.path(),
        &["backup", "environment", "--pipe", listing],
    );
    list.env("STEPWARD_SERVER_URL", house.url());
    list.env("STEPWARD_TOKEN", "0123456789abcdef0123");
    let listed: Typed = list.output().unwrap().into();
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let listed = fs::read_to_string(house.path("environment")).unwrap();
    assert!(
        listed.contains("PATH=") && !listed.contains("STEPWARD_TOKEN"),
        "{listed}"
    );

    for (command, why) in [
        ("cat; exit 3", "exit status: 3"),
        ("cat >/dev/null", "wrote nothing"),
        ("true", "it ended before it had read all of its input"),
    ] {
        let refused = typed(&house, &["backup", "two.tar.age", "--pipe", command]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let names = shelf(house.folder.path());
    let left = names
        .iter()
        .filter(|name| name.contains("backup") || name.contains("two"));
    assert_eq!(left.count(), 0, "{names:?}");
}
