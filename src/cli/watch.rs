//! `stepward watch`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct WatchArgs {}

pub fn run(_: WatchArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
