//! Takes the place of the crate `httpdate`, of which hyper uses this one type to write the header `Date`.
//!
//! The original panics if the clock is before 1970 or beyond the year 9999. hyper asks for the date whenever it looks at a
//! connection, whether the header is wanted or not, so with such a clock no request would ever be answered. Here such a time
//! becomes the nearest one that the header can hold.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// 9999-12-31T23:59:59Z.
const LAST_SECS: u64 = 253_402_300_799;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A time as HTTP writes it, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpDate {
    secs: u64,
}

impl From<SystemTime> for HttpDate {
    fn from(time: SystemTime) -> HttpDate {
        let since = time.duration_since(UNIX_EPOCH);
        let secs = since.map_or(0, |since| since.as_secs());
        HttpDate {
            secs: secs.min(LAST_SECS),
        }
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, secs) = (self.secs / 86_400, self.secs % 86_400);
        let (year, month, day) = calendar_date(days);
        let week_day = DAYS[(days % 7) as usize];
        let month = MONTHS[month];
        let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
        write!(
            f,
            "{week_day}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT"
        )
    }
}

/// The year, the month from 0 on and the day from 1 on, of a day since 1970.
fn calendar_date(days: u64) -> (u64, usize, u64) {
    // Years that begin in March end with the day that not all of them have.
    let since_0000_03_01 = days + 719_468;
    let (era, day_of_era) = (since_0000_03_01 / 146_097, since_0000_03_01 % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, month as usize, day)
}
