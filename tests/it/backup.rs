//! What is believed of a backup, and what becomes of a folder that one is restored to. Servers under load are in `tests/processes`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stepward::backup::{self, BackupError, From, Restore, Restored, Shelf, Sources, Staging};
use stepward::config::ServerConfig;
use stepward::domain::Timestamp;
use stepward::secret_policy::SecretPolicy;
use stepward::store::{CopyError, GoOn, SCHEMA_VERSION, Store, StoreOptions};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1_790_000_000_000);

/// A backup of a small installation: a database without jobs, a key, a workflow.
fn small() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let workflows = folder.path().join("workflows");
    fs::create_dir_all(workflows.join("more")).unwrap();
    fs::create_dir_all(workflows.join(".git")).unwrap();
    fs::write(workflows.join("a.yaml"), "tasks: {}\n").unwrap();
    fs::write(workflows.join("more/run.sh"), "true\n").unwrap();
    fs::write(workflows.join(".git/config"), "theirs").unwrap();
    fs::write(workflows.join("large.bin"), vec![0; (1 << 20) + 1]).unwrap();
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    let sources = Sources {
        data_dir: data.clone(),
        workflows_dir: Some(workflows),
        settings_file: None,
        staging: Staging::in_data(&data),
        apart: Vec::new(),
        policy: SecretPolicy::nothing(),
    };
    // A log of an attempt that no step is in: whoever gets that number next must not find it.
    fs::create_dir_all(data.join("logs/7")).unwrap();
    fs::write(data.join("logs/7/9.1.log"), "1 o ghost\n").unwrap();
    let go_on: GoOn = Arc::new(|| true);
    let mut backup = backup::begin(From::Running(&store), sources, NOW, &go_on).unwrap();
    let mut bytes = Vec::new();
    backup.read_to_end(&mut bytes).unwrap();
    assert!(backup.is_whole());
    let left: Vec<String> = fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("backup-copy"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "the copy has no name any more");
    bytes
}

#[test]
fn two_installations_that_share_a_folder_leave_each_others_copies_alone() {
    let folder = tempfile::tempdir().unwrap();
    let copy_of = |installation: &str| {
        let staging = Shelf::new(folder.path(), installation, 1).staging();
        folder.path().join(format!("{}x", staging.prefix))
    };
    let (ours, theirs) = (copy_of("1a2b3c4d5e6f"), copy_of("5e6f1a2b3c4d"));
    fs::write(&ours, "of one who was killed").unwrap();
    fs::write(&theirs, "at work").unwrap();
    let data = folder.path().join("data");
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    let sources = Sources {
        data_dir: data,
        workflows_dir: None,
        settings_file: None,
        staging: Shelf::new(folder.path(), "1a2b3c4d5e6f", 1).staging(),
        apart: Vec::new(),
        policy: SecretPolicy::nothing(),
    };
    let go_on: GoOn = Arc::new(|| true);
    backup::begin(From::Running(&store), sources, NOW, &go_on).unwrap();
    assert_eq!((ours.exists(), theirs.exists()), (false, true));
}

/// Every page is copied at once here, and looking at them is what takes long.
#[test]
fn a_copy_that_is_looked_at_can_be_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(Store::open(&data, StoreOptions::default()).unwrap());
    let sql = rusqlite::Connection::open(data.join("stepward.db")).unwrap();
    sql.execute_batch(
        "CREATE TABLE ballast (bytes BLOB);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO ballast SELECT zeroblob(100) FROM n",
    )
    .unwrap();
    drop(sql);
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    let was_asked = AtomicBool::new(false);
    let once: GoOn = Arc::new(move || !was_asked.swap(true, Ordering::Relaxed));
    let copied = store.copy_to(&folder.path().join("copy"), &once);
    let told = copied.err();
    assert!(matches!(told, Some(CopyError::GivenUp)), "{told:?}");
}

/// The files of an archive, by name.
fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while archive[at] != 0 {
        let text = |from: usize, to: usize| {
            let field = &archive[at + from..at + to];
            let end = field
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(field.len());
            String::from_utf8(field[..end].to_vec()).unwrap()
        };
        let bytes = usize::from_str_radix(text(124, 136).trim(), 8).unwrap();
        let begin = at + 512;
        found.push((text(0, 100), archive[begin..begin + bytes].to_vec()));
        at = begin + bytes.next_multiple_of(512);
    }
    found
}

