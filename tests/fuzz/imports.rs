//! Workflows of others: whatever a crontab or a workspace holds, there is a report, and what is written for it can be read.

use std::path::PathBuf;
use std::sync::OnceLock;

use stepward::import::{CrontabSource, Imported, StroemFile, import_crontab, import_stroem};
use stepward::language::{CheckOptions, SourceFile, check_sources, render};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "* * * * * root ", "@reboot ", "MAILTO=", "%", "\\%", "{{ input.x }}", "{% if x %}", "tasks:\n", "flow:\n",
    "action: ", "type: script", "depends_on: [", "{{ a | tojson }}", "{# ", " #}", "CRON_TZ=Europe/Oslo\n",
    "SHELL=/bin/bash\n",
];

const KEY_BYTES_MAX: usize = 1_000;

fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| mutate::files(&["tests/it/import/crontab", "tests/it/import/stroem"], ""))
}

pub fn play(dice: &mut Dice, tried: &Tried) {
    for _ in 0..10 {
        let text = mutate::text(dice, seeds(), WORDS);
        again(text.as_bytes(), tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    tried.now(bytes);
    let text = String::from_utf8_lossy(bytes).into_owned();
    // YAML has no longer keys, and what is no key in a crontab may become one of a workspace.
    if text.lines().any(|line| line.len() > KEY_BYTES_MAX) {
        return;
    }
    for system in [true, false] {
        let imported = import_crontab(&[CrontabSource {
            name: "crontab".to_string(),
            stem: "crontab".to_string(),
            text: text.clone(),
            system,
            timezone: "UTC".to_string(),
        }]);
        can_be_read(&imported);
    }
    let file = StroemFile {
        name: "a.yaml".to_string(),
        text,
    };
    let source = |path: &str| match path.len() % 2 {
        0 => Ok("echo {{ input.x }}".to_string()),
        _ => Err("there is none".to_string()),
    };
    can_be_read(&import_stroem(&[file], &source, None));
}

/// It may ask for more than there is, but it is YAML in our words.
fn can_be_read(imported: &Imported) {
    let files = imported.files.iter();
    let workflows = files.filter(|file| file.name.ends_with(".yaml"));
    let files: Vec<SourceFile> = workflows
        .map(|file| SourceFile {
            path: PathBuf::from(&file.name),
            text: file.text.clone(),
        })
        .collect();
    let checked = check_sources(files, &CheckOptions::default());
    let is_yaml_fault = |code: &str| ("E001"..="E006").contains(&code);
    let faults = checked.diagnostics.iter();
    let faults: Vec<_> = faults
        .filter(|found| is_yaml_fault(found.code))
        .cloned()
        .collect();
    assert!(faults.is_empty(), "{}", render::human(&faults, false));
}
