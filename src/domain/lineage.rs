//! Which history a database continues, and how far this history has come.
//!
//! An installation begins a new lineage when it goes on from an older state on purpose: a restored backup, or an older database
//! that a person accepted. Ids of jobs, steps and sessions and attempt numbers may repeat in the new lineage, for other things.

use std::collections::BTreeMap;
use std::fmt;

use super::SessionId;

/// Which history a database continues, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// A random key: 32 hexadecimal digits.
    pub key: String,
    /// How many times a server was started in this lineage.
    pub epoch: i64,
}

/// One start of a server, as workers remember it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// The key of the lineage.
    pub lineage: String,
    pub number: i64,
    /// Random. Tells apart two starts with the same number, one of which was rolled back.
    pub start_key: String,
}

/// The header in which servers tell workers their epoch, and workers tell servers the last epoch that they have seen. In lower
/// case, as the HTTP libraries want it.
pub const LINEAGE_HEADER: &str = "stepward-lineage";

impl Epoch {
    /// Reads `LINEAGE; epoch=N; start=KEY`. Parameters that this version does not know are ignored.
    pub fn parse(text: &str) -> Option<Epoch> {
        let mut parts = text.split(';').map(str::trim);
        let lineage = parts.next().filter(|key| is_key(key))?;
        let (mut number, mut start_key) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("epoch", digits)) => number = digits.parse().ok().filter(|n| *n >= 0),
                Some(("start", key)) => start_key = Some(key).filter(|key| is_key(key)),
                _ => {}
            }
        }
        Some(Epoch {
            lineage: lineage.to_string(),
            number: number?,
            start_key: start_key?.to_string(),
        })
    }
}

fn is_key(key: &str) -> bool {
    const KEY_BYTES_MAX: usize = 64;
    let is_hex = key.bytes().all(|byte| byte.is_ascii_hexdigit());
    !key.is_empty() && key.len() <= KEY_BYTES_MAX && is_hex
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Epoch {
            lineage,
            number,
            start_key,
        } = self;
        write!(f, "{lineage}; epoch={number}; start={start_key}")
    }
}

/// The starts of a server that a database knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochHistory {
    pub current: Epoch,
    /// The last starts of the current lineage by their numbers, the current one included.
    pub start_keys: BTreeMap<i64, String>,
}

/// How the epoch that a worker has seen relates to the history of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is a part of the history, or too long ago to tell.
    Known,
    /// It is of the same lineage and not a part of the history: the database was rolled back.
    RolledBack,
    /// It is of another lineage: a person restored a backup or accepted an older database.
    OtherLineage,
}

impl EpochHistory {
    pub fn relation_to(&self, seen: &Epoch) -> Seen {
        if seen.lineage != self.current.lineage {
            return Seen::OtherLineage;
        }
        match self.start_keys.get(&seen.number) {
            Some(start_key) if *start_key == seen.start_key => Seen::Known,
            Some(_) => Seen::RolledBack,
            None if seen.number > self.current.number => Seen::RolledBack,
            None => Seen::Known,
        }
    }
}

/// The part of a lineage's key that stands in the names of its log files. An installation has so few lineages that their first
/// 48 bits tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogTag(u64);

const TAG_DIGITS: usize = 12;

impl LogTag {
    /// Reads 12 lower-case hexadecimal digits, and no other spelling of the same number.
    pub fn parse(digits: &str) -> Option<LogTag> {
        let is_ours = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != TAG_DIGITS || !digits.bytes().all(is_ours) {
            return None;
        }
        u64::from_str_radix(digits, 16).ok().map(LogTag)
    }

    /// The tag of the lineage with this key. `None`: the key was not made by this program.
    pub fn of_lineage(key: &str) -> Option<LogTag> {
        LogTag::parse(key.get(..TAG_DIGITS)?)
    }
}

impl fmt::Display for LogTag {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:0TAG_DIGITS$x}", self.0)
    }
}

