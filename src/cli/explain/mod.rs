//! `stepward explain`: what a code or a word of ours means, and what to do about it.

mod reasons;
mod topics;
mod waiting;

use clap::Args;
use serde::Serialize;

use super::exit::{EXITS, Exit, Fault};
use super::look::Show;
use super::say::{answer, answer_json, print};
use super::table::{Cell, Table};
use super::words::printable;
use crate::domain::reason::{Reason, Waiting};
use crate::language::rules::{self, RULES};
use crate::language::words::nearest;
use topics::TOPICS;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward explain E012
  stepward explain worker_lost
  stepward explain exit-codes")]
pub struct ExplainArgs {
    /// A rule such as E012, a reason such as worker_lost, an exit code such as 13, or a word such as recovery.
    #[arg(value_name = "CODE|WORD", required_unless_present = "list")]
    word: Option<String>,
    /// Everything that can be explained, with one line each.
    #[arg(long, conflicts_with = "word")]
    list: bool,
    #[command(flatten)]
    show: Show,
}

/// What is said about one thing.
#[derive(Debug, Serialize)]
struct Explained {
    code: String,
    /// `rule`, `reason`, `waiting`, `exit`, `topic`.
    kind: &'static str,
    title: String,
    text: String,
}

/// What it means; what to look at; what to do.
struct Said {
    title: &'static str,
    text: &'static str,
}

pub fn run(args: ExplainArgs) -> anyhow::Result<Exit> {
    let all = all();
    if args.list {
        list(&all, &args.show);
        return Ok(Exit::Success);
    }
    let word = args.word.unwrap_or_default();
    let found = find(&all, &word).ok_or_else(|| unknown(&all, &word))?;
    match args.show.json {
        true => answer_json(found),
        // A rule is a page with its code on top, as the others are.
        false => {
            let page = format!("{}: {}\n\n{}", found.code, found.title, found.text);
            answer(args.show.look().own(page))
        }
    };
    Ok(Exit::Success)
}

fn list(all: &[Explained], show: &Show) {
    if show.json {
        answer_json(&serde_json::json!({ "items": all, "next": null }));
        return;
    }
    let mut table = Table::new(&["CODE", "KIND", "ABOUT"]);
    for one in all {
        let texts = [one.code.as_str(), one.kind, one.title.as_str()];
        table.row(texts.map(Cell::new).into());
    }
    print(&table.text(&show.look()));
}

/// Rules first, as they always were.
fn all() -> Vec<Explained> {
    let rules = RULES.iter().map(|rule| {
        let page = rules::explanation(rule);
        let text = page.split_once("\n\n").map_or("", |(_, text)| text);
        explained(rule.code, "rule", rule.title, text)
    });
    let reasons = Reason::ALL.iter().map(|reason| {
        let Said { title, text } = reasons::said(*reason);
        explained(reason.as_str(), "reason", title, text)
    });
    let waiting = Waiting::ALL.iter().map(|waiting| {
        let Said { title, text } = waiting::said(*waiting);
        explained(waiting.as_str(), "waiting", title, text)
    });
    let exits = EXITS.iter().map(|(_, code, means)| {
        let text = format!("A command that ends with {code} says: {means}.\n`stepward explain exit-codes` has all of them.");
        explained(&format!("exit-{code}"), "exit", means, &text)
    });
    let topics = TOPICS.iter().map(|(word, Said { title, text })| {
        let text = match *word {
            "exit-codes" => format!("{text}\n\n{}", exit_codes()),
            _ => text.to_string(),
        };
        explained(word, "topic", title, &text)
    });
    let all = rules.chain(reasons).chain(waiting).chain(exits);
    all.chain(topics).collect()
}

fn explained(code: &str, kind: &'static str, title: &str, text: &str) -> Explained {
    Explained {
        code: code.to_string(),
        kind,
        title: title.to_string(),
        text: text.to_string(),
    }
}

fn exit_codes() -> String {
    let lines = EXITS
        .iter()
        .map(|(_, code, means)| format!("  {code:>3}  {means}"));
    lines.collect::<Vec<String>>().join("\n")
}

/// A number is an exit code; letters in any case, with - or _.
fn find<'e>(all: &'e [Explained], word: &str) -> Option<&'e Explained> {
    let plain = |word: &str| word.to_lowercase().replace(['_', ' '], "-");
    let meant = plain(word.trim());
    let is_number = !meant.is_empty() && meant.bytes().all(|byte| byte.is_ascii_digit());
    let meant = match is_number {
        true => format!("exit-{meant}"),
        false => meant,
    };
    all.iter().find(|one| plain(&one.code) == meant)
}

fn unknown(all: &[Explained], word: &str) -> anyhow::Error {
    let hint = match nearest(word, all.iter().map(|one| one.code.as_str())) {
        Some(near) => format!("did you mean {near}?"),
        None => "`stepward explain --list` shows all".to_string(),
    };
    let word = printable(word);
    Fault::not_found(format!(
        "there is nothing called {word:?} to explain; {hint}"
    ))
}
