//! How much room is left, and for how long at the pace of the last days.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::case::Case;
use super::{Finding, Looked, Status};
use crate::cli::words::{bytes, duration, shell_path};
use crate::clock::wall_time;
use crate::disk::free_bytes;
use crate::domain::Timestamp;
use crate::problems::DISK_BYTES_LOW;

const LOGS_FOLDER: &str = "logs";
/// Files that are looked at. Of more, the pace is at least what these show.
const FILES_MAX: usize = 200_000;

const DAY_MS: i64 = 86_400_000;
/// The pace of longer ago says little of tomorrow.
const WINDOW_MS: i64 = 7 * DAY_MS;
/// The pace of less says nothing.
const HISTORY_MS_MIN: i64 = DAY_MS;

const FREE_BYTES_LOW: u64 = 1 << 30;
const LEFT_MS_LOW: i64 = 7 * DAY_MS;
const LEFT_MS_NONE: i64 = DAY_MS;

pub fn look(case: &Case) -> Looked {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    match case.some_data_dir() {
        Err(reason) => found.push(reason),
        Ok(folder) => {
            let pace = history(case, folder).pace(wall_time());
            found.extend(probe("data folder", folder, Some(pace), &mut seen));
        }
    }
    for worker in case.worker_configs() {
        found.extend(probe("worker's folder", &worker.data_dir, None, &mut seen));
    }
    Ok(found)
}

/// `None`: it is on a disk that was looked at already.
fn probe(
    what: &str,
    folder: &Path,
    pace: Option<Option<f64>>,
    seen: &mut Vec<u64>,
) -> Option<Finding> {
    let shown = folder.display();
    // It may not be made yet: then it will be where its parent is.
    let folder = match folder.is_absolute() {
        true => folder.to_path_buf(),
        false => std::env::current_dir().unwrap_or_default().join(folder),
    };
    let unseen = |error: std::io::Error| {
        Finding::problem(format!("the disk of {shown} cannot be asked: {error}"))
            .fix("look as the user that runs the server")
    };
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let device = match there.metadata() {
        Ok(found) => found.dev(),
        Err(error) => return Some(unseen(error)),
    };
    if seen.contains(&device) {
        return None;
    }
    seen.push(device);
    let free = match free_bytes(there) {
        Ok(free) => free,
        Err(error) => return Some(unseen(error)),
    };
    let (status, message) = verdict(free, pace);
    let finding = Finding::new(status, format!("{what} {shown}: {message}"));
    Some(match status {
        Status::Ok => finding,
        _ => finding
            .fix(format!(
                "see what takes the room: du -xh {} | sort -h | tail",
                shell_path(there)
            ))
            .fix("make the disk larger, or name a folder on another with data_dir"),
    })
}

/// `pace`: bytes a day, if it is known; `None` where nobody asks for it.
fn verdict(free: u64, pace: Option<Option<f64>>) -> (Status, String) {
    let left_ms = pace.flatten().map(|pace| match pace > 0.0 {
        // A cast of what is too large gives the largest there is.
        true => (free as f64 / pace * DAY_MS as f64) as i64,
        false => i64::MAX,
    });
    let left = left_ms.unwrap_or(i64::MAX);
    let status = match () {
        () if free < DISK_BYTES_LOW || left < LEFT_MS_NONE => Status::Problem,
        () if free < FREE_BYTES_LOW || left < LEFT_MS_LOW => Status::Warning,
        () => Status::Ok,
    };
    let free = bytes(free);
    let message = match (pace, left_ms) {
        (None, _) => format!("{free} free"),
        (Some(None), _) | (_, None) => {
            format!("{free} free; not enough history to say when it will be full")
        }
        (Some(Some(pace)), Some(left)) => {
            let pace = bytes(pace as u64);
            match left > 10 * 365 * DAY_MS {
                true => format!("{free} free, grows by {pace} a day: not full for years"),
                false => format!(
                    "{free} free, grows by {pace} a day: full in {}",
                    duration(left)
                ),
            }
        }
    };
    (status, message)
}

/// What is known of how the data grew.
#[derive(Debug, Default)]
struct History {
    /// Each log's size, and when it was last written.
    logs: Vec<(u64, Timestamp)>,
    database_bytes: u64,
    oldest_job_at: Option<Timestamp>,
}

