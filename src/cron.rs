//! When a schedule is due. Pure: an expression, a time zone and an instant in, the next instant out.
//!
//! 5 fields (minute, hour, day of month, month, day of week) or 6 (seconds first), or a word such as `@daily`. As in every
//! cron, if both day fields say something, either of them is enough.
//!
//! # Daylight saving
//! A schedule that does not run in every hour of the day means times on the wall: each of them fires once. One that the
//! clock skips fires at the first instant after the gap (several in one gap fire once), one that it repeats fires the first time.
//!
//! A schedule of every hour (`0 * * * *`, `*/15 * * * *`) means a rhythm: it follows real time, through both of two equal hours and
//! over a gap. A skipped time is made up for only if the clock after the gap does not show it in the same rhythm (half-hour shifts).
//!
//! `croner` reads the fields and knows the calendar, in a zone without shifts; by itself it drops a skipped `0,30 2 * * *` and
//! fires a repeated one twice, so zones are handled here. What may be written is checked here as well, so that a message can name the
//! field and nothing hostile reaches the search.

use std::fmt;
use std::ops::Range;

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneTransition};
use jiff::{SignedDuration, Zoned};

use crate::domain::Timestamp;

/// Longer than anything that a person would write.
const EXPRESSION_BYTES_MAX: usize = 256;

/// An expression in its time zone, which fires at some time.
#[derive(Debug, Clone)]
pub struct Cron {
    fields: croner::Cron,
    zone: TimeZone,
    every_hour: bool,
}

/// What is wrong with an expression or a time zone, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronFault {
    pub field: CronField,
    /// Without the field's name: `24 is not within 0-23`.
    pub message: String,
    /// The word, in bytes of what was given.
    pub span: Range<usize>,
}

impl fmt::Display for CronFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field.as_str(), self.message)
    }
}

impl std::error::Error for CronFault {}

/// When an expression was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// There were more, from the first of these on and before the second.
    pub passed_over: Option<(Timestamp, Timestamp)>,
    /// The oldest first.
    pub instants: Vec<Timestamp>,
    /// The first one that is not due yet.
    pub next: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CronField {
    /// All of it.
    Expression,
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Timezone,
}

impl CronField {
    /// In the order in which they are written.
    const WRITTEN: [CronField; 6] = [
        CronField::Second,
        CronField::Minute,
        CronField::Hour,
        CronField::DayOfMonth,
        CronField::Month,
        CronField::DayOfWeek,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            CronField::Expression => "cron",
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of week",
            CronField::Timezone => "timezone",
        }
    }

    fn bounds(self) -> (u16, u16) {
        match self {
            CronField::Second | CronField::Minute => (0, 59),
            CronField::Hour => (0, 23),
            CronField::DayOfMonth => (1, 31),
            CronField::Month => (1, 12),
            // 7 is Sunday, like 0.
            CronField::DayOfWeek => (0, 7),
            CronField::Expression | CronField::Timezone => unreachable!("they hold no numbers"),
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            CronField::Month => &[
                "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
            ],
            CronField::DayOfWeek => &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
            _ => &[],
        }
    }
}

