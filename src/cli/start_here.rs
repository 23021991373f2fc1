//! `stepward` alone: how things are if there is a server, else where to begin.

use super::exit::Exit;

pub fn run() -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
