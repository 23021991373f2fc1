//! Scripts in files of their own: inside the workflows folder, and nowhere else.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

pub const SCRIPT_FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the files that `file:` names, or gives back what was read before.
#[derive(Debug, Default)]
pub struct Scripts {
    /// `None`: texts without a folder, such as from a pipe.
    folder: Option<PathBuf>,
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
            ..Scripts::default()
        }
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
            return Err("is outside the workflows folder".to_string());
        }
        let Some(folder) = &self.folder else {
            return Err("cannot be read: there is no folder to look in".to_string());
        };
        let full = folder.join(path);
        self.sought.insert(path.to_string(), full.clone());
        let why = |error: std::io::Error| format!("cannot be read: {error}");
        // A link may lead anywhere.
        let real = full.canonicalize().map_err(why)?;
        if !real.starts_with(folder.canonicalize().map_err(why)?) {
            return Err("is outside the workflows folder".to_string());
        }
        let found = real.metadata().map_err(why)?;
        if !found.is_file() {
            return Err("is not a file".to_string());
        }
        if found.len() > SCRIPT_FILE_BYTES_MAX {
            let bytes = found.len();
            return Err(format!(
                "is {bytes} bytes long, at most {SCRIPT_FILE_BYTES_MAX} are read"
            ));
        }
        let bytes = std::fs::read(&real).map_err(why)?;
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_string())?;
        if text.trim().is_empty() {
            return Err("is empty".to_string());
        }
        Ok(text)
    }
}
