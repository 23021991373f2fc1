//! The README is the truth: its commands exist and do what it says.

use std::path::PathBuf;
use std::process::Command;

/// The fenced blocks of the README, in order.
fn blocks() -> Vec<String> {
    let text = std::fs::read_to_string("README.md").unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap().1.trim_end().to_string())
        .collect()
}

/// Cargo builds examples next to the tests.
fn built(kind: &str, name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join(kind).join(name)
}

#[test]
fn the_first_block_runs_the_main_job_and_the_second_passes_all_tests() {
    let blocks = blocks();
    assert_eq!(blocks[0], "cargo run --example first_job");
    assert_eq!(blocks[1], "tests/all");
    assert!(
        std::fs::read_to_string("tests/all")
            .unwrap()
            .contains("cargo test --all-features")
    );
    let all = std::fs::read_to_string("tests/all").unwrap();
    for command in blocks
        .iter()
        .filter(|block| block.starts_with("cargo bench"))
    {
        assert!(all.contains(&format!("{command} -- --quick")), "{command}");
    }
    assert!(
        std::fs::read_to_string(".ci/run")
            .unwrap()
            .contains("tests/all")
    );
}

#[test]
fn the_main_job_prints_what_the_readme_shows() {
    let example = built("examples", "first_job");
    assert!(
        example.exists(),
        "`cargo test` builds it, `cargo test --test it` alone does not: cargo build --example first_job"
    );
    let output = Command::new(example).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        blocks().contains(&printed.trim_end().to_string()),
        "{printed}"
    );
}

#[test]
fn the_other_commands_work() {
    let commands: Vec<String> = blocks()
        .into_iter()
        .flat_map(|block| block.lines().map(str::to_string).collect::<Vec<_>>())
        .filter(|line| line.starts_with("cargo run -- "))
        .collect();
    assert_eq!(commands, ["cargo run -- db check FOLDER"]);
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        Command::new(env!("CARGO_BIN_EXE_stepward"))
            .args(["db", "check"])
            .arg(folder.path())
            .output()
            .unwrap()
    };
    let holds_no_database = || {
        let nothing = check();
        assert_eq!(nothing.status.code(), Some(1));
        let said = String::from_utf8(nothing.stderr).unwrap();
        let told = "holds no database (stepward.db is missing or empty), name the data folder";
        assert!(said.contains(told), "{said}");
    };
    holds_no_database();
    let file = folder.path().join("stepward.db");
    std::fs::write(&file, "").unwrap();
    holds_no_database();
    assert_eq!(file.metadata().unwrap().len(), 0, "it stays as it was");
    std::fs::remove_file(&file).unwrap();

    drop(stepward::store::Store::open(folder.path(), Default::default()).unwrap());
    let good = check();
    assert_eq!(good.status.code(), Some(0));
    assert!(
        String::from_utf8(good.stdout)
            .unwrap()
            .ends_with(": every rule holds\n")
    );

    let sql = rusqlite::Connection::open(&file).unwrap();
    sql.execute_batch(
        "INSERT INTO definition (hash, body)
         VALUES ('h', '[{\"name\":\"t\",\"steps\":[{\"name\":\"a\",\"action\":{\"type\":\"pod\",\"manifest\":\"m\"},
                  \"on_worker_loss\":\"fail\",\"unmatched\":\"fail\"}]}]');
         INSERT INTO job (definition_id, task_index, task, state, source, input, labels, priority, depth, steps_open,
                          change_seq, created_at, since_up)
         VALUES (1, 0, 't', 'pending', 'submit', '{}', '{}', 0, 0, 1, 1, 0, 0)",
    )
    .unwrap();
    drop(sql);
    let bad = check();
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let found = String::from_utf8(bad.stdout).unwrap();
    assert!(
        found.contains("a job whose steps have all ended has ended: job 1 is pending"),
        "{found}"
    );
}
