//! `stepward` alone: how things are if there is a server, else where to begin.

use std::path::Path;

use super::exit::Exit;
use super::files::WORKFLOWS;
use super::look::Show;
use super::reach::{NamedBy, Reach, last_words};
use super::say::{print, say};
use super::status;

const START_HERE: &str = concat!(
    "stepward ",
    env!("CARGO_PKG_VERSION"),
    " - runs YAML workflows on one machine or a few. One binary, one SQLite file.

Start here
  stepward demo          twenty seconds of what happens when things go wrong
  stepward init          write a small project here
  stepward run FILE      run a workflow file now; no server needed
  stepward dev           a server with a worker for this folder, until Ctrl-C

The files in `examples` of the repository run without a server, too:
  stepward run examples/hello.yaml

`stepward help` lists all commands.
"
);

/// Where there are workflows already.
const A_PROJECT: &str =
    "There are workflows here: `stepward run TASK` runs one, `stepward dev` serves them all.\n";

pub fn run(reach: Reach) -> anyhow::Result<Exit> {
    let show = Show::default();
    let found = reach.find()?;
    let Some(remote) = found else {
        print(START_HERE);
        if Path::new(WORKFLOWS).is_dir() {
            print(&format!("\n{A_PROJECT}"));
        }
        say(last_words().unwrap_or_else(|| "no server is known here".to_string()));
        return Ok(Exit::Success);
    };
    match status::look_at(&remote) {
        Ok(status) => {
            print(&status::text(&status, &show.look()));
            Ok(Exit::Success)
        }
        // Whoever names a server asks about that one, and one that wants a token is there.
        Err(error) if remote.named_by == NamedBy::Caller || is_there(&error) => Err(error),
        Err(error) => {
            print(START_HERE);
            say(format!("{error:#}"));
            Ok(Exit::Success)
        }
    }
}

fn is_there(error: &anyhow::Error) -> bool {
    Exit::of(error) == Exit::NotAllowed
}
