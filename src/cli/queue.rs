//! `stepward queue`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct QueueArgs {}

pub fn run(_: QueueArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
