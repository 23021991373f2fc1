//! `stepward doctor`.

use clap::Args;

use super::exit::Exit;

#[derive(Args)]
pub struct DoctorArgs {}

pub fn run(_: DoctorArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not there yet")
}
