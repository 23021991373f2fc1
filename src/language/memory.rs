//! The texts that were last good, on disk: a file that is broken while the server starts is served as it was before.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::whole_file;

/// More than this is not kept; a folder that people write has a hundredth of it.
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Memory {
    folder: PathBuf,
    file: PathBuf,
    /// What the file says, as far as we know.
    written: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// Texts of another folder say nothing about this one.
    folder: PathBuf,
    files: BTreeMap<PathBuf, String>,
    scripts: BTreeMap<String, String>,
}

type Texts = (BTreeMap<PathBuf, String>, BTreeMap<String, String>);

impl Memory {
    /// Only the server that owns the data folder of `file` may do this.
    pub fn new(folder: &Path, file: &Path) -> Memory {
        whole_file::remove_draft(file);
        Memory {
            folder: folder.to_path_buf(),
            file: file.to_path_buf(),
            written: None,
        }
    }

    /// Workflow files and scripts. What cannot be read was never there: the folder itself is what counts.
    pub fn read(&self) -> Option<Texts> {
        let bytes = self.file.metadata().ok()?.len();
        if bytes > BYTES_MAX as u64 {
            return None;
        }
        let kept: Kept = serde_json::from_slice(&fs::read(&self.file).ok()?).ok()?;
        (kept.folder == self.folder).then_some((kept.files, kept.scripts))
    }

    /// Without it everything goes on but for a restart, so that a failure is told and no more.
    pub fn write(&mut self, files: &BTreeMap<PathBuf, String>, scripts: &BTreeMap<String, String>) {
        if let Err(error) = self.try_write(files, scripts) {
            let file = self.file.display();
            log::warn!("{file}: what is good now will not outlive a restart: {error}");
        }
    }

    fn try_write(
        &mut self,
        files: &BTreeMap<PathBuf, String>,
        scripts: &BTreeMap<String, String>,
    ) -> io::Result<()> {
        // A name that is no text cannot be written down.
        let nameable = files.iter().filter(|(path, _)| path.to_str().is_some());
        let bytes = serde_json::to_vec(&Kept {
            folder: self.folder.clone(),
            files: nameable
                .map(|(path, text)| (path.clone(), text.clone()))
                .collect(),
            scripts: scripts.clone(),
        })?;
        if self.written.as_ref() == Some(&bytes) {
            return Ok(());
        }
        self.written = None;
        if bytes.len() > BYTES_MAX {
            // What was good once must not come back in place of what is good now.
            fs::remove_file(&self.file)?;
            return Err(io::Error::other(format!("more than {BYTES_MAX} bytes")));
        }
        whole_file::write_durably(&self.file, 0o600, &bytes)?;
        self.written = Some(bytes);
        Ok(())
    }
}
