//! What systemd would take away, taken away by other means: another user, no capability, nothing to be gained by it, one folder to
//! write to, and only its own processes to see. Its filter of system calls is looked at in `units.rs`.

use std::path::Path;

use libtest_mimic::Failed;

use crate::in_a_world_of_its_own;

pub fn story() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let binary = Path::new(env!("CARGO_BIN_EXE_stepward"));
    let told = in_a_world_of_its_own(
        "confined.sh",
        &[("folder", folder.path()), ("binary", binary)],
    )?;
    match told.ends_with("the job was completed\n") {
        true => Ok(()),
        false => Err(told.into()),
    }
}
