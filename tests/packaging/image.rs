//! The image: its last stage, built by a docker of this test's own. There is no registry here, so what the first stage would
//! make is put into an image of its name: the static binary if there is one, else the usual one with its libraries.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use crate::{in_a_world_of_its_own, project, release_binary, said};

pub fn story() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let built = folder.path().join("built");
    let context = folder.path().join("context");
    fs::create_dir_all(built.join("image/usr/bin"))?;
    fs::create_dir_all(built.join("image/var/lib/stepward"))?;
    fs::create_dir_all(&context)?;
    fs::create_dir_all(folder.path().join("docker"))?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let portable = project()
        .join("target")
        .join(target)
        .join("release/stepward");
    let binary = match portable.exists() {
        true => portable,
        false => release_binary(),
    };
    fs::copy(&binary, built.join("image/usr/bin/stepward"))?;
    let libraries = libraries(&binary, &built.join("image/usr/lib"))?;
    let dockerfile = fs::read_to_string(project().join("packaging/Dockerfile"))?;
    let last = dockerfile.rfind("\nFROM ").expect("it has stages") + 1;
    let mut runtime = dockerfile[last..].to_string();
    if libraries {
        runtime = runtime.replacen(
            "\nUSER",
            "\nCOPY --from=build /image/usr/lib /lib64\nUSER",
            1,
        );
    }
    // Once a second, so that nobody waits for half a minute.
    runtime = runtime.replace("--interval=30s", "--interval=1s");
    fs::write(context.join("Dockerfile"), runtime)?;
    let told = in_a_world_of_its_own("image.sh", &[("folder", folder.path())])?;
    match told.ends_with("healthy, 10001, stopped with 0\n") {
        true => Ok(()),
        false => Err(told.into()),
    }
}

/// The libraries of a binary that needs some, where its image finds them.
fn libraries(binary: &Path, folder: &Path) -> Result<bool, Failed> {
    let listed = Command::new("ldd").arg(binary).output()?;
    if !listed.status.success() || said(&listed)?.contains("statically linked") {
        return Ok(false);
    }
    fs::create_dir_all(folder)?;
    let listed = said(&listed)?;
    for word in listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let file = Path::new(word);
        fs::copy(file, folder.join(file.file_name().expect("a file")))?;
    }
    Ok(true)
}