fn entry(name: &str, kind: u8, bytes: usize, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000600");
    put(124, format!("{bytes:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, b"../../../../etc/passwd");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

const END: [u8; 1024] = [0; 1024];

fn sum(content: &[u8]) -> String {
    let sum = Sha256::digest(content);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An archive of these files and a manifest that knows them all; `change` may make it lie.
fn archive(files: &[(String, Vec<u8>)], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let is_log = |(name, _): &&(String, Vec<u8>)| name.contains("/data/logs/");
    let listed = files.iter().filter(|file| !is_log(file));
    let listed = listed.map(
        |(name, content)| json!({ "name": name, "bytes": content.len(), "sha256": sum(content) }),
    );
    let logs: Vec<&(String, Vec<u8>)> = files.iter().filter(is_log).collect();
    // As `sha256sum` says it.
    let lines = logs
        .iter()
        .map(|(name, content)| format!("{}  {name}\n", sum(content)));
    let lines: String = lines.collect();
    let mut manifest = json!({
        "format": "stepward-backup", "format_version": 1, "made_at": "2026-11-17T14:30:00Z", "made_by": "a test",
        "schema_version": SCHEMA_VERSION, "installation": "", "files": listed.collect::<Vec<Value>>(),
        "logs": {
            "count": logs.len(), "bytes": logs.iter().map(|(_, content)| content.len()).sum::<usize>(), "sha256": sum(lines.as_bytes()),
        },
    });
    change(&mut manifest);
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let mut bytes: Vec<u8> = files
        .iter()
        .flat_map(|(name, content)| entry(name, b'0', content.len(), content))
        .collect();
    bytes.extend(entry(
        "stepward-backup/manifest.json",
        b'0',
        manifest.len(),
        &manifest,
    ));
    bytes.extend(END);
    bytes
}

fn restore(archive: &[u8], data: &Path, force: bool) -> Result<Restored, BackupError> {
    let asked = Restore {
        data_dir: data,
        workflows_dir: None,
        force,
        now: NOW,
    };
    backup::restore(archive, &asked)
}

/// Refused, with nothing left behind: neither a folder in its place nor one beside it.
fn refusal(archive: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let refused = restore(archive, &folder.path().join("data"), false)
        .unwrap_err()
        .to_string();
    assert_eq!(refused.lines().count(), 1, "{refused}");
    assert_eq!(names(folder.path()), Vec::<String>::new(), "{refused}");
    refused
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_backup_holds_what_an_installation_is_made_of_and_becomes_one_again() {
    let archive = small();
    let held: Vec<String> = files(&archive).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        held,
        [
            "stepward-backup/data/stepward.db",
            "stepward-backup/data/secret.key",
            "stepward-backup/workflows/a.yaml",
            "stepward-backup/workflows/more/run.sh",
            "stepward-backup/manifest.json",
        ]
    );
    let looked = backup::look(&archive[..]).unwrap();
    assert_eq!(looked.manifest.schema_version, SCHEMA_VERSION);
    assert_eq!(looked.manifest.left_out, ["large.bin"]);
    backup::verify(&archive[..], NOW).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let restored = restore(&archive, &data, false).unwrap();
    assert_eq!(restored.moved_aside, None);
    assert_eq!(names(folder.path()), ["data"]);
    assert_eq!(
        names(&data),
        [
            "LOCK",
            "secret.key",
            "stepward.db",
            "stepward.mark",
            "workflows"
        ]
    );
    assert_eq!(restored.workflows_dir, Some(data.join("workflows")));
    assert_eq!(
        fs::read_to_string(data.join("workflows/more/run.sh")).unwrap(),
        "true\n"
    );
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    assert_eq!(store.read(|tx| tx.breaches()).unwrap(), []);
    let key = store.read(|tx| tx.installation_key()).unwrap();
    assert_eq!(key, looked.manifest.installation);
}

#[test]
fn any_tar_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.tar");
    fs::write(&file, small()).unwrap();
    let unpacked = std::process::Command::new("tar")
        .args(["-xf", "backup.tar"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        unpacked.status.success() && unpacked.stderr.is_empty(),
        "{unpacked:?}"
    );
    let store = Store::open(
        &folder.path().join("stepward-backup/data"),
        StoreOptions::default(),
    );
    drop(store.unwrap());
}

#[test]
fn a_backup_that_was_cut_off_anywhere_is_none() {
    let archive = small();
    let told = |bytes: &[u8]| backup::look(bytes).unwrap_err().to_string();
    const TOO_SOON: &str = "the backup ends too soon: it is not whole, take another one";
    for end in (512..archive.len())
        .step_by(512)
        .chain([1, 700, archive.len() - 1])
    {
        assert_eq!(told(&archive[..end]), TOO_SOON, "{end} bytes");
    }
    let mut squeezed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    squeezed.write_all(&archive).unwrap();
    let squeezed = squeezed.finish().unwrap();
    backup::look(&squeezed[..]).unwrap();
    for end in (1..squeezed.len())
        .step_by(squeezed.len() / 50)
        .chain([squeezed.len() - 1])
    {
        assert_eq!(told(&squeezed[..end]), TOO_SOON, "{end} bytes squeezed");
    }
    assert_eq!(refusal(&archive[..archive.len() / 2]), TOO_SOON);
}

#[test]
fn a_bit_that_flipped_anywhere_in_a_file_is_found() {
    let archive = small();
    let files = files(&archive);
    let (_, manifest) = files.last().unwrap();
    // Of the manifest, what it says of the files.
    let end = archive.len() - END.len() - manifest.len().next_multiple_of(512) - 512;
    let content = 512..end;
    for at in content.step_by(4_099) {
        let mut flipped = archive.clone();
        flipped[at] ^= 0x10;
        // Zeros that fill a block say nothing.
        let is_filling = fills(&files, at);
        assert!(
            backup::look(&flipped[..]).is_err() || is_filling,
            "byte {at}"
        );
    }
}

/// Whether this byte of the archive only fills a block.
fn fills(files: &[(String, Vec<u8>)], at: usize) -> bool {
    let mut begin = 0;
    for (_, content) in files {
        let end = begin + 512 + content.len().next_multiple_of(512);
        if at < end {
            return at >= begin + 512 + content.len();
        }
        begin = end;
    }
    true
}

#[test]
fn an_archive_of_somebody_else_writes_nothing_anywhere() {
    let good = files(&small());
    let good = &good[..good.len() - 1];
    let with = |name: &str, content: &[u8]| {
        let mut files = vec![(name.to_string(), content.to_vec())];
        files.extend_from_slice(good);
        archive(&files, |_| ())
    };
    for name in [
        "../x",
        "/tmp/stepward-never",
        "stepward-backup/../../x",
        "stepward-backup/data/LOCK",
        "stepward-backup/data/logs/1/../../../x.log",
        "stepward-backup/workflows/../../x",
        "stepward-backup/workflows/.bashrc",
    ] {
        let refused = refusal(&with(name, b"x"));
        assert!(
            refused.contains("does not belong into a backup"),
            "{name}: {refused}"
        );
    }
    for (kind, told) in [
        (b'1', "it is a link"),
        (b'2', "it is a link"),
        (b'3', "it is a device"),
        (b'5', "it is a folder"),
        (b'6', "it is a pipe"),
        (b'x', "it is no plain file"),
        (b'L', "it is no plain file"),
    ] {
        let mut bytes = entry("stepward-backup/workflows/a.yaml", kind, 0, b"");
        bytes.extend(archive(good, |_| ()));
        let refused = refusal(&bytes);
        assert!(refused.ends_with(told), "{refused}");
    }
    let twice = [good, &good[..1]].concat();
    assert!(refusal(&archive(&twice, |_| ())).ends_with("it is there twice"));
    // More than any disk has: refused by what it says, before a byte of it is read.
    let huge = entry(
        "stepward-backup/data/stepward.db",
        b'0',
        0o77_777_777_777,
        b"",
    );
    let refused = refusal(&huge);
    assert!(
        refused.contains("are needed") || refused.contains("too soon"),
        "{refused}"
    );
    let zeros = vec![0; 64 << 20];
    assert!(refusal(&zeros).starts_with("this is no backup, or it is damaged"));
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&zeros).unwrap();
    assert!(refusal(&bomb.finish().unwrap()).starts_with("this is no backup, or it is damaged"));
    assert!(refusal(b"a text that somebody took for a backup").contains("ends too soon"));
}

#[test]
fn a_manifest_that_lies_is_found_out() {
    let good = files(&small());
    let good = &good[..good.len() - 1];
    let key = |manifest: &mut Value, key: &str, value: Value| manifest[key] = value;
    for (change, value, told) in [
        ("format", json!("zip"), "its manifest is of something else"),
        (
            "format_version",
            json!(2),
            "the backup was made by a newer stepward (format 2)",
        ),
        (
            "schema_version",
            json!(SCHEMA_VERSION + 6),
            "the backup was made by a newer stepward (schema ",
        ),
        (
            "schema_version",
            json!(1),
            "its manifest speaks of another database",
        ),
        (
            "installation",
            json!("another"),
            "its manifest speaks of another database",
        ),
        ("files", json!([]), "the manifest does not know it"),
    ] {
        let refused = refusal(&archive(good, |manifest| key(manifest, change, value)));
        assert!(refused.contains(told), "{change}: {refused}");
    }
    let less = &good[1..];
    assert!(refusal(&archive(less, |_| ())).contains("it holds no database"));
    let missing = archive(good, |manifest| {
        let extra =
            json!({ "name": "stepward-backup/data/logs/1/1.1.log", "bytes": 0, "sha256": "" });
        manifest["files"].as_array_mut().unwrap().push(extra);
    });
    assert!(refusal(&missing).contains("is missing"));
}

/// A backup of an installation with so many logs at most, and how many it has.
fn with_logs(most: usize) -> (Vec<u8>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let sql = rusqlite::Connection::open(data.join("stepward.db")).unwrap();
    sql.execute_batch(include_str!("store/released/version-2.sql"))
        .unwrap();
    let mut attempts = sql
        .prepare("SELECT job_id, step_id, attempt FROM step WHERE attempt > 0")
        .unwrap();
    let attempts: Vec<(i64, i64, i64)> = attempts
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .take(most)
        .collect::<Result<_, _>>()
        .unwrap();
    for (job_id, step_id, attempt) in &attempts {
        let logs = data.join(format!("logs/{job_id}"));
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join(format!("{step_id}.{attempt}.log")), "1 o x\n").unwrap();
    }
    let key = data.join("secret.key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    let sources = Sources {
        staging: Staging::in_data(&data),
        data_dir: data,
        workflows_dir: None,
        settings_file: None,
        apart: Vec::new(),
        policy: SecretPolicy::nothing(),
    };
    let go_on: GoOn = Arc::new(|| true);
    let mut backup = backup::begin(From::Running(&store), sources, NOW, &go_on).unwrap();
    let mut bytes = Vec::new();
    backup.read_to_end(&mut bytes).unwrap();
    (bytes, attempts.len())
}

#[test]
fn what_is_said_of_logs_does_not_grow_with_them() {
    let (one, _) = with_logs(1);
    let (many, count) = with_logs(usize::MAX);
    assert!(count >= 5, "{count}");
    let held = backup::look(&many[..]).unwrap().manifest;
    assert_eq!(held.logs.count, count);
    assert_eq!(held.logs.bytes, 6 * count as u64);
    let manifest = |archive: &[u8]| files(archive).pop().unwrap().1.len();
    // But for the digits of the numbers.
    assert!(manifest(&many) <= manifest(&one) + 8);

    // Whoever has a shell can tell as well.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("backup.tar"), &many).unwrap();
    let said = std::process::Command::new("sh")
        .args([
            "-euc",
            "tar -xf backup.tar; sha256sum $(tar -tf backup.tar | grep /logs/) | sha256sum",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, format!("{}  -\n", held.logs.sha256));
}

/// One sum for all of them, however many there are: each is where it was, as it was, and there is no other.
#[test]
fn logs_are_all_there_or_it_is_no_backup() {
    let mut good = files(&small());
    good.pop();
    let key = installation(&good);
    let with = |logs: &[(&str, &str)], change: &dyn Fn(&mut Value)| {
        let mut files = good.clone();
        for (name, content) in logs {
            let name = format!("stepward-backup/data/logs/{name}");
            files.push((name, content.as_bytes().to_vec()));
        }
        archive(&files, |manifest| {
            manifest["installation"] = json!(key);
            change(manifest)
        })
    };
    let logs = [
        ("7/9.1.log", "one"),
        ("7/10.1.log", "two"),
        ("7/10.2.log", "three"),
        ("12/11.1.log", "four"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let restored = restore(&with(&logs, &|_| ()), &data, false).unwrap();
    assert_eq!(restored.contents.manifest.logs.count, 4);
    assert_eq!(
        fs::read_to_string(data.join("logs/12/11.1.log")).unwrap(),
        "four"
    );

    let sums = with(&logs, &|_| ());
    let sums: Value = serde_json::from_slice(&files(&sums).pop().unwrap().1).unwrap();
    let told = |logs: &[(&str, &str)]| {
        refusal(&with(logs, &|manifest| {
            manifest["logs"] = sums["logs"].clone()
        }))
    };
    let changed = told(&[logs[0], logs[1], ("7/10.2.log", "THREE"), logs[3]]);
    assert!(
        changed.ends_with("its logs are not as they were when they were backed up"),
        "{changed}"
    );
    let missing = told(&logs[..3]);
    assert!(
        missing.ends_with("it holds 3 logs, and its manifest knows 4"),
        "{missing}"
    );
    assert!(told(&[logs[0], logs[0]]).ends_with("it is there twice"));
    let turned = told(&[logs[1], logs[0]]);
    assert!(
        turned.ends_with("one that comes after it was there before"),
        "{turned}"
    );
}

/// With the sums right: somebody meant it, or the disk had it so when it was backed up.
#[test]
fn a_database_that_is_newer_broken_or_no_database_is_refused() {
    let good = files(&small());
    let good = &good[..good.len() - 1];
    let key = installation(good);
    let with_database = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stepward.db");
        fs::write(&file, &good[0].1).unwrap();
        change(&file);
        let mut files = good.to_vec();
        files[0].1 = fs::read(&file).unwrap();
        refusal(&archive(&files, |manifest| {
            manifest["installation"] = json!(key)
        }))
    };
    let sql = |text: &'static str| {
        with_database(&move |file: &Path| {
            let sql = rusqlite::Connection::open(file).unwrap();
            sql.pragma_update(None, "foreign_keys", false).unwrap();
            sql.pragma_update(None, "journal_mode", "DELETE").unwrap();
            sql.execute_batch(text).unwrap();
        })
    };
    assert_eq!(
        sql("PRAGMA user_version = 9"),
        format!(
            "the backup was made by a newer stepward (schema 9), this one knows up to {SCHEMA_VERSION}; use a newer stepward"
        )
    );
    let refused = sql("PRAGMA application_id = 7");
    assert!(
        refused.ends_with("stepward.db in it is no database of ours"),
        "{refused}"
    );
    let refused = sql("DROP INDEX step_claimable");
    assert!(
        refused.contains("its database is corrupt (index step_claimable"),
        "{refused}"
    );
    let refused = sql("INSERT INTO capability (worker_id, requirement_id) VALUES (5, 5)");
    assert!(refused.contains("breaks "), "{refused}");
    let refused = with_database(&|file| fs::write(file, "no database at all").unwrap());
    assert!(refused.contains("no database of ours"), "{refused}");
    let refused = with_database(&|file| {
        let mut bytes = fs::read(file).unwrap();
        bytes[4096..].fill(0xAA);
        fs::write(file, bytes).unwrap();
    });
    assert!(refused.contains("its database is corrupt"), "{refused}");
}

fn installation(files: &[(String, Vec<u8>)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("stepward.db"), &files[0].1).unwrap();
    let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
    store.read(|tx| tx.installation_key()).unwrap()
}

fn used() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(Store::open(&data, StoreOptions::default()).unwrap());
    fs::write(data.join("mine"), "precious").unwrap();
    (folder, data)
}

#[test]
fn what_is_in_its_place_is_moved_aside_if_somebody_says_so_and_never_lost() {
    let archive = small();
    let (folder, data) = used();
    let refused = restore(&archive, &data, false).unwrap_err().to_string();
    assert!(refused.ends_with("is not empty: name a new folder, or say --force to move it aside"));
    assert_eq!(fs::read_to_string(data.join("mine")).unwrap(), "precious");
    assert_eq!(names(folder.path()), ["data"]);

    // A backup that is not whole moves nothing.
    restore(&archive[..archive.len() - 2_000], &data, true).unwrap_err();
    assert_eq!(fs::read_to_string(data.join("mine")).unwrap(), "precious");
    assert_eq!(names(folder.path()), ["data"]);

    let aside = restore(&archive, &data, true).unwrap().moved_aside.unwrap();
    assert_eq!(fs::read_to_string(aside.join("mine")).unwrap(), "precious");
    assert!(!data.join("mine").exists());
    let again = restore(&archive, &data, true).unwrap().moved_aside.unwrap();
    assert_ne!(again, aside);
    assert!(
        aside.exists(),
        "what was moved aside once stays where it is"
    );
    assert_eq!(
        names(folder.path()),
        ["data"],
        "nothing is written around it"
    );
}

#[test]
fn nobody_restores_under_a_server_that_runs() {
    let archive = small();
    let (_folder, data) = used();
    let _store = Store::open(&data, StoreOptions::default()).unwrap();
    let refused = restore(&archive, &data, true).unwrap_err().to_string();
    assert!(refused.contains("is in use by another server"), "{refused}");
    assert!(data.join("mine").exists());
}

/// A backup from far away: while it comes, somebody does something.
struct Meanwhile<'a, F: FnMut()> {
    archive: &'a [u8],
    act: F,
}

impl<F: FnMut()> Read for Meanwhile<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (self.act)();
        self.archive.read(buffer)
    }
}