/// Words for expressions that are written often.
const WORDS: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Cron {
    pub fn parse(expression: &str, timezone: &str) -> Result<Cron, CronFault> {
        let fields = Fields::read(expression)?;
        let zone = read_zone(timezone)?;
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .build();
        let whole = |message: String| CronFault {
            field: CronField::Expression,
            message,
            span: 0..expression.len(),
        };
        let croner_fields = parser
            .parse(&fields.normal)
            .map_err(|error| whole(error.to_string()))?;
        if !fields.can_fire(&croner_fields) {
            let message = "it never fires: no month that it names has such a day";
            return Err(whole(message.to_string()));
        }
        Ok(Cron {
            every_hour: croner_fields.pattern.hours.values().len() == 24,
            fields: croner_fields,
            zone,
        })
    }

    /// `At 02:00, on Sunday`, `Every 10 minutes`.
    pub fn in_words(&self) -> String {
        let words = self.fields.describe();
        let words = words.trim_end_matches('.');
        match words.strip_prefix("At every ") {
            Some(rhythm) => format!("Every {rhythm}"),
            None => words.to_string(),
        }
    }

    /// The first instant after this one at which it is due. `None`: there is none before the end of time.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = jiff::Timestamp::from_millisecond(after.0).ok()?;
        let next = match self.every_hour {
            true => self.next_in_rhythm(after),
            false => self.next_on_the_wall(after),
        };
        next.map(|next| Timestamp(next.as_millisecond()))
    }

    /// All instants from `first`, which is one, up to `until`. Of more than `max` the last ones.
    pub fn due(&self, first: Timestamp, until: Timestamp, max: usize) -> Due {
        let after_first = Timestamp(first.0 - 1);
        let mut instants = self.between(after_first, until, max + 1);
        if instants.first() != Some(&first) {
            // What the zone's rules say may have changed since it was announced.
            instants.insert(0, first);
        }
        let mut passed_over = None;
        if instants.len() > max {
            instants = self.last_between(first, until, max);
            passed_over = instants.first().map(|&until| (first, until));
        }
        Due {
            passed_over,
            instants,
            next: self.next_after(until),
        }
    }

    /// The first of those after one instant, up to another.
    fn between(&self, after: Timestamp, until: Timestamp, max: usize) -> Vec<Timestamp> {
        let next = |at: &Timestamp| self.next_after(*at).filter(|next| *next <= until);
        std::iter::successors(next(&after), next)
            .take(max)
            .collect()
    }

    /// The last `max` of them; there are more. Looks back further and further, then less far again, so that it never
    /// enumerates much more than it was asked for.
    fn last_between(&self, first: Timestamp, until: Timestamp, max: usize) -> Vec<Timestamp> {
        let enough = 4 * max;
        let (mut too_near, mut too_far) = (0, None);
        let mut window_ms = 60_000;
        loop {
            let after = Timestamp((until.0 - window_ms).max(first.0 - 1));
            let found = self.between(after, until, enough + 1);
            if found.len() < max && after >= first {
                too_near = window_ms;
            } else if found.len() > enough && window_ms - too_near > 1_000 {
                too_far = Some(window_ms);
            } else {
                return found[found.len().saturating_sub(max)..].to_vec();
            }
            window_ms = match too_far {
                Some(too_far) => too_near + (too_far - too_near) / 2,
                None => window_ms * 2,
            };
        }
    }

    /// Each time on the wall stands for one instant, and a later time never for an earlier instant.
    fn next_on_the_wall(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut wall = self.zone.to_datetime(after);
        if let AmbiguousOffset::Fold { before, after: now } = self.offset_of(wall)
            && self.zone.to_offset(after) == now
        {
            // All that the clock shows for the second time has had its turn.
            let turned_back = self.shift_before(after, now)?;
            let end = before.to_datetime(turned_back.timestamp());
            wall = second_before(end)?;
        }
        loop {
            wall = self.wall_time_after(wall)?;
            let instant = self.instant_of(wall)?;
            if instant > after {
                return Some(instant);
            }
        }
    }

    fn instant_of(&self, wall: DateTime) -> Option<jiff::Timestamp> {
        match self.offset_of(wall) {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // Read with the offset of later it is an instant of before.
                let before_the_gap = after.to_timestamp(wall).ok()?;
                let shift = self.zone.following(before_the_gap);
                let mut shift = shift.filter(|shift| shift.offset() == after);
                shift.next().map(|shift| shift.timestamp())
            }
        }
    }

    /// From shift to shift, and between two of them as if there were none.
    fn next_in_rhythm(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut offset = self.zone.to_offset(after);
        let mut wall = offset.to_datetime(after);
        let mut shifts = self.zone.following(after);
        loop {
            let next = self.wall_time_after(wall)?;
            let next = offset.to_timestamp(next).ok()?;
            let Some(shift) = shifts.next() else {
                return Some(next);
            };
            if next < shift.timestamp() {
                return Some(next);
            }
            if self.gap_breaks_the_rhythm(offset, &shift) {
                return Some(shift.timestamp());
            }
            offset = shift.offset();
            wall = second_before(offset.to_datetime(shift.timestamp()))?;
        }
    }

    /// Is a time skipped that the same rhythm does not show on the other side?
    fn gap_breaks_the_rhythm(&self, before: Offset, shift: &TimeZoneTransition<'_>) -> bool {
        let begin = before.to_datetime(shift.timestamp());
        let end = shift.offset().to_datetime(shift.timestamp());
        let width = end.duration_since(begin);
        let first = second_before(begin).and_then(|wall| self.wall_time_after(wall));
        let mut skipped = first;
        while let Some(wall) = skipped.filter(|wall| *wall < end) {
            let shown = wall.checked_add(width).ok();
            if !shown.is_some_and(|shown| self.matches(shown)) {
                return true;
            }
            skipped = self.wall_time_after(wall);
        }
        false
    }

    fn offset_of(&self, wall: DateTime) -> AmbiguousOffset {
        self.zone.to_ambiguous_timestamp(wall).offset()
    }

    /// The last shift up to this instant that led to this offset.
    fn shift_before(&self, instant: jiff::Timestamp, to: Offset) -> Option<TimeZoneTransition<'_>> {
        let end = instant.checked_add(SignedDuration::from_nanos(1)).ok()?;
        self.zone.preceding(end).find(|shift| shift.offset() == to)
    }

    /// On a calendar without shifts.
    fn wall_time_after(&self, wall: DateTime) -> Option<DateTime> {
        let found = self
            .fields
            .find_next_occurrence(&on_plain_calendar(wall)?, false);
        found.ok().map(|found| found.datetime())
    }

    fn matches(&self, wall: DateTime) -> bool {
        on_plain_calendar(wall)
            .is_some_and(|wall| self.fields.is_time_matching(&wall).unwrap_or(false))
    }
}

