//! `stepward demo`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct DemoArgs {}

pub fn run(_: DemoArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
