//! What we depend on keeps to `deny.toml`, as far as that can be told without a network and without a tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// More is asked for by nothing that we do.
const CRATES_MAX: usize = 160;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    licence: String,
    /// Where it comes from, if that is not the registry.
    elsewhere: Option<String>,
}

/// Everything that is built where we run, with all features: for the binary, and for tests as well.
fn crates(edges: &str) -> BTreeSet<Crate> {
    let said = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--all-features"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--edges", edges])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{told}");
    let lines = String::from_utf8(said.stdout).unwrap();
    lines.lines().map(read).collect()
}

/// `syn v2.0.119|MIT OR Apache-2.0`; behind the version where it comes from, if need be, and whether it is a macro.
fn read(line: &str) -> Crate {
    let (package, licence) = line.rsplit_once('|').unwrap();
    let mut words = package.split(' ');
    let (name, version) = (words.next().unwrap(), words.next().unwrap());
    let version = version.strip_prefix('v').unwrap();
    let mut elsewhere = words.filter(|word| *word != "(proc-macro)");
    Crate {
        name: name.to_string(),
        version: version.to_string(),
        licence: licence.to_string(),
        elsewhere: elsewhere.next().map(str::to_string),
    }
}

const BINARY: &str = "normal,build";
const TESTS: &str = "normal,build,dev";

fn deny_toml() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("deny.toml")).unwrap()
}

/// The lines between `key = [` and `]`, without remarks.
fn list(text: &str, key: &str) -> Vec<String> {
    let begin = format!("{key} = [\n");
    let (_, rest) = text
        .split_once(&begin)
        .unwrap_or_else(|| panic!("there is no {key}"));
    let (lines, _) = rest.split_once("\n]").unwrap();
    let lines = lines
        .lines()
        .map(|line| line.split(" #").next().unwrap().trim());
    lines.map(str::to_string).collect()
}

/// The crates of a list, each of which has to have a reason.
fn with_reasons(text: &str, key: &str) -> Vec<String> {
    let entry = |line: &String| {
        let words: Vec<&str> = line.split('"').collect();
        let [open, name, and, reason, close] = words.as_slice() else {
            panic!("not a crate and a reason: {line}");
        };
        assert_eq!((*open, *and, *close), ("{ crate = ", ", reason = ", " },"));
        assert!(!reason.is_empty(), "{line}");
        name.to_string()
    };
    list(text, key).iter().map(entry).collect()
}

#[test]
fn there_are_no_more_crates_than_we_can_answer_for() {
    let count = crates(BINARY).len();
    assert!((100..=CRATES_MAX).contains(&count), "{count} crates");
}

#[test]
fn every_crate_of_others_comes_from_the_registry() {
    // Ours, and what of others we had to write ourselves: `[patch.crates-io]` says why.
    let own = ["stepward", "httpdate"];
    for one in crates(TESTS) {
        let is_own = own.contains(&one.name.as_str());
        assert!(is_own || one.elsewhere.is_none(), "{}", one.name);
    }
    let local = read("found v1.0.0 (proc-macro) (/somewhere/found)|MIT");
    assert_eq!(local.elsewhere.as_deref(), Some("(/somewhere/found)"));
}

#[test]
fn no_crate_is_one_that_we_do_without() {
    let denied = with_reasons(&deny_toml(), "deny");
    assert!(denied.iter().any(|name| name == "openssl-sys"));
    let crates = crates(TESTS);
    for one in &crates {
        assert!(!denied.contains(&one.name), "{} {}", one.name, one.version);
    }
    let sqlite = crates.iter().filter(|one| one.name == "libsqlite3-sys");
    assert_eq!(
        sqlite.count(),
        1,
        "one SQLite, or two of them lock one file"
    );
}

#[test]
fn a_crate_is_there_in_two_versions_only_for_a_reason() {
    let skipped: BTreeSet<String> = with_reasons(&deny_toml(), "skip").into_iter().collect();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in crates(TESTS) {
        versions.entry(one.name).or_default().push(one.version);
    }
    let mut met = BTreeSet::new();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let mut is_skipped = |version: &&String| {
            let mut of_name = skipped.iter().filter_map(|one| one.split_once('@'));
            let found = of_name.find(|(skipped, of)| {
                *skipped == name && format!("{version}.").starts_with(&format!("{of}."))
            });
            met.extend(found.map(|(name, of)| format!("{name}@{of}")));
            found.is_some()
        };
        let unskipped = versions
            .iter()
            .filter(|version| !is_skipped(version))
            .count();
        assert!(
            unskipped <= 1,
            "{name} is there as {}",
            versions.join(" and as ")
        );
    }
    assert_eq!(met, skipped, "a reason for what is no longer there");
}

#[test]
fn every_licence_is_one_that_we_accept() {
    let accepted: BTreeSet<String> = list(&deny_toml(), "allow")
        .iter()
        .map(|line| line.trim_matches([',', '"']).to_string())
        .collect();
    for one in crates(TESTS) {
        let is_accepted = is_accepted(&one.licence, &accepted);
        assert!(is_accepted, "{} is under {:?}", one.name, one.licence);
    }
}

/// Any of what stands between `OR`, which is all of what stands between `AND`. A slash is an old `OR`.
fn is_accepted(licence: &str, accepted: &BTreeSet<String>) -> bool {
    let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
    // Brackets stand around one side of an AND, never deeper.
    if let Some((inside, rest)) = licence
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") AND "))
    {
        return is_accepted(inside, accepted) && is_accepted(rest, accepted);
    }
    let all_of = |text: &str| text.split(" AND ").all(|one| accepted.contains(one.trim()));
    licence.split(" OR ").any(all_of)
}

#[test]
fn a_licence_is_read_as_it_is_meant() {
    let accepted = BTreeSet::from(["MIT", "ISC"].map(str::to_string));
    for (licence, expected) in [
        ("MIT", true),
        ("", false),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND ISC", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("(MIT OR GPL-3.0) AND GPL-3.0", false),
        ("MITX", false),
    ] {
        assert_eq!(is_accepted(licence, &accepted), expected, "{licence}");
    }
}
