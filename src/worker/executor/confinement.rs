//! Flags of `docker run` that confine the container of a step, unless the worker's settings override them.
//!
//! Every container runs with `no-new-privileges` (no set-uid program inside makes anybody root), with a limit on its processes, and
//! without the capabilities that forge network packets and make device files. `docker.hardened` takes away all the others as well.
//!
//! `docker.args` of the settings wins. Docker takes the last of two values for most flags, but not for capabilities, and podman
//! refuses a capability that is both dropped and added. So each of our flags is left out where the settings speak about the same
//! thing.

/// More processes and threads than a build needs, and fewer than stop a machine.
const PIDS_MAX: u32 = 4096;
/// NET_RAW forges packets of other machines on the same network, MKNOD makes device files.
const DROPPED: [&str; 2] = ["NET_RAW", "MKNOD"];
const ALL: &str = "ALL";
/// What docker and podman read as true.
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// The flags for `docker run` that come before `args`, the worker's own.
pub(super) fn flags(hardened: bool, args: &[String]) -> Vec<String> {
    let mut from_last = args.iter().rev();
    let privileged = from_last.find_map(|arg| match arg.strip_prefix("--privileged")? {
        "" => Some("true"),
        value => value.strip_prefix('='),
    });
    let is_privileged = privileged.is_some_and(|value| TRUE.contains(&value));
    let mut flags = Vec::new();
    let mut security = values("--security-opt", args);
    if !is_privileged && !security.any(|option| option.starts_with("no-new-privileges")) {
        flags.push("--security-opt=no-new-privileges".to_string());
    }
    if values("--pids-limit", args).next().is_none() {
        flags.push(format!("--pids-limit={PIDS_MAX}"));
    }
    let added = values("--cap-add", args).flat_map(|value| value.split(','));
    let added: Vec<String> = added.map(capability).collect();
    let is_added = |capability: &str| added.iter().any(|added| added == capability);
    if is_privileged || is_added(ALL) {
        return flags;
    }
    match hardened {
        true => flags.push(format!("--cap-drop={ALL}")),
        false => {
            let dropped = DROPPED.iter().filter(|dropped| !is_added(dropped));
            flags.extend(dropped.map(|dropped| format!("--cap-drop={dropped}")));
        }
    }
    flags
}

/// The values of a flag, written as `--flag=value` or as `--flag` `value`.
fn values<'a>(flag: &'a str, args: &'a [String]) -> impl Iterator<Item = &'a str> {
    let next = args.iter().skip(1).map(Some).chain([None]);
    let pairs = args.iter().zip(next);
    pairs.filter_map(move |(arg, next)| match arg.strip_prefix(flag)? {
        "" => next.map(String::as_str),
        value => value.strip_prefix('='),
    })
}

/// `cap_net_raw`, `CAP_NET_RAW` and `NET_RAW` are the same.
fn capability(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").unwrap_or(&name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hardened: bool, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        flags(hardened, &args).join(" ")
    }

    const NO_NEW: &str = "--security-opt=no-new-privileges";

    #[test]
    fn a_container_can_do_less_unless_the_settings_say_otherwise() {
        let rest = "--pids-limit=4096 --cap-drop=NET_RAW --cap-drop=MKNOD";
        assert_eq!(of(false, &[]), format!("{NO_NEW} {rest}"));
        assert_eq!(of(false, &["--network=none"]), format!("{NO_NEW} {rest}"));
        assert_eq!(
            of(true, &[]),
            format!("{NO_NEW} --pids-limit=4096 --cap-drop=ALL")
        );
        let seccomp = ["--security-opt", "seccomp=unconfined"];
        assert_eq!(of(false, &seccomp), format!("{NO_NEW} {rest}"));
    }

    #[test]
    fn what_the_settings_speak_about_is_left_to_them() {
        for args in [
            &["--security-opt=no-new-privileges=false"][..],
            &["--security-opt", "no-new-privileges:false"],
        ] {
            let left = "--pids-limit=4096 --cap-drop=NET_RAW --cap-drop=MKNOD";
            assert_eq!(of(false, args), left, "{args:?}");
        }
        for args in [&["--pids-limit=-1"][..], &["--pids-limit", "10"]] {
            let left = format!("{NO_NEW} --cap-drop=NET_RAW --cap-drop=MKNOD");
            assert_eq!(of(false, args), left, "{args:?}");
        }
        for args in [
            &["--cap-add=NET_RAW"][..],
            &["--cap-add", "cap_net_raw"],
            &["--init", "--cap-add", "Net_Raw", "--read-only"],
        ] {
            let left = format!("{NO_NEW} --pids-limit=4096 --cap-drop=MKNOD");
            assert_eq!(of(false, args), left, "{args:?}");
            let hardened = format!("{NO_NEW} --pids-limit=4096 --cap-drop=ALL");
            assert_eq!(of(true, args), hardened, "docker adds it to nothing");
        }
        for args in [
            &["--cap-add=NET_RAW,MKNOD"][..],
            &["--cap-add", "cap_mknod,cap_net_raw"],
        ] {
            let left = format!("{NO_NEW} --pids-limit=4096");
            assert_eq!(of(false, args), left, "{args:?}");
        }
        for args in [
            &["--cap-add=ALL"][..],
            &["--cap-add", "all"],
            &["--cap-add=CHOWN,ALL"],
        ] {
            let left = format!("{NO_NEW} --pids-limit=4096");
            assert_eq!((of(false, args), of(true, args)), (left.clone(), left));
        }
        for value in TRUE {
            let args = [&*format!("--privileged={value}")];
            assert_eq!(of(false, &args), "--pids-limit=4096", "{args:?}");
        }
        assert_eq!(of(false, &["--privileged"]), "--pids-limit=4096");
        for args in [
            &["--privileged=false"][..],
            &["--privileged=0"],
            &["--privileged", "--privileged=false"],
        ] {
            assert!(of(false, args).contains(NO_NEW), "{args:?}");
        }
    }
}
