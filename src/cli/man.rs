//! `stepward man`: the manual pages, made of what `--help` says.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::exit::{EXITS, Exit, Fault};
use super::help;
use super::say::{answer, print};
use super::words::shown_path;
use crate::language::words::nearest;

#[derive(Args)]
#[command(before_help = "Examples:
  stepward man | man -l -
  stepward man run | man -l -
  stepward man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The command whose page it is, such as `worker ls`; else that of `stepward`.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    words: Vec<String>,
    /// Writes all pages into this folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub fn run(args: ManArgs) -> anyhow::Result<Exit> {
    let pages = pages();
    if let Some(folder) = args.out {
        fs::create_dir_all(&folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
        for (name, page) in pages {
            let file = folder.join(format!("{name}.1"));
            fs::write(&file, page)
                .with_context(|| format!("{} cannot be written", file.display()))?;
            answer(shown_path(&file));
        }
        return Ok(Exit::Success);
    }
    let name = [vec!["stepward".to_string()], args.words]
        .concat()
        .join("-");
    let Some((_, page)) = pages.iter().find(|(known, _)| *known == name) else {
        let asked = name.replace('-', " ");
        let near = nearest(&name, pages.iter().map(|(known, _)| known.as_str()));
        let hint = near.map(|near| format!("; did you mean `{}`?", near.replace('-', " ")));
        let message = format!("there is no command `{asked}`{}", hint.unwrap_or_default());
        return Err(Fault::not_found(message));
    };
    print(page);
    Ok(Exit::Success)
}

/// By name, `stepward-worker-ls` and so on.
fn pages() -> Vec<(String, String)> {
    let mut whole = help::public().disable_help_subcommand(true);
    whole.build();
    let mut pages = Vec::new();
    collect(&whole, "stepward", &mut pages);
    pages
}

fn collect(command: &Command, name: &str, pages: &mut Vec<(String, String)>) {
    pages.push((name.to_string(), page(command, name)));
    for verb in command.get_subcommands() {
        collect(verb, &format!("{name}-{}", verb.get_name()), pages);
    }
}

fn page(command: &Command, name: &str) -> String {
    let mut text = Vec::new();
    let examples = command.get_before_help().map(ToString::to_string);
    // Its own section says them better than a paragraph above everything.
    let plain = command
        .clone()
        .before_help("")
        .display_name(name.to_string());
    let source = concat!("stepward ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(plain).title(name.to_uppercase()).source(source);
    let rendered = man.render(&mut text);
    let exits = examples_and_exits(examples.as_deref()).to_writer(&mut text);
    rendered.and(exits).expect("memory can be written to");
    String::from_utf8_lossy(&text).into_owned()
}

fn examples_and_exits(examples: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    let lines = examples.into_iter().flat_map(str::lines).skip(1);
    let lines: Vec<&str> = lines.map(str::trim_start).collect();
    if !lines.is_empty() {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in lines {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (_, code, meaning) in EXITS {
        roff.control("TP", []);
        roff.text([bold(code.to_string())]);
        roff.text([roman(meaning)]);
    }
    roff
}
