//! Workflows of others: whatever a crontab, a workspace or a DAG holds, there is a report, and what is written passes validation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use stepward::import::{
    CrontabSource, DaguFile, Imported, StroemFile, import_crontab, import_dagu, import_stroem,
};
use stepward::language::{CheckOptions, SourceFile, check_texts, render};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "* * * * * root ", "@reboot ", "MAILTO=", "%", "\\%", "{{ input.x }}", "{% if x %}", "tasks:\n", "flow:\n",
    "action: ", "type: script", "depends_on: [", "{{ a | tojson }}", "{# ", " #}", "CRON_TZ=Europe/Oslo\n",
    "SHELL=/bin/bash\n", "steps:\n", "- command: ", "preconditions: ", "depends: [", "params: ", "handlerOn:\n", "output: X\n",
    "${X}", "`date`", "multiple: true", "schedule: ", "retryPolicy: { limit: 3 }", "$ARTIFACTS_DIR",
    "continueOn: true\n", "&a { b: c }", "<<: *a\n", "re:^\\d", "${A.b[0]}", "shell: bash -e\n", "workerSelector: { a: b }\n", "init: make\n",
];

const KEY_BYTES_MAX: usize = 1_000;

fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let folders = [
            "tests/it/import/crontab",
            "tests/it/import/stroem",
            "tests/it/import/dagu",
        ];
        mutate::files(&folders, "")
    })
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
        passes_validation(&imported);
    }
    let dag = DaguFile {
        name: "a.yaml".to_string(),
        stem: "a".to_string(),
        text: text.clone(),
    };
    passes_validation(&import_dagu(&[dag], "UTC"));
    let file = StroemFile {
        name: "a.yaml".to_string(),
        text,
    };
    let source = |path: &str| match path.len() % 2 {
        0 => Ok("echo {{ input.x }}".to_string()),
        _ => Err("there is none".to_string()),
    };
    passes_validation(&import_stroem("workspace", &[file], &source, None));
}

fn passes_validation(imported: &Imported) {
    let (workflows, scripts): (Vec<_>, Vec<_>) = imported
        .files
        .iter()
        .partition(|file| file.name.ends_with(".yaml"));
    let files = workflows.into_iter().map(|file| SourceFile {
        path: PathBuf::from(&file.name),
        text: file.text.clone(),
    });
    let scripts: BTreeMap<String, String> = scripts
        .into_iter()
        .map(|file| (file.name.clone(), file.text.clone()))
        .collect();
    let checked = check_texts(files.collect(), scripts, &CheckOptions::default());
    assert_eq!(
        checked.errors(),
        0,
        "{}",
        render::human(&checked.diagnostics, false)
    );
}
