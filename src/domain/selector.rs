//! Which job somebody means: by its number, or as the latest of its kind.

use std::fmt;

use super::JobId;
use super::job::JobState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobSelector {
    Id(JobId),
    /// The newest that is nobody's child.
    Latest,
    /// The newest of a task, in this state if one is named.
    LatestOf {
        task: String,
        state: Option<JobState>,
    },
}

impl JobSelector {
    /// `42`, `latest`, `release@latest`, `release@failed`. `None`: whatever jobs there are, it names none.
    pub fn parse(text: &str) -> Option<JobSelector> {
        if text == "latest" {
            return Some(JobSelector::Latest);
        }
        if let Some((task, which)) = text.rsplit_once('@') {
            let state = match which {
                "latest" => None,
                word => Some(JobState::from_word(word)?),
            };
            let task = task.to_string();
            return Some(JobSelector::LatestOf { task, state });
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number)?;
        Some(JobSelector::Id(JobId(number)))
    }
}

impl fmt::Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobSelector::Id(job_id) => job_id.fmt(f),
            JobSelector::Latest => f.write_str("latest"),
            JobSelector::LatestOf { task, state } => {
                let state = state.map_or("latest", JobState::as_str);
                write!(f, "{task}@{state}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_written_as_it_is_read() {
        for text in [
            "42",
            "latest",
            "release@latest",
            "release@failed",
            "a.b-c@running",
        ] {
            let selector = JobSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
        }
        assert_eq!(JobSelector::parse("007"), Some(JobSelector::Id(JobId(7))));
    }

    #[test]
    fn what_names_no_job_is_no_selector() {
        for text in [
            "",
            "-1",
            "+1",
            "0x10",
            "1.0",
            "99999999999999999999",
            "release",
            "Latest",
            "release@",
            "release@broken",
            "latest@",
        ] {
            assert_eq!(JobSelector::parse(text), None, "{text}");
        }
    }
}