fn restore_while(data: &Path, force: bool, act: impl FnMut()) -> Result<Restored, BackupError> {
    let archive = small();
    let asked = Restore {
        data_dir: data,
        workflows_dir: None,
        force,
        now: NOW,
    };
    let archive = archive.as_slice();
    backup::restore(Meanwhile { archive, act }, &asked)
}

#[test]
fn no_server_starts_where_a_backup_is_being_restored() {
    let (_folder, used) = used();
    let (new, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for data in [&used, &new.path().join("data"), empty.path()] {
        let mut told = None;
        restore_while(data, data == used, || {
            let started = Store::open(data, StoreOptions::default()).err();
            told = Some(started.expect("it must be refused").to_string());
        })
        .unwrap();
        let told = told.unwrap();
        assert!(told.contains("is in use by another server"), "{told}");
        drop(Store::open(data, StoreOptions::default()).unwrap());
    }
}

#[test]
fn what_comes_into_an_empty_folder_meanwhile_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("secret.key");
    let restored = restore_while(folder.path(), false, || fs::write(&mine, "mine").unwrap());
    let refused = restored.unwrap_err().to_string();
    assert!(refused.contains("is not empty"), "{refused}");
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    assert_eq!(names(folder.path()), ["LOCK", "secret.key"]);
}

