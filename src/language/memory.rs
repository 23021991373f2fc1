//! The last good texts of the workflow files, on disk: if a file is broken when the server starts, the server serves its last good text.
//!
//! The same file remembers which texts version 0.1 had accepted, because those texts may break rules that are newer than 0.1.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::source::SourceFile;
use crate::whole_file;

/// A larger file is neither written nor read; the texts of a usual folder take a hundredth of it.
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Memory {
    folder: PathBuf,
    file: PathBuf,
    /// The content of the file as we last wrote it.
    written: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// The texts are only served again for the same workflows folder.
    folder: PathBuf,
    files: BTreeMap<PathBuf, String>,
    scripts: BTreeMap<String, String>,
    /// Absent: version 0.1 wrote this file, so 0.1 had accepted every text in it.
    #[serde(default)]
    accepted_by_0_1: Option<AcceptedHashes>,
}

/// The texts that version 0.1 had accepted, as SHA-256.
///
/// Version 0.1 wrote its last good texts to `workflows.good.json`. A workflow file that still has that very text keeps loading after
/// an upgrade: violations of newer rules are warnings there (`Problems::new_rule`), and its tasks keep the behaviour of 0.1
/// (`domain::task::Rules`). An entry is forgotten as soon as another text of that file is good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedTexts {
    /// The workflows folder that the paths are relative to.
    folder: PathBuf,
    hashes: AcceptedHashes,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AcceptedHashes {
    /// Workflow files, by their path below the workflows folder.
    files: BTreeMap<PathBuf, String>,
    /// Scripts in files of their own, by the path that `file:` names.
    scripts: BTreeMap<String, String>,
}

type Texts = (BTreeMap<PathBuf, String>, BTreeMap<String, String>);

impl AcceptedTexts {
    /// Reads which texts of a workflows folder version 0.1 had accepted, and changes nothing. `file` is the memory in the data folder.
    pub fn read(folder: &Path, file: &Path) -> AcceptedTexts {
        let memory = Memory {
            folder: folder.to_path_buf(),
            file: file.to_path_buf(),
            written: None,
        };
        memory.read().1
    }

    pub fn has_file(&self, file: &SourceFile) -> bool {
        let path = file.path.strip_prefix(&self.folder).ok();
        let known = path.and_then(|path| self.hashes.files.get(path));
        known.is_some_and(|known| *known == hash(&file.text))
    }

    pub fn has_script(&self, path: &str, text: &str) -> bool {
        let known = self.hashes.scripts.get(path);
        known.is_some_and(|known| *known == hash(text))
    }

    /// Forgets the texts in whose place others are good now. A file that is absent is not forgotten: it may come back.
    pub fn retain_unchanged(
        &mut self,
        files: &BTreeMap<PathBuf, String>,
        scripts: &BTreeMap<String, String>,
    ) {
        let folder = &self.folder;
        let is_same =
            |known: &String, text: Option<&String>| text.is_none_or(|text| *known == hash(text));
        self.hashes
            .files
            .retain(|path, known| is_same(known, files.get(&folder.join(path))));
        self.hashes
            .scripts
            .retain(|path, known| is_same(known, scripts.get(path)));
    }
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

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

    /// The kept texts of this folder, and which texts 0.1 had accepted. A file that cannot be read counts as absent, because the
    /// workflows folder itself is what counts.
    pub fn read(&self) -> (Option<Texts>, AcceptedTexts) {
        let Some(kept) = self.read_kept() else {
            return (None, self.accepted(AcceptedHashes::default()));
        };
        let hashes = kept.accepted_by_0_1.unwrap_or_else(|| {
            let files = kept.files.iter().filter_map(|(path, text)| {
                let path = path.strip_prefix(&kept.folder).ok()?;
                Some((path.to_path_buf(), hash(text)))
            });
            let scripts = kept.scripts.iter();
            AcceptedHashes {
                files: files.collect(),
                scripts: scripts
                    .map(|(path, text)| (path.clone(), hash(text)))
                    .collect(),
            }
        });
        let is_ours = kept.folder == self.folder;
        let texts = is_ours.then_some((kept.files, kept.scripts));
        (texts, self.accepted(hashes))
    }

    fn accepted(&self, hashes: AcceptedHashes) -> AcceptedTexts {
        AcceptedTexts {
            folder: self.folder.clone(),
            hashes,
        }
    }

    fn read_kept(&self) -> Option<Kept> {
        let bytes = self.file.metadata().ok()?.len();
        if bytes > BYTES_MAX as u64 {
            return None;
        }
        serde_json::from_slice(&fs::read(&self.file).ok()?).ok()
    }

    /// A failure is only logged, because nothing but the next start needs this file.
    pub fn write(
        &mut self,
        files: &BTreeMap<PathBuf, String>,
        scripts: &BTreeMap<String, String>,
        accepted: &AcceptedTexts,
    ) {
        if let Err(error) = self.try_write(files, scripts, accepted) {
            let file = self.file.display();
            log::warn!(
                "{file}: the last good workflows cannot be kept for the next start: {error}"
            );
        }
    }

    fn try_write(
        &mut self,
        files: &BTreeMap<PathBuf, String>,
        scripts: &BTreeMap<String, String>,
        accepted: &AcceptedTexts,
    ) -> io::Result<()> {
        // JSON cannot hold a path that is not UTF-8.
        let nameable = files.iter().filter(|(path, _)| path.to_str().is_some());
        let bytes = serde_json::to_vec(&Kept {
            folder: self.folder.clone(),
            files: nameable
                .map(|(path, text)| (path.clone(), text.clone()))
                .collect(),
            scripts: scripts.clone(),
            accepted_by_0_1: Some(accepted.hashes.clone()),
        })?;
        if self.written.as_ref() == Some(&bytes) {
            return Ok(());
        }
        self.written = None;
        if bytes.len() > BYTES_MAX {
            // Without this an older text would come back at the next start.
            fs::remove_file(&self.file)?;
            return Err(io::Error::other(format!("more than {BYTES_MAX} bytes")));
        }
        whole_file::write_durably(&self.file, 0o600, &bytes)?;
        self.written = Some(bytes);
        Ok(())
    }
}
