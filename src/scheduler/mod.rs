//! Schedules fire: the thread that looks when the next one is due.
