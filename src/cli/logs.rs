//! `stepward logs`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct LogsArgs {}

pub fn run(_: LogsArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
