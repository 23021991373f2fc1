//! The Debian package: built, installed, used, upgraded, removed and purged.

use std::process::Command;

use libtest_mimic::Failed;

use crate::{as_from_a_shell, in_a_world_of_its_own, project, release_binary, said};

pub fn story() -> Result<(), Failed> {
    release_binary();
    let mut build = Command::new(project().join("packaging/build-deb"));
    as_from_a_shell(&mut build);
    let built = build.output()?;
    let path = said(&built)?;
    let package = project().join(path.lines().last().unwrap_or_default());
    let size = std::fs::metadata(&package)?.len();
    println!("{} has {size} bytes", package.display());
    let folder = tempfile::tempdir()?;
    let told = in_a_world_of_its_own(
        "installed.sh",
        &[("folder", folder.path()), ("package", &package)],
    )?;
    match told.ends_with("nothing is left\n") {
        true => Ok(()),
        false => Err(told.into()),
    }
}
