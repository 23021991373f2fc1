//! What the YAML says: workflow files, decoded into checked definitions.
//!
//! Every key is known; one that is not is an error. All files of the folder are read before anything is used, and a name
//! stands for one task in all of them.
//!
//! Deliberately not here: the server, the store. A folder becomes values, or a list of what is wrong with it.

mod document;
mod duration;
pub mod schema;
pub mod template; // texts with {{ … }} in them
pub mod values; // does a value fit // what editors know of it

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::limits::shorten;
use crate::domain::schedule::ScheduleDraft;
use crate::domain::task::{Definition, TaskDraft};
use crate::domain::webhook::WebhookDraft;

/// The tasks of a folder, each with all that it calls.
#[derive(Debug, Default)]
pub struct Workflows {
    tasks: BTreeMap<String, Arc<Definition>>,
    schedules: Vec<ScheduleDraft>,
    webhooks: Vec<WebhookDraft>,
}

/// What is wrong with a folder of workflows, all of it.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Faults(pub Vec<String>);

/// A file larger than this was not written by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 1_000;

impl Workflows {
    /// Reads every `*.yaml` and `*.yml` below the folder.
    pub fn load(folder: &Path) -> Result<Workflows, Faults> {
        let mut faults = Vec::new();
        let mut files = Vec::new();
        find_files(folder, &mut files, &mut faults);
        files.sort();
        if files.len() > FILES_MAX {
            let (count, folder) = (files.len(), folder.display());
            faults.push(format!(
                "{folder}: {count} workflow files, at most {FILES_MAX} are read"
            ));
            return Err(Faults(faults));
        }
        let mut drafts: BTreeMap<String, (TaskDraft, PathBuf)> = BTreeMap::new();
        for file in files {
            match read(&file) {
                Err(fault) => faults.push(format!("{}: {fault}", file.display())),
                Ok(tasks) => {
                    for task in tasks {
                        if let Some((_, first)) = drafts.get(&task.name) {
                            faults.push(format!(
                                "{}: task {:?} is in {} already, give each its own name",
                                file.display(),
                                task.name,
                                first.display()
                            ));
                        } else {
                            drafts.insert(task.name.clone(), (task, file.clone()));
                        }
                    }
                }
            }
        }
        let all: Vec<TaskDraft> = drafts.values().map(|(draft, _)| draft.clone()).collect();
        let mut tasks = BTreeMap::new();
        for (name, (_, file)) in &drafts {
            match Definition::check(name, all.clone()) {
                Ok(definition) => {
                    tasks.insert(name.clone(), Arc::new(definition));
                }
                Err(problems) => {
                    let all = problems.0.iter();
                    // A task that another calls has its problems told with itself.
                    let own = all.filter(|problem| problem.place.task == shorten(name));
                    faults.extend(own.map(|problem| format!("{}: {problem}", file.display())));
                }
            }
        }
        match faults.is_empty() {
            true => Ok(Workflows {
                tasks,
                ..Workflows::default()
            }),
            false => Err(Faults(faults)),
        }
    }

    pub fn tasks(&self) -> impl Iterator<Item = (&String, &Arc<Definition>)> {
        self.tasks.iter()
    }

    pub fn schedules(&self) -> &[ScheduleDraft] {
        &self.schedules
    }

    pub fn webhooks(&self) -> &[WebhookDraft] {
        &self.webhooks
    }
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>, faults: &mut Vec<String>) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            faults.push(format!("{} cannot be read: {error}", folder.display()));
            return;
        }
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let extension = path.extension().and_then(|extension| extension.to_str());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden => find_files(&path, files, faults),
            Ok(kind) if !kind.is_dir() && matches!(extension, Some("yaml" | "yml")) && !hidden => {
                files.push(path);
            }
            _ => {}
        }
    }
}

fn read(file: &Path) -> Result<Vec<TaskDraft>, String> {
    let found = std::fs::metadata(file).map_err(|error| format!("cannot be read: {error}"))?;
    if !found.is_file() {
        return Err("is not a file".to_string());
    }
    let bytes = found.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!(
            "is {bytes} bytes long, at most {FILE_BYTES_MAX} are read"
        ));
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    document::decode(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Workflows, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Workflows::load(folder.path()).map_err(|faults| {
            let shown = faults.to_string();
            shown.replace(&format!("{}/", folder.path().display()), "")
        })
    }

    const HELLO: &str = "tasks:\n  hello:\n    flow:\n      greet: { script: echo hello }\n";

    #[test]
    fn a_folder_of_files_becomes_tasks() {
        let calls = "tasks:\n  outer:\n    flow:\n      call: { type: task, task: hello }\n";
        let loaded = load(&[("a.yaml", HELLO), ("b.yml", calls), ("c.txt", "x: [")]).unwrap();
        let names: Vec<&String> = loaded.tasks().map(|(name, _)| name).collect();
        assert_eq!(names, ["hello", "outer"]);
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_and_with_its_file() {
        let fault = load(&[
            ("a.yaml", HELLO),
            ("b.yaml", HELLO),
            (
                "c.yaml",
                "tasks:\n  other:\n    flow:\n      s: { script: x, depends_on: [nobody] }\n",
            ),
            (
                "d.yaml",
                "tasks:\n  odd:\n    flow:\n      s: { scrpt: x }\n",
            ),
        ])
        .unwrap_err();
        let lines: Vec<&str> = fault.lines().collect();
        assert_eq!(lines.len(), 3, "{fault}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("b.yaml: task \"hello\" is in "))
        );
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("c.yaml: ") && line.contains("nobody"))
        );
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("d.yaml: ") && line.contains("scrpt"))
        );
    }
}