fn on_plain_calendar(wall: DateTime) -> Option<Zoned> {
    wall.to_zoned(TimeZone::UTC).ok()
}

fn second_before(wall: DateTime) -> Option<DateTime> {
    wall.checked_sub(SignedDuration::from_secs(1)).ok()
}

fn read_zone(timezone: &str) -> Result<TimeZone, CronFault> {
    TimeZone::get(timezone).map_err(|_| CronFault {
        field: CronField::Timezone,
        message: format!(
            "{:?} is no time zone; give a name such as Europe/Oslo or UTC",
            timezone.chars().take(64).collect::<String>()
        ),
        span: 0..timezone.len(),
    })
}

/// Six fields in numbers.
struct Fields {
    normal: String,
}

impl Fields {
    fn read(expression: &str) -> Result<Fields, CronFault> {
        let whole = |message: &str| CronFault {
            field: CronField::Expression,
            message: message.to_string(),
            span: 0..expression.len(),
        };
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(whole("is longer than 256 bytes"));
        }
        let written = expression.trim();
        if written.starts_with('@') {
            let known = WORDS
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(written));
            let Some((_, meaning)) = known else {
                return Err(whole(match written {
                    "@reboot" => "@reboot is not known: a server that starts is no time",
                    word if word.starts_with("@every") => {
                        "@every is not known; write */5 * * * * for every five minutes"
                    }
                    _ => {
                        "this word is not known; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually"
                    }
                }));
            };
            return Ok(Fields {
                normal: format!("0 {meaning}"),
            });
        }
        let words = words_with_spans(expression);
        let kinds = match words.len() {
            5 => &CronField::WRITTEN[1..],
            6 => &CronField::WRITTEN[..],
            0 => return Err(whole("is empty")),
            count => {
                return Err(whole(&format!(
                    "has {count} fields; 5 are needed (minute, hour, day of month, month, day of week), or 6 with seconds first"
                )));
            }
        };
        let mut normal = match words.len() {
            5 => vec!["0".to_string()],
            _ => Vec::new(),
        };
        for (&field, (span, word)) in kinds.iter().zip(words) {
            let read = read_field(field, word).map_err(|message| CronFault {
                field,
                message,
                span,
            })?;
            normal.push(read);
        }
        Ok(Fields {
            normal: normal.join(" "),
        })
    }

    /// Whether any day of the calendar matches. Decided from the fields alone: a search for a day that does not exist goes through
    /// thousands of years, and a file may hold thousands of such expressions.
    ///
    /// Only days of the month can be missing: every month has every weekday, and in some year also a fifth one, because the
    /// 29th of February falls on every weekday. An expression that names weekdays therefore always fires, since either of the two day
    /// fields is enough.
    fn can_fire(&self, fields: &croner::Cron) -> bool {
        let pattern = &fields.pattern;
        if !pattern.is_dow_wildcard() || pattern.is_dom_wildcard() {
            return true;
        }
        let days_field = self.normal.split(' ').nth(3).unwrap_or_default();
        // Every month has a last day, and `15W` fires in each month that has a 15th.
        let items = days_field.split(',');
        if items.clone().any(|item| item == "L" || item == "LW") {
            return true;
        }
        let near_weekday = items.filter_map(|item| item.strip_suffix('W')?.parse::<u16>().ok());
        let listed = pattern.days.values().into_iter();
        let Some(first_day) = listed.chain(near_weekday).min() else {
            return false;
        };
        let months = pattern.months.values();
        months.into_iter().any(|month| first_day <= longest(month))
    }
}

