//! A folder of workflows over time: what is served while a file is broken, and whether anything changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::diagnostic::Diagnostic;
use super::load;
use super::scripts::Scripts;
use super::source::SourceFile;
use super::{CheckOptions, Checked, Workflows, check_with};

/// Keeps the last texts that were good together.
#[derive(Debug)]
pub struct Library {
    folder: PathBuf,
    /// What is served, and the texts that it was made of.
    good: Option<Good>,
    /// Of all files, and of the scripts that they name, at the last reload.
    signature: Option<Signature>,
    sought: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
struct Good {
    texts: BTreeMap<PathBuf, String>,
    scripts: BTreeMap<String, String>,
    workflows: Arc<Workflows>,
}

/// What came of one look at the folder.
#[derive(Debug)]
pub struct Reloaded {
    /// To be served from now on; whole, and of files that fit together.
    pub workflows: Arc<Workflows>,
    pub diagnostics: Vec<Diagnostic>,
    /// These are others than before.
    pub changed: bool,
    /// Served as they were when they were last good.
    pub stale: Vec<PathBuf>,
    /// Not served at all: they have been broken since the start, or need what is.
    pub left_out: Vec<PathBuf>,
}

type Signature = BTreeMap<PathBuf, Option<Mark>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Library {
    pub fn new(folder: &Path) -> Library {
        Library {
            folder: folder.to_path_buf(),
            good: None,
            signature: None,
            sought: Vec::new(),
        }
    }

    /// Whether a file came, went or changed since the last reload. Looks, and reads nothing.
    pub fn needs_reload(&self) -> bool {
        self.signature.as_ref() != Some(&self.look())
    }

    fn look(&self) -> Signature {
        // A folder that cannot be read has no files; that it changed is all that counts here.
        let files = load::find(&self.folder, &mut Vec::new());
        let all = files.into_iter().chain(self.sought.iter().cloned());
        all.map(|path| {
            let mark = path.metadata().ok().map(|found| Mark {
                modified: found.modified().ok(),
                bytes: found.len(),
                inode: std::os::unix::fs::MetadataExt::ino(&found),
            });
            (path, mark)
        })
        .collect()
    }

    /// Reads and checks the folder, and says what is to be served.
    pub fn reload(&mut self) -> Reloaded {
        // Before anything is read: what changes meanwhile is noticed the next time.
        let before = self.look();
        let mut faults = Vec::new();
        let paths = load::find(&self.folder, &mut faults);
        let (files, unread) = load::read_all(&paths);
        faults.extend(unread);
        let mut scripts = Scripts::new(Some(&self.folder));
        let checked = load::checked(&files, faults, &mut scripts, &CheckOptions::default());
        self.sought = scripts.sought().cloned().collect();
        let after = self.look();
        // Of a file that is still there, what it was before it was read; one that went meanwhile is missed the next time.
        let is_read = |path: &PathBuf| after.contains_key(path) || paths.contains(path);
        let mut signature: Signature = before
            .into_iter()
            .filter(|(path, _)| is_read(path))
            .collect();
        for (path, mark) in after {
            signature.entry(path).or_insert(mark);
        }
        self.signature = Some(signature);
        let texts: BTreeMap<PathBuf, String> = files
            .into_iter()
            .map(|file| (file.path, file.text))
            .collect();
        if checked.errors() == 0 {
            return self.serve(texts, &scripts, checked, &[]);
        }
        let broken = with_errors(&checked.diagnostics);
        match self.good.clone() {
            Some(good) => self.with_last_good(texts, &paths, &broken, &good, checked.diagnostics),
            None => self.without_broken(texts, broken, checked.diagnostics),
        }
    }

    /// Broken files as they were when they were good; if that does not fit the others, everything as it was.
    fn with_last_good(
        &mut self,
        texts: BTreeMap<PathBuf, String>,
        paths: &[PathBuf],
        broken: &BTreeSet<String>,
        good: &Good,
        diagnostics: Vec<Diagnostic>,
    ) -> Reloaded {
        let mut mixed = texts.clone();
        let mut stale = Vec::new();
        let mut left_out = Vec::new();
        let is_broken = |path: &&PathBuf| broken.contains(&shown(path));
        for path in paths.iter().filter(is_broken) {
            match good.texts.get(path) {
                Some(text) => {
                    mixed.insert(path.clone(), text.clone());
                    stale.push(path.clone());
                }
                None => {
                    mixed.remove(path);
                    left_out.push(path.clone());
                }
            }
        }
        stale.sort();
        stale.dedup();
        let mut scripts = Scripts::new(Some(&self.folder));
        let mut checked = self.check(&mixed, &mut scripts);
        if checked.errors() > 0 {
            // A script of a file that is kept may itself be what is broken.
            scripts = Scripts::kept(Some(&self.folder), good.scripts.clone());
            checked = self.check(&mixed, &mut scripts);
        }
        if checked.errors() == 0 {
            checked.diagnostics = diagnostics;
            let mut reloaded = self.serve(mixed, &scripts, checked, &stale);
            reloaded.left_out = left_out;
            return reloaded;
        }
        let differs = |path: &&PathBuf| texts.get(*path) != good.texts.get(*path);
        let all = texts.keys().chain(good.texts.keys()).filter(differs);
        let all = all.chain(paths.iter().filter(is_broken));
        let mut stale: Vec<PathBuf> = all.cloned().collect();
        stale.sort();
        stale.dedup();
        Reloaded {
            workflows: good.workflows.clone(),
            diagnostics,
            changed: false,
            stale,
            left_out: Vec::new(),
        }
    }

    /// At the start: those that are good, without those that need what is not.
    fn without_broken(
        &mut self,
        mut texts: BTreeMap<PathBuf, String>,
        mut broken: BTreeSet<String>,
        mut diagnostics: Vec<Diagnostic>,
    ) -> Reloaded {
        let mut left_out = Vec::new();
        loop {
            let count_before = texts.len();
            let mut leave = |path: &PathBuf| {
                left_out.push(path.clone());
                false
            };
            texts.retain(|path, _| !broken.contains(&shown(path)) || leave(path));
            let mut scripts = Scripts::new(Some(&self.folder));
            let mut checked = self.check(&texts, &mut scripts);
            if checked.errors() == 0 {
                checked.diagnostics = diagnostics;
                let mut reloaded = self.serve(texts, &scripts, checked, &[]);
                left_out.sort();
                reloaded.left_out = left_out;
                return reloaded;
            }
            broken = with_errors(&checked.diagnostics);
            // What only the absence of the broken ones makes wrong is worth knowing as well.
            let errors = checked.diagnostics.into_iter().filter(Diagnostic::is_error);
            diagnostics.extend(errors.filter(|_| texts.len() < count_before));
            assert!(!texts.is_empty(), "no file, no error");
        }
    }

    fn check(&self, texts: &BTreeMap<PathBuf, String>, scripts: &mut Scripts) -> Checked {
        let files = texts.iter().map(|(path, text)| SourceFile {
            path: path.clone(),
            text: text.clone(),
        });
        let files: Vec<SourceFile> = files.collect();
        check_with(&files, true, scripts, &CheckOptions::default())
    }

    fn serve(
        &mut self,
        texts: BTreeMap<PathBuf, String>,
        scripts: &Scripts,
        checked: Checked,
        stale: &[PathBuf],
    ) -> Reloaded {
        let same = self
            .good
            .as_ref()
            .filter(|good| good.texts == texts && good.scripts == *scripts.texts());
        let (workflows, changed) = match same {
            Some(good) => (good.workflows.clone(), false),
            None => (Arc::new(checked.workflows), true),
        };
        self.good = Some(Good {
            texts,
            scripts: scripts.texts().clone(),
            workflows: workflows.clone(),
        });
        Reloaded {
            workflows,
            diagnostics: checked.diagnostics,
            changed,
            stale: stale.to_vec(),
            left_out: Vec::new(),
        }
    }
}

/// As diagnostics call it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn with_errors(diagnostics: &[Diagnostic]) -> BTreeSet<String> {
    let errors = diagnostics.iter().filter(|found| found.is_error());
    errors.map(|found| found.at.file.clone()).collect()
}
