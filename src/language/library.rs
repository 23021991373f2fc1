//! A folder of workflows over time: what is served while a file is broken, and whether anything changed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::diagnostic::Diagnostic;
use super::load::{self, Found};
use super::memory::{AcceptedTexts, Memory};
use super::scripts::Scripts;
use super::source::SourceFile;
use super::{CheckOptions, Checked, Workflows, check_with};
use crate::secret_policy::SecretPolicy;

/// How often a change is looked at until it is taken though it goes on.
const LOOKS_MAX: u32 = 20;

/// Keeps the last texts that were good together.
#[derive(Debug)]
pub struct Library {
    folder: PathBuf,
    /// Where they outlive the process.
    memory: Option<Memory>,
    /// Kept in `memory` for as long as these texts do not change.
    accepted: AcceptedTexts,
    /// Whether texts that 0.1 had accepted may break newer rules. `stepward dev` says no: who writes workflows sees every error.
    allows_former_rules: bool,
    /// The places that secrets may come from. `None`: not checked.
    secret_policy: Option<Arc<SecretPolicy>>,
    /// What is served, and the texts that it was made of.
    good: Option<Good>,
    /// Of all files, and of the scripts that they name, at the last reload.
    signature: Option<Signature>,
    sought: Vec<PathBuf>,
    /// A change that is not taken yet, and how often it was looked at.
    pending: Option<(Signature, u32)>,
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
    /// All there are, also those that are too many to be among the diagnostics.
    pub errors: usize,
    /// These are others than before.
    pub changed: bool,
    /// Files that came, went or changed since the last look; at the first look none.
    pub touched: Vec<PathBuf>,
    /// Served as they were when they were last good.
    pub stale: Vec<PathBuf>,
    /// Not served at all: they never were good, or need what is not.
    pub left_out: Vec<PathBuf>,
}

type Signature = BTreeMap<PathBuf, Option<Mark>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    /// Permissions change without a change of the text.
    changed: (i64, i64),
    bytes: u64,
    inode: u64,
}

impl Library {
    pub fn new(folder: &Path) -> Library {
        Library {
            folder: folder.to_path_buf(),
            memory: None,
            accepted: AcceptedTexts::default(),
            allows_former_rules: true,
            secret_policy: None,
            good: None,
            signature: None,
            sought: Vec::new(),
            pending: None,
        }
    }

    /// Texts that were good stay good over a restart.
    pub fn remembering(folder: &Path, file: &Path) -> Library {
        Library::open(folder, file, true)
    }

    /// The same, but new rules are errors also in texts that version 0.1 had accepted.
    pub fn remembering_strictly(folder: &Path, file: &Path) -> Library {
        Library::open(folder, file, false)
    }

    /// Also checks the places that secrets come from, whenever files are read. A text that was good stays good when only the place
    /// of a secret is wrong: the server refuses the secret itself when a step needs it.
    pub fn checking_secrets(mut self, policy: Arc<SecretPolicy>) -> Library {
        self.secret_policy = Some(policy);
        self
    }

    fn open(folder: &Path, file: &Path, allows_former_rules: bool) -> Library {
        let memory = Memory::new(folder, file);
        let mut library = Library::new(folder);
        let (texts, accepted) = memory.read();
        library.accepted = accepted;
        library.allows_former_rules = allows_former_rules;
        library.good = texts.and_then(|(texts, scripts)| {
            let mut kept = Scripts::kept(None, scripts);
            let checked = library.check(&texts, &mut kept);
            // Another version of this program may see it otherwise.
            (checked.errors() == 0).then(|| Good {
                texts,
                scripts: kept.texts().clone(),
                workflows: Arc::new(checked.workflows),
            })
        });
        library.memory = Some(memory);
        library
    }

    /// Whether a file came, went or changed since the last reload. Looks, and reads nothing.
    pub fn needs_reload(&self) -> bool {
        self.signature.as_ref() != Some(&self.look())
    }

    /// Whether there is a change that was the same at the last look: what is being written is not read yet.
    pub fn has_settled_change(&mut self) -> bool {
        let seen = self.look();
        if self.signature.as_ref() == Some(&seen) {
            self.pending = None;
            return false;
        }
        let looks = match self.pending.take() {
            Some((former, _)) if former == seen => return true,
            Some((_, looks)) => looks + 1,
            None => 1,
        };
        self.pending = Some((seen, looks));
        // Somebody who never stops must not keep everybody else's changes away.
        looks >= LOOKS_MAX
    }

    fn look(&self) -> Signature {
        let found = self.find(&mut Vec::new());
        let mut signature = marks(found.files.into_iter().chain(self.sought.iter().cloned()));
        signature.extend(found.unseen.into_iter().map(|folder| (folder, None)));
        signature
    }

