//! Which history a database continues, and how far this history has come.
//!
//! An installation begins a new lineage when it goes on from an older state on purpose: a restored backup, or an older database
//! that a person accepted. Ids of jobs, steps and sessions and attempt numbers may repeat in the new lineage, for other things.

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

/// How a lineage compares with the one that a worker has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The same lineage, as far as the worker has seen it or further.
    Continued,
    /// The same lineage, but an earlier state of it: the database was rolled back.
    RolledBack,
    /// Another lineage: a person restored a backup or accepted an older database.
    Other,
}

impl Lineage {
    pub fn compared_with(&self, seen: &Lineage) -> Standing {
        match self.key == seen.key {
            false => Standing::Other,
            true if self.epoch < seen.epoch => Standing::RolledBack,
            true => Standing::Continued,
        }
    }

    /// `KEY; epoch=N`, as it is written in a header and in the folder of a worker.
    pub fn parse(text: &str) -> Option<Lineage> {
        let (key, epoch) = text.trim().split_once(';')?;
        let epoch = epoch.trim_start().strip_prefix("epoch=")?.parse().ok()?;
        let is_key = !key.is_empty()
            && key.len() <= KEY_BYTES_MAX
            && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_key && epoch >= 0).then(|| Lineage {
            key: key.to_string(),
            epoch,
        })
    }
}

const KEY_BYTES_MAX: usize = 64;

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Lineage { key, epoch } = self;
        write!(f, "{key}; epoch={epoch}")
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

    #[test]
    fn a_lower_epoch_of_the_same_lineage_is_a_rollback() {
        let at = |digit, epoch| Lineage {
            key: key(digit),
            epoch,
        };
        let seen = at("a", 5);
        assert_eq!(at("a", 4).compared_with(&seen), Standing::RolledBack);
        assert_eq!(at("a", 5).compared_with(&seen), Standing::Continued);
        assert_eq!(at("a", 6).compared_with(&seen), Standing::Continued);
        assert_eq!(at("b", 1).compared_with(&seen), Standing::Other);
        assert_eq!(Lineage::parse(&seen.to_string()), Some(seen));
        for text in [
            "",
            "a",
            "a; epoch=-1",
            "a; epoch=x",
            "; epoch=1",
            "g; epoch=1",
            "../a; epoch=1",
        ] {
            assert_eq!(Lineage::parse(text), None, "{text:?}");
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