/// The days of this month in a year in which it has most.
fn longest(month: u16) -> u16 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn words_with_spans(text: &str) -> Vec<(Range<usize>, &str)> {
    let begin_of = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let words = text.split_whitespace();
    words
        .map(|word| (begin_of(word)..begin_of(word) + word.len(), word))
        .collect()
}

/// The same in numbers, or what is wrong with it.
fn read_field(field: CronField, word: &str) -> Result<String, String> {
    let items: Result<Vec<String>, String> = word
        .split(',')
        .map(|item| read_item(field, item, word.contains(',')))
        .collect();
    Ok(items?.join(","))
}

fn read_item(field: CronField, item: &str, listed: bool) -> Result<String, String> {
    let (low, high) = field.bounds();
    let is_day = matches!(field, CronField::DayOfMonth | CronField::DayOfWeek);
    match item {
        "" => return Err("an entry of the list is empty".to_string()),
        "*" if listed => return Err("* beside other entries says nothing".to_string()),
        "*" => return Ok("*".to_string()),
        "?" if is_day && !listed => return Ok("*".to_string()),
        _ => {}
    }
    if let Some(special) = read_special_day(field, item)? {
        return Ok(special);
    }
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let range = match range.split_once('-') {
        _ if range == "*" => "*".to_string(),
        Some((first, last)) => {
            let (first, mut last) = (read_value(field, first)?, read_value(field, last)?);
            if field == CronField::DayOfWeek && last == 0 && first > 0 {
                // A week may also end on a Sunday.
                last = 7;
            }
            if first > last {
                return Err(format!("{range} runs backwards"));
            }
            format!("{first}-{last}")
        }
        None => {
            let value = read_value(field, range)?;
            if let Some(step) = step {
                return Err(format!(
                    "{range}/{step} has no end; write {value}-{high}/{step}"
                ));
            }
            value.to_string()
        }
    };
    let Some(step) = step else {
        return Ok(range);
    };
    let width = high - low + 1;
    match step.parse::<u16>() {
        Ok(number) if (1..width).contains(&number) => Ok(format!("{range}/{number}")),
        Ok(0) => Err("a step of 0 goes nowhere".to_string()),
        Ok(number) => Err(format!(
            "a step of {number} leaves the field, which ends at {high}"
        )),
        Err(_) => Err(format!("{} is no step", quoted(step))),
    }
}

