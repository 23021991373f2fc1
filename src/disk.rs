//! Room on the disk of a folder.

use std::io;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

/// What logs leave free for everything else: a twentieth, within these. With no room at all nothing could be said, and nothing
/// removed to make some.
const RESERVE_BYTES_MIN: u64 = 2 << 20;
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// What is left alone on the disk of a folder by whoever can do without.
pub fn reserve_bytes(folder: &Path) -> io::Result<u64> {
    Ok(reserve(&statvfs(folder)?))
}

pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    Ok(free(&statvfs(folder)?))
}

/// Whether so many bytes of a log may still be written there. Where that cannot be asked it is tried.
pub fn has_room_for_log(folder: &Path, bytes: usize) -> bool {
    statvfs(folder).map_or(true, |found| {
        free(&found) >= reserve(&found).saturating_add(bytes as u64)
    })
}

fn reserve(found: &StatVfs) -> u64 {
    let all = found.f_blocks.saturating_mul(found.f_frsize);
    (all / 20).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
}

/// A disk that has no such numbers is not full.
fn free(found: &StatVfs) -> u64 {
    match found.f_blocks {
        0 => u64::MAX,
        _ => found.f_bavail.saturating_mul(found.f_frsize),
    }
}
