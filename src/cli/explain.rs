//! `stepward explain CODE`: what a rule of the workflow language is about.

use clap::Args;

use super::exit::Exit;
use super::say::{answer, say};
use crate::language::rules::{self, RULES};
use crate::language::words::nearest;

#[derive(Args)]
pub struct ExplainArgs {
    /// Such as E012.
    #[arg(value_name = "CODE", required_unless_present = "list")]
    code: Option<String>,
    /// Every code, with one line each.
    #[arg(long)]
    list: bool,
}

pub fn run(args: ExplainArgs) -> anyhow::Result<Exit> {
    if args.list {
        for rule in RULES.iter() {
            answer(format!("{}  {}", rule.code, rule.title));
        }
        return Ok(Exit::Success);
    }
    let code = args.code.unwrap_or_default().to_uppercase();
    let Some(rule) = rules::find(&code) else {
        let near = nearest(&code, RULES.iter().map(|rule| rule.code));
        let hint = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "`stepward explain --list` shows all".to_string(),
        };
        say(format!("there is no rule {code:?}; {hint}"));
        return Ok(Exit::Usage);
    };
    answer(rules::explanation(rule));
    Ok(Exit::Success)
}