    /// If there are too many files, those that are served have precedence.
    fn find(&self, faults: &mut Vec<Diagnostic>) -> Found {
        let good = self.good.as_ref();
        let is_known = |path: &Path| good.is_some_and(|good| good.texts.contains_key(path));
        load::find_preferring(&self.folder, is_known, faults)
    }

    /// Reads and checks the folder, and says what is to be served.
    pub fn reload(&mut self) -> Reloaded {
        let former = self.signature.take();
        let mut reloaded = self.read_again();
        if let (Some(former), Some(now)) = (&former, &self.signature) {
            reloaded.touched = differing(former, now);
        }
        reloaded
    }

    fn read_again(&mut self) -> Reloaded {
        self.pending = None;
        // Before anything is read: what changes meanwhile is noticed the next time.
        let before = self.look();
        let mut faults = Vec::new();
        let found = self.find(&mut faults);
        let options = CheckOptions {
            secret_policy: self.secret_policy.clone(),
            ..self.options()
        };
        let mut read = load::read_below(&self.folder, &found.files, &options);
        read.faults.splice(..0, faults);
        self.sort(&mut read.files);
        let mut scripts = self.guarded(Scripts::new(Some(&self.folder)));
        let mut checked = load::checked(&read, &mut scripts, &options);
        load::sort(&mut checked.diagnostics);
        self.sought = scripts.sought().cloned().collect();
        self.sought.append(&mut checked.secret_files);
        let after = self.look();
        // Of a file that is still there, what it was before it was read; one that went meanwhile is missed the next time.
        let is_read = |path: &PathBuf| after.contains_key(path) || found.files.contains(path);
        let mut signature: Signature = before
            .into_iter()
            .filter(|(path, _)| is_read(path))
            .collect();
        for (path, mark) in after {
            signature.entry(path).or_insert(mark);
        }
        // Seen by nobody else, perhaps, and over by now: then there is something to be read.
        signature.extend(found.unseen.iter().map(|folder| (folder.clone(), None)));
        self.signature = Some(signature);
        let files = read.files.into_iter();
        let texts: BTreeMap<PathBuf, String> = files.map(|file| (file.path, file.text)).collect();
        if checked.errors() == 0 {
            return self.serve(texts, &scripts, checked);
        }
        match self.good.clone() {
            Some(good) => self.with_last_good(texts, &found, &good, checked),
            None => self.without_broken(texts, checked),
        }
    }

