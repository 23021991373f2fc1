//! From a folder to texts: which files there are, and why one cannot be read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;
use super::memory::AcceptedTexts;
use super::scripts::Scripts;
use super::source::SourceFile;
use super::{CheckOptions, Checked, check_with};

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
    let (files, unread) = read_all(&paths);
    faults.extend(unread);
    let mut scripts = Scripts::new(Some(folder));
    let options = CheckOptions {
        accepted_by_0_1,
        ..CheckOptions::default()
    };
    checked(&files, faults, &mut scripts, &options)
}

/// Files and folders that somebody named; `file:` is looked for in the folder. `root`: the folder, whose other files are known as well.
pub fn load_files(
    paths: &[PathBuf],
    folder: &Path,
    root: Option<&Path>,
    options: &CheckOptions,
) -> Checked {
    let mut faults = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => found.extend(find(path, &mut faults)),
            false => found.push(path.clone()),
        }
    }
    // One file has many names.
    let mut seen = HashSet::new();
    found.retain(|path| seen.insert(real(path)));
    let (files, unread) = read_all(&found);
    faults.extend(unread);
    match root {
        Some(root) => check_among(files, faults, root, options),
        None => checked(&files, faults, &mut Scripts::new(Some(folder)), options),
    }
}

/// What is wrong with these, given all the others of the folder.
pub fn check_among(
    files: Vec<SourceFile>,
    faults: Vec<Diagnostic>,
    root: &Path,
    options: &CheckOptions,
) -> Checked {
    let named: HashSet<PathBuf> = files.iter().map(|file| real(&file.path)).collect();
    let shown = files.iter().map(|file| file.path.display().to_string());
    let mut shown: HashSet<String> = shown.collect();
    let count = files.len() + faults.len();
    let mut all_faults = faults;
    let mut others = find(root, &mut all_faults);
    shown.extend(all_faults.iter().map(|fault| fault.at.file.clone()));
    others.retain(|path| !named.contains(&real(path)));
    let (mut all, unread) = read_all(&others);
    all_faults.extend(unread);
    // Behind the others: of two with one name, the one that was asked about is told.
    all.extend(files);
    let mut checked = checked(&all, all_faults, &mut Scripts::new(Some(root)), options);
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
pub fn checked(
    files: &[SourceFile],
    faults: Vec<Diagnostic>,
    scripts: &mut Scripts,
    options: &CheckOptions,
) -> Checked {
    let mut checked = check_with(files, faults.is_empty(), scripts, options);
    checked.files += faults.len();
    if !faults.is_empty() {
        checked.workflows = super::Workflows::default();
        checked.diagnostics.extend(faults);
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

/// Those that can be read, and why the others cannot.
pub fn read_all(paths: &[PathBuf]) -> (Vec<SourceFile>, Vec<Diagnostic>) {
    let mut files = Vec::new();
    let mut faults = Vec::new();
    for path in paths {
        match read(path) {
            Ok(text) => files.push(SourceFile {
                path: path.clone(),
                text,
            }),
            Err((message, help)) => {
                let name = path.display().to_string();
                faults.push(Diagnostic::of_file("E007", &name, message, help));
            }
        }
    }
    (files, faults)
}

/// What is larger than allowed is not read at all.
fn read(path: &Path) -> Result<String, (String, &'static str)> {
    let why = |error: std::io::Error| {
        (
            format!("the file cannot be read: {error}"),
            "check its path and its permissions",
        )
    };
    let found = std::fs::metadata(path).map_err(why)?;
    if !found.is_file() {
        return Err(("this is not a file".to_string(), "name a file or a folder"));
    }
    let bytes = found.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("the file is {bytes} bytes long, at most {FILE_BYTES_MAX} are read");
        return Err((
            message,
            "split it; what is not a workflow does not belong into this folder",
        ));
    }
    let bytes = std::fs::read(path).map_err(why)?;
    text(bytes)
}

/// The text of a file that came from elsewhere than the disk.
pub fn text_of(bytes: Vec<u8>, name: &Path) -> Result<String, Box<Diagnostic>> {
    text(bytes).map_err(|(message, help)| {
        let name = name.display().to_string();
        Box::new(Diagnostic::of_file("E007", &name, message, help))
    })
}

/// UTF-8, of bounded length.
fn text(bytes: Vec<u8>) -> Result<String, (String, &'static str)> {
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
