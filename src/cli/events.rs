//! `stepward events`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct EventsArgs {}

pub fn run(_: EventsArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
