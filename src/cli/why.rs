//! `stepward why`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct WhyArgs {}

pub fn run(_: WhyArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
