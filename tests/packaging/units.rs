//! The unit files as systemd sees them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use libtest_mimic::Failed;
use stepward::config::{ServerConfig, WorkerConfig};

use crate::{project, said};

fn unit(name: &str) -> std::path::PathBuf {
    project()
        .join("packaging/systemd")
        .join(format!("{name}.service"))
}

/// From 0, closed, to 10. A unit without any of it has 9.6.
pub fn exposure() -> Result<(), Failed> {
    for (name, most) in [("stepward-server", 1.5), ("stepward-worker", 3.0)] {
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(unit(name))
            .output()?;
        let judged = said(&judged)?;
        let level = judged
            .lines()
            .find_map(|line| line.split("exposure level for ").nth(1));
        let level = level.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<f32>().ok());
        match level {
            Some(level) if level <= most => println!("{name} {level}"),
            _ => return Err(format!("{name} may be {most} at most\n{judged}").into()),
        }
    }
    Ok(())
}

/// A start, requests, a stop: every call that any thread makes. Not as root: SQLite makes others then.
pub fn system_calls() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let counted = folder.path().join("calls");
    let story = format!(
        "chown 61001 .; setpriv --reuid 61001 --clear-groups strace -f -qq -c -S name -o {} {} server --listen 127.0.0.1:0 --data-dir data 2>said & \
         until grep -q 'listening on' said; do sleep 0.1; done; \
         url=$(sed -n 's/.*listening on //p' said); \
         {1} status --server $url && {1} doctor --server $url server; \
         kill -TERM $(pgrep -P $!); wait",
        counted.display(),
        env!("CARGO_BIN_EXE_stepward"),
    );
    let told = Command::new("sh")
        .args(["-euc", &story])
        .current_dir(folder.path())
        .output()?;
    said(&told)?;
    let table = fs::read_to_string(&counted)?;
    let rows = table
        .lines()
        .skip(2)
        .filter(|line| !line.starts_with("---"));
    let calls = rows.filter_map(|line| line.split_whitespace().last());
    let calls: BTreeSet<&str> = calls.filter(|call| *call != "total").collect();
    assert!(
        calls.contains("fdatasync") && calls.contains("accept4"),
        "{calls:?}"
    );
    let allowed = calls_of("@system-service")?;
    let forbidden: BTreeSet<String> = calls_of("@privileged")?
        .union(&calls_of("@resources")?)
        .cloned()
        .collect();
    let stopped = calls.iter().filter(|call| {
        let call = call.to_string();
        !allowed.contains(&call) || forbidden.contains(&call)
    });
    let stopped: Vec<&&str> = stopped.collect();
    match stopped[..] {
        [] => Ok(()),
        _ => Err(format!("the unit forbids {stopped:?}").into()),
    }
}

/// The members of a set, and those of the sets in it.
fn calls_of(set: &str) -> Result<BTreeSet<String>, Failed> {
    let listed = Command::new("systemd-analyze")
        .args(["syscall-filter", "--no-pager", set])
        .output()?;
    let mut calls = BTreeSet::new();
    for word in said(&listed)?.lines().skip(1).map(str::trim) {
        match word.chars().next() {
            Some('@') => calls.extend(calls_of(word)?),
            Some('#') | None => {}
            Some(_) => {
                calls.insert(word.to_string());
            }
        }
    }
    Ok(calls)
}

/// A folder that a unit makes is the one that the settings name.
pub fn agree_with_settings() -> Result<(), Failed> {
    let file = |name: &str| project().join("packaging/debian").join(name);
    let server = ServerConfig::load(Some(&file("server-config.yaml")))?;
    let worker = WorkerConfig::load(Some(&file("worker-config.yaml")))?;
    // As it is once somebody takes the remark away.
    let text = fs::read_to_string(file("server-config.yaml"))?;
    let with_backups = tempfile::NamedTempFile::new()?;
    fs::write(&with_backups, text.replace("\n#backup:", "\nbackup:"))?;
    let backups = ServerConfig::load(Some(with_backups.path()))?.backup.dir;
    assert!(backups.is_some());
    assert!(server.listen.ip().is_loopback());
    assert!(server.embedded_worker.is_none());
    let url = format!("http://{}", server.listen);
    assert_eq!(worker.server_url.as_deref(), Some(url.as_str()));
    // Usage, settings, files; and of who shows a token, that it is not taken: starting again mends none of them.
    for (name, data_dir, lasting) in [
        ("stepward-server", &server.data_dir, "2 3 5"),
        ("stepward-worker", &worker.data_dir, "2 3 4 5"),
    ] {
        let text = fs::read_to_string(unit(name))?;
        let value = |key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("{name} has no {key}"))
                .to_string()
        };
        assert_eq!(value("RestartPreventExitStatus"), lasting);
        let folders = value("StateDirectory");
        let mut folders = folders.split(' ').map(|name| format!("/var/lib/{name}"));
        let folder = folders.next().unwrap_or_default();
        assert_eq!(folder, data_dir.display().to_string());
        let backups = backups.iter().filter(|_| data_dir == &server.data_dir);
        let backups: Vec<String> = backups.map(|it| it.display().to_string()).collect();
        assert_eq!(folders.collect::<Vec<String>>(), backups);
        assert_eq!(folder, value("WorkingDirectory"));
        assert_eq!(value("Type"), "notify");
        assert!(value("ExecStart").starts_with("/usr/bin/stepward "));
        let users = fs::read_to_string(project().join("packaging/systemd/stepward.sysusers"))?;
        let user = format!("u {} ", value("User"));
        assert!(users.lines().any(|line| line.starts_with(&user)), "{user}");
    }
    Ok(())
}
