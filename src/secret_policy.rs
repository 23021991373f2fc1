//! Which secrets workflow files may name.
//!
//! Whoever may write workflow files could otherwise read every file and every variable of the server with `{ file: PATH }` and
//! `{ env: NAME }`. So a server takes such secrets only from the places that its setting `secrets` lists. Files of the server itself,
//! such as its database, its key and its tokens, are refused to everybody, whatever the setting says. Workflow files and scripts are
//! opened here as well: a link in the workflows folder could lead to such a file, whose text would then be shown.
//!
//! No sentence in here holds a value.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};

use crate::config::ServerConfig;
use crate::domain::limits::{SECRET_BYTES_MIN, can_be_masked, shorten};
use crate::domain::secret::SecretRef;
use crate::domain::task::Rules;
use crate::secrets::{from_environment, from_opened};

/// The variable with which systemd names the folder of `LoadCredential=`.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// The variable that holds a token for a Stepward server. It is never a secret of a workflow file.
pub const TOKEN_VARIABLE: &str = "STEPWARD_TOKEN";
/// The variable that names a file with such a token.
const TOKEN_FILE_VARIABLE: &str = "STEPWARD_TOKEN_FILE";

/// The places that secrets of workflow files may come from.
#[derive(Debug, Clone)]
pub struct SecretPolicy {
    /// `None`: every place that this process can read, except for what is refused.
    allowed: Option<AllowedPlaces>,
    /// Folders of the server itself. Nothing below them is a secret of a workflow file.
    refused_folders: Vec<PathBuf>,
    /// Files of the server itself that may be elsewhere.
    refused_files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default)]
struct AllowedPlaces {
    /// The setting `secrets.allow_files`: folders, and single files.
    files: Vec<PathBuf>,
    /// The folder of systemd's credentials, if this process has one.
    credentials: Option<PathBuf>,
    /// The setting `secrets.allow_env_prefix`. `None`: no variable is allowed.
    env_prefix: Option<String>,
}

/// Why a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFault {
    pub kind: SecretFaultKind,
    /// The fault and its remedy in one line, without the secret.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretFaultKind {
    /// The server's setting `secrets` does not list the place.
    NotAllowed,
    /// The place belongs to the server itself.
    Refused,
    /// The secret is too short to be masked.
    TooShort,
    /// There is no secret, or none that can be read.
    Unreadable,
}

impl fmt::Display for SecretFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Device and inode: the same for all names of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of_metadata(found: &Metadata) -> FileId {
        FileId {
            device: found.dev(),
            inode: found.ino(),
        }
    }

    /// The types of these fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    fn of_stat(found: &rustix::fs::Stat) -> FileId {
        FileId {
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
        }
    }

    /// Links are followed.
    fn of_path(path: &Path) -> Option<FileId> {
        let found = path.metadata().ok()?;
        Some(FileId::of_metadata(&found))
    }
}

/// The refused files and folders as they are at one moment: files may be replaced while the server runs.
#[derive(Debug, Default)]
struct RefusedIds {
    folders: Vec<FileId>,
    files: Vec<FileId>,
    /// The files below the refused folders that have a second name. Only searched for when a file with several names is opened.
    linked: OnceCell<HashSet<FileId>>,
}

/// Opens the workflow files and scripts of one workflows folder, which are shown to everybody who may look at workflows.
#[derive(Debug)]
pub struct SourceOpener {
    policy: SecretPolicy,
    refused: RefusedIds,
    /// The workflows folder. `None`: it cannot be read.
    folder: Option<FileId>,
}

/// A file that was opened, and where it really is after all links were followed.
#[derive(Debug)]
pub struct OpenedSource {
    pub file: File,
    pub place: SourcePlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourcePlace {
    InFolder,
    OutOfFolder,
    /// The file is one of the server itself.
    OfServer,
}

/// Why a file is not opened.
#[derive(Debug)]
pub enum OpenFault {
    Unreadable(io::Error),
    /// A folder, a device or a pipe.
    NotRegular,
    /// Another file took its place while it was opened.
    Replaced,
    NotAllowed,
    /// The file is one of `/proc`.
    ShowsProcesses,
}

impl From<io::Error> for OpenFault {
    fn from(error: io::Error) -> OpenFault {
        OpenFault::Unreadable(error)
    }
}

impl From<rustix::io::Errno> for OpenFault {
    fn from(error: rustix::io::Errno) -> OpenFault {
        OpenFault::Unreadable(error.into())
    }
}

impl SecretPolicy {
    /// Allows no secret at all.
    pub fn nothing() -> SecretPolicy {
        SecretPolicy {
            allowed: Some(AllowedPlaces::default()),
            refused_folders: Vec::new(),
            refused_files: Vec::new(),
        }
    }