fn assert_half_restored(data: &Path) {
    let refused = Store::open(data, StoreOptions::default()).err();
    let refused = refused.expect("it must be refused").to_string();
    assert!(
        refused.contains("is half restored, do it again"),
        "{refused}"
    );
    assert!(!data.join("stepward.db").exists());
}

/// As it is after a power cut between two renames: the former database is aside, the new one not yet there.
#[test]
fn a_folder_that_is_half_restored_is_not_taken_for_a_new_one() {
    let (_folder, data) = used();
    let aside = data.join("before-restore-20261117T143000Z");
    fs::create_dir(&aside).unwrap();
    fs::rename(data.join("stepward.db"), aside.join("stepward.db")).unwrap();
    fs::write(data.join("RESTORING"), "").unwrap();
    assert_half_restored(&data);

    // As it says.
    restore(&small(), &data, true).unwrap();
    assert!(aside.join("stepward.db").exists());
    drop(Store::open(&data, StoreOptions::default()).unwrap());
}

/// As it is when whoever unpacks a backup is killed.
#[test]
fn a_folder_in_which_a_backup_is_half_unpacked_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let unpacked = data.join(".stepward-restoring/data");
    fs::create_dir_all(&unpacked).unwrap();
    fs::write(unpacked.join("stepward.db"), "half of it").unwrap();
    assert_half_restored(&data);
    // As it says; nothing was there before.
    let restored = restore(&small(), &data, true).unwrap();
    assert_eq!(restored.moved_aside, None);
    drop(Store::open(&data, StoreOptions::default()).unwrap());

    // Where a database is, nothing of it has been touched, and what is left of the other goes.
    fs::create_dir_all(&unpacked).unwrap();
    drop(Store::open(&data, StoreOptions::looking()).unwrap());
    assert!(unpacked.exists(), "whoever looks changes nothing");
    drop(Store::open(&data, StoreOptions::default()).unwrap());
    assert!(!data.join(".stepward-restoring").exists());
}

