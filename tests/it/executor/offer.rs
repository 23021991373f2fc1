//! A worker offers what it can do, and removes what a former life of it left.

use stepward::worker::executor::{Leftovers, Offer, offer, remove_leftovers};

use super::desk::Desk;

fn tags(tags: &[&str]) -> Vec<String> {
    tags.iter().map(|tag| tag.to_string()).collect()
}

#[test]
fn a_worker_that_can_do_everything_offers_everything() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "");
    desk.tools.kubectl = desk.tool("kubectl", "");
    let wanted = tags(&["script", "gpu", "docker", "kubernetes", "gpu"]);
    let expected = Offer {
        tags: tags(&["docker", "gpu", "kubernetes", "script"]),
        remarks: Vec::new(),
    };
    assert_eq!(offer(&wanted, &desk.tools), expected);
    assert_eq!(desk.ledger(), ["version", "version --request-timeout=4s"]);
}

#[test]
fn a_tag_that_promises_too_much_is_left_out_with_a_reason() {
    let mut desk = Desk::new();
    let silent = "echo 'Cannot connect to the Docker daemon' >&2; exit 1";
    desk.tools.docker = desk.tool("docker", silent);
    let offer = offer(&tags(&["script", "docker", "kubernetes"]), &desk.tools);
    assert_eq!(offer.tags, ["script"]);
    let docker = format!(
        "tag docker is not offered: {} said: Cannot connect to the Docker daemon; start the docker service and let this \
         user reach it, name another command in docker.command, or drop the tag",
        desk.tools.docker
    );
    let kubernetes = "tag kubernetes is not offered: /no/kubectl cannot be started: No such file or directory (os error 2); \
                      install kubectl and let this user's kubeconfig name a cluster that answers, name another command in \
                      kubernetes.command, or drop the tag";
    assert_eq!(offer.remarks, [docker.as_str(), kubernetes]);
}

#[test]
fn kubernetes_is_offered_only_while_a_cluster_answers() {
    let mut desk = Desk::new();
    // As kubectl does: its own version, whether or not a cluster answers.
    let kubectl = "echo 'Client Version: v1.31.0'\n\
                   case \"$*\" in *--client*) exit 0 ;; esac\n\
                   [ -e cluster ] || { echo 'The connection to the server was refused' >&2; exit 1; }";
    desk.tools.kubectl = desk.tool("kubectl", kubectl);
    let wanted = tags(&["script", "kubernetes"]);
    let refused = offer(&wanted, &desk.tools);
    assert_eq!(refused.tags, ["script"]);
    let remark = format!(
        "tag kubernetes is not offered: {} said: The connection to the server was refused; ",
        desk.tools.kubectl
    );
    assert!(refused.remarks[0].starts_with(&remark), "{refused:?}");
    desk.write("cluster", "");
    assert_eq!(offer(&wanted, &desk.tools).tags, ["kubernetes", "script"]);
}

#[test]
fn a_docker_that_hangs_does_not_hold_the_worker() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "exec sleep 600");
    let offer = offer(&tags(&["docker"]), &desk.tools);
    assert_eq!(offer.tags, [] as [String; 0]);
    assert!(offer.remarks[0].contains("did not answer within 5 s; "));
}

#[test]
fn a_tag_that_is_not_wanted_is_not_tried() {
    let desk = Desk::new();
    assert_eq!(offer(&tags(&["gpu"]), &desk.tools).tags, ["gpu"]);
    let nothing = Leftovers::default();
    assert_eq!(removed(&desk, &["gpu"]), nothing);
}

/// As on a worker that offers all the tags, and whose former life left attempts.
fn removed(desk: &Desk, wanted: &[&str]) -> Leftovers {
    let offered = Offer {
        tags: tags(wanted),
        remarks: Vec::new(),
    };
    remove_leftovers(&tags(wanted), &offered, true, &desk.tools)
}

#[test]
fn a_cluster_that_did_not_answer_for_the_offer_is_not_asked_for_leftovers() {
    let mut desk = Desk::new();
    desk.tools.kubectl = desk.tool("kubectl", "echo no route to host >&2; exit 1");
    let wanted = tags(&["kubernetes", "script"]);
    let offered = offer(&wanted, &desk.tools);
    let asked = desk.ledger();
    let never_ran = remove_leftovers(&wanted, &offered, false, &desk.tools);
    assert_eq!(never_ran, Leftovers::default());
    let ran = remove_leftovers(&wanted, &offered, true, &desk.tools);
    assert_eq!(
        ran.remarks,
        [
            "pods of a former life of this worker may still run: tag kubernetes is not offered now; start the worker again once it is"
        ]
    );
    assert_eq!(desk.ledger(), asked);
}

#[test]
fn leftovers_are_found_by_the_workers_mark() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "[ $1 = ps ] && printf 'aaa\\nbbb\\n'; true");
    let deleted = "echo pod/stepward-1; echo 'No resources found'";
    desk.tools.kubectl = desk.tool("kubectl", deleted);
    desk.tools.namespace = Some("ours".to_string());
    let leftovers = removed(&desk, &["docker", "kubernetes"]);
    assert_eq!((leftovers.removed, leftovers.remarks.len()), (3, 0));
    assert_eq!(
        desk.ledger(),
        [
            "ps --all --quiet --no-trunc --filter label=stepward.instance=key",
            "rm --force --volumes -- aaa bbb",
            "--namespace=ours delete pod --now --wait=false --ignore-not-found --request-timeout=10s \
             --selector=stepward.instance=2c70e12b7a0646f9 --output=name",
        ]
    );
}

#[test]
fn many_leftovers_are_removed_in_several_calls() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool("docker", "[ $1 = ps ] && seq 120; true");
    assert_eq!(removed(&desk, &["docker"]).removed, 120);
    let calls = desk.ledger();
    assert_eq!(calls.len(), 4);
    assert!(calls[3].starts_with("rm --force --volumes -- 101 102 "));
}

#[test]
fn leftovers_that_stay_are_told() {
    let mut desk = Desk::new();
    desk.tools.docker = desk.tool(
        "docker",
        "[ $1 = ps ] && echo aaa && exit 0; echo busy >&2; exit 1",
    );
    let leftovers = removed(&desk, &["docker", "kubernetes"]);
    assert_eq!(leftovers.removed, 0);
    let prefix = "of a former life of this worker may still run";
    assert_eq!(
        leftovers.remarks,
        [
            format!("containers {prefix}: {} said: busy", desk.tools.docker),
            format!(
                "pods {prefix}: /no/kubectl cannot be started: No such file or directory (os error 2)"
            ),
        ]
    );
}