    /// Allows everything that this process can read, and protects no file of a server.
    pub fn anything() -> SecretPolicy {
        SecretPolicy {
            allowed: None,
            ..SecretPolicy::nothing()
        }
    }

    /// The policy of `stepward server`: the places that its settings list, and the credentials that systemd gave to the process.
    pub fn of_server(config: &ServerConfig) -> SecretPolicy {
        let credentials = std::env::var_os(CREDENTIALS_DIRECTORY).map(PathBuf::from);
        let allowed = AllowedPlaces {
            files: config.secrets.allow_files.clone(),
            credentials: credentials.filter(|folder| folder.is_absolute()),
            env_prefix: config.secrets.allow_env_prefix.clone(),
        };
        SecretPolicy {
            allowed: Some(allowed),
            ..SecretPolicy::of_user(config)
        }
    }

    /// The policy of `stepward dev` and of `stepward run` without a server: the workflow files are the user's own, and so is what they may name.
    pub fn of_user(config: &ServerConfig) -> SecretPolicy {
        let folders = [
            Some(&config.data_dir),
            config.backup.dir.as_ref(),
            config
                .embedded_worker
                .as_ref()
                .map(|worker| &worker.data_dir),
        ];
        let token_file = std::env::var_os(TOKEN_FILE_VARIABLE).map(PathBuf::from);
        let files = [
            config.tls.key_file.clone(),
            config.auth.token_file.clone(),
            token_file,
        ];
        SecretPolicy {
            allowed: None,
            refused_folders: folders.into_iter().flatten().cloned().collect(),
            refused_files: files.into_iter().flatten().collect(),
        }
    }

    /// The secret itself. A task that version 0.1 had accepted (`Rules::V1`) may name every place, as it could in 0.1, except for
    /// those that are refused to everybody.
    pub fn resolve(&self, reference: &SecretRef, rules: Rules) -> Result<String, SecretFault> {
        let (place, value) = match reference {
            SecretRef::Env(name) => {
                self.check_variable(name, rules)?;
                let value = from_environment(name).map_err(unreadable)?;
                (variable_place(name), value)
            }
            SecretRef::File(path) => {
                let place = file_place(path);
                let opened = self.open(path, rules)?;
                let value = from_opened(&place, opened).map_err(unreadable)?;
                (place, value)
            }
        };
        if rules > Rules::V1 && !can_be_masked(&value) {
            let message = format!(
                "{place} holds a secret that is too short to be masked in logs: it needs a line of at least {SECRET_BYTES_MIN} bytes, \
                 without the blanks around it; use a longer secret"
            );
            return Err(fault(SecretFaultKind::TooShort, message));
        }
        Ok(value)
    }

    fn check_variable(&self, name: &str, rules: Rules) -> Result<(), SecretFault> {
        let place = variable_place(name);
        if name == TOKEN_VARIABLE {
            let message = format!(
                "{place} is never a secret of a workflow file: it holds a token of Stepward; use another variable"
            );
            return Err(fault(SecretFaultKind::Refused, message));
        }
        let Some(allowed) = self.allowed_under(rules) else {
            return Ok(());
        };
        let message = match &allowed.env_prefix {
            Some(prefix) if name.starts_with(prefix.as_str()) => return Ok(()),
            Some(prefix) => format!(
                "{place} is not allowed as a secret: its name does not begin with {prefix}; rename the variable to \
                 {prefix}{}, or change secrets.allow_env_prefix in the server's settings",
                limited(name)
            ),
            None => format!(
                "{place} is not allowed as a secret: secrets.allow_env_prefix is null in the server's settings, which allows no \
                 variable; set it to the beginning of the name, or use a file"
            ),
        };
        Err(fault(SecretFaultKind::NotAllowed, message))
    }

