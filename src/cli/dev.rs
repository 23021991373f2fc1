//! `stepward dev`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct DevArgs {}

pub fn run(_: DevArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
