//! A strict reader of what Prometheus reads: every family once, with help and type, its samples together, none twice.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Exposition {
    /// Family → type.
    pub families: BTreeMap<String, String>,
    /// `name{label="value"}` as it stands there → value.
    pub samples: BTreeMap<String, f64>,
}

impl Exposition {
    pub fn read(text: &str) -> Exposition {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut read = Exposition::default();
        let mut helped: Option<&str> = None;
        let mut family: Option<(&str, &str)> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help says something");
                assert!(!help.trim().is_empty() && help.ends_with('.'), "{line}");
                assert!(!read.families.contains_key(name), "once: {line}");
                helped = Some(name);
                family = None;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type has a name");
                assert_eq!(helped.take(), Some(name), "its help stands before it");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(is_name(name), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                read.families.insert(name.to_string(), kind.to_string());
                family = Some((name, kind));
            } else {
                let (name, kind) = family.unwrap_or_else(|| panic!("of no family: {line}"));
                let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
                let bare = series.split('{').next().unwrap();
                let suffix = bare.strip_prefix(name).unwrap_or_else(|| panic!("{line}"));
                let fits = match kind {
                    "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                    _ => suffix.is_empty(),
                };
                assert!(fits, "{line}");
                check_labels(&series[bare.len()..]);
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(value.is_finite() && value >= 0.0, "{line}");
                let before = read.samples.insert(series.to_string(), value);
                assert_eq!(before, None, "twice: {line}");
            }
        }
        read.check_histograms(text);
        read
    }

    /// What a series has. One that is not there is no 0.
    pub fn value(&self, series: &str) -> f64 {
        let found = self.samples.get(series);
        *found.unwrap_or_else(|| panic!("there is no {series}"))
    }

    /// The series of a family that are not 0, without its name: `{a="b"} 3`.
    pub fn told(&self, family: &str) -> Vec<String> {
        let of_family = |(series, value): (&String, &f64)| {
            let rest = series.strip_prefix(family)?;
            let is_it = rest.is_empty() || rest.starts_with('{');
            (is_it && *value != 0.0).then(|| format!("{rest} {value}").trim().to_string())
        };
        self.samples.iter().filter_map(of_family).collect()
    }

    /// Buckets grow, the last is `+Inf`, and it is the count.
    fn check_histograms(&self, text: &str) {
        let mut last: Option<(String, f64)> = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            if let Some((name, labels)) = series.split_once("_bucket{") {
                let (others, bound) = labels.rsplit_once("le=\"").unwrap();
                let key = format!("{name}{{{}", others.trim_end_matches(','));
                if let Some((before, count)) = &last {
                    assert!(*before != key || *count <= value, "{line}");
                }
                last = Some((key, value));
                if bound.starts_with("+Inf") {
                    let labels = others.trim_end_matches(',');
                    let labels = match labels {
                        "" => String::new(),
                        labels => format!("{{{labels}}}"),
                    };
                    assert_eq!(
                        self.value(&format!("{name}_count{labels}")),
                        value,
                        "{line}"
                    );
                    self.value(&format!("{name}_sum{labels}"));
                }
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(fits)
}

/// `{a="b",c="d"}`: no label twice, no value that could be an id.
fn check_labels(labels: &str) {
    if labels.is_empty() {
        return;
    }
    let inner = labels
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.unwrap_or_else(|| panic!("{labels}"));
    let mut names = BTreeSet::new();
    for pair in inner.split("\",") {
        let (name, value) = pair.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        let value = value.trim_end_matches('"');
        assert!(is_name(name) && names.insert(name), "{labels}");
        assert!(
            !value.is_empty() && !value.contains(['"', '\\', '\n']),
            "{labels}"
        );
    }
}