    /// `None`: there is no restriction.
    fn allowed_under(&self, rules: Rules) -> Option<&AllowedPlaces> {
        self.allowed.as_ref().filter(|_| rules > Rules::V1)
    }

    /// Opens the file if it may be a secret. Links are resolved first.
    fn open(&self, path: &str, rules: Rules) -> Result<File, SecretFault> {
        let place = file_place(path);
        let allowed = self.allowed_under(rules);
        let cannot_be_read =
            |error: io::Error| unreadable(format!("{place} cannot be read: {error}"));
        let real = match Path::new(path).canonicalize() {
            Ok(real) => real,
            // Outside of the allowed places the answer does not tell whether there is such a file.
            Err(error) => {
                return Err(match allowed {
                    Some(allowed) if !allowed.may_hold(Path::new(path)) => {
                        allowed.refusal(&place, path, None)
                    }
                    _ => cannot_be_read(error),
                });
            }
        };
        let allowed_ids = allowed.map(AllowedPlaces::ids);
        let opened = self.open_real(&real, &self.refused_ids(), None, allowed_ids.as_deref());
        match opened {
            Ok(opened) if opened.place == SourcePlace::OfServer => Err(belongs_to_server(&place)),
            Ok(opened) => Ok(opened.file),
            Err(OpenFault::Unreadable(error)) => Err(cannot_be_read(error)),
            Err(OpenFault::NotRegular) => Err(unreadable(format!("{place} is not a regular file"))),
            Err(OpenFault::Replaced) => {
                let message = format!("{place} was replaced while it was opened; try again");
                Err(unreadable(message))
            }
            Err(OpenFault::ShowsProcesses) => {
                let message = format!(
                    "{place} is never a secret of a workflow file: it is a file of /proc, which shows processes; name another file"
                );
                Err(fault(SecretFaultKind::Refused, message))
            }
            Err(OpenFault::NotAllowed) => {
                let allowed = allowed.expect("without a restriction every place is allowed");
                Err(allowed.refusal(&place, path, Some(&real)))
            }
        }
    }

    /// Prepares to open the workflow files and scripts of a workflows folder, which may itself be below a folder of the server.
    pub fn source_opener(&self, folder: &Path) -> SourceOpener {
        SourceOpener {
            policy: self.clone(),
            refused: self.refused_ids(),
            folder: FileId::of_path(folder),
        }
    }

    /// Opens a file by a path without links. The path is walked folder by folder without following any link, and the decision is made
    /// about the folders and the file that were really opened: nobody can exchange one of them between the check and the use.
    ///
    /// `folder` is the workflows folder: what is below it is not refused because a folder above it is. `allowed` are the places that
    /// the file may be in; `None`: every place.
    fn open_real(
        &self,
        real: &Path,
        refused: &RefusedIds,
        folder: Option<FileId>,
        allowed: Option<&[FileId]>,
    ) -> Result<OpenedSource, OpenFault> {
        let (parent, name) = match (real.parent(), real.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            _ => return Err(OpenFault::NotRegular),
        };
        let mut is_allowed = allowed.is_none();
        let mut place = SourcePlace::OutOfFolder;
        let mut at: Option<OwnedFd> = None;
        for component in parent.components() {
            let part = match component {
                Component::RootDir => OsStr::new("/"),
                Component::Normal(part) => part,
                _ => return Err(OpenFault::NotRegular),
            };
            let opened = open_folder(at.as_ref(), part)?;
            let id = FileId::of_stat(&fstat(&opened)?);
            if folder == Some(id) {
                place = SourcePlace::InFolder;
            } else if refused.folders.contains(&id) {
                place = SourcePlace::OfServer;
            }
            is_allowed |= allowed.is_some_and(|allowed| allowed.contains(&id));
            at = Some(opened);
        }
        let at = at.ok_or(OpenFault::NotRegular)?;
        // A file that is not allowed is not even opened: opening a device may have effects.
        let seen = FileId::of_stat(&statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?);
        if refused.files.contains(&seen) {
            place = SourcePlace::OfServer;
        }
        is_allowed |= allowed.is_some_and(|allowed| allowed.contains(&seen));
        if !is_allowed && place != SourcePlace::OfServer {
            return Err(OpenFault::NotAllowed);
        }
        // A FIFO would block until somebody writes, so it is opened without waiting and then refused.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let opened = openat(&at, name, flags | OFlags::CLOEXEC, Mode::empty());
        let file = File::from(opened?);
        let found = file.metadata()?;
        if FileId::of_metadata(&found) != seen {
            return Err(OpenFault::Replaced);
        }
        if !found.is_file() {
            return Err(OpenFault::NotRegular);
        }
        if is_of_proc(&file) {
            return Err(OpenFault::ShowsProcesses);
        }
        // A second name of a file in the data folder is not below the data folder, and is the same file.
        if found.nlink() > 1 {
            let linked = refused.linked.get_or_init(|| self.linked_files(folder));
            if linked.contains(&seen) {
                place = SourcePlace::OfServer;
            }
        }
        Ok(OpenedSource { file, place })
    }