#[test]
fn files_of_the_user_are_not_written_over() {
    let archive = small();
    let folder = tempfile::tempdir().unwrap();
    let (data, workflows) = (folder.path().join("data"), folder.path().join("flows"));
    fs::create_dir(&workflows).unwrap();
    fs::write(workflows.join("a.yaml"), "mine").unwrap();
    let asked = |workflows: &Path| {
        let asked = Restore {
            data_dir: &data,
            workflows_dir: Some(workflows),
            force: true,
            now: NOW,
        };
        backup::restore(&archive[..], &asked)
    };
    let refused = asked(&workflows).unwrap_err().to_string();
    assert!(
        refused.ends_with("nothing of yours is written over"),
        "{refused}"
    );
    assert_eq!(
        fs::read_to_string(workflows.join("a.yaml")).unwrap(),
        "mine"
    );
    assert!(!data.exists());
    let elsewhere = folder.path().join("new/flows");
    asked(&elsewhere).unwrap();
    assert_eq!(names(&elsewhere), ["a.yaml", "more"]);
    assert!(!data.join("workflows").exists());
}

#[test]
fn an_encrypted_backup_says_how_it_is_decrypted() {
    let by_key = b"age-encryption.org/v1\n-> X25519 7tZbH3+8sYl0oJr2RkQf\nxyz";
    let by_passphrase = b"age-encryption.org/v1\n-> scrypt 4bEPhrvBMDuIeM3WhEXJKg 18\nxyz";
    let as_text = b"-----BEGIN AGE ENCRYPTED FILE-----\nYWdlLWVuY3J5cHRpb24ub3Jn\n";
    for (bytes, command) in [
        (
            &by_key[..],
            "`age -d -i KEY_FILE FILE | stepward restore - ",
        ),
        (as_text, "`age -d -i KEY_FILE FILE | stepward restore - "),
        (by_passphrase, "`age -d FILE | stepward restore - "),
    ] {
        let told = refusal(bytes);
        assert!(
            told.starts_with("the backup is encrypted with age: "),
            "{told}"
        );
        assert!(told.contains(command), "{told}");
    }
    let nothing = refusal(b"");
    assert!(nothing.starts_with("there is nothing to read"), "{nothing}");
}

