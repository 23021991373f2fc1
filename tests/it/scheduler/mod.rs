//! Schedules: when they are due, and what becomes of each time at which they were.

mod cron;
