//! The manifest of a pod: refused if it reaches beyond its pod, completed with what is ours.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::domain::limits::shorten;

pub(super) use crate::language::manifest::read;

/// Where a container leaves what Kubernetes keeps of it after its end, if its manifest names no other file.
pub(super) const OUTPUT: &str = "/dev/termination-log";

/// Refuses what reaches beyond the pod: the machine below it, other namespaces, the cluster.
pub(super) fn check(manifest: &Value, namespace: Option<&str>) -> Result<(), String> {
    let mut asked = Vec::new();
    if let Some(other) = named_namespace(manifest)
        && Some(other) != namespace
    {
        asked.push(format!("namespace {}", shorten(other)));
    }
    if let Value::Object(annotations) = &manifest["metadata"]["annotations"] {
        let unconfined = |value: &Value| value.as_str().is_some_and(is_unconfined);
        let loose = annotations.iter().filter(|(_, value)| unconfined(value));
        asked.extend(loose.map(|(name, _)| format!("annotation {}", shorten(name))));
    }
    look_for_reach(&manifest["spec"], &mut asked);
    if asked.is_empty() {
        return Ok(());
    }
    asked.sort();
    asked.dedup();
    Err(format!(
        "the manifest asks for {}, which reaches beyond its pod; the worker's settings do not allow that \
         (kubernetes.allow_privileged)",
        asked.join(", ")
    ))
}

pub(super) fn named_namespace(manifest: &Value) -> Option<&str> {
    manifest["metadata"]["namespace"].as_str()
}

/// What is ours in every pod.
pub(super) struct Completion {
    pub name: String,
    pub namespace: Option<String>,
    pub labels: BTreeMap<&'static str, String>,
    /// The pod ends by itself after this time, should nobody be left to end it.
    pub deadline_secs: i64,
}

/// The manifest as it is sent, and the name of its first container: that one is the step, and the others go with it.
pub(super) fn complete(
    manifest: Value,
    completion: &Completion,
) -> Result<(Value, String), String> {
    let is_pod = manifest["kind"] == "Pod" && manifest["apiVersion"] == "v1";
    if !is_pod {
        return Err("the manifest is not one of a pod (apiVersion: v1, kind: Pod)".to_string());
    }
    let no_container = || "the manifest has no container with a name and an image".to_string();
    let Value::Object(mut spec) = manifest["spec"].clone() else {
        return Err(no_container());
    };
    let first = &manifest["spec"]["containers"][0];
    let container = first["name"].as_str().ok_or_else(no_container)?;
    first["image"].as_str().ok_or_else(no_container)?;

    let deadline_secs = match spec.get("activeDeadlineSeconds").and_then(Value::as_i64) {
        Some(own) => own.min(completion.deadline_secs),
        None => completion.deadline_secs,
    };
    spec.insert("activeDeadlineSeconds".to_string(), json!(deadline_secs));
    // A step that is tried again is tried by the server.
    spec.insert("restartPolicy".to_string(), json!("Never"));
    // Whoever may talk to the cluster is not said by a step.
    spec.entry("automountServiceAccountToken")
        .or_insert(json!(false));

    // What else a manifest says of itself, such as finalizers and owners, would keep the pod from going.
    let mut labels = object(&manifest["metadata"]["labels"]);
    for (label, value) in &completion.labels {
        labels.insert(label.to_string(), json!(value));
    }
    let mut metadata = Map::from_iter([
        ("name".to_string(), json!(completion.name)),
        ("labels".to_string(), Value::Object(labels)),
        (
            "annotations".to_string(),
            Value::Object(object(&manifest["metadata"]["annotations"])),
        ),
    ]);
    if let Some(namespace) = &completion.namespace {
        metadata.insert("namespace".to_string(), json!(namespace));
    }
    let completed = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
    });
    Ok((completed, container.to_string()))
}

/// Adds variables to the first container. What it sets itself stays.
pub(super) fn add_environment(pod: &mut Value, environment: &BTreeMap<String, String>) {
    let container = &mut pod["spec"]["containers"][0];
    let own = container["env"].as_array().cloned().unwrap_or_default();
    let is_own = |name: &str| own.iter().any(|variable| variable["name"] == name);
    let added = environment.iter().filter(|(name, _)| !is_own(name));
    // Ours come first: those of the manifest may refer to them.
    let mut variables: Vec<Value> = added
        .map(|(name, value)| json!({ "name": name, "value": literal(value) }))
        .collect();
    variables.extend(own);
    container["env"] = Value::Array(variables);
}

/// Kubernetes replaces `$(NAME)` in values and commands, and takes `$$` for one `$`.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Everywhere below `spec`, whatever kind of container or volume it is in.
fn look_for_reach(value: &Value, asked: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if reaches(key, value) {
                    asked.push(match value.as_str() {
                        Some(word) => format!("{key} {}", shorten(word)),
                        None => key.clone(),
                    });
                }
                look_for_reach(value, asked);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look_for_reach(item, asked)),
        _ => {}
    }
}

fn reaches(key: &str, value: &Value) -> bool {
    let given = !value.is_null() && value != "";
    match key.to_ascii_lowercase().as_str() {
        "hostpath"
        | "nodename"
        | "serviceaccount"
        | "serviceaccountname"
        | "serviceaccounttoken" => given,
        "hostnetwork"
        | "hostpid"
        | "hostipc"
        | "hostprocess"
        | "privileged"
        | "automountserviceaccounttoken" => given && value != false,
        "hostport" => given && value != 0,
        "capabilities" => {
            value["add"]
                .as_array()
                .is_none_or(|added| !added.is_empty())
                && !value["add"].is_null()
        }
        "procmount" => given && value != "Default",
        "type" => value.as_str().is_some_and(is_unconfined),
        _ => false,
    }
}