#[test]
fn a_backup_holds_no_token_of_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let workflows = folder.path().join("workflows");
    fs::create_dir_all(&workflows).unwrap();
    let store = Store::open(&data, StoreOptions::default()).unwrap();
    const TOKEN: &str = "swt_1_a-token-that-nobody-else-may-have";
    for name in [
        "admin.token",
        "worker.token",
        "session.key",
        "anything-else",
        "secret.key.old",
    ] {
        fs::write(data.join(name), TOKEN).unwrap();
    }
    let mut config = ServerConfig {
        data_dir: data.clone(),
        ..ServerConfig::default()
    };
    // Not by a detour either.
    std::os::unix::fs::symlink(data.join("admin.token"), workflows.join("a.yaml")).unwrap();
    std::os::unix::fs::symlink(&data, workflows.join("data")).unwrap();
    fs::hard_link(data.join("admin.token"), workflows.join("hard.yaml")).unwrap();
    for (name, file) in [
        ("token", &mut config.auth.token_file),
        ("tls.key", &mut config.tls.key_file),
    ] {
        fs::write(workflows.join(name), TOKEN).unwrap();
        *file = Some(workflows.join(name));
    }
    fs::write(workflows.join("b.yaml"), "tasks: {}\n").unwrap();
    for workflows_dir in [&workflows, &data, &folder.path().to_path_buf()] {
        let sources = Sources {
            data_dir: data.clone(),
            workflows_dir: Some(workflows_dir.clone()),
            settings_file: None,
            staging: Staging::in_data(&data),
            apart: Vec::new(),
            policy: SecretPolicy::of_user(&config),
        };
        let go_on: GoOn = Arc::new(|| true);
        let mut backup = backup::begin(From::Running(&store), sources, NOW, &go_on).unwrap();
        let mut bytes = Vec::new();
        backup.read_to_end(&mut bytes).unwrap();
        for (name, content) in files(&bytes) {
            let holds = content
                .windows(TOKEN.len())
                .any(|part| part == TOKEN.as_bytes());
            assert!(!holds, "{name} of {}", workflows_dir.display());
        }
        let left_out = &backup.manifest().left_out;
        let is_left_out = |name: &str| left_out.iter().any(|left| left.ends_with(name));
        assert_eq!(
            ["a.yaml", "hard.yaml", "token", "tls.key"].map(is_left_out),
            [workflows_dir != &data; 4],
            "{left_out:?}"
        );
    }
}
