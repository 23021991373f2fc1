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

/// One start of a server and how far it has come, as workers remember it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// The key of the lineage.
    pub lineage: String,
    pub number: i64,
    /// Random. Tells apart two starts with the same number, one of which was rolled back.
    pub start_key: String,
    /// The number of a commit that was durable.
    pub commit: i64,
}

/// The header in which servers tell workers their epoch, and workers tell servers the last epoch that they have seen. In lower
/// case, as the HTTP libraries want it.
pub const LINEAGE_HEADER: &str = "stepward-lineage";

impl Epoch {
    /// Reads `LINEAGE; epoch=N; start=KEY; commit=N`. Parameters that this version does not know are ignored.
    pub fn parse(text: &str) -> Option<Epoch> {
        let mut parts = text.split(';').map(str::trim);
        let lineage = parts.next().filter(|key| is_key(key))?;
        let (mut number, mut start_key, mut commit) = (None, None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("epoch", digits)) => number = digits.parse().ok().filter(|n| *n >= 0),
                Some(("commit", digits)) => commit = digits.parse().ok(),
                Some(("start", key)) => start_key = Some(key).filter(|key| is_key(key)),
                _ => {}
            }
        }
        Some(Epoch {
            lineage: lineage.to_string(),
            number: number?,
            start_key: start_key?.to_string(),
            commit: commit?,
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
            commit,
        } = self;
        write!(
            f,
            "{lineage}; epoch={number}; start={start_key}; commit={commit}"
        )
    }
}

/// The starts of a server that a database knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochHistory {
    /// The key of the current lineage.
    pub lineage: String,
    /// The number of the current start.
    pub current: i64,
    /// The last starts of the current lineage by their numbers, the current one included.
    pub starts: BTreeMap<i64, ServerStart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStart {
    /// Random.
    pub key: String,
    /// The number of the last commit before the start.
    pub commits_before: i64,
}

/// How the epoch that a worker has seen relates to the history of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The database has this epoch in its history, or the epoch is too old to be checked.
    Known,
    /// The lineage is the same, but the database does not have this epoch: the database was rolled back.
    RolledBack,
    /// The lineage is another one: a person restored a backup or accepted an older database.
    OtherLineage,
}

impl EpochHistory {
    /// The current epoch, with the number of the last durable commit.
    pub fn epoch(&self, commit: i64) -> Epoch {
        let start = self.starts.get(&self.current);
        Epoch {
            lineage: self.lineage.clone(),
            number: self.current,
            start_key: start.map_or_else(String::new, |start| start.key.clone()),
            commit,
        }
    }

    /// `commit`: the number of the last durable commit.
    pub fn relation_to(&self, seen: &Epoch, commit: i64) -> Seen {
        if seen.lineage != self.lineage {
            return Seen::OtherLineage;
        }
        let Some(start) = self.starts.get(&seen.number) else {
            return match seen.number > self.current {
                true => Seen::RolledBack,
                false => Seen::Known,
            };
        };
        // The commits of an epoch end where the next one begins.
        let mut later = self.starts.range(seen.number + 1..);
        let last_commit = later.next().map_or(commit, |(_, next)| next.commits_before);
        match start.key == seen.start_key && seen.commit <= last_commit {
            true => Seen::Known,
            false => Seen::RolledBack,
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

    fn epoch(lineage: &str, number: i64, start_key: &str, commit: i64) -> Epoch {
        Epoch {
            lineage: key(lineage),
            number,
            start_key: start_key.to_string(),
            commit,
        }
    }

    #[test]
    fn an_epoch_that_the_database_does_not_know_is_a_rollback() {
        let starts = [(4, "04", 40), (5, "05", 50), (6, "06", 60)];
        let starts = starts.map(|(number, key, commits_before)| {
            let key = key.to_string();
            let start = ServerStart {
                key,
                commits_before,
            };
            (number, start)
        });
        let history = EpochHistory {
            lineage: key("a"),
            current: 6,
            starts: starts.into(),
        };
        let seen = |lineage, number, start_key, commit| {
            history.relation_to(&epoch(lineage, number, start_key, commit), 65)
        };
        assert_eq!(seen("a", 6, "06", 65), Seen::Known);
        assert_eq!(seen("a", 5, "05", 60), Seen::Known);
        assert_eq!(seen("a", 7, "07", 65), Seen::RolledBack);
        let same_number = seen("a", 6, "66", 61);
        assert_eq!(same_number, Seen::RolledBack, "another start");
        let lost_commit = seen("a", 5, "05", 61);
        assert_eq!(lost_commit, Seen::RolledBack, "the next start came sooner");
        assert_eq!(seen("a", 6, "06", 66), Seen::RolledBack, "a lost commit");
        assert_eq!(seen("a", 3, "33", 99), Seen::Known, "too long ago to tell");
        assert_eq!(seen("b", 9, "09", 99), Seen::OtherLineage);
    }

    #[test]
    fn an_epoch_is_read_as_it_was_written() {
        let written = epoch("a", 5, "0f", 77);
        assert_eq!(Epoch::parse(&written.to_string()), Some(written.clone()));
        let later = format!("{written}; more=9");
        assert_eq!(Epoch::parse(&later), Some(written));
        for text in [
            "",
            "a",
            "a; epoch=1",
            "a; epoch=1; start=a",
            "a; epoch=-1; start=a; commit=1",
            "a; epoch=x; start=a; commit=1",
            "a; epoch=1; start=; commit=1",
            "a; epoch=1; start=a; commit=x",
            "g; epoch=1; start=a; commit=1",
            "../a; epoch=1; start=a; commit=1",
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
