//! A folder over time: what is served while somebody writes in it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use stepward::config::ServerConfig;
use stepward::language::{CheckOptions, FILES_MAX, Library, load_files};
use stepward::secret_policy::SecretPolicy;
use tempfile::TempDir;

struct Folder {
    folder: TempDir,
    library: Library,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(folder.path());
        Folder { folder, library }
    }

    fn write(&self, name: &str, text: &str) {
        // A new file each time: an editor does that, and the clock may be too coarse to tell two writes apart.
        let path = self.folder.path().join(name);
        let aside = self.folder.path().join("aside");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(aside, path).unwrap();
    }

    /// Tasks, stale files, left out files, whether something changed.
    fn reload(&mut self) -> (Vec<String>, Vec<String>, Vec<String>, bool) {
        let reloaded = self.library.reload();
        let tasks = reloaded.workflows.tasks().map(|(name, task)| {
            let steps = &task.root().draft.steps;
            format!("{name}: {}", steps[0].name)
        });
        let names = |paths: &[PathBuf]| {
            let names = paths
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_string());
            names.collect()
        };
        (
            tasks.collect(),
            names(&reloaded.stale),
            names(&reloaded.left_out),
            reloaded.changed,
        )
    }
}

fn task(name: &str, step: &str) -> String {
    format!("tasks: {{ {name}: {{ flow: {{ {step}: {{ script: x }} }} }} }}\n")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

#[test]
fn a_broken_file_is_served_as_it_was_and_the_others_as_they_are() {
    let mut folder = Folder::new();
    folder.write("a.yaml", &task("a", "one"));
    folder.write("b.yaml", &task("b", "one"));
    let both = words(&["a: one", "b: one"]);
    assert_eq!(folder.reload(), (both.clone(), vec![], vec![], true));
    assert_eq!(folder.reload(), (both, vec![], vec![], false));

    folder.write("a.yaml", "tasks: [");
    folder.write("b.yaml", &task("b", "two"));
    let mixed = words(&["a: one", "b: two"]);
    assert_eq!(folder.reload(), (mixed, words(&["a.yaml"]), vec![], true));

    folder.write("a.yaml", &task("a", "three"));
    let mended = words(&["a: three", "b: two"]);
    assert_eq!(folder.reload(), (mended, vec![], vec![], true));
}

#[test]
fn what_does_not_fit_together_changes_nothing() {
    let mut folder = Folder::new();
    folder.write(
        "a.yaml",
        "tasks: { a: { flow: { call: { type: task, task: b } } } }\n",
    );
    folder.write("b.yaml", &task("b", "one"));
    let both = words(&["a: call", "b: one"]);
    assert_eq!(folder.reload().0, both);

    // The task that the other calls is gone, and neither the new nor the old form of the caller can do without.
    folder.write("b.yaml", &task("c", "one"));
    let (tasks, stale, _, changed) = folder.reload();
    assert_eq!((tasks, changed), (both, false));
    assert!(stale.contains(&"b.yaml".to_string()), "{stale:?}");
}

#[test]
fn at_the_start_the_good_files_are_served_without_those_that_need_broken_ones() {
    let mut folder = Folder::new();
    folder.write(
        "a.yaml",
        "tasks: { a: { flow: { call: { type: task, task: b } } } }\n",
    );
    folder.write("b.yaml", "tasks: { b: { flow: { s: { scrpt: x } } } }\n");
    folder.write("c.yaml", &task("c", "one"));
    let (tasks, stale, left_out, changed) = folder.reload();
    assert_eq!(tasks, words(&["c: one"]));
    assert_eq!(left_out, words(&["a.yaml", "b.yaml"]));
    assert!(stale.is_empty() && changed);

    folder.write("b.yaml", &task("b", "one"));
    assert_eq!(folder.reload().0, words(&["a: call", "b: one", "c: one"]));
}

#[test]
fn a_change_is_noticed_also_in_a_script_of_its_own_file() {
    let mut folder = Folder::new();
    folder.write("a.yaml", "tasks: { a: { flow: { s: { file: a.sh } } } }\n");
    folder.write("a.sh", "echo one");
    assert!(folder.library.needs_reload());
    assert!(folder.reload().3);
    assert!(!folder.library.needs_reload());

    folder.write("a.sh", "echo two");
    assert!(folder.library.needs_reload());
    assert!(folder.reload().3);

    folder.write("b.yaml", &task("b", "one"));
    assert!(folder.library.needs_reload());
    folder.reload();
    std::fs::remove_file(folder.folder.path().join("b.yaml")).unwrap();
    assert!(folder.library.needs_reload());
    assert_eq!(folder.reload().0, words(&["a: s"]));

    // The script goes: the task is served with what it was.
    std::fs::remove_file(folder.folder.path().join("a.sh")).unwrap();
    assert!(folder.library.needs_reload());
    let (tasks, stale, _, changed) = folder.reload();
    assert_eq!(
        (tasks, stale, changed),
        (words(&["a: s"]), words(&["a.yaml"]), false)
    );
}

#[test]
fn an_error_behind_many_warnings_is_still_an_error() {
    let mut folder = Folder::new();
    let mut text = "tasks:\n  t:\n    flow:\n".to_string();
    for at in 0..80 {
        text.push_str(&format!("      s{at}: {{ script: x, when: false }}\n"));
    }
    text.push_str("      last: { scrpt: x }\n");
    folder.write("a.yaml", &text);
    folder.write("b.yaml", &task("b", "one"));
    let (tasks, _, left_out, _) = folder.reload();
    assert_eq!((tasks, left_out), (words(&["b: one"]), words(&["a.yaml"])));
}

#[test]
fn a_file_whose_name_is_no_text_is_left_out_like_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let mut folder = Folder::new();
    folder.write("b.yaml", &task("b", "one"));
    let name = std::ffi::OsStr::from_bytes(b"odd\xff.yaml");
    std::fs::write(folder.folder.path().join(name), "tasks: { a: { flow: 3 } }").unwrap();
    let reloaded = folder.library.reload();
    assert_eq!(reloaded.workflows.tasks().count(), 1);
    assert_eq!(reloaded.left_out, [folder.folder.path().join(name)]);
}