impl fmt::Debug for LogTag {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "LogTag({self})")
    }
}

/// Where a lineage began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineageStart {
    pub key: String,
    /// Sessions with this id or a higher one belong to this lineage or to a later one.
    pub first_session_id: SessionId,
}

/// The lineages of an installation, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineages {
    starts: Vec<LineageStart>,
}

impl Lineages {
    pub fn new(starts: Vec<LineageStart>) -> Lineages {
        Lineages { starts }
    }

    /// The tag of the current lineage.
    pub fn current(&self) -> Option<LogTag> {
        LogTag::of_lineage(&self.starts.last()?.key)
    }

    /// Whether every session belongs to the current lineage, so that no log has another tag.
    pub fn is_only_one(&self) -> bool {
        matches!(&self.starts[..], [only] if only.first_session_id.0 <= 1)
    }

    /// The tag in the name of a log that this session wrote. `None`: the session is of version 0.1, whose names have no tag.
    pub fn log_tag(&self, session_id: Option<SessionId>) -> Option<LogTag> {
        let session_id = session_id?;
        let mut latest_first = self.starts.iter().rev();
        let start = latest_first.find(|start| start.first_session_id <= session_id)?;
        LogTag::of_lineage(&start.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: &str) -> String {
        digit.repeat(32)
    }

    fn tag_of(digit: &str) -> Option<LogTag> {
        LogTag::of_lineage(&key(digit))
    }

    fn epoch(lineage: &str, number: i64, start_key: &str) -> Epoch {
        Epoch {
            lineage: key(lineage),
            number,
            start_key: start_key.to_string(),
        }
    }

    #[test]
    fn an_epoch_that_the_database_does_not_know_is_a_rollback() {
        let starts = [(4, "04"), (5, "05"), (6, "06")];
        let history = EpochHistory {
            current: epoch("a", 6, "06"),
            start_keys: starts.map(|(n, key)| (n, key.to_string())).into(),
        };
        let seen =
            |lineage, number, start_key| history.relation_to(&epoch(lineage, number, start_key));
        assert_eq!(seen("a", 6, "06"), Seen::Known);
        assert_eq!(seen("a", 5, "05"), Seen::Known);
        assert_eq!(seen("a", 7, "07"), Seen::RolledBack);
        assert_eq!(
            seen("a", 6, "66"),
            Seen::RolledBack,
            "another start with the same number"
        );
        assert_eq!(seen("a", 3, "33"), Seen::Known, "too long ago to tell");
        assert_eq!(seen("b", 9, "09"), Seen::OtherLineage);
    }

    #[test]
    fn an_epoch_is_read_as_it_was_written() {
        let written = epoch("a", 5, "0f");
        assert_eq!(Epoch::parse(&written.to_string()), Some(written.clone()));
        let later = format!("{written}; commit=9");
        assert_eq!(Epoch::parse(&later), Some(written));
        for text in [
            "",
            "a",
            "a; epoch=1",
            "a; epoch=-1; start=a",
            "a; epoch=x; start=a",
            "a; epoch=1; start=",
            "g; epoch=1; start=a",
            "../a; epoch=1; start=a",
        ] {
            assert_eq!(Epoch::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_session_tells_the_lineage_of_its_logs() {
        let start = |digit, first| LineageStart {
            key: key(digit),
            first_session_id: SessionId(first),
        };
        let lineages = Lineages::new(vec![start("a", 4), start("b", 9), start("c", 9)]);
        let tag = |session_id| lineages.log_tag(Some(SessionId(session_id)));
        assert_eq!(tag(3), None, "a session of version 0.1");
        assert_eq!(tag(4), tag_of("a"));
        assert_eq!(tag(8), tag_of("a"));
        assert_eq!(tag(9), tag_of("c"));
        assert_eq!(lineages.log_tag(None), None);
        assert_eq!(lineages.current(), tag_of("c"));
        assert_eq!(tag_of("c").unwrap().to_string(), "cccccccccccc");
    }
}
