//! What is the same in every container, docker's or a pod's: its name, its paths, who reads a script.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::environment::View;
use crate::domain::AttemptRef;
use crate::domain::check::image_fault;
use crate::domain::limits::shorten;
use crate::domain::protocol::Assignment;

pub(super) const FOLDER: &str = "/stepward";
pub(super) const SCRIPT: &str = "/stepward/script";
pub(super) const OUTPUT: &str = "/stepward/output";
pub(super) const TMP: &str = "/stepward/tmp";
pub(super) const WORKSPACE: &str = "/stepward/workspace";

pub(super) const LABEL_INSTANCE: &str = "stepward.instance";
pub(super) const LABEL_STEP: &str = "stepward.step";
pub(super) const LABEL_ATTEMPT: &str = "stepward.attempt";

/// An instance key as a name may contain it. Keys are anybody's text; names are short, lower case, letters and digits.
pub(super) fn mark(instance_key: &str) -> String {
    let digest = Sha256::digest(instance_key.as_bytes());
    digest.iter().take(8).fold(String::new(), |mut mark, byte| {
        write!(mark, "{byte:02x}").expect("a string takes everything");
        mark
    })
}

/// The name of an attempt's container or pod: no other attempt of any worker has it.
pub(super) fn name(instance_key: &str, attempt: AttemptRef) -> String {
    let mark = mark(instance_key);
    format!("stepward-{mark}-{}-{}", attempt.step_id, attempt.attempt)
}

/// An image's name may be made from a template: it was checked as it was written, and is checked as it became.
pub(super) fn check_image(image: &str) -> Result<(), String> {
    match image_fault(image) {
        None => Ok(()),
        Some(_) => Err(format!(
            "image {} is not the name of an image",
            shorten(image)
        )),
    }
}

/// Where a step inside sees its files.
pub(super) fn view() -> View {
    View {
        output: OUTPUT.into(),
        tmp: TMP.into(),
        workspace: WORKSPACE.into(),
    }
}

/// Where a step says that it runs; `None` if it does not.
pub(super) fn workdir(assignment: &Assignment) -> Option<String> {
    let workdir = assignment.workdir.as_deref()?;
    Some(match workdir.starts_with('/') {
        true => workdir.to_string(),
        false => format!("{WORKSPACE}/{workdir}"),
    })
}

/// The words that run a script inside: whoever reads it, and its path.
pub(super) fn script_words(language: Option<&str>, script: &str) -> Vec<String> {
    let reader = match language {
        None if script.starts_with("#!") => return vec![SCRIPT.to_string()],
        None => "sh",
        Some("python") => "python3",
        Some(language) => language,
    };
    vec![reader.to_string(), SCRIPT.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::StepId;

    fn named(key: &str, step_id: i64, attempt: u32) -> String {
        let step_id = StepId(step_id);
        name(key, AttemptRef { step_id, attempt })
    }

    #[test]
    fn a_name_is_valid_for_docker_and_kubernetes_whatever_the_key() {
        assert_eq!(named("key", 17, 2), "stepward-2c70e12b7a0646f9-17-2");
        for key in ["", "../..", "a b\n", "--rm", &"x".repeat(10_000), "Ünïcode"] {
            let name = named(key, i64::MAX, u32::MAX);
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(good) && name.len() <= 63, "{name}");
        }
    }

    #[test]
    fn no_two_attempts_share_a_name() {
        let names = [
            named("key", 1, 12),
            named("key", 11, 2),
            named("key", 1, 2),
            named("kez", 1, 2),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn hostile_images_are_refused() {
        let long = "a".repeat(4_000);
        let hostile = [
            "",
            "--privileged",
            "a b",
            "-v/:/h",
            "a\n",
            "a;b",
            "$(a)",
            &long,
        ];
        for image in hostile {
            let refusal = check_image(image).unwrap_err();
            assert!(
                refusal.ends_with("is not the name of an image"),
                "{refusal}"
            );
            assert!(refusal.len() < 200, "{refusal}");
        }
        for image in ["busybox", "ghcr.io/a/b:1.2-x", "h:5000/a@sha256:00ff"] {
            check_image(image).unwrap();
        }
    }

    #[test]
    fn a_script_is_read_by_whom_it_names() {
        assert_eq!(script_words(None, "echo"), ["sh", SCRIPT]);
        assert_eq!(script_words(None, "#!/bin/awk -f\n"), [SCRIPT]);
        assert_eq!(script_words(Some("python"), "#!x"), ["python3", SCRIPT]);
        assert_eq!(script_words(Some("ruby"), "p 1"), ["ruby", SCRIPT]);
    }
}
