//! A server that speaks TLS, and everybody who speaks to it: its own worker, another one, commands in its folder and elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::house::{BINARY, Process, await_that};
use crate::typed::{Typed, typed_in};

const WORKFLOWS: &str = "
tasks:
  hello:
    flow:
      greet: { script: echo hello }
  far:
    flow:
      greet: { script: echo hello, tags: [far] }
";

/// A folder with a certificate for this name, and settings that name it. A folder of its own keeps it from all others.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(name: &str) -> Site {
        let site = Site {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(site.folder.path().join("workflows")).unwrap();
        site.write("workflows/all.yaml", WORKFLOWS);
        site.certify(name);
        site.write(
            "server-config.yaml",
            "listen: 127.0.0.1:0\nworkflows_dir: workflows\nembedded_worker: { name: inside }\n\
             auth: { required: false }\ntls: { cert_file: cert.pem, key_file: key.pem }\n",
        );
        site
    }

    fn certify(&self, name: &str) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).unwrap();
        self.write("cert.pem", &made.cert.pem());
        self.write("key.pem", &made.signing_key.serialize_pem());
        let owner_only = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.folder.path().join("key.pem"), owner_only).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn start(&self) -> (Process, String) {
        let mut command = Command::new(BINARY);
        command.arg("server").current_dir(self.folder.path());
        let server = Process::start("server", command);
        let url = await_that("the server listens", || {
            assert!(server.is_alive(), "the server ended: {}", server.said());
            let said = server.said();
            let line = said.lines().find(|line| line.contains("listening on "));
            line.map(|line| line.rsplit(' ').next().unwrap().to_string())
        });
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        (server, url)
    }
}

fn typed(folder: &Path, words: &str) -> Typed {
    typed_in(folder, &words.split(' ').collect::<Vec<&str>>())
}

#[test]
fn its_own_worker_and_the_commands_of_its_folder_believe_the_certificate_whatever_its_name() {
    let site = Site::new("jobs.example.org");
    let (server, _) = site.start();
    let here = site.folder.path();
    let told = typed(here, "run hello");
    assert_eq!(told.code, Some(0), "{told:?} {}", server.said());
    let told = typed(here, "doctor");
    assert!(told.stdout.contains("https://127.0.0.1:"), "{told:?}");
    assert!(!told.stdout.contains("not believed"), "{told:?}");
    // It is renewed, and nobody is started again.
    site.certify("jobs.example.org");
    await_that("the new one is shown", || {
        server.said().contains("the new one is shown").then_some(())
    });
    let told = typed(here, "run hello");
    assert_eq!(told.code, Some(0), "{told:?} {}", server.said());
    // One that makes no sense changes nothing, and the log says so once.
    site.write("key.pem", "rubbish");
    await_that("the log says it", || {
        server
            .said()
            .contains("the former one stays: key.pem: holds no key")
            .then_some(())
    });
    assert_eq!(typed(here, "run hello").code, Some(0));
    let told = typed(here, "status");
    let refused = "the new certificate is refused and the former one stays: key.pem: holds no key";
    assert!(told.stdout.contains(refused), "{told:?}");
    // And is forgotten with the next good pair.
    site.certify("jobs.example.org");
    await_that("nothing is wrong any more", || {
        let told = typed(here, "status");
        (!told.stdout.contains("is refused")).then_some(())
    });
    server.signal(Signal::TERM);
    assert_eq!(server.said().matches("the former one stays").count(), 1);
    assert!(server.wait());
}

#[test]
fn elsewhere_a_file_says_who_is_believed_and_without_it_one_is_told_so() {
    let site = Site::new("localhost");
    let (_server, url) = site.start();
    let elsewhere = tempfile::tempdir().unwrap();
    let cert = site.folder.path().join("cert.pem");
    let cert = cert.display();
    let told = typed(elsewhere.path(), &format!("status --server {url}"));
    assert_eq!(told.code, Some(6), "{told:?}");
    assert_eq!(
        told.stderr.trim(),
        format!(
            "stepward: the server at {url} is not believed: its certificate is signed by nobody who is known here: name a \
             file with it, or with the one that signed it, by ca_file, --ca-file or STEPWARD_CA_FILE"
        )
    );
    let told = typed(
        elsewhere.path(),
        &format!("status --server {url} --ca-file {cert}"),
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    let plain = url.replace("https://", "http://");
    let told = typed(elsewhere.path(), &format!("status --server {plain}"));
    assert!(
        told.stderr
            .contains("this port speaks https: write https://"),
        "{told:?}"
    );
    let told = typed(
        elsewhere.path(),
        &format!("status --server {url} --ca-file missing.pem"),
    );
    assert!(
        told.stderr.contains("missing.pem cannot be read"),
        "{told:?}"
    );
    // A worker by its settings.
    let settings = format!("server_url: {url}\nca_file: {cert}\nname: far\ntags: [script, far]\n");
    fs::write(elsewhere.path().join("worker-config.yaml"), settings).unwrap();
    let mut worker = Command::new(BINARY);
    worker.arg("worker").current_dir(elsewhere.path());
    let worker = Process::start("worker", worker);
    let told = typed(site.folder.path(), "run far");
    assert_eq!(told.code, Some(0), "{told:?} {}", worker.said());
    // And by the environment, told what is wrong without it.
    let lost = tempfile::tempdir().unwrap();
    let mut worker = Command::new(BINARY);
    worker
        .args(["worker", "--server", &url])
        .current_dir(lost.path());
    let worker = Process::start("worker", worker);
    await_that("it says why", || {
        worker
            .said()
            .contains("ca_file, --ca-file or STEPWARD_CA_FILE")
            .then_some(())
    });
}

#[test]
fn the_doctor_looks_at_the_certificate_before_clients_do() {
    let site = Site::new("localhost");
    let here = site.folder.path();
    let told = typed(here, "doctor configuration");
    assert!(!told.stdout.contains("certificate"), "{told:?}");
    fs::set_permissions(here.join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let told = typed(here, "doctor configuration");
    assert!(
        told.stdout.contains("the server would not start: key.pem: is a key that every user of this machine can use: chmod o= key.pem"),
        "{told:?}"
    );
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    site.write("cert.pem", &params.self_signed(&key).unwrap().pem());
    site.write("key.pem", &key.serialize_pem());
    fs::set_permissions(here.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let told = typed(here, "doctor configuration");
    assert!(
        told.stdout
            .contains("the certificate in cert.pem has expired, at 2002-01-01 00:00 UTC"),
        "{told:?}"
    );
    // The server starts all the same, and says so.
    let (server, _) = site.start();
    await_that("it is told", || {
        server
            .said()
            .contains("cert.pem has expired, at 2002-01-01 00:00 UTC")
            .then_some(())
    });
}

/// As docker runs it: in the data folder, and without a word about the address.
#[test]
fn the_health_check_of_the_image_finds_a_server_that_speaks_tls() {
    let image = include_str!("../../packaging/Dockerfile");
    let line = image.lines().find(|line| line.starts_with("HEALTHCHECK"));
    let (_, words) = line.unwrap().split_once("CMD ").unwrap();
    let words: Vec<String> = serde_json::from_str(words).unwrap();
    let site = Site::new("elsewhere");
    let (_server, _) = site.start();
    let told = typed(&site.folder.path().join(".stepward"), &words[1..].join(" "));
    assert_eq!(told.code, Some(0), "{told:?}");
}
