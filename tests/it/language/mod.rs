//! The workflow language: what files become, and what is said of those that are wrong.

mod cli;
mod drafts;
mod golden;
mod hostile;
mod library;
mod secret_inputs;
mod size;
mod together;
mod untrusted;

use std::collections::BTreeSet;
use std::path::PathBuf;

use stepward::language::{self, CheckOptions, Checked, SourceFile};

/// `# file: NAME` at the beginning of a line begins the next file.
pub fn files(text: &str) -> Vec<SourceFile> {
    let mut files: Vec<SourceFile> = Vec::new();
    for line in text.split_inclusive('\n') {
        if let Some(name) = line.strip_prefix("# file: ") {
            files.push(SourceFile {
                path: PathBuf::from(name.trim()),
                text: String::new(),
            });
            continue;
        }
        if files.is_empty() {
            files.push(SourceFile {
                path: PathBuf::from("hello.yaml"),
                text: String::new(),
            });
        }
        let last = files.last_mut().expect("there is one");
        last.text.push_str(line);
    }
    files
}

/// With workers that offer a little.
pub fn check(text: &str) -> Checked {
    let offered = ["script", "docker", "kubernetes", "gpu", "large"].map(str::to_string);
    let options = CheckOptions {
        offered_tags: Some(BTreeSet::from(offered)),
        ..CheckOptions::default()
    };
    language::check_sources(files(text), &options)
}

pub fn codes(checked: &Checked) -> Vec<&'static str> {
    checked.diagnostics.iter().map(|found| found.code).collect()
}
