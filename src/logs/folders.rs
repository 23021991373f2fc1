//! Which jobs have logs, as the folder has it: for whoever looks for what nobody owns.

use std::fs::{self, ReadDir};
use std::io;

use super::{Logs, job_folder};
use crate::domain::JobId;

/// The folders of jobs, in no order, read as they are asked for. What is no job's folder is none of ours.
pub struct JobFolders {
    entries: ReadDir,
}

impl Iterator for JobFolders {
    type Item = JobId;

    fn next(&mut self) -> Option<JobId> {
        loop {
            // An entry that cannot be read is met again with the next walk.
            let Ok(entry) = self.entries.next()? else {
                continue;
            };
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            if let Some(number) = number {
                return Some(JobId(number));
            }
        }
    }
}

impl Logs {
    pub fn job_folders(&self) -> io::Result<JobFolders> {
        let entries = fs::read_dir(&self.inner.folder)?;
        Ok(JobFolders { entries })
    }

    /// What the logs of a job take of the disk, roughly. 0 if there are none.
    pub fn bytes_of_job(&self, job_id: JobId) -> io::Result<u64> {
        let entries = match fs::read_dir(job_folder(&self.inner.folder, job_id)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut bytes = 0;
        for entry in entries {
            match entry?.metadata() {
                Ok(found) => bytes += found.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}
