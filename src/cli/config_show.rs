//! `stepward config_show`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct ConfigShowArgs {}

pub fn run(_: ConfigShowArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
