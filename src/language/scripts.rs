//! Scripts in files of their own: inside the workflows folder, and nowhere else.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::secret_policy::{OpenFault, SecretPolicy, SourceOpener, SourcePlace};

pub const SCRIPT_FILE_BYTES_MAX: u64 = 1 << 20;

const OUTSIDE: &str = "is outside the workflows folder";

/// Reads the files that `file:` names, or gives back what was read before.
#[derive(Debug, Default)]
pub struct Scripts {
    /// `None`: texts without a folder, such as from a pipe.
    folder: Option<PathBuf>,
    opener: Option<SourceOpener>,
    /// By the path as it is written: of those that are kept, and of those read now.
    texts: BTreeMap<String, String>,
    /// For those that cannot be read now.
    spare: BTreeMap<String, String>,
    /// The files that were looked for, whether they are there or not.
    sought: BTreeMap<String, PathBuf>,
}

impl Scripts {
    pub fn new(folder: Option<&Path>) -> Scripts {
        Scripts {
            folder: folder.map(Path::to_path_buf),
            opener: folder.map(|folder| SecretPolicy::anything().source_opener(folder)),
            ..Scripts::default()
        }
    }

    /// Refuses files of the server that has this policy.
    pub fn refusing_files_of(mut self, policy: &SecretPolicy) -> Scripts {
        let folder = self.folder.as_deref();
        self.opener = folder.map(|folder| policy.source_opener(folder));
        self
    }

    /// Nothing is read again that was read then.
    pub fn kept(folder: Option<&Path>, texts: BTreeMap<String, String>) -> Scripts {
        Scripts {
            texts,
            ..Scripts::new(folder)
        }
    }

    /// What cannot be read is as it was then.
    pub fn or_kept(folder: Option<&Path>, spare: BTreeMap<String, String>) -> Scripts {
        Scripts {
            spare,
            ..Scripts::new(folder)
        }
    }

    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    pub fn sought(&self) -> impl Iterator<Item = &PathBuf> {
        self.sought.values()
    }

    pub fn read(&mut self, path: &str) -> Result<String, String> {
        if let Some(text) = self.texts.get(path) {
            return Ok(text.clone());
        }
        let read = self.read_anew(path);
        let text = read.or_else(|why| self.spare.get(path).cloned().ok_or(why))?;
        self.texts.insert(path.to_string(), text.clone());
        Ok(text)
    }

    fn read_anew(&mut self, path: &str) -> Result<String, String> {
        let stays_inside = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !stays_inside {
            return Err(OUTSIDE.to_string());
        }
        let (Some(folder), Some(opener)) = (&self.folder, &self.opener) else {
            return Err("cannot be read: there is no folder to look in".to_string());
        };
        let full = folder.join(path);
        self.sought.insert(path.to_string(), full.clone());
        let why = |error: std::io::Error| format!("cannot be read: {error}");
        // A link may lead anywhere.
        let opened = opener.open(&full).map_err(|fault| match fault {
            OpenFault::Unreadable(error) => why(error),
            OpenFault::NotRegular => "is not a file".to_string(),
            OpenFault::Replaced => "was replaced while it was opened, try again".to_string(),
            OpenFault::NotAllowed | OpenFault::ShowsProcesses => OUTSIDE.to_string(),
        })?;
        match opened.place {
            SourcePlace::InFolder => {}
            SourcePlace::OutOfFolder => return Err(OUTSIDE.to_string()),
            SourcePlace::OfServer => {
                // Files of the server itself change all the time, and stay refused.
                self.sought.remove(path);
                return Err("belongs to the server itself, so it is not read".to_string());
            }
        }
        let bytes = opened.file.metadata().map_err(why)?.len();
        if bytes > SCRIPT_FILE_BYTES_MAX {
            return Err(format!(
                "is {bytes} bytes long, at most {SCRIPT_FILE_BYTES_MAX} are read"
            ));
        }
        let mut bytes = Vec::new();
        let mut file = opened.file.take(SCRIPT_FILE_BYTES_MAX);
        file.read_to_end(&mut bytes).map_err(why)?;
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_string())?;
        if text.trim().is_empty() {
            return Err("is empty".to_string());
        }
        Ok(text)
    }
}
