//! `stepward config show`: every setting as it is in force, and where it comes from.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::exit::Exit;
use super::look::{Ink, Show};
use super::say::{answer_json_list, print, say};
use super::settings;
use super::table::{Cell, Table};
use super::words::shown_path;
use crate::config::{Origin, Setting};

#[derive(Args)]
#[command(before_help = "\
Examples:
  stepward config show --origin
  stepward config show --changed --worker
  stepward config show --origin -- --listen 127.0.0.1:8080")]
pub struct ConfigShowArgs {
    /// Where each comes from: default, FILE:LINE, a variable or a flag.
    #[arg(long)]
    origin: bool,
    /// Only what differs from the defaults.
    #[arg(long)]
    changed: bool,
    /// Those of `stepward worker`, not of `stepward server`.
    #[arg(long)]
    worker: bool,
    /// The settings file; else that of this folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Flags of `stepward server` or `stepward worker`, as if it were started with them.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
    #[command(flatten)]
    show: Show,
}

/// What is promised to programs.
#[derive(Serialize)]
struct SettingJson<'a> {
    key: &'a str,
    /// `null` also for what is not shown.
    value: Option<&'a Value>,
    default: &'a Value,
    origin: OriginJson<'a>,
    /// It may be a password.
    hidden: bool,
}

#[derive(Serialize)]
struct OriginJson<'a> {
    kind: &'static str,
    file: Option<String>,
    line: Option<usize>,
    variable: Option<&'a str>,
    flag: Option<&'a str>,
}

pub fn run(args: ConfigShowArgs) -> anyhow::Result<Exit> {
    let named = args.config.as_deref();
    let (file, mut settings) = match args.worker {
        false => {
            let known = settings::server(named, &args.flags)?;
            (known.file, known.settings)
        }
        true => {
            let known = settings::worker(named, &args.flags)?;
            let mut settings = known.settings;
            let token = known.given.iter().find(|given| given.key == "token");
            settings.extend(token.map(|token| token_setting(&token.by)));
            (known.file, settings)
        }
    };
    if args.changed {
        settings.retain(Setting::is_changed);
    }
    if args.show.json {
        let items = settings.iter().map(SettingJson::from).collect();
        answer_json_list(items);
        return Ok(Exit::Success);
    }
    let kind = if args.worker { "worker" } else { "server" };
    match file {
        Some(file) => say(format!("settings of a {kind}, from {}", shown_path(&file))),
        None => say(format!("settings of a {kind}, without a file")),
    }
    if settings.is_empty() {
        say("all are as they are by default");
    }
    let mut table = match args.origin {
        true => Table::new(&["KEY", "VALUE", "ORIGIN"]),
        false => Table::new(&["KEY", "VALUE"]),
    };
    for setting in &settings {
        let mut cells = vec![Cell::new(&setting.key), Cell::new(setting.in_words())];
        if args.origin {
            let origin = Cell::new(setting.origin.to_string());
            cells.push(match setting.origin {
                Origin::Default => origin.ink(Ink::Faint),
                _ => origin,
            });
        }
        table.row(cells);
    }
    if !table.is_empty() {
        print(&table.text(&args.show.look()));
    }
    Ok(Exit::Success)
}

/// It is a setting that no file can have.
fn token_setting(by: &Origin) -> Setting {
    Setting {
        key: "token".to_string(),
        value: Value::from("given"),
        default: Value::Null,
        origin: by.clone(),
    }
}

impl<'a> From<&'a Setting> for SettingJson<'a> {
    fn from(setting: &'a Setting) -> SettingJson<'a> {
        let hidden = setting.is_secret();
        SettingJson {
            key: &setting.key,
            value: Some(&setting.value).filter(|_| !hidden),
            default: &setting.default,
            origin: OriginJson::from(&setting.origin),
            hidden,
        }
    }
}

impl<'a> From<&'a Origin> for OriginJson<'a> {
    fn from(origin: &'a Origin) -> OriginJson<'a> {
        let (kind, file, variable, flag) = match origin {
            Origin::Default => ("default", None, None, None),
            Origin::File(file, line) => ("file", Some((file, *line)), None, None),
            Origin::Variable(name) => ("variable", None, Some(name.as_str()), None),
            Origin::Flag(name) => ("flag", None, None, Some(name.as_str())),
        };
        OriginJson {
            kind,
            file: file.map(|(file, _)| file.display().to_string()),
            line: file.map(|(_, line)| line),
            variable,
            flag,
        }
    }
}
