//! From a folder to texts: which files there are, and why one cannot be read.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostic, Severity};
use super::memory::AcceptedTexts;
use super::scripts::Scripts;
use super::source::SourceFile;
use super::{CheckOptions, Checked, check_with};
use crate::secret_policy::{OpenFault, SecretPolicy, SourceOpener, SourcePlace};

/// A larger file was not written by hand; 10,000 steps fit.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
pub const FILES_MAX: usize = 1_000;
/// Folders within folders.
const DEPTH_MAX: usize = 16;

/// Every `*.yaml` and `*.yml` below the folder, checked together.
pub fn load(folder: &Path) -> Checked {
    load_accepting(folder, AcceptedTexts::default())
}

/// Checks every workflow file below the folder, as a server does whose data folder knows which texts 0.1 had accepted.
pub fn load_accepting(folder: &Path, accepted_by_0_1: AcceptedTexts) -> Checked {
    let mut faults = Vec::new();
    let paths = find(folder, &mut faults);
    let options = CheckOptions {
        accepted_by_0_1,
        ..CheckOptions::default()
    };
    let mut read = read_below(folder, &paths, &options);
    read.faults.splice(..0, faults);
    checked(&read, &mut Scripts::new(Some(folder)), &options)
}

/// Files and folders that somebody named; `file:` is looked for in the folder. `root`: the folder, whose other files are known as well.
pub fn load_files(
    paths: &[PathBuf],
    folder: &Path,
    root: Option<&Path>,
    options: &CheckOptions,
) -> Checked {
    let mut read = ReadFiles::default();
    // One file has many names.
    let mut seen = HashSet::new();
    for path in paths {
        if path.is_dir() {
            let mut found = find(path, &mut read.faults);
            found.retain(|path| seen.insert(real(path)));
            let root = root.filter(|root| real(path).starts_with(real(root)));
            read.append(read_below(root.unwrap_or(path), &found, options));
        } else if seen.insert(real(path)) {
            // Whoever names a file may name a link.
            read.add(path, read_named(path));
        }
    }
    match root {
        Some(root) => check_among(read, root, options),
        None => checked(&read, &mut Scripts::new(Some(folder)), options),
    }
}

/// What is wrong with these, given all the others of the folder.
pub fn check_among(asked: ReadFiles, root: &Path, options: &CheckOptions) -> Checked {
    let named: HashSet<PathBuf> = asked.files.iter().map(|file| real(&file.path)).collect();
    let shown = asked
        .files
        .iter()
        .map(|file| file.path.display().to_string());
    let mut shown: HashSet<String> = shown.collect();
    let count = asked.files.len() + asked.faults.len();
    let mut faults = asked.faults;
    let mut others = find(root, &mut faults);
    shown.extend(faults.iter().map(|fault| fault.at.file.clone()));
    others.retain(|path| !named.contains(&real(path)));
    let mut all = read_below(root, &others, options);
    all.faults.splice(..0, faults);
    // Behind the others: of two with one name, the one that was asked about is told.
    all.files.extend(asked.files);
    all.warnings.extend(asked.warnings);
    let mut checked = checked(&all, &mut Scripts::new(Some(root)), options);
    let diagnostics = &mut checked.diagnostics;
    diagnostics.retain(|found| shown.contains(&found.at.file));
    sort(diagnostics);
    checked.unshown.retain(|file, _| shown.contains(file));
    checked.files = count;
    checked
}

/// The same for all names of a file.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// What was read, with what could not be.
pub fn checked(read: &ReadFiles, scripts: &mut Scripts, options: &CheckOptions) -> Checked {
    let all_read = read.faults.is_empty();
    let mut checked = check_with(&read.files, all_read, scripts, options);
    checked.files += read.faults.len();
    if !all_read {
        checked.workflows = super::Workflows::default();
    }
    if !all_read || !read.warnings.is_empty() {
        let found = read.faults.iter().chain(&read.warnings);
        checked.diagnostics.extend(found.cloned());
        sort(&mut checked.diagnostics);
    }
    checked
}

/// By file and line.
pub fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by(|a, b| (&a.at.file, a.at.line).cmp(&(&b.at.file, b.at.line)));
}