#[test]
fn files_that_nobody_can_see_for_a_moment_are_not_taken_for_deleted() {
    let mut folder = Folder::new();
    let path = folder.folder.path().to_path_buf();
    let away = path.with_extension("away");
    std::fs::create_dir(path.join("sub")).unwrap();
    folder.write("a.yaml", &task("a", "one"));
    folder.write("sub/b.yaml", &task("b", "one"));
    let both = words(&["a: one", "b: one"]);
    assert_eq!(folder.reload().0, both);

    std::fs::rename(&path, &away).unwrap();
    assert!(folder.library.needs_reload());
    let stale = words(&["a.yaml", "b.yaml"]);
    assert_eq!(folder.reload(), (both.clone(), stale, vec![], false));
    std::fs::rename(&away, &path).unwrap();
    assert!(folder.library.needs_reload());
    assert_eq!(folder.reload(), (both, vec![], vec![], false));

    // What is deleted in sight of everybody is gone.
    std::fs::remove_file(path.join("sub/b.yaml")).unwrap();
    assert_eq!(folder.reload().0, words(&["a: one"]));
}

#[test]
fn a_file_too_many_does_not_push_out_one_that_is_served() {
    let mut folder = Folder::new();
    for at in 0..FILES_MAX {
        let name = format!("b{at:04}");
        folder.write(&format!("{name}.yaml"), &task(&name, "one"));
    }
    assert_eq!(folder.reload().0.len(), FILES_MAX);
    folder.write("a.yaml", &task("a", "one"));
    let (tasks, ..) = folder.reload();
    assert_eq!(tasks.len(), FILES_MAX);
    assert!(!tasks.contains(&"a: one".to_string()));

    std::fs::remove_file(folder.folder.path().join("b0000.yaml")).unwrap();
    let (tasks, stale, left_out, _) = folder.reload();
    assert_eq!((tasks.len(), stale, left_out), (FILES_MAX, vec![], vec![]));
    assert!(tasks.contains(&"a: one".to_string()));
}

