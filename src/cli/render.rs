//! `stepward render`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct RenderArgs {}

pub fn run(_: RenderArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
