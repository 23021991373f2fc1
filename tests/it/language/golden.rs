//! Every rule with what it prints. `STEPWARD_GOLDEN=write` writes the expected texts anew; read the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepward::config::ServerConfig;
use stepward::language::rules::{self, CHECKED_BY_SERVER, RULES};
use stepward::language::{CheckOptions, Checked, check_sources, load_files, render};
use stepward::secret_policy::SecretPolicy;

use super::{check, codes, files};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/language/golden")
}

/// With the default settings of a server. For the rule about what a secret holds, secrets come from the folder of these tests.
fn check_on_server(code: &str, text: &str) -> Checked {
    let mut config = ServerConfig::default();
    if code == "E073" {
        config.secrets.allow_files = vec![folder().join("..")];
    }
    let options = CheckOptions {
        secret_policy: Some(Arc::new(SecretPolicy::of_server(&config))),
        ..CheckOptions::default()
    };
    check_sources(files(text), &options)
}

fn goldens() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    paths.sort();
    paths
}

/// One that is not even text is read from its file, as all are in earnest.
fn checked(path: &Path) -> Checked {
    let name = path.file_name().unwrap().to_str().unwrap();
    match String::from_utf8(fs::read(path).unwrap()) {
        Ok(text) if CHECKED_BY_SERVER.contains(&&name[..4]) => check_on_server(&name[..4], &text),
        Ok(text) => check(&text),
        Err(_) => {
            let mut checked =
                load_files(&[path.to_path_buf()], &folder(), None, &Default::default());
            for found in &mut checked.diagnostics {
                found.at.file = "hello.yaml".to_string();
            }
            checked
        }
    }
}

#[test]
fn every_message_is_as_it_was_written_down() {
    let write = std::env::var("STEPWARD_GOLDEN").is_ok_and(|word| word == "write");
    let mut differ = Vec::new();
    for path in goldens() {
        let shown = render::human(&checked(&path).diagnostics, false);
        let expected_path = path.with_extension("txt");
        if write {
            fs::write(&expected_path, &shown).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if shown != expected {
            differ.push(format!(
                "{}:\n{shown}\nexpected:\n{expected}",
                path.display()
            ));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// `E012-typo.yaml` breaks E012 and nothing else.
#[test]
fn every_golden_file_breaks_the_rule_in_its_name() {
    for path in goldens() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let code = &name[..4];
        let found: BTreeSet<&str> = codes(&checked(&path)).into_iter().collect();
        assert_eq!(found, BTreeSet::from([code]), "{name}");
    }
}

#[test]
fn every_rule_has_a_golden_file() {
    let names = goldens().into_iter();
    let names: BTreeSet<String> = names
        .map(|path| path.file_stem().unwrap().to_str().unwrap()[..4].to_string())
        .collect();
    // How long a check takes is no property of a file.
    let rules = RULES.iter().filter(|rule| rule.code != "E065");
    let rules: BTreeSet<String> = rules.map(|rule| rule.code.to_string()).collect();
    assert_eq!(names, rules);
    assert!(rules.len() >= 45, "{}", rules.len());
}

#[test]
fn every_explanation_shows_what_is_wrong_and_what_is_right() {
    for rule in RULES.iter() {
        // Bytes that are no text, what a file holds and the time that a check takes cannot stand in an explanation.
        if !["E007", "E065", "E073"].contains(&rule.code) {
            let wrong = match CHECKED_BY_SERVER.contains(&rule.code) {
                true => check_on_server(rule.code, rule.wrong),
                false => check(rule.wrong),
            };
            let found: BTreeSet<&str> = codes(&wrong).into_iter().collect();
            assert_eq!(found, BTreeSet::from([rule.code]), "{}: wrong", rule.code);
        }
        let right = check(rule.right);
        let shown = render::human(&right.diagnostics, false);
        assert!(
            right.diagnostics.is_empty(),
            "{}: right\n{shown}",
            rule.code
        );
        assert!(right.workflows.tasks().count() > 0, "{}", rule.code);
        let page = rules::explanation(rule);
        assert!(page.contains(rule.title) && rule.text.len() > 40, "{page}");
    }
}

#[test]
fn a_code_that_is_used_is_in_the_list() {
    let mut seen = 0;
    for entry in walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/language")) {
        let text = fs::read_to_string(entry).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for quoted in text.split('"').skip(1).step_by(2) {
            let is_code = quoted.len() == 4
                && quoted.starts_with(['E', 'W'])
                && quoted[1..].bytes().all(|byte| byte.is_ascii_digit());
            if is_code {
                seen += 1;
                assert!(rules::find(quoted).is_some(), "{quoted} has no rule");
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files
}
