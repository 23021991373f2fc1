//! The audit log with the real binary: listed, verified, exported, tampered with, backed up and restored.

use std::fs;
use std::process::{Command, Stdio};

use rusqlite::Connection;

use crate::house::{House, await_that};
use crate::typed::{typed, typed_in};

const WORK: &str = "
tasks:
  hello: { flow: { greet: { script: echo hello } } }
";

/// The last head that the server logged, as SEQ:HASH.
fn logged_head(said: &str) -> String {
    let line = said.lines().rfind(|line| line.contains("audit head"));
    let line = line.unwrap_or_else(|| panic!("no head in {said}"));
    let value = |key: &str| {
        let (_, rest) = line.split_once(key).unwrap_or_else(|| panic!("{line}"));
        rest.split_whitespace()
            .next()
            .unwrap()
            .trim_matches('"')
            .to_string()
    };
    format!("{}:{}", value("seq="), value("hash="))
}

#[test]
fn the_log_is_verified_by_the_server_by_its_folder_and_by_its_export() {
    let mut house = House::with(WORK);
    let job = house.submit("hello");
    house.cancel(job);
    let listed = typed(
        &house,
        &["audit", "ls", "--action", "job_cancelled", "--json"],
    )
    .json();
    let row = &listed["items"][0];
    assert_eq!(row["actor"], "local");
    assert_eq!(row["object"], format!("job/{job}"));
    let plain = typed(&house, &["audit", "ls", "--since", "1h", "-n", "1"]);
    assert!(plain.stdout.contains("job_cancelled\tlocal"), "{plain:?}");
    let odd = typed(&house, &["audit", "ls", "--action", "job_canceled"]);
    assert_eq!(odd.code, Some(2), "{odd:?}");
    assert!(odd.stderr.contains("job_cancelled"), "{odd:?}");

    let verified = typed(&house, &["audit", "verify", "--json"]).json();
    assert_eq!(verified["ok"], true);
    assert_eq!(verified["rows"], 3);
    let head = format!("3:{}", verified["head"]["hash"].as_str().unwrap());
    let expected = typed(&house, &["audit", "verify", "--expect", &head]);
    assert_eq!(expected.code, Some(0), "{expected:?}");
    let beyond = typed(
        &house,
        &["audit", "verify", "--expect", &head.replace("3:", "4:")],
    );
    assert_eq!(beyond.code, Some(1), "{beyond:?}");
    assert!(beyond.stdout.contains("row 4 is missing"), "{beyond:?}");

    let exported = typed(&house, &["audit", "export"]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert_eq!(exported.stdout.lines().count(), 5, "anchor, rows, head");
    let file = house.path("audit.jsonl");
    let verify = |text: &str| {
        fs::write(&file, text).unwrap();
        typed_in(
            house.folder.path(),
            &["audit", "verify", "--file", "audit.jsonl"],
        )
    };
    assert_eq!(verify(&exported.stdout).code, Some(0));
    let lines: Vec<&str> = exported.stdout.lines().collect();
    for (what, tampered) in [
        (
            "another actor",
            exported.stdout.replacen("local", "nobody", 1),
        ),
        (
            "without a row",
            [&lines[..2], &lines[3..]].concat().join("\n"),
        ),
        ("cut off", lines[..4].join("\n")),
        (
            "without its last row",
            [&lines[..3], &lines[4..]].concat().join("\n"),
        ),
        (
            "more after its end",
            format!("{}{}\n", exported.stdout, lines[3]),
        ),
        (
            "another time for people",
            exported.stdout.replacen("\"at\":\"2", "\"at\":\"1", 1),
        ),
        (
            "another field in a row",
            exported
                .stdout
                .replacen("\"actor\"", "\"x\":1,\"actor\"", 1),
        ),
        (
            "another number of rows",
            exported.stdout.replace("\"rows\":3", "\"rows\":99"),
        ),
        (
            "another field at its end",
            exported.stdout.replace("\"rows\":3", "\"x\":1,\"rows\":3"),
        ),
    ] {
        assert_ne!(tampered, exported.stdout, "{what}");
        let found = verify(&tampered);
        assert_eq!(found.code, Some(1), "{what}: {found:?}");
    }
    let none = verify("hello\n");
    assert_eq!(none.code, Some(3), "{none:?}");

    // Logged when the server stops, so it is the head of all.
    let heard = house.stop_server_and_listen();
    let said = await_that("the server has logged its head", || {
        let said = heard.lock().unwrap().clone();
        (said.contains("audit head")).then_some(said)
    });
    assert_eq!(logged_head(&said), head);
    let data = ["--data-dir", "data"];
    let offline = typed_in(
        house.folder.path(),
        &[&["audit", "verify", "--expect", &head][..], &data].concat(),
    );
    assert_eq!(offline.code, Some(0), "{offline:?}");
    let copy = typed_in(
        house.folder.path(),
        &[&["audit", "export"][..], &data].concat(),
    );
    assert_eq!(copy.stdout, exported.stdout);
    let check = typed_in(house.folder.path(), &["db", "check", "data"]);
    assert!(
        check.stdout.contains("audit log: 3 rows, every row fits"),
        "{check:?}"
    );

    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    sql.execute("UPDATE audit SET actor = 'eve' WHERE seq = 2", [])
        .unwrap();
    drop(sql);
    let check = typed_in(house.folder.path(), &["db", "check", "data"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(
        check.stdout.contains("row 2 does not fit its hash"),
        "{check:?}"
    );
    let offline = typed_in(
        house.folder.path(),
        &[&["audit", "verify"][..], &data].concat(),
    );
    assert_eq!(offline.code, Some(1), "{offline:?}");
    // The server goes on: people need it, and the tampering stays visible.
    house.start_server();
    house.submit("hello");
    let still = typed(&house, &["audit", "verify"]);
    assert_eq!(still.code, Some(1), "{still:?}");
    assert!(still.stdout.contains("row 2 does not fit"), "{still:?}");
}

/// What `db check` finds in the database, a server that runs has to tell as well.
#[test]
fn a_running_server_hides_no_forged_row() {
    let house = House::with(WORK);
    let job = house.submit("hello");
    house.cancel(job);
    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    let columns = "at, actor, token_id, address, action, object, outcome, detail, hash";
    let copy = |seq: i64| {
        format!(
            "INSERT INTO audit (seq, {columns}) SELECT {seq}, {columns} FROM audit WHERE seq = 3"
        )
    };
    let undo = |seq: i64| format!("DELETE FROM audit WHERE seq = {seq}");
    let anchor = |seq: i64| {
        format!("INSERT INTO audit_anchor SELECT 1, {seq}, hash FROM audit WHERE seq = 3")
    };
    let note = "INSERT INTO milestone (age_ms, at, up, owed_ms, job_id, event_seq, outbox_id, session_id, audit_seq)
                VALUES (-1, 1, 1, 0, 0, 0, 0, 0, 4)";
    let no_anchor = "DELETE FROM audit_anchor".to_string();
    for (forge, undo, why) in [
        (copy(0), undo(0), "row 0 follows"),
        (copy(-5), undo(-5), "row -5 follows"),
        (
            copy(i64::MIN),
            undo(i64::MIN),
            "row -9223372036854775808 follows",
        ),
        (anchor(3), no_anchor.clone(), "row 1 follows"),
        (anchor(1000), no_anchor, "row 1 follows"),
        (
            note.to_string(),
            "DELETE FROM milestone WHERE age_ms = -1".to_string(),
            "row 4 is missing: the database has noted it",
        ),
        (
            "UPDATE audit SET object = cast(x'ff' AS TEXT) WHERE seq = 3".to_string(),
            format!("UPDATE audit SET object = 'job/{job}' WHERE seq = 3"),
            "row 3 does not fit",
        ),
    ] {
        sql.execute(&forge, []).unwrap();
        let verified = typed(&house, &["audit", "verify"]);
        assert_eq!(verified.code, Some(1), "{forge}: {verified:?}");
        assert!(verified.stdout.contains(why), "{forge}: {verified:?}");
        let listed = typed(&house, &["audit", "ls"]);
        assert_eq!(listed.code, Some(0), "{forge}: {listed:?}");
        if !forge.contains("milestone") {
            let exported = typed(&house, &["audit", "export"]);
            fs::write(house.path("audit.jsonl"), exported.stdout).unwrap();
            let file = ["audit", "verify", "--file", "audit.jsonl"];
            let verified = typed_in(house.folder.path(), &file);
            assert_eq!(verified.code, Some(1), "{forge}: {verified:?}");
        }
        sql.execute(&undo, []).unwrap();
        let verified = typed(&house, &["audit", "verify"]);
        assert_eq!(verified.code, Some(0), "{undo}: {verified:?}");
    }
}

#[test]
fn a_backup_with_an_unreadable_row_says_so_and_can_be_restored() {
    let mut house = House::with(WORK);
    house.submit("hello");
    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    let forge = "UPDATE audit SET object = cast(x'ff' AS TEXT) WHERE seq = 2";
    sql.execute(forge, []).unwrap();
    drop(sql);
    let taken = typed(&house, &["backup", "one.tar"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let verify = ["backup", "verify", "one.tar", "--json"];
    let verified = typed_in(house.folder.path(), &verify);
    assert_eq!(verified.json()["audit_fits"], false, "{verified:?}");
    assert_eq!(verified.code, Some(1), "{verified:?}");
    assert!(
        verified.stderr.contains("row 2 cannot be read"),
        "{verified:?}"
    );
    let verified = typed_in(house.folder.path(), &verify[..3]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    let told = &verified.stdout;
    assert!(told.contains("the audit log in it was changed"), "{told}");
    assert!(told.contains("row 2 cannot be read"), "{told}");
    assert!(!told.contains("every rule holds"), "{told}");
    let tried = typed_in(house.folder.path(), &["restore", "one.tar", "--dry-run"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.stdout.contains("but for its audit log"), "{tried:?}");
    assert!(house.stop_server());
    let restored = typed_in(
        house.folder.path(),
        &["restore", "one.tar", "--data-dir", "data", "--force"],
    );
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(
        restored.stderr.contains("row 2 cannot be read"),
        "{restored:?}"
    );
    assert!(
        restored
            .stdout
            .contains("with an audit log that was changed"),
        "{restored:?}"
    );
}

#[test]
fn a_row_that_retention_removed_cannot_be_compared_and_nothing_more() {
    let mut house = House::with(WORK);
    let job = house.submit("hello");
    house.cancel(job);
    assert!(house.stop_server());
    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    let hash = "SELECT lower(hex(hash)) FROM audit WHERE seq = 1";
    let hash: String = sql.query_row(hash, [], |row| row.get(0)).unwrap();
    // As retention does it.
    sql.execute_batch(
        "INSERT INTO audit_anchor SELECT 1, seq, hash FROM audit WHERE seq = 2;
         DELETE FROM audit WHERE seq <= 2",
    )
    .unwrap();
    let compare = format!("1:{hash}");
    let verify = [
        "audit",
        "verify",
        "--data-dir",
        "data",
        "--expect",
        &compare,
    ];
    let offline = typed_in(house.folder.path(), &verify);
    house.start_server();
    let online = typed(&house, &["audit", "verify", "--expect", &compare]);
    for verified in [offline, online] {
        assert_eq!(verified.code, Some(5), "{verified:?}");
        let told = format!("{}{}", verified.stdout, verified.stderr);
        assert!(told.contains("row 1 cannot be compared"), "{told}");
        assert!(told.contains("every row that is left fits"), "{told}");
        assert!(!told.contains("was changed"), "{told}");
    }

    // A changed anchor is told by a running server, too, and by an export.
    let change = "PRAGMA ignore_check_constraints = on; UPDATE audit_anchor SET hash = x'00'";
    sql.execute_batch(change).unwrap();
    let verified = typed(&house, &["audit", "verify"]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    assert!(
        verified
            .stdout
            .contains("the anchor of the chain cannot be read"),
        "{verified:?}"
    );
    let exported = typed(&house, &["audit", "export"]);
    assert_eq!(exported.code, Some(1), "{exported:?}");
    assert!(exported.stderr.contains("anchor"), "{exported:?}");
    drop(sql);
    assert!(house.stop_server());
    let check = typed_in(house.folder.path(), &["db", "check", "data"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("anchor of the chain"), "{check:?}");
}

#[test]
fn a_backup_names_the_head_and_a_restore_goes_on_from_it() {
    let mut house = House::with(WORK);
    house.submit("hello");
    let taken = typed(&house, &["backup", "one.tar", "--json"]).json();
    // The row about the backup comes after the copy.
    assert_eq!(taken["audit_head"]["seq"], 2);
    let verified = typed_in(
        house.folder.path(),
        &["backup", "verify", "one.tar", "--json"],
    )
    .json();
    assert_eq!(verified["audit_fits"], true);
    let job = house.submit("hello");
    house.cancel(job);
    let later = typed(&house, &["audit", "verify", "--json"]).json();
    let later = format!(
        "{}:{}",
        later["head"]["seq"],
        later["head"]["hash"].as_str().unwrap()
    );
    assert!(house.stop_server());
    let restored = typed_in(
        house.folder.path(),
        &["restore", "one.tar", "--data-dir", "data", "--force"],
    );
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(
        restored.stderr.contains("the audit log fits together"),
        "{restored:?}"
    );
    house.start_server();
    let rows = typed(&house, &["audit", "ls", "--json"]).json();
    let actions: Vec<&str> = rows["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        // The house gives its server the same port again, which the settings had left open at first.
        .filter(|action| *action != "settings_changed")
        .collect();
    assert_eq!(actions, ["backup_restored", "job_submitted", "audit_begun"]);
    assert_eq!(typed(&house, &["audit", "verify"]).code, Some(0));
    let lost = typed(&house, &["audit", "verify", "--expect", &later]);
    assert_eq!(
        lost.code,
        Some(1),
        "what was done after the backup is missing: {lost:?}"
    );
}

/// The documentation has a program that verifies an export. It is run as it stands there.
#[test]
fn the_program_in_the_documentation_verifies_an_export() {
    let is_there = Command::new("python3").arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        return;
    }
    let house = House::with(WORK);
    let job = house.submit("hello");
    house.cancel(job);
    let exported = typed(&house, &["audit", "export"]).stdout;
    let docs =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md")).unwrap();
    let program = docs
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let run = |text: &str| {
        let file = house.path("export.jsonl");
        fs::write(&file, text).unwrap();
        let ran = Command::new("python3")
            .args(["-c", program])
            .stdin(fs::File::open(&file).unwrap())
            .stderr(Stdio::null())
            .status();
        ran.unwrap().success()
    };
    assert!(run(&exported));
    assert!(!run(&exported.replacen("local", "nobody", 1)));
}

#[test]
fn a_wrong_token_is_recorded_although_nobody_else_comes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = folder.join("token");
    fs::write(&token, "a-token-that-is-long-enough").unwrap();
    let house = House::with_settings(
        WORK,
        &format!(
            "auth: {{ required: true, token_file: {} }}",
            token.display()
        ),
    );
    let guess = stepward::client::Client::new(&house.url(), Some("wrong"));
    assert!(
        guess
            .get::<serde_json::Value>("/api/jobs", std::time::Duration::from_secs(10))
            .is_err()
    );
    let sql = Connection::open(house.path("data/stepward.db")).unwrap();
    let refused =
        "SELECT address FROM audit WHERE action = 'login_refused' AND outcome = 'refused'";
    let address: String = await_that("the wrong token is recorded", || {
        sql.query_row(refused, [], |row| row.get(0)).ok()
    });
    assert_eq!(address, "127.0.0.1");
}