    /// The refused folders, the refused files, and what the entries of the refused folders lead to: `secret.key` may be a link.
    fn refused_ids(&self) -> RefusedIds {
        let mut ids = RefusedIds::default();
        for folder in &self.refused_folders {
            ids.folders.extend(FileId::of_path(folder));
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let Ok(found) = entry.path().metadata() else {
                    continue;
                };
                let id = FileId::of_metadata(&found);
                match found.is_dir() {
                    true => ids.folders.push(id),
                    false => ids.files.push(id),
                }
            }
        }
        let files = self.refused_files.iter();
        ids.files
            .extend(files.filter_map(|file| FileId::of_path(file)));
        ids
    }

    /// The files below the refused folders that have several names, without those in the workflows folder `except`.
    fn linked_files(&self, except: Option<FileId>) -> HashSet<FileId> {
        let mut linked = HashSet::new();
        let mut folders = self.refused_folders.clone();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                // Of the entry itself: a link does not lead out of the folder here.
                let Ok(found) = entry.metadata() else {
                    continue;
                };
                let id = FileId::of_metadata(&found);
                if found.is_dir() && Some(id) != except {
                    folders.push(entry.path());
                } else if found.is_file() && found.nlink() > 1 {
                    linked.insert(id);
                }
            }
        }
        linked
    }
}

impl SourceOpener {
    /// Opens a workflow file or a script. The caller decides what to do with a file that is not in the folder, and must not show
    /// anything of its text.
    pub fn open(&self, path: &Path) -> Result<OpenedSource, OpenFault> {
        let real = path.canonicalize()?;
        (self.policy).open_real(&real, &self.refused, self.folder, None)
    }
}

impl AllowedPlaces {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().chain(&self.credentials)
    }

    fn ids(&self) -> Vec<FileId> {
        self.paths()
            .filter_map(|path| FileId::of_path(path))
            .collect()
    }

    /// Whether a file that cannot be found would be in an allowed place.
    fn may_hold(&self, path: &Path) -> bool {
        let Ok(path) = std::path::absolute(path) else {
            return false;
        };
        // The allowed folder itself may not be there yet.
        if self.has_name(&path) {
            return true;
        }
        let real = path.ancestors().find_map(|at| at.canonicalize().ok());
        let ids = self.ids();
        real.is_some_and(|real| {
            let mut folders = real.ancestors().filter_map(FileId::of_path);
            folders.any(|id| ids.contains(&id))
        })
    }

    /// Whether the path is in an allowed place as it is written, wherever links lead.
    fn has_name(&self, path: &Path) -> bool {
        let is_plain = !path.components().any(|part| part == Component::ParentDir);
        is_plain && self.paths().any(|allowed| path.starts_with(allowed))
    }

    /// `real`: the path after all links were followed, if there is such a file.
    fn refusal(&self, place: &str, path: &str, real: Option<&Path>) -> SecretFault {
        // The setting takes whole paths alone.
        let whole = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
        let listed: Vec<String> = self
            .files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let places = listed.join(" or ");
        let shown = |path: &Path| limited(&path.display().to_string()).to_string();
        let why = match (real, listed.first()) {
            (_, None) => format!(
                "secrets.allow_files is empty in the server's settings; add {} to it",
                shown(&whole)
            ),
            // Of an allowed place alone the answer tells what is there.
            (Some(real), Some(_)) if self.has_name(&whole) => format!(
                "it is a link to {0}, which is not below {places}; put the file itself there, or add {0} to secrets.allow_files in the \
                 server's settings",
                shown(real)
            ),
            (_, Some(first)) => format!(
                "its path, after symbolic links are followed, is not below {places}; move it to {first}, or add {} to \
                 secrets.allow_files in the server's settings",
                shown(&whole)
            ),
        };
        let message = format!("{place} is not allowed as a secret: {why}");
        fault(SecretFaultKind::NotAllowed, message)
    }
}

