//! How a worker and a server announce themselves to each other: the version of the protocol, and the features they understand.
//!
//! Both send the header `Stepward-Protocol: 2; features=a,b` with every call and answer of the worker routes. A peer without the
//! header speaks protocol 1, which is version 0.1 of Stepward. New fields go only to peers that announced the feature for them,
//! so old and new versions understand each other.

use super::task::{Action, StepDraft};
use super::words;

/// The protocol that this version speaks.
pub const PROTOCOL: u32 = 2;

/// The oldest protocol that this server still understands. A worker below it is answered with 426.
pub const PROTOCOL_MIN: u32 = 1;

/// In lower case, as the HTTP libraries want it.
pub const PROTOCOL_HEADER: &str = "stepward-protocol";

/// The variable that the answer to `started` adds to the environment of a step.
pub const STARTED_AT_VARIABLE: &str = "STEPWARD_STARTED_AT";

words! {
    /// What a peer understands beyond protocol 1.
    pub enum Feature {
        /// Both sides send the header `Stepward-Lineage`: the server its epoch, the worker the last epoch that it has seen.
        Lineage = "lineage",
        /// The final report tells the length and the checksum of the log; the server asks for bytes that it does not have.
        LogChecksum = "log_checksum",
        /// The worker knows no preparation: what it is given counts as started when the answer to its poll is made.
        OnePhase = "one_phase",
        /// The answer to `started` tells when the step started, its timeout, and variables for its environment.
        StartDetails = "start_details",
    }
}

impl Feature {
    /// The first character of a feature in the tags of a requirement. No tag of a person can begin with it.
    const REQUIREMENT_SIGN: char = '+';

    pub fn in_requirement(self) -> String {
        format!("{}{self}", Feature::REQUIREMENT_SIGN)
    }

    /// The feature that this word of a requirement names, if it is not a tag.
    pub fn of_requirement(word: &str) -> Option<Feature> {
        Feature::from_word(word.strip_prefix(Feature::REQUIREMENT_SIGN)?)
    }
}

/// A set of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Features(u32);

impl Features {
    pub const NONE: Features = Features(0);

    /// What a worker of this version understands.
    pub const OF_WORKER: Features = Features::of(&[
        Feature::Lineage,
        Feature::LogChecksum,
        Feature::StartDetails,
    ]);

    /// What a server of this version understands.
    pub const OF_SERVER: Features = Features::of(Feature::ALL);

    pub const fn of(features: &[Feature]) -> Features {
        let (mut bits, mut index) = (0, 0);
        while index < features.len() {
            bits |= 1 << features[index] as u32;
            index += 1;
        }
        Features(bits)
    }

    pub fn contains(self, feature: Feature) -> bool {
        self.0 & Features::of(&[feature]).0 != 0
    }

    pub fn is_empty(self) -> bool {
        self == Features::NONE
    }

    pub fn iter(self) -> impl Iterator<Item = Feature> {
        let all = Feature::ALL.iter().copied();
        all.filter(move |feature| self.contains(*feature))
    }

    /// Returns the features of this set that the other set lacks.
    pub fn missing_in(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// `a,b`. A name that this version does not know is left out.
    pub fn parse(names: &str) -> Features {
        let known = names
            .split(',')
            .filter_map(|name| Feature::from_word(name.trim()));
        known.fold(Features::NONE, |all, feature| {
            Features(all.0 | Features::of(&[feature]).0)
        })
    }
}

impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, feature) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{feature}")?;
        }
        Ok(())
    }
}

/// The protocol and features that the other side of a connection announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub protocol: u32,
    pub features: Features,
}

impl Peer {
    /// A peer that announces nothing: version 0.1 of Stepward.
    pub const UNANNOUNCED: Peer = Peer {
        protocol: 1,
        features: Features::NONE,
    };

    pub const fn of_this_version(features: Features) -> Peer {
        Peer {
            protocol: PROTOCOL,
            features,
        }
    }

    /// Reads the header. `None`: it does not begin with the number of a protocol. Parameters that this version does not know are
    /// ignored.
    pub fn parse(header: &str) -> Option<Peer> {
        let mut parts = header.split(';').map(str::trim);
        let protocol = parts.next()?.parse().ok()?;
        let features = parts.find_map(|part| part.strip_prefix("features="));
        Some(Peer {
            protocol,
            features: features.map_or(Features::NONE, Features::parse),
        })
    }

    pub fn is_too_old(self) -> bool {
        self.protocol < PROTOCOL_MIN
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; features={}", self.protocol, self.features)
    }
}

/// The features that a worker must have to run the step as it is written.
///
/// A step that reads `STEPWARD_STARTED_AT` needs a worker that asks for the details of a start: a worker of version 0.1 would run
/// it without the variable.
pub fn needed_features(draft: &StepDraft) -> Features {
    let runs_on_worker = !matches!(draft.action, Action::Task { .. } | Action::Approval { .. });
    let texts = draft.action.texts().into_iter().map(|(_, text)| text);
    let mut texts = texts.chain(draft.env.values().map(String::as_str));
    if runs_on_worker && texts.any(|text| text.contains(STARTED_AT_VARIABLE)) {
        Features::of(&[Feature::StartDetails])
    } else {
        Features::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let peer = Peer::of_this_version(Features::OF_WORKER);
        let header = peer.to_string();
        assert_eq!(header, "2; features=lineage,log_checksum,start_details");
        assert_eq!(Peer::parse(&header), Some(peer));
    }

    #[test]
    fn unknown_features_and_parameters_are_ignored() {
        let peer = Peer::parse("7;later=x; features= one_phase ,teleport").unwrap();
        assert_eq!(peer.protocol, 7);
        assert_eq!(peer.features, Features::of(&[Feature::OnePhase]));
        assert_eq!(Peer::parse("3").unwrap().features, Features::NONE);
        for wrong in ["", "two", "; features=one_phase", "-1", "99999999999"] {
            assert_eq!(Peer::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_a_protocol_below_the_minimum_is_too_old() {
        assert!(!Peer::UNANNOUNCED.is_too_old());
        assert!(Peer::parse("0").unwrap().is_too_old());
        assert!(!Peer::parse("99").unwrap().is_too_old());
    }

    #[test]
    fn a_step_that_reads_when_it_started_needs_a_worker_that_is_told() {
        let needs = |script: &str| needed_features(&StepDraft::script("a", script));
        assert_eq!(needs("echo hello"), Features::NONE);
        let told = Features::of(&[Feature::StartDetails]);
        assert_eq!(needs("echo $STEPWARD_STARTED_AT"), told);
        let mut draft = StepDraft::script("a", "true");
        let value = "from $STEPWARD_STARTED_AT".to_string();
        draft.env.insert("SINCE".to_string(), value);
        assert_eq!(needed_features(&draft), told);
    }

    #[test]
    fn a_requirement_names_features_with_a_sign_that_no_tag_has() {
        for feature in Feature::ALL {
            let word = feature.in_requirement();
            assert_eq!(Feature::of_requirement(&word), Some(*feature));
            assert!(crate::domain::check::tag_fault(&word).is_some());
        }
        assert_eq!(Feature::of_requirement("lineage"), None);
    }
}