/// What there is in a folder, as far as one can see.
#[derive(Debug, Default)]
pub struct Found {
    /// Sorted by path.
    pub files: Vec<PathBuf>,
    /// Folders that could not be read, or not to their end.
    pub unseen: Vec<PathBuf>,
}

impl Found {
    /// Whether the file may be there though it was not found.
    pub fn hides(&self, file: &Path) -> bool {
        let is_below = self.unseen.iter().any(|folder| file.starts_with(folder));
        is_below
            && self
                .files
                .binary_search_by(|found| found.as_path().cmp(file))
                .is_err()
    }
}

/// Sorted by path.
pub fn find(folder: &Path, faults: &mut Vec<Diagnostic>) -> Vec<PathBuf> {
    find_preferring(folder, |_| false, faults).files
}

/// If there are too many, those that are known are the last to be dropped.
pub fn find_preferring(
    folder: &Path,
    is_known: impl Fn(&Path) -> bool,
    faults: &mut Vec<Diagnostic>,
) -> Found {
    let mut found = Found::default();
    find_below(folder, 0, &mut found, faults);
    let files = &mut found.files;
    files.sort();
    if files.len() > FILES_MAX {
        let message = format!(
            "{} workflow files, at most {FILES_MAX} are read",
            files.len()
        );
        let help = "put several tasks into one file";
        faults.push(Diagnostic::of_file(
            "E007",
            &folder.display().to_string(),
            message,
            help,
        ));
        files.sort_by_key(|file| !is_known(file));
        files.truncate(FILES_MAX);
        files.sort();
    }
    found
}

fn find_below(folder: &Path, depth: usize, found: &mut Found, faults: &mut Vec<Diagnostic>) {
    let mut unreadable = |found: &mut Found, why: String| {
        found.unseen.push(folder.to_path_buf());
        faults.push(Diagnostic::of_file(
            "E007",
            &folder.display().to_string(),
            format!("the folder cannot be read: {why}"),
            "name a folder of workflow files",
        ));
    };
    if depth > DEPTH_MAX {
        let why = format!("folders are nested more than {DEPTH_MAX} deep");
        return unreadable(found, why);
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return unreadable(found, error.to_string()),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                unreadable(found, error.to_string());
                continue;
            }
        };
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let extension = path.extension().and_then(|extension| extension.to_str());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !hidden => folders.push(path),
            Ok(kind) if !kind.is_dir() && matches!(extension, Some("yaml" | "yml")) && !hidden => {
                found.files.push(path);
            }
            _ => {}
        }
    }
    for folder in folders {
        find_below(&folder, depth + 1, found, faults);
    }
}

/// The files that could be read, and why the others could not.
#[derive(Debug, Default)]
pub struct ReadFiles {
    pub files: Vec<SourceFile>,
    pub faults: Vec<Diagnostic>,
    /// About files that are read only because version 0.1 had accepted their text.
    warnings: Vec<Diagnostic>,
}

