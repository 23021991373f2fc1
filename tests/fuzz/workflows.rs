//! Workflow files: whatever is in one, it becomes tasks or a list of what is wrong, each with a place that is in it. What is
//! accepted is accepted wherever it is read, and comes back from the database as it was.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use stepward::domain::DefinitionId;
use stepward::domain::task::Definition;
use stepward::language::{self, CheckOptions, Checked, SourceFile, render};
use stepward::store::{Frozen, Store, StoreError, StoreOptions};

use super::dice::Dice;
use super::watch::Tried;
use super::{mutate, site};

/// What the language knows: put where it does not belong.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "tasks:\n", "actions:\n", "flow:\n", "script: ", "type: ", "depends_on: ", "for_each: ", "when: ", "input: ",
    "env: ", "retry: ", "timeout: ", "cron: ", "schedules:\n", "webhooks:\n", "secrets:\n", "accept: ", "task: ",
    "action: ", "image: ", "manifest: ", "pattern: ", "default: ", "options: ", "concurrency: ", "tags: ",
    "{{ input.x }}", "{{ steps.a.output.b | sh }}", "{{ secret.k }}", "{{ each.item }}", "on_error: ", "notify: ",
    "{ any: [", "(?i)[", "(a+)+$", "Europe/Oslo", "0 2 * * *", "max_parallel: ", "runner: docker",
];

fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| mutate::files(&["examples", "tests/it/language/golden"], ".yaml"))
}

/// The first are real files, one after the other, as good as they are.
pub fn play(dice: &mut Dice, tried: &Tried) {
    let mut accepted = Vec::new();
    for _ in 0..20 {
        let text = match dice.roll(30) {
            0 => mutate::noise(dice, 400),
            1 => {
                let bytes = mutate::bytes(dice, 400);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            2 => dice.pick(seeds()).expect("there are some").clone(),
            _ => mutate::text(dice, seeds(), WORDS),
        };
        accepted.extend(examine(&text, tried));
    }
    come_back(&accepted, tried);
}

pub fn again(bytes: &[u8], tried: &Tried) {
    match std::str::from_utf8(bytes) {
        Ok(text) => come_back(&examine(text, tried), tried),
        Err(_) => {
            let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
            std::fs::write(folder.path().join("a.yaml"), bytes).expect("it is written");
            assert_eq!(language::load(folder.path()).errors(), 1);
        }
    }
}

/// `# file: NAME` at the beginning of a line begins the next file.
fn files(text: &str) -> Vec<SourceFile> {
    let mut files: Vec<SourceFile> = Vec::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with("# file: ") || files.is_empty() {
            files.push(SourceFile {
                path: PathBuf::from(format!("{}.yaml", files.len())),
                text: String::new(),
            });
        }
        files.last_mut().expect("there is one").text += line;
    }
    files
}

/// The definitions of a text that is accepted.
fn examine(text: &str, tried: &Tried) -> Vec<Arc<Definition>> {
    tried.now(text);
    let files = files(text);
    let checked = language::check_sources(files.clone(), &CheckOptions::default());
    for found in &checked.diagnostics {
        let spots = found.related.iter().chain([&found.at]);
        for spot in spots {
            let file = files
                .iter()
                .find(|file| file.path.as_os_str() == spot.file.as_str());
            let file = file.unwrap_or_else(|| panic!("no such file: {spot:?}"));
            is_within(&file.text, (spot.line, spot.column));
            is_within(&file.text, (spot.end_line, spot.end_column));
            assert!(
                (spot.line, spot.column) <= (spot.end_line, spot.end_column),
                "{spot:?}"
            );
        }
        assert!(!found.message.contains('\n'), "{:?}", found.message);
        assert_eq!(render::short(found).lines().count(), 1, "{found:?}");
        render::github(found);
        if let Some(fix) = &found.fix {
            let file = files
                .iter()
                .find(|file| file.path.as_os_str() == found.at.file.as_str());
            let text = &file.expect("it was found above").text;
            is_within(text, (fix.line, fix.column));
            is_within(text, (fix.end_line, fix.end_column));
        }
    }
    render::human(&checked.diagnostics, true);
    let tasks = checked.workflows.tasks().count();
    if checked.errors() > 0 {
        assert_eq!(tasks, 0, "half of a file is not what anybody wrote");
        return Vec::new();
    }
    loads_as_well(&files, &checked);
    let tasks = checked.workflows.tasks();
    tasks.map(|(_, definition)| definition.clone()).collect()
}

/// Both count from 1. Behind the last character is still within.
fn is_within(text: &str, (line, column): (u32, u32)) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').collect();
    let found = lines.get((line as usize).wrapping_sub(1));
    let characters = found.map(|line| line.chars().count());
    // The end of a line is a place too.
    let is_within = characters.is_some_and(|count| column >= 1 && column as usize <= count + 2);
    assert!(is_within, "{line}:{column} is not in the file");
}

/// What is accepted as a text is accepted as a folder, and is the same.
fn loads_as_well(files: &[SourceFile], checked: &Checked) {
    let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
    for file in files {
        std::fs::write(folder.path().join(&file.path), &file.text).expect("it is written");
    }
    let loaded = language::load(folder.path());
    assert_eq!(
        loaded.errors(),
        0,
        "{}",
        render::human(&loaded.diagnostics, false)
    );
    let tasks: Vec<_> = checked.workflows.tasks().collect();
    assert_eq!(loaded.workflows.tasks().collect::<Vec<_>>(), tasks);
    assert_eq!(loaded.workflows.schedules(), checked.workflows.schedules());
}

/// A job freezes its definition: the next life of the server reads what this one wrote.
fn come_back(definitions: &[Arc<Definition>], tried: &Tried) {
    if definitions.is_empty() {
        return;
    }
    tried.now("the accepted ones of this case, frozen");
    let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
    let open = || Store::open(folder.path(), StoreOptions::default()).expect("a store");
    let frozen: Vec<Frozen> = definitions.iter().cloned().map(Frozen::new).collect();
    let store = open();
    let ids: Vec<DefinitionId> = store
        .write(move |tx| {
            let ids = frozen.iter().map(|frozen| tx.intern_definition(frozen));
            ids.collect::<Result<_, StoreError>>()
        })
        .expect("they are kept");
    drop(store);
    let store = open();
    for (id, definition) in ids.iter().zip(definitions) {
        let read = store.read(|tx| tx.definition(*id)).expect("it is there");
        assert_eq!(read, *definition);
    }
}
