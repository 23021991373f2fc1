//! A start that is refused leaves every file of the data folder as it was, and upgrades nothing.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use stepward::config::ServerConfig;
use stepward::server::Server;
use tempfile::TempDir;

/// As a server of version 0.1 left it, with sealed inputs.
const RELEASED: &str = include_str!("../store/released/version-2.sql");

/// Every file below a folder with its content, every link with its target, and every folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let content = if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            Some(target.into_os_string().into_encoded_bytes())
        } else if path.is_dir() {
            found.extend(contents(&path));
            None
        } else {
            Some(fs::read(&path).unwrap())
        };
        found.insert(path, content);
    }
    found
}

/// A data folder of version 0.1. `is_killed`: its server was killed, so that its last commit is in the write-ahead log alone.
fn data_folder(is_killed: bool) -> TempDir {
    let made = tempfile::tempdir().unwrap();
    let file = made.path().join("stepward.db");
    let sql = Connection::open(&file).unwrap();
    sql.execute_batch(RELEASED).unwrap();
    sql.pragma_update(None, "journal_mode", "WAL").unwrap();
    sql.execute("UPDATE server SET service_clock_up = 77", [])
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    if is_killed {
        let log = fs::read(made.path().join("stepward.db-wal")).unwrap();
        assert!(!log.is_empty());
        fs::write(folder.path().join("stepward.db-wal"), log).unwrap();
    } else {
        drop(sql);
    }
    fs::copy(&file, folder.path().join("stepward.db")).unwrap();
    fs::write(folder.path().join("LOCK"), "4711\n").unwrap();
    let key = folder.path().join("secret.key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    folder
}

/// What is wrong, what to do to the folder and to the settings for it, and a part of what is said.
type Refusal = (&'static str, fn(&Path, &mut ServerConfig), &'static str);

fn sql(data: &Path, text: &str) {
    let connection = Connection::open(data.join("stepward.db")).unwrap();
    connection.execute_batch(text).unwrap();
}

const REFUSALS: &[Refusal] = &[
    (
        "the key is lost",
        |data, _| fs::remove_file(data.join("secret.key")).unwrap(),
        "secret.key is missing",
    ),
    (
        "the key is no key",
        |data, _| fs::write(data.join("secret.key"), "short").unwrap(),
        "is not a key of 32 bytes",
    ),
    (
        "nobody could log in",
        |_, config| config.auth.required = Some(true),
        "there is no valid token of role admin",
    ),
    (
        "the certificate is missing",
        |data, config| {
            config.tls.cert_file = Some(data.join("cert.pem"));
            config.tls.key_file = Some(data.join("key.pem"));
        },
        "cert.pem cannot be read",
    ),
    (
        "logs is a file",
        |data, _| fs::write(data.join("logs"), "").unwrap(),
        "cannot be used for logs",
    ),
    (
        "logs is a link to a disk that is not mounted",
        |data, _| std::os::unix::fs::symlink("/nowhere/logs", data.join("logs")).unwrap(),
        "it is a symbolic link to a folder that does not exist; mount or create that folder",
    ),
    (
        "the key is a link to a disk that is not mounted",
        |data, _| {
            sql(data, "UPDATE job SET input = '{}'");
            fs::remove_file(data.join("secret.key")).unwrap();
            std::os::unix::fs::symlink("/nowhere/key", data.join("secret.key")).unwrap();
        },
        "secret.key is a symbolic link to a file that does not exist",
    ),
    (
        "the copy of the upgrade is a folder",
        |data, _| fs::create_dir(data.join("stepward.db.version-2")).unwrap(),
        "stepward.db.version-2 is a folder, and the server needs a regular file of this name: move it away",
    ),
    (
        "the copy of the upgrade is a link to nothing",
        |data, _| {
            let copy = data.join("stepward.db.version-2");
            std::os::unix::fs::symlink("/nowhere/copy", copy).unwrap();
        },
        "stepward.db.version-2 is a symbolic link to a file that does not exist",
    ),
    (
        "the mark is a folder",
        |data, _| fs::create_dir(data.join("stepward.mark")).unwrap(),
        "stepward.mark is a folder",
    ),
    (
        "the schema is newer",
        |data, _| sql(data, "PRAGMA user_version = 99"),
        "has schema version 99",
    ),
    (
        "a table is missing",
        |data, _| sql(data, "PRAGMA foreign_keys = OFF; DROP TABLE outbox"),
        "table outbox is missing",
    ),
    (
        "it has a trigger",
        |data, _| {
            sql(
                data,
                "CREATE TRIGGER evil AFTER INSERT ON job BEGIN DELETE FROM event; END",
            );
        },
        "has trigger evil in it",
    ),
    (
        "it is half restored",
        |data, _| fs::write(data.join("RESTORING"), "").unwrap(),
        "is half restored",
    ),
    (
        "it is another database",
        |data, _| {
            let other = tempfile::tempdir().unwrap();
            drop(stepward::store::Store::open(other.path(), Default::default()).unwrap());
            let mark = "stepward.mark";
            fs::copy(other.path().join(mark), data.join(mark)).unwrap();
        },
        "names another lineage",
    ),
];

fn refused(data: &Path, config: &ServerConfig) -> String {
    let config = ServerConfig {
        data_dir: data.to_path_buf(),
        ..config.clone()
    };
    let refused = Server::start(&config).err().expect("it is refused");
    refused.to_string()
}

fn anywhere() -> ServerConfig {
    ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        ..ServerConfig::default()
    }
}

#[test]
fn a_refused_start_changes_nothing() {
    for is_killed in [false, true] {
        for (what, harm, said) in REFUSALS {
            let folder = data_folder(is_killed);
            let mut config = anywhere();
            harm(folder.path(), &mut config);
            let before = contents(folder.path());
            let refused = refused(folder.path(), &config);
            assert!(refused.contains(said), "{what}: {refused}");
            let after = contents(folder.path());
            let names = |all: &BTreeMap<PathBuf, _>| all.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&before), names(&after), "{what}");
            for (path, content) in &before {
                assert!(
                    *content == after[path],
                    "{what}: {} changed",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn an_address_that_is_taken_is_noticed_before_anything_is_made_or_upgraded() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = ServerConfig {
        listen: taken.local_addr().unwrap(),
        ..ServerConfig::default()
    };
    let folder = data_folder(true);
    let before = contents(folder.path());
    let said = refused(folder.path(), &config);
    assert!(said.contains("cannot listen on"), "{said}");
    assert!(before == contents(folder.path()));
    let new = folder.path().join("a/b");
    refused(&new, &config);
    assert!(!folder.path().join("a").exists());
    // Without the reason to refuse it, the same folder starts, with what was in its log.
    drop(taken);
    let config = ServerConfig {
        data_dir: folder.path().to_path_buf(),
        ..anywhere()
    };
    drop(Server::start(&config).unwrap());
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    let up: i64 = sql
        .query_row("SELECT service_clock_up FROM server", [], |row| row.get(0))
        .unwrap();
    assert!(up >= 77, "{up}");
}
