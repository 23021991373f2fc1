//! `stepward status`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct StatusArgs {}

pub fn run(_: StatusArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