/// Why a file is not read, and what to do.
type Unread = (String, &'static str);

impl From<Vec<SourceFile>> for ReadFiles {
    fn from(files: Vec<SourceFile>) -> ReadFiles {
        ReadFiles {
            files,
            ..ReadFiles::default()
        }
    }
}

impl ReadFiles {
    fn add(&mut self, path: &Path, text: Result<String, Unread>) {
        match text {
            Ok(text) => self.files.push(SourceFile {
                path: path.to_path_buf(),
                text,
            }),
            Err(unread) => self.faults.push(of_path(path, unread)),
        }
    }

    fn append(&mut self, other: ReadFiles) {
        self.files.extend(other.files);
        self.faults.extend(other.faults);
        self.warnings.extend(other.warnings);
    }
}

/// Reads files that were found below a folder. Whoever can put files there may not be allowed to read what links there lead to, and
/// the text of a workflow file is shown to everybody who may look at workflows. So a file that is not in the folder, or is one of the
/// server itself, is refused, and nothing of its text is shown. A text that version 0.1 had accepted is no secret: it still loads.
pub fn read_below(folder: &Path, paths: &[PathBuf], options: &CheckOptions) -> ReadFiles {
    let opener = match &options.secret_policy {
        Some(policy) => policy.source_opener(folder),
        None => SecretPolicy::anything().source_opener(folder),
    };
    let mut read = ReadFiles::default();
    for path in paths {
        match read_by(&opener, path) {
            Ok((text, SourcePlace::InFolder)) => read.add(path, Ok(text)),
            Ok((text, place)) => {
                let path = path.clone();
                let file = SourceFile { path, text };
                let mut found = of_path(&file.path, misplaced(place));
                if options.accepted_by_0_1.has_file(&file) {
                    found.severity = Severity::Warning;
                    found.message =
                        "this is a link that leads out of the workflows folder".to_string();
                    found.help.push(TOLERATED.to_string());
                    read.warnings.push(found);
                    read.files.push(file);
                } else {
                    read.faults.push(found);
                }
            }
            Err(unread) => read.add(path, Err(unread)),
        }
    }
    read
}

const TOLERATED: &str = "this file still loads because version 0.1 had accepted it; once the file changes this is an error";

fn misplaced(place: SourcePlace) -> Unread {
    let (message, help) = match place {
        SourcePlace::OfServer => (
            "this file belongs to the server itself (its data folder, its backups, its TLS key or a token), so it is not read",
            "remove it; workflow files do not belong into folders of the server",
        ),
        SourcePlace::InFolder | SourcePlace::OutOfFolder => (
            "this is a link that leads out of the workflows folder, so it is not read",
            "put the file itself into the folder; links may lead to other files of the folder",
        ),
    };
    (message.to_string(), help)
}

fn of_path(path: &Path, (message, help): Unread) -> Diagnostic {
    Diagnostic::of_file("E007", &path.display().to_string(), message, help)
}

fn cannot_be_read(error: std::io::Error) -> Unread {
    (
        format!("the file cannot be read: {error}"),
        "check its path and its permissions",
    )
}

const NO_FILE: (&str, &str) = ("this is not a file", "name a file or a folder");

fn read_by(opener: &SourceOpener, path: &Path) -> Result<(String, SourcePlace), Unread> {
    let opened = opener.open(path).map_err(|fault| match fault {
        OpenFault::Unreadable(error) => cannot_be_read(error),
        OpenFault::NotRegular => (NO_FILE.0.to_string(), NO_FILE.1),
        OpenFault::Replaced => (
            "the file was replaced while it was opened".to_string(),
            "try again",
        ),
        OpenFault::NotAllowed | OpenFault::ShowsProcesses => misplaced(SourcePlace::OutOfFolder),
    })?;
    match read_file(opened.file) {
        Ok(text) => Ok((text, opened.place)),
        // What is wrong with a file that nobody may see is told to nobody.
        Err(_) if opened.place != SourcePlace::InFolder => Err(misplaced(opened.place)),
        Err(unread) => Err(unread),
    }
}

fn read_named(path: &Path) -> Result<String, Unread> {
    // To open a pipe would wait for whoever writes to it.
    if !path.metadata().map_err(cannot_be_read)?.is_file() {
        return Err((NO_FILE.0.to_string(), NO_FILE.1));
    }
    read_file(File::open(path).map_err(cannot_be_read)?)
}

/// What is larger than allowed is not read at all.
fn read_file(file: File) -> Result<String, Unread> {
    let found = file.metadata().map_err(cannot_be_read)?;
    if !found.is_file() {
        return Err((NO_FILE.0.to_string(), NO_FILE.1));
    }
    let bytes = found.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("the file is {bytes} bytes long, at most {FILE_BYTES_MAX} are read");
        return Err((
            message,
            "split it; what is not a workflow does not belong into this folder",
        ));
    }
    let mut bytes = Vec::new();
    // It may have grown meanwhile. One byte more than is allowed is enough to know.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(cannot_be_read)?;
    text(bytes)
}

/// The text of a file that came from elsewhere than the disk.
pub fn text_of(bytes: Vec<u8>, name: &Path) -> Result<String, Box<Diagnostic>> {
    text(bytes).map_err(|unread| Box::new(of_path(name, unread)))
}

/// UTF-8, of bounded length.
fn text(bytes: Vec<u8>) -> Result<String, Unread> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        return Err((message, "split it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = memchr::memchr_iter(b'\n', &error.as_bytes()[..at]).count() + 1;
        (
            format!("line {line} is not UTF-8"),
            "save the file as UTF-8",
        )
    })
}