#[test]
fn of_two_files_with_one_name_the_newcomer_is_in_the_wrong() {
    let mut folder = Folder::new();
    folder.write("b.yaml", &task("b", "one"));
    folder.reload();
    folder.write("0.yaml", &task("b", "other"));
    let served = words(&["b: one"]);
    let left_out = words(&["0.yaml"]);
    assert_eq!(folder.reload(), (served, vec![], left_out.clone(), false));

    // Others go on: what changes, also where the name is, and what comes.
    folder.write("b.yaml", &task("b", "two"));
    folder.write("c.yaml", &task("c", "one"));
    let served = words(&["b: two", "c: one"]);
    assert_eq!(folder.reload(), (served, vec![], left_out, true));

    // One that is served takes the name of another: it stays what it was.
    folder.write("0.yaml", &task("d", "one"));
    folder.reload();
    folder.write("0.yaml", &task("c", "other"));
    let served = words(&["b: two", "c: one", "d: one"]);
    let stale = words(&["0.yaml"]);
    assert_eq!(folder.reload(), (served, stale, vec![], false));
}

#[test]
fn a_newcomer_that_needs_a_broken_newcomer_keeps_nobody_else_away() {
    let mut folder = Folder::new();
    folder.write("a.yaml", &task("a", "one"));
    folder.reload();
    folder.write("a.yaml", &task("a", "two"));
    folder.write(
        "b.yaml",
        "tasks: { b: { flow: { call: { type: task, task: c } } } }\n",
    );
    folder.write("c.yaml", "tasks: { c: { flow: { s: { scrpt: x } } } }\n");
    let left_out = words(&["b.yaml", "c.yaml"]);
    let served = words(&["a: two"]);
    assert_eq!(folder.reload(), (served, vec![], left_out, true));
}

#[test]
fn what_was_good_is_known_after_a_restart() {
    let mut folder = Folder::new();
    let data = tempfile::tempdir().unwrap();
    let memory = data.path().join("workflows.good.json");
    let restart = |folder: &mut Folder| {
        folder.library = Library::remembering(folder.folder.path(), &memory);
    };
    restart(&mut folder);
    folder.write("a.yaml", "tasks: { a: { flow: { s: { file: a.sh } } } }\n");
    folder.write("a.sh", "echo one");
    folder.write("b.yaml", &task("b", "one"));
    folder.reload();
    use std::os::unix::fs::PermissionsExt;
    let mode = memory.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    folder.write("a.yaml", "tasks: [");
    std::fs::remove_file(folder.folder.path().join("a.sh")).unwrap();
    folder.write("b.yaml", &task("b", "two"));
    restart(&mut folder);
    let served = words(&["a: s", "b: two"]);
    let stale = words(&["a.yaml"]);
    assert_eq!(
        folder.reload(),
        (served.clone(), stale.clone(), vec![], true)
    );
    restart(&mut folder);
    assert_eq!(folder.reload(), (served, stale, vec![], false));

    // What is no memory of this folder is none.
    std::fs::write(&memory, "{").unwrap();
    restart(&mut folder);
    let left_out = words(&["a.yaml"]);
    assert_eq!(
        folder.reload(),
        (words(&["b: two"]), vec![], left_out, true)
    );
}