fn is_unconfined(value: &str) -> bool {
    value.eq_ignore_ascii_case("unconfined")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &str) -> Option<String> {
        check(&read(&format!("spec: {spec}")).unwrap(), Some("ours")).err()
    }

    #[test]
    fn what_reaches_beyond_the_pod_is_refused() {
        for (spec, asked) in [
            ("{volumes: [{name: v, hostPath: {path: /}}]}", "hostPath"),
            ("{hostNetwork: true}", "hostNetwork"),
            ("{hostPID: true}", "hostPID"),
            ("{hostIPC: 'true'}", "hostIPC \"true\""),
            ("{HostIPC: true}", "HostIPC"),
            (
                "{containers: [{securityContext: {privileged: true}}]}",
                "privileged",
            ),
            (
                "{initContainers: [{securityContext: {privileged: true}}]}",
                "privileged",
            ),
            (
                "{containers: [{securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}",
                "capabilities",
            ),
            ("{containers: [{ports: [{hostPort: 22}]}]}", "hostPort"),
            (
                "{serviceAccountName: admin}",
                "serviceAccountName \"admin\"",
            ),
            ("{serviceAccount: admin}", "serviceAccount \"admin\""),
            (
                "{automountServiceAccountToken: true}",
                "automountServiceAccountToken",
            ),
            (
                "{volumes: [{projected: {sources: [{serviceAccountToken: {path: t}}]}}]}",
                "serviceAccountToken",
            ),
            ("{nodeName: master}", "nodeName \"master\""),
            (
                "{securityContext: {seccompProfile: {type: Unconfined}}}",
                "type \"Unconfined\"",
            ),
            (
                "{securityContext: {windowsOptions: {hostProcess: true}}}",
                "hostProcess",
            ),
            ("{a: &x {hostPID: true}, b: *x}", "hostPID"),
        ] {
            let expected = format!(
                "the manifest asks for {asked}, which reaches beyond its pod; \
                 the worker's settings do not allow that (kubernetes.allow_privileged)"
            );
            assert_eq!(refusal(spec), Some(expected), "{spec}");
        }
        let elsewhere = read("metadata: {namespace: kube-system}").unwrap();
        assert!(check(&elsewhere, Some("ours")).is_err());
        assert!(check(&elsewhere, None).is_err());
        assert!(check(&elsewhere, Some("kube-system")).is_ok());
    }

    #[test]
    fn what_stays_in_the_pod_is_not_refused() {
        for spec in [
            "{containers: [{name: a, image: b}]}",
            "{hostNetwork: false, serviceAccountName: '', automountServiceAccountToken: false}",
            "{containers: [{securityContext: {privileged: false, capabilities: {drop: [ALL]}}}]}",
            "{securityContext: {seccompProfile: {type: RuntimeDefault}}}",
            "{hostAliases: [{ip: 127.0.0.1, hostnames: [a]}]}",
        ] {
            assert_eq!(refusal(spec), None, "{spec}");
        }
    }

    fn completion() -> Completion {
        Completion {
            name: "stepward-1".to_string(),
            namespace: Some("ours".to_string()),
            labels: BTreeMap::from([("stepward.step", "7".to_string())]),
            deadline_secs: 100,
        }
    }

    #[test]
    fn a_manifest_gets_our_name_and_labels_and_loses_what_would_keep_it() {
        let written = "
apiVersion: v1
kind: Pod
metadata:
  name: theirs
  generateName: x
  finalizers: [never]
  labels: { app: a, stepward.step: forged }
  annotations: { note: b }
spec:
  restartPolicy: Always
  activeDeadlineSeconds: 500
  containers:
    - { name: main, image: busybox }
    - { name: helper, image: busybox }
";
        let (pod, container) = complete(read(written).unwrap(), &completion()).unwrap();
        assert_eq!(container, "main");
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "stepward-1",
                    "namespace": "ours",
                    "labels": { "app": "a", "stepward.step": "7" },
                    "annotations": { "note": "b" },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "activeDeadlineSeconds": 100,
                    "automountServiceAccountToken": false,
                    "containers": [
                        { "name": "main", "image": "busybox" },
                        { "name": "helper", "image": "busybox" },
                    ],
                },
            })
        );
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        for text in [
            "",
            "[]",
            "{kind: Job, apiVersion: v1}",
            "{kind: List, apiVersion: v1, items: []}",
            "{kind: Pod, apiVersion: v1}",
            "{kind: Pod, apiVersion: v1, spec: []}",
            "{kind: Pod, apiVersion: v1, spec: {containers: []}}",
            "{kind: Pod, apiVersion: v1, spec: {containers: [{name: a}]}}",
        ] {
            let refusal = complete(read(text).unwrap(), &completion()).unwrap_err();
            assert!(refusal.starts_with("the manifest "), "{text}: {refusal}");
        }
    }

    #[test]
    fn values_are_not_templates_of_kubernetes() {
        let text = "{kind: Pod, apiVersion: v1, spec: {containers: \
                    [{name: a, image: b, env: [{name: OWN, value: $(GIVEN)}]}]}}";
        let (mut pod, _) = complete(read(text).unwrap(), &completion()).unwrap();
        let given = BTreeMap::from([
            ("GIVEN".to_string(), "$(HOME) $$ $x".to_string()),
            ("OWN".to_string(), "lost".to_string()),
        ]);
        add_environment(&mut pod, &given);
        assert_eq!(
            pod["spec"]["containers"][0]["env"],
            json!([
                { "name": "GIVEN", "value": "$$(HOME) $$$$ $$x" },
                { "name": "OWN", "value": "$(GIVEN)" },
            ])
        );
    }
}
