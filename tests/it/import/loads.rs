//! What an import writes is a workflow that loads.

use std::path::Path;
use std::process::Command;

use super::{import, said};

#[test]
fn what_is_written_is_a_workflow_that_loads() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("workflows");
    let output = import(&[
        "crontab",
        "crontab/user",
        "crontab/system",
        "--output",
        to.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    loads(&to);
    let to = folder.path().join("from-stroem");
    let output = import(&["stroem", "stroem", "--output", to.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(to.join("actions/deploy.sh").exists());
    loads(&to);
    let to = folder.path().join("from-dagu");
    let output = import(&["dagu", "dagu", "--output", to.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    loads(&to);
}

pub fn loads(folder: &Path) {
    let validated = Command::new(env!("CARGO_BIN_EXE_stepward"))
        .arg("validate")
        .arg(folder)
        .output()
        .unwrap();
    let (_, complained) = said(&validated);
    let (told, _) = said(&validated);
    assert!(validated.status.success(), "{told}{complained}");
}