impl History {
    /// Bytes a day. `None`: it has not lasted long enough.
    fn pace(&self, now: Timestamp) -> Option<f64> {
        let oldest_log_at = self.logs.iter().map(|(_, at)| *at).min();
        let oldest = [oldest_log_at, self.oldest_job_at];
        let begun = oldest.into_iter().flatten().min()?;
        let age_ms = now.0 - begun.0;
        if age_ms < HISTORY_MS_MIN {
            return None;
        }
        let window_ms = age_ms.min(WINDOW_MS);
        let is_recent = |at: Timestamp| now.0 - at.0 <= window_ms;
        let recent = self.logs.iter().filter(|(_, at)| is_recent(*at));
        let logs: u64 = recent.map(|(bytes, _)| bytes).sum();
        let a_day = |bytes: u64, ms: i64| bytes as f64 * DAY_MS as f64 / ms as f64;
        let of_database = self.oldest_job_at.map_or(0.0, |at| {
            a_day(self.database_bytes, (now.0 - at.0).max(HISTORY_MS_MIN))
        });
        Some(a_day(logs, window_ms) + of_database)
    }
}

fn history(case: &Case, folder: &Path) -> History {
    let mut history = History::default();
    if let Ok(examined) = case.examined(folder) {
        history.database_bytes = examined.bytes;
        history.oldest_job_at = examined.oldest_job_at;
    }
    collect(&folder.join(LOGS_FOLDER), 0, &mut history.logs);
    history
}

/// What cannot be looked at is not counted.
fn collect(folder: &Path, depth: usize, logs: &mut Vec<(u64, Timestamp)>) {
    const DEPTH_MAX: usize = 4;
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        if found.is_dir() && depth < DEPTH_MAX {
            collect(&entry.path(), depth + 1, logs);
        } else if found.is_file() {
            let at = Timestamp(found.mtime() * 1_000 + found.mtime_nsec() / 1_000_000);
            logs.push((found.len(), at));
        }
        if logs.len() >= FILES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const NOW: Timestamp = Timestamp(1_000 * DAY_MS);

    fn ago(days: i64) -> Timestamp {
        Timestamp(NOW.0 - days * DAY_MS)
    }

    #[test]
    fn little_room_and_little_time_are_told() {
        let of = |free, pace| verdict(free, pace).0;
        assert_eq!(of(50 * GIB, None), Status::Ok);
        assert_eq!(of(GIB - 1, None), Status::Warning);
        assert_eq!(of((100 << 20) - 1, None), Status::Problem);
        // 50 GiB, at ten, and at sixty a day.
        let gib = GIB as f64;
        assert_eq!(of(50 * GIB, Some(Some(gib))), Status::Ok);
        assert_eq!(of(50 * GIB, Some(Some(10.0 * gib))), Status::Warning);
        assert_eq!(of(50 * GIB, Some(Some(60.0 * gib))), Status::Problem);
        assert_eq!(of(50 * GIB, Some(Some(0.0))), Status::Ok);
        assert_eq!(
            verdict(50 * GIB, Some(Some(10.0 * gib))).1,
            "50 GiB free, grows by 10 GiB a day: full in 5d"
        );
        assert_eq!(
            verdict(50 * GIB, Some(None)).1,
            "50 GiB free; not enough history to say when it will be full"
        );
    }

    #[test]
    fn the_pace_is_that_of_the_last_week_and_of_the_database_since_its_first_job() {
        let history = History {
            logs: vec![(700, ago(1)), (700, ago(6)), (90_000, ago(9))],
            database_bytes: 3_000,
            oldest_job_at: Some(ago(30)),
        };
        assert_eq!(history.pace(NOW), Some(200.0 + 100.0));
    }

    #[test]
    fn a_day_is_not_known_by_its_morning() {
        let history = History {
            logs: vec![(700, Timestamp(NOW.0 - DAY_MS / 2))],
            database_bytes: 3_000,
            oldest_job_at: Some(Timestamp(NOW.0 - DAY_MS / 2)),
        };
        assert_eq!(history.pace(NOW), None);
        assert_eq!(History::default().pace(NOW), None);
        let two_days = History {
            logs: vec![(700, ago(2))],
            ..History::default()
        };
        assert_eq!(two_days.pace(NOW), Some(350.0));
    }
}
