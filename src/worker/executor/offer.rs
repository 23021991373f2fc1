//! Which tags a worker offers: only those for what it can really do.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Tools;
use super::tool::{ask, words};

const PATIENCE: Duration = Duration::from_secs(5);
/// Where nobody asked for it.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Sorted, once each.
    pub tags: Vec<String>,
    /// For each tag that was wanted and is not offered: why, and what to do.
    pub remarks: Vec<String>,
}

/// Tries what the wanted tags promise, at most a few seconds each, and nothing that no tag asks for: a cluster is contacted only
/// for a worker that was told to offer `kubernetes`. Tags that promise nothing we know of are taken as they are.
pub fn offer(wanted_tags: &[String], tools: &Tools) -> Offer {
    let mut offer = Offer {
        tags: Vec::new(),
        remarks: Vec::new(),
    };
    for tag in wanted_tags.iter().collect::<BTreeSet<_>>() {
        match obstacle(tag, &tools.docker, &tools.kubectl) {
            None => offer.tags.push(tag.clone()),
            Some(why) => offer
                .remarks
                .push(format!("tag {tag} is not offered: {why}")),
        }
    }
    offer
}

/// Whether kubectl reaches a cluster, for a tag that nobody asked for. An error is one sentence.
pub fn ask_cluster(kubectl: &str) -> Result<(), String> {
    ask(&cluster_question(kubectl, "2s"), b"", SHORT_PATIENCE).map(drop)
}

/// Prints the version of kubectl and of the cluster, and fails if no cluster answers within the limit.
fn cluster_question(kubectl: &str, limit: &str) -> Vec<String> {
    let limit = format!("--request-timeout={limit}");
    words([kubectl, "version", &limit])
}

/// Whether docker reaches its server. An error is one sentence.
pub fn ask_docker(docker: &str) -> Result<(), String> {
    ask(&words([docker, "version"]), b"", SHORT_PATIENCE).map(drop)
}

/// What keeps this machine from what the tag promises, and behind `; ` what to do about it.
pub fn obstacle(tag: &str, docker: &str, kubectl: &str) -> Option<String> {
    let (question, advice) = match tag {
        "script" => (
            words(["sh", "-c", "exit 0"]),
            "put a directory with sh in the worker's PATH",
        ),
        "docker" => (
            // Asks the server as well.
            words([docker, "version"]),
            "start the docker service and let this user reach it, name another command in docker.command, or drop the tag",
        ),
        "kubernetes" => (
            cluster_question(kubectl, "4s"),
            "install kubectl and let this user's kubeconfig name a cluster that answers, name another command in \
             kubernetes.command, or drop the tag",
        ),
        _ => return None,
    };
    let why = ask(&question, b"", PATIENCE).err()?;
    Some(format!("{why}; {advice}"))
}
