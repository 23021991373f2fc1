//! The descriptors that a supervisor was started with: its standard three are its own, whatever else came down from who started
//! the worker, and is not for steps.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

/// Nothing that is open now, but for the standard three, reaches a program that is started from here.
pub(super) fn keep_from_steps() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let open: Vec<RawFd> = names.filter_map(|name| name.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        // SAFETY: the number is lent to one call that sets a flag. It closes nothing, so whoever owns the descriptor does
        // not notice; and if it is not open any more, as the one that this list was read through, that is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl_setfd(descriptor, FdFlags::CLOEXEC) {
            Ok(()) | Err(Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