/// `L`, `LW`, `15W` as days of a month; `FRI#2`, `FRIL` as days of a week.
fn read_special_day(field: CronField, item: &str) -> Result<Option<String>, String> {
    let upper = item.to_ascii_uppercase();
    match field {
        CronField::DayOfMonth => match upper.as_str() {
            "L" | "LW" => Ok(Some(upper)),
            _ => match upper.strip_suffix('W') {
                Some(day) => Ok(Some(format!("{}W", read_value(field, day)?))),
                None => Ok(None),
            },
        },
        CronField::DayOfWeek => {
            if let Some((day, nth)) = upper.split_once('#') {
                let day = read_value(field, day)?;
                return match nth.parse::<u8>() {
                    Ok(nth @ 1..=5) => Ok(Some(format!("{day}#{nth}"))),
                    _ => Err(format!("#{nth} is no week of a month; there are #1 to #5")),
                };
            }
            match upper.strip_suffix('L') {
                // Of Sunday as 7 croner would not know the last one.
                Some(day) if !day.is_empty() => {
                    Ok(Some(format!("{}L", read_value(field, day)? % 7)))
                }
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

fn read_value(field: CronField, text: &str) -> Result<u16, String> {
    let (low, high) = field.bounds();
    let named = field
        .names()
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    if let Some(index) = named {
        return Ok(index as u16 + low);
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(match field.names() {
            [] => format!("{} is no number", quoted(text)),
            names => format!(
                "{} is no number and no name such as {}",
                quoted(text),
                names[1].to_uppercase()
            ),
        });
    }
    match text.parse::<u16>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("{text} is not within {low}-{high}")),
    }
}

fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(32).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at every day of 28 years, in which every month begins on every weekday, with and without a leap day.
    fn fires_on_some_day(fields: &croner::Cron) -> bool {
        let first = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        let days = std::iter::successors(Some(first), |day| day.tomorrow().ok());
        let mut days = days.take_while(|day| day.year() < 2028);
        days.any(|day| {
            let day = on_plain_calendar(day).expect("a day of this century");
            fields
                .is_time_matching(&day)
                .expect("a day of the calendar")
        })
    }

    fn read(expression: &str) -> (Fields, croner::Cron) {
        let fields = Fields::read(expression).unwrap();
        let parser = CronParser::builder().seconds(Seconds::Required).build();
        let croner_fields = parser.parse(&fields.normal).unwrap();
        (fields, croner_fields)
    }

    #[test]
    fn the_proof_from_the_fields_agrees_with_a_search_through_the_calendar() {
        let days = [
            "*", "?", "1", "28", "29", "30", "31", "30,31", "1,31", "29-31", "30-31", "*/30",
            "*/2", "2-31/29", "L", "LW", "L,31", "29W", "30W", "31W", "31W,30", "30W,L",
        ];
        let months = [
            "*",
            "2",
            "FEB",
            "4",
            "2,4",
            "4,6,9,11",
            "2,4,6,9,11",
            "1-2",
            "*/2",
            "12",
        ];
        let weekdays = [
            "*", "?", "MON", "0-7", "*/2", "FRI#5", "SUN#1", "7L", "2#5,3",
        ];
        let (mut fires, mut never) = (0, 0);
        for day in days {
            for month in months {
                for weekday in weekdays {
                    let expression = format!("0 0 {day} {month} {weekday}");
                    let (fields, croner_fields) = read(&expression);
                    let expected = fires_on_some_day(&croner_fields);
                    assert_eq!(fields.can_fire(&croner_fields), expected, "{expression}");
                    match expected {
                        true => fires += 1,
                        false => never += 1,
                    }
                }
            }
        }
        assert!(
            fires > 1_000 && never > 30,
            "{fires} fire, {never} never do"
        );
    }

    #[test]
    fn the_proof_agrees_with_the_search_to_the_end_of_time() {
        for (expression, expected) in [
            ("0 0 30 2 *", false),
            ("0 0 31 4,6,9,11 ?", false),
            ("0 0 31W 11 *", false),
            ("0 0 29 2 *", true),
            ("0 0 31 2 FRI#5", true),
        ] {
            let (fields, croner_fields) = read(expression);
            let cron = Cron {
                fields: croner_fields.clone(),
                zone: TimeZone::UTC,
                every_hour: false,
            };
            let found = cron.wall_time_after(DateTime::constant(2000, 1, 1, 0, 0, 0, 0));
            assert_eq!(found.is_some(), expected, "{expression}");
            assert_eq!(fields.can_fire(&croner_fields), expected, "{expression}");
        }
    }
}
