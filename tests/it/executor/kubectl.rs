//! A recorded kubectl: it answers as the real one does.

use serde_json::{Value, json};

/// `get` answers with `sight.1`, `sight.2`, … and then with `sight` for ever; `logs` with `log.follow` or `log`.
/// While there is a file `slow`, a pod is being made.
pub const KUBECTL: &str = r#"
for word; do case $word in create|get|logs|delete) verb=$word; break;; esac; done
why=$(cat "fail.$verb" 2>/dev/null)
if [ -n "$why" ]; then echo "$why" >&2; exit 1; fi
case $verb in
create)
  cat > created
  if [ -e slow ]; then while [ -e slow ]; do sleep 0.05; done; echo made >> ledger; fi
  echo pod/x;;
get)
  n=$(($(cat looks 2>/dev/null || echo 0) + 1)); echo $n > looks
  if [ -e "sight.$n" ]; then cat "sight.$n"; else cat sight; fi;;
logs)
  case "$*" in *--follow=true*) cat log.follow; [ ! -e hang ] || exec sleep 600;; *) cat log;; esac;;
delete)
  # What a worker removes at its start is of former lives.
  case "$*" in *--selector=*) ;; *) [ ! -e after.delete ] || mv after.delete sight;; esac;;
esac
"#;

pub fn state(state: Value) -> String {
    json!({ "status": { "phase": "Running", "containerStatuses": [{ "name": "step", "state": state }] } })
        .to_string()
}

pub fn running() -> String {
    state(json!({ "running": {} }))
}

pub fn ended(exit_code: i32, message: &str) -> String {
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    state(json!({ "terminated": { "exitCode": exit_code, "reason": reason, "message": message } }))
}