#[test]
fn a_file_is_read_when_nobody_writes_it_any_more() {
    let mut folder = Folder::new();
    folder.reload();
    assert!(!folder.library.has_settled_change());
    folder.write("a.yaml", "tasks:");
    assert!(!folder.library.has_settled_change());
    folder.write("a.yaml", &task("a", "one"));
    assert!(!folder.library.has_settled_change());
    assert!(folder.library.has_settled_change());
    folder.reload();
    assert!(!folder.library.has_settled_change());

    // One that never rests does not keep the others away for ever.
    let taken = (0..100).any(|at| {
        folder.write("b.yaml", &task("b", &format!("s{at}")));
        folder.library.has_settled_change()
    });
    assert!(taken);
}

/// Whoever can put links into the folder may not be allowed to read what they lead to.
#[test]
fn links_stay_in_the_folder_and_show_nothing_of_other_files() {
    let mut folder = Folder::new();
    let path = folder.folder.path().to_path_buf();
    let elsewhere = tempfile::tempdir().unwrap();
    let secret = elsewhere.path().join("secret.yaml");
    std::fs::write(&secret, "hunter2hunter2").unwrap();
    // As Kubernetes mounts a ConfigMap.
    std::fs::create_dir(path.join("..2026")).unwrap();
    folder.write("..2026/a.yaml", &task("a", "one"));
    symlink("..2026", path.join("..data")).unwrap();
    symlink("..data/a.yaml", path.join("a.yaml")).unwrap();
    symlink(&secret, path.join("out.yaml")).unwrap();
    symlink("/proc/self/status", path.join("proc.yaml")).unwrap();
    let reloaded = folder.library.reload();
    let tasks: Vec<&String> = reloaded.workflows.tasks().map(|(name, _)| name).collect();
    assert_eq!(tasks, ["a"]);
    let found = reloaded.diagnostics.iter();
    let found: Vec<(&str, &str)> = found
        .map(|found| (found.code, found.message.as_str()))
        .collect();
    let told = "this is a link that leads out of the workflows folder, so it is not read";
    assert_eq!(found, [("E007", told), ("E007", told)]);

    // The same for whoever names the folder; a file that is named may be a link.
    let options = CheckOptions::default();
    let checked = load_files(std::slice::from_ref(&path), &path, None, &options);
    assert_eq!((checked.errors(), checked.files), (2, 3));
    std::fs::write(&secret, task("b", "one")).unwrap();
    let named = load_files(&[path.join("out.yaml")], &path, None, &options);
    assert_eq!(named.errors(), 0, "{:?}", named.diagnostics);
}

/// A server knows its own files, by whatever name they come.
#[test]
fn files_of_the_server_are_neither_workflows_nor_scripts() {
    const TOKEN: &str = "stepward-1-0123456789abcdef";
    let mut folder = Folder::new();
    let path = folder.folder.path().to_path_buf();
    let data = path.join(".stepward");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("admin.token"), TOKEN).unwrap();
    let config = ServerConfig {
        data_dir: data.clone(),
        ..ServerConfig::default()
    };
    let policy = SecretPolicy::of_server(&config);
    folder.library = Library::new(&path).checking_secrets(Arc::new(policy));
    std::fs::hard_link(data.join("admin.token"), path.join("hard.yaml")).unwrap();
    symlink(".stepward/admin.token", path.join("link.yaml")).unwrap();
    std::fs::hard_link(data.join("admin.token"), path.join("hard.sh")).unwrap();
    for (name, script) in [("one", "hard.sh"), ("two", ".stepward/admin.token")] {
        let text = format!("tasks: {{ {name}: {{ flow: {{ s: {{ file: {script} }} }} }} }}\n");
        folder.write(&format!("{name}.yaml"), &text);
    }
    let reloaded = folder.library.reload();
    assert_eq!(reloaded.workflows.tasks().count(), 0);
    let codes: Vec<&str> = reloaded
        .diagnostics
        .iter()
        .map(|found| found.code)
        .collect();
    assert_eq!(codes, ["E007", "E007", "E028", "E028"]);
    for found in &reloaded.diagnostics {
        assert!(
            found.message.contains("belongs to the server itself"),
            "{found:?}"
        );
        assert!(!format!("{found:?}").contains(TOKEN), "{found:?}");
    }
}