    /// Broken files as they were when they were good, or not at all if they never were; if what is left does not fit together,
    /// everything as it was.
    fn with_last_good(
        &mut self,
        texts: BTreeMap<PathBuf, String>,
        found: &Found,
        good: &Good,
        first: Checked,
    ) -> Reloaded {
        let mut mixed = texts.clone();
        let mut stale = BTreeSet::new();
        let mut left_out = BTreeSet::new();
        // Nobody can say that these are gone.
        for (path, text) in good.texts.iter().filter(|(path, _)| found.hides(path)) {
            mixed.insert(path.clone(), text.clone());
            stale.insert(path.clone());
        }
        let mut broken = with_errors(&first.diagnostics);
        loop {
            let count_before = stale.len() + left_out.len();
            for path in found
                .files
                .iter()
                .filter(|path| broken.contains(&shown(path)))
            {
                match good.texts.get(path) {
                    Some(text) => {
                        mixed.insert(path.clone(), text.clone());
                        stale.insert(path.clone());
                    }
                    None => {
                        mixed.remove(path);
                        left_out.insert(path.clone());
                    }
                }
            }
            // A script of a file that is kept may itself be what is broken.
            let folder = Some(self.folder.as_path());
            let mut scripts = self.guarded(Scripts::or_kept(folder, good.scripts.clone()));
            let mut checked = self.check(&mixed, &mut scripts);
            if checked.errors() > 0 {
                scripts = self.guarded(Scripts::kept(folder, good.scripts.clone()));
                checked = self.check(&mixed, &mut scripts);
            }
            if checked.errors() == 0 {
                let reloaded = self.serve(mixed, &scripts, checked);
                return Reloaded {
                    errors: first.errors(),
                    diagnostics: first.diagnostics,
                    stale: stale.into_iter().collect(),
                    left_out: left_out.into_iter().collect(),
                    ..reloaded
                };
            }
            broken = with_errors(&checked.diagnostics);
            if stale.len() + left_out.len() == count_before {
                break;
            }
        }
        let differs = |path: &&PathBuf| texts.get(*path) != good.texts.get(*path);
        let all = texts.keys().chain(good.texts.keys()).filter(differs);
        let all = all.chain(&stale).chain(&left_out).cloned();
        let (stale, left_out): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) =
            all.partition(|path| good.texts.contains_key(path));
        Reloaded {
            workflows: good.workflows.clone(),
            errors: first.errors(),
            diagnostics: first.diagnostics,
            changed: false,
            touched: Vec::new(),
            stale: stale.into_iter().collect(),
            left_out: left_out.into_iter().collect(),
        }
    }

    /// At the start: those that are good, without those that need what is not.
    fn without_broken(&mut self, mut texts: BTreeMap<PathBuf, String>, first: Checked) -> Reloaded {
        let mut errors = first.errors();
        let mut broken = with_errors(&first.diagnostics);
        let mut diagnostics = first.diagnostics;
        // Files that could not even be read.
        let read: BTreeSet<String> = texts.keys().map(|path| shown(path)).collect();
        let mut left_out: Vec<PathBuf> = broken.difference(&read).map(PathBuf::from).collect();
        loop {
            let count_before = texts.len();
            let mut leave = |path: &PathBuf| {
                left_out.push(path.clone());
                false
            };
            texts.retain(|path, _| !broken.contains(&shown(path)) || leave(path));
            let mut scripts = self.guarded(Scripts::new(Some(&self.folder)));
            let checked = self.check(&texts, &mut scripts);
            if checked.errors() == 0 {
                let reloaded = self.serve(texts, &scripts, checked);
                left_out.sort();
                return Reloaded {
                    diagnostics,
                    errors,
                    left_out,
                    ..reloaded
                };
            }
            broken = with_errors(&checked.diagnostics);
            // What only the absence of the broken ones makes wrong is worth knowing as well.
            if texts.len() < count_before {
                errors += checked.errors();
                let more = checked.diagnostics.into_iter();
                diagnostics.extend(more.filter(Diagnostic::is_error));
            }
            assert!(!texts.is_empty(), "no file, no error");
        }
    }

    /// Without the places of secrets: those were checked when the files were read.
    fn check(&self, texts: &BTreeMap<PathBuf, String>, scripts: &mut Scripts) -> Checked {
        let files = texts.iter().map(|(path, text)| SourceFile {
            path: path.clone(),
            text: text.clone(),
        });
        let mut files: Vec<SourceFile> = files.collect();
        self.sort(&mut files);
        check_with(&files, true, scripts, &self.options())
    }

    /// Files of the server itself are no scripts.
    fn guarded(&self, scripts: Scripts) -> Scripts {
        match &self.secret_policy {
            Some(policy) => scripts.refusing_files_of(policy),
            None => scripts,
        }
    }

    fn options(&self) -> CheckOptions {
        let accepted = self.allows_former_rules.then(|| self.accepted.clone());
        CheckOptions {
            accepted_by_0_1: accepted.unwrap_or_default(),
            ..CheckOptions::default()
        }
    }

    /// Those that are served first, the newcomers last: of two with one name, the later one is in the wrong.
    fn sort(&self, files: &mut [SourceFile]) {
        let Some(good) = &self.good else {
            return;
        };
        files.sort_by_key(|file| match good.texts.get(&file.path) {
            Some(text) if *text == file.text => 0,
            Some(_) => 1,
            None => 2,
        });
    }

    fn serve(
        &mut self,
        texts: BTreeMap<PathBuf, String>,
        scripts: &Scripts,
        checked: Checked,
    ) -> Reloaded {
        let same = self
            .good
            .as_ref()
            .filter(|good| good.texts == texts && good.scripts == *scripts.texts());
        let (workflows, changed) = match same {
            Some(good) => (good.workflows.clone(), false),
            None => (Arc::new(checked.workflows), true),
        };
        let good = Good {
            texts,
            scripts: scripts.texts().clone(),
            workflows: workflows.clone(),
        };
        self.accepted.retain_unchanged(&good.texts, &good.scripts);
        if let Some(memory) = &mut self.memory {
            memory.write(&good.texts, &good.scripts, &self.accepted);
        }
        self.good = Some(good);
        Reloaded {
            workflows,
            errors: 0,
            diagnostics: checked.diagnostics,
            changed,
            touched: Vec::new(),
            stale: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

fn marks(files: impl Iterator<Item = PathBuf>) -> Signature {
    let marked = files.map(|path| {
        let mark = path.metadata().ok().map(|found| Mark {
            modified: found.modified().ok(),
            changed: (found.ctime(), found.ctime_nsec()),
            bytes: found.len(),
            inode: found.ino(),
        });
        (path, mark)
    });
    marked.collect()
}

fn differing(one: &Signature, other: &Signature) -> Vec<PathBuf> {
    let all: BTreeSet<&PathBuf> = one.keys().chain(other.keys()).collect();
    let differ = |path: &&PathBuf| one.get(*path) != other.get(*path);
    all.into_iter().filter(differ).cloned().collect()
}

/// As diagnostics call it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn with_errors(diagnostics: &[Diagnostic]) -> BTreeSet<String> {
    let errors = diagnostics.iter().filter(|found| found.is_error());
    errors.map(|found| found.at.file.clone()).collect()
}