/// Opens a folder for no more than finding what is in it. `None`: the path starts here.
fn open_folder(parent: Option<&OwnedFd>, name: &OsStr) -> io::Result<OwnedFd> {
    // Where there is no such thing, the folder has to be readable.
    #[cfg(target_os = "linux")]
    let search = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let search = OFlags::RDONLY;
    let flags = search | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = parent.map_or(CWD, AsFd::as_fd);
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Whether the file is made up by the kernel to show a process, such as its environment.
#[cfg(target_os = "linux")]
fn is_of_proc(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_of_proc(_: &File) -> bool {
    false
}

fn fault(kind: SecretFaultKind, message: String) -> SecretFault {
    SecretFault { kind, message }
}

fn unreadable(message: String) -> SecretFault {
    fault(SecretFaultKind::Unreadable, message)
}

fn belongs_to_server(place: &str) -> SecretFault {
    let message = format!(
        "{place} is never a secret of a workflow file: it belongs to the server itself (its data folder, its backups, its TLS key \
         or a token); name another file"
    );
    fault(SecretFaultKind::Refused, message)
}

fn variable_place(name: &str) -> String {
    format!("the variable {} of the server's environment", shorten(name))
}

fn file_place(path: &str) -> String {
    format!("the file {}", limited(path))
}

/// A name of a workflow file as advice repeats it.
fn limited(name: &str) -> &str {
    const SHOWN_CHARS_MAX: usize = 200;
    match name.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const VALUE: &str = "s3cret-value";

    /// A server's files in one folder: `allowed` is the allowed folder, `data` the data folder.
    struct Files {
        folder: tempfile::TempDir,
        config: ServerConfig,
    }

    impl Files {
        fn new() -> Files {
            let folder = tempfile::tempdir().unwrap();
            // Temporary folders may themselves be reached over a link.
            let root = folder.path().canonicalize().unwrap();
            for name in ["allowed/inner", "allowed-old", "data/logs/1", "elsewhere"] {
                fs::create_dir_all(root.join(name)).unwrap();
            }
            for name in [
                "allowed/key",
                "allowed/inner/key",
                "allowed-old/key",
                "data/secret.key",
                "data/logs/1/log",
                "elsewhere/key",
                "elsewhere/tls.key",
                "elsewhere/token",
            ] {
                fs::write(root.join(name), format!("{VALUE}\n")).unwrap();
            }
            let mut config = ServerConfig {
                data_dir: root.join("data"),
                ..ServerConfig::default()
            };
            config.secrets.allow_files = vec![root.join("allowed")];
            config.tls.key_file = Some(root.join("elsewhere/tls.key"));
            config.auth.token_file = Some(root.join("elsewhere/token"));
            Files { folder, config }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(name)
        }

        fn reference(&self, name: &str) -> SecretRef {
            SecretRef::File(self.path(name).display().to_string())
        }

        fn resolve(&self, name: &str, rules: Rules) -> Result<String, SecretFault> {
            SecretPolicy::of_server(&self.config).resolve(&self.reference(name), rules)
        }

        #[track_caller]
        fn assert_fault(&self, name: &str, rules: Rules, kind: SecretFaultKind) -> String {
            let fault = self.resolve(name, rules).unwrap_err();
            assert_eq!(fault.kind, kind, "{name}: {fault}");
            assert!(!fault.message.contains(VALUE), "{fault}");
            fault.message
        }
    }

    #[test]
    fn files_come_from_the_allowed_folder_alone() {
        let files = Files::new();
        for name in [
            "allowed/key",
            "allowed/inner/key",
            "allowed/inner/../key",
            "elsewhere/../allowed/key",
        ] {
            assert_eq!(
                files.resolve(name, Rules::V2).as_deref(),
                Ok(VALUE),
                "{name}"
            );
        }
        for name in [
            "elsewhere/key",
            "allowed-old/key",
            "allowed/../elsewhere/key",
            "elsewhere/nothing",
            "allowed/../elsewhere/nothing",
        ] {
            let message = files.assert_fault(name, Rules::V2, SecretFaultKind::NotAllowed);
            assert!(message.contains("secrets.allow_files"), "{message}");
        }
        // What is missing in an allowed place is missing, and no more.
        for name in ["allowed/nothing", "allowed/nothing/more"] {
            files.assert_fault(name, Rules::V2, SecretFaultKind::Unreadable);
        }
        // A task of 0.1 reads what it could read in 0.1.
        let former = files.resolve("elsewhere/key", Rules::V1);
        assert_eq!(former.as_deref(), Ok(VALUE));
    }

    #[test]
    fn links_are_followed_before_the_place_is_judged() {
        let files = Files::new();
        symlink(files.path("elsewhere/key"), files.path("allowed/out")).unwrap();
        symlink(files.path("elsewhere"), files.path("allowed/folder")).unwrap();
        symlink("inner/key", files.path("allowed/in")).unwrap();
        symlink(files.path("allowed"), files.path("way-in")).unwrap();
        symlink("loop", files.path("allowed/loop")).unwrap();
        for name in ["allowed/out", "allowed/folder/key"] {
            let message = files.assert_fault(name, Rules::V2, SecretFaultKind::NotAllowed);
            let told = format!("it is a link to {}", files.path("elsewhere/key").display());
            assert!(message.contains(&told), "{message}");
        }
        for name in ["allowed/in", "way-in/key"] {
            assert_eq!(
                files.resolve(name, Rules::V2).as_deref(),
                Ok(VALUE),
                "{name}"
            );
        }
        files.assert_fault("allowed/loop", Rules::V2, SecretFaultKind::Unreadable);
    }

    #[test]
    fn a_listed_file_is_allowed_and_its_neighbours_are_not() {
        let mut files = Files::new();
        files.config.secrets.allow_files = vec![files.path("elsewhere/key")];
        assert_eq!(
            files.resolve("elsewhere/key", Rules::V2).as_deref(),
            Ok(VALUE)
        );
        files.assert_fault("allowed/key", Rules::V2, SecretFaultKind::NotAllowed);
        files.config.secrets.allow_files = Vec::new();
        let message = files.assert_fault("elsewhere/key", Rules::V2, SecretFaultKind::NotAllowed);
        assert!(
            message.contains("secrets.allow_files is empty"),
            "{message}"
        );
    }

    #[test]
    fn files_of_the_server_are_refused_to_everybody_under_every_name() {
        let mut files = Files::new();
        fs::hard_link(files.path("data/secret.key"), files.path("allowed/hard")).unwrap();
        fs::hard_link(files.path("data/logs/1/log"), files.path("allowed/log")).unwrap();
        fs::hard_link(files.path("elsewhere/tls.key"), files.path("allowed/tls")).unwrap();
        fs::hard_link(files.path("elsewhere/token"), files.path("allowed/token")).unwrap();
        symlink(files.path("data"), files.path("allowed/data")).unwrap();
        symlink("../elsewhere/tls.key", files.path("allowed/tls-link")).unwrap();
        // The key may be a link to a file that the data folder does not hold.
        fs::write(files.path("allowed/kept-key"), VALUE).unwrap();
        symlink(
            files.path("allowed/kept-key"),
            files.path("data/admin.token"),
        )
        .unwrap();
        // As wide as it can be: it is no help.
        files.config.secrets.allow_files.push(PathBuf::from("/"));
        for rules in [Rules::V1, Rules::V2] {
            for name in [
                "data/secret.key",
                "data/logs/1/log",
                "data/../data/secret.key",
                "allowed/hard",
                "allowed/log",
                "allowed/tls",
                "allowed/token",
                "allowed/tls-link",
                "allowed/data/secret.key",
                "allowed/data/logs/1/log",
                "allowed/kept-key",
                "elsewhere/tls.key",
                "elsewhere/token",
            ] {
                let message = files.assert_fault(name, rules, SecretFaultKind::Refused);
                assert!(message.contains("belongs to the server"), "{message}");
            }
        }
        let user = SecretPolicy::of_user(&files.config);
        let fault = user.resolve(&files.reference("data/secret.key"), Rules::V2);
        assert_eq!(fault.unwrap_err().kind, SecretFaultKind::Refused);
        let own = user.resolve(&files.reference("elsewhere/key"), Rules::V2);
        assert_eq!(own.as_deref(), Ok(VALUE));
        // A file with two names of which none is the server's is a file like any other.
        fs::hard_link(files.path("elsewhere/key"), files.path("allowed/second")).unwrap();
        let second = files.resolve("allowed/second", Rules::V2);
        assert_eq!(second.as_deref(), Ok(VALUE));
    }

    #[test]
    fn sources_are_told_from_files_of_the_server() {
        let files = Files::new();
        let place_of = |folder: &str, name: &str| {
            let policy = SecretPolicy::of_server(&files.config);
            let opened = policy
                .source_opener(&files.path(folder))
                .open(&files.path(name));
            opened.map(|opened| opened.place)
        };
        // The workflows folder has the data folder in it, and the other way round.
        for folder in ["", "elsewhere", "data/workflows"] {
            let path = |name: &str| files.path(folder).join(name);
            fs::create_dir_all(path("inner")).unwrap();
            fs::write(path("inner/a.yaml"), "").unwrap();
            symlink("inner/a.yaml", path("in.yaml")).unwrap();
            symlink(files.path("allowed/key"), path("out.yaml")).unwrap();
            symlink(files.path("data/secret.key"), path("server.yaml")).unwrap();
            fs::hard_link(files.path("elsewhere/token"), path("hard.yaml")).unwrap();
            fs::hard_link(files.path("data/logs/1/log"), path("log.yaml")).unwrap();
            fs::hard_link(path("inner/a.yaml"), path("twice.yaml")).unwrap();
            symlink("/proc/self/environ", path("proc.yaml")).unwrap();
            let place = |name: &str| place_of(folder, path(name).to_str().unwrap()).unwrap();
            for name in ["inner/a.yaml", "in.yaml", "twice.yaml"] {
                assert_eq!(place(name), SourcePlace::InFolder, "{folder} {name}");
            }
            for name in ["server.yaml", "hard.yaml", "log.yaml"] {
                assert_eq!(place(name), SourcePlace::OfServer, "{folder} {name}");
            }
            let out = match folder {
                "" => SourcePlace::InFolder,
                _ => SourcePlace::OutOfFolder,
            };
            assert_eq!(place("out.yaml"), out, "{folder}");
            let refused = place_of(folder, path("proc.yaml").to_str().unwrap()).unwrap_err();
            assert!(matches!(refused, OpenFault::ShowsProcesses), "{refused:?}");
        }
    }

    #[test]
    fn a_file_that_was_replaced_is_judged_anew() {
        let files = Files::new();
        assert!(files.resolve("allowed/key", Rules::V2).is_ok());
        fs::remove_file(files.path("allowed/key")).unwrap();
        symlink(files.path("elsewhere/key"), files.path("allowed/key")).unwrap();
        files.assert_fault("allowed/key", Rules::V2, SecretFaultKind::NotAllowed);
    }

    /// Whatever somebody puts into the path at any moment, what comes out is from the allowed folder.
    #[test]
    fn a_folder_that_is_exchanged_all_the_time_lets_nothing_else_in() {
        let files = Files::new();
        fs::write(files.path("elsewhere/key"), "not-for-workflows").unwrap();
        fs::create_dir(files.path("allowed/moving")).unwrap();
        fs::write(files.path("allowed/moving/key"), VALUE).unwrap();
        symlink(files.path("elsewhere"), files.path("allowed/link")).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                let (one, other) = (files.path("allowed/moving"), files.path("allowed/link"));
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    rustix::fs::renameat_with(CWD, &one, CWD, &other, swap).unwrap();
                }
            });
            let policy = SecretPolicy::of_server(&files.config);
            let reference = files.reference("allowed/moving/key");
            let found: Vec<_> = (0..2_000)
                .map(|_| policy.resolve(&reference, Rules::V2))
                .collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            for value in found.into_iter().flatten() {
                assert_eq!(value, VALUE);
            }
        });
    }

    #[test]
    fn what_shows_processes_and_what_is_no_file_is_refused() {
        let mut files = Files::new();
        files.config.secrets.allow_files = vec![PathBuf::from("/")];
        let policy = SecretPolicy::of_server(&files.config);
        for (path, kind) in [
            ("/proc/self/environ", SecretFaultKind::Refused),
            ("/proc/self/status", SecretFaultKind::Refused),
            ("/dev/zero", SecretFaultKind::Unreadable),
            ("/", SecretFaultKind::Unreadable),
            ("/etc", SecretFaultKind::Unreadable),
        ] {
            for rules in [Rules::V1, Rules::V2] {
                let reference = SecretRef::File(path.to_string());
                let fault = policy.resolve(&reference, rules).unwrap_err();
                assert_eq!(fault.kind, kind, "{path}: {fault}");
            }
        }
        let pipe = files.path("allowed/pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        files.assert_fault("allowed/pipe", Rules::V2, SecretFaultKind::Unreadable);
    }

    #[test]
    fn variables_need_the_prefix() {
        let mut files = Files::new();
        let resolve = |files: &Files, name: &str, rules| {
            let reference = SecretRef::Env(name.to_string());
            SecretPolicy::of_server(&files.config).resolve(&reference, rules)
        };
        let path = std::env::var("PATH").unwrap();
        let fault = resolve(&files, "PATH", Rules::V2).unwrap_err();
        assert_eq!(fault.kind, SecretFaultKind::NotAllowed);
        assert!(fault.message.contains("STEPWARD_SECRET_PATH"), "{fault}");
        assert!(
            fault.message.contains("secrets.allow_env_prefix"),
            "{fault}"
        );
        assert!(!fault.message.contains(&path), "{fault}");
        assert_eq!(resolve(&files, "PATH", Rules::V1), Ok(path.clone()));
        let fault = resolve(&files, "STEPWARD_SECRET_NEVER_SET", Rules::V2).unwrap_err();
        assert_eq!(fault.kind, SecretFaultKind::Unreadable);

        files.config.secrets.allow_env_prefix = Some("PA".to_string());
        assert_eq!(resolve(&files, "PATH", Rules::V2), Ok(path));
        files.config.secrets.allow_env_prefix = None;
        let fault = resolve(&files, "PATH", Rules::V2).unwrap_err();
        assert!(fault.message.contains("is null"), "{fault}");

        files.config.secrets.allow_env_prefix = Some("STEPWARD_".to_string());
        for rules in [Rules::V1, Rules::V2] {
            let fault = resolve(&files, "STEPWARD_TOKEN", rules).unwrap_err();
            assert_eq!(fault.kind, SecretFaultKind::Refused, "{fault}");
        }
    }

    #[test]
    fn a_secret_that_cannot_be_masked_is_refused_unless_0_1_had_accepted_it() {
        let files = Files::new();
        for (text, is_long_enough) in [
            ("12345", false),
            ("  1234  \n", false),
            ("12345\n", false),
            ("123456\n", true),
            ("ääää", true),
            ("abc\ndef\nghi", false),
            ("abc\r\n  defgh  \nghi", false),
            ("abc\n  defghi", true),
        ] {
            fs::write(files.path("allowed/key"), text).unwrap();
            match is_long_enough {
                true => assert!(files.resolve("allowed/key", Rules::V2).is_ok(), "{text}"),
                false => {
                    let kind = SecretFaultKind::TooShort;
                    let message = files.assert_fault("allowed/key", Rules::V2, kind);
                    assert!(!message.contains(text.trim()), "{message}");
                }
            }
            assert!(files.resolve("allowed/key", Rules::V1).is_ok(), "{text}");
        }
    }

    #[test]
    fn without_a_policy_nothing_is_resolved() {
        let files = Files::new();
        let nothing = SecretPolicy::nothing();
        let fault = nothing.resolve(&files.reference("allowed/key"), Rules::V2);
        assert_eq!(fault.unwrap_err().kind, SecretFaultKind::NotAllowed);
        let fault = nothing.resolve(&SecretRef::Env("PATH".to_string()), Rules::V2);
        assert_eq!(fault.unwrap_err().kind, SecretFaultKind::NotAllowed);
    }
}
