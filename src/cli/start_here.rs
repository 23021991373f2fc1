//! `stepward` alone: how things are if there is a server, else where to begin.

use super::exit::Exit;
use super::look::Show;
use super::reach::{Reach, Remote, last_words};
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

pub fn run(reach: Reach) -> anyhow::Result<Exit> {
    let show = Show::default();
    // Whoever types nothing else gets an answer: what is wrong is a line above it.
    match named(reach) {
        Err(error) => say(format!("{error:#}")),
        Ok(None) => {
            print(START_HERE);
            say(last_words().unwrap_or_else(|| "no server is known here".to_string()));
            return Ok(Exit::Success);
        }
        Ok(Some(remote)) => match status::look_at(&remote) {
            Ok(status) => {
                print(&status::text(&status, &show.look()));
                return Ok(Exit::Success);
            }
            // There is a server, and nothing to begin.
            Err(error) if Exit::of(&error) == Exit::NotAllowed => return Err(error),
            Err(error) => say(format!("{error:#}")),
        },
    }
    print(START_HERE);
    Ok(Exit::Success)
}

/// The server that a flag, the environment or this folder names. A variable that is set to nothing names none.
fn named(mut reach: Reach) -> anyhow::Result<Option<Remote>> {
    reach.server.take_if(|url| url.is_empty());
    reach.token_file.take_if(|file| file.as_os_str().is_empty());
    reach.find()
}
