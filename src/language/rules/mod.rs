//! Every rule that a workflow file can break: the one list, with what `stepward explain` says.

mod graph;
mod shape;
mod templates;
mod values;
mod warnings;
mod yaml;

use std::sync::LazyLock;

use super::diagnostic::Severity;

#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub code: &'static str,
    pub title: &'static str,
    /// One paragraph.
    pub text: &'static str,
    /// Breaks this rule and no other. Several files begin with a line `# file: NAME` each.
    pub wrong: &'static str,
    pub right: &'static str,
}

/// By code.
pub static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let all = [
        yaml::RULES,
        shape::RULES,
        values::RULES,
        graph::RULES,
        templates::RULES,
        warnings::RULES,
    ];
    let mut rules = all.concat();
    rules.sort_by_key(|rule| rule.code);
    rules
});

/// Rules about secrets that only a running server checks, because `stepward validate` does not know its settings.
pub const CHECKED_BY_SERVER: [&str; 2] = ["E072", "E073"];

pub fn find(code: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

pub fn severity(code: &str) -> Severity {
    match code.starts_with('W') {
        true => Severity::Warning,
        false => Severity::Error,
    }
}

/// The rule as a page of text.
pub fn explanation(rule: &Rule) -> String {
    let indented = |example: &str| {
        let lines = example.trim_end().lines();
        let lines: Vec<String> = lines
            .map(|line| format!("    {line}").trim_end().to_string())
            .collect();
        lines.join("\n")
    };
    format!(
        "{}: {}\n\n{}\n\nWrong:\n\n{}\n\nRight:\n\n{}",
        rule.code,
        rule.title,
        rule.text,
        indented(rule.wrong),
        indented(rule.right)
    )
}
