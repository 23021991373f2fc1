//! Real targets: receivers over HTTP, programs, a script in sendmail's place; and what they get.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use stepward::clock::SystemClock;
use stepward::config::ServerConfig;
use stepward::domain::OutboxId;
use stepward::domain::outbox::MessageState;
use stepward::domain::task::TaskDraft;
use stepward::engine::Settings;
use stepward::outbox::{Bell, NotTested, Origin, Outbox};
use stepward::store::StoreOptions;

use super::receiver::{Got, Receiver};
use crate::house::{TestHouse, script};

const PATIENCE: Duration = Duration::from_secs(30);

/// An engine whose events go out for real.
struct Post {
    // First, so that its threads end before the engine that they use is looked at.
    outbox: Option<Outbox>,
    house: TestHouse,
    folder: tempfile::TempDir,
    notify: stepward::config::Notify,
    bell: Bell,
    clock: Arc<SystemClock>,
}

impl Post {
    /// `notify` of the settings, with the folder's path for FOLDER.
    fn new(notify: &str, prepare: impl FnOnce(&Path)) -> Post {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let path = folder.path().display().to_string();
        let file = folder.path().join("server.yaml");
        fs::write(
            &file,
            format!("notify:\n{}", notify.replace("FOLDER", &path)),
        )
        .unwrap();
        let notify = ServerConfig::load(Some(&file)).unwrap().notify;
        let bell = Bell::new(&notify);
        let ringer = bell.clone();
        let house = TestHouse::with_options(StoreOptions {
            write_deadline: PATIENCE,
            on_commit: Some(Arc::new(move |notice| {
                if notice.posted {
                    ringer.ring();
                }
            })),
            ..StoreOptions::default()
        });
        let begun = house.engine.store.begun_up();
        let clock = Arc::new(SystemClock::continuing(begun, &Settings::default()));
        let mut post = Post {
            outbox: None,
            house,
            folder,
            notify,
            bell,
            clock,
        };
        post.start();
        post
    }

    fn start(&mut self) {
        let origin = Origin::new("this installation", Some("https://jobs.example.org"));
        let engine = &self.house.engine;
        let outbox = Outbox::start(engine, &self.clock, &self.notify, origin, &self.bell);
        self.outbox = Some(outbox.unwrap());
    }

    fn fail(&self, task: &str) {
        let task = TaskDraft::new(task, vec![script("a")]);
        self.house.submit_tasks(vec![task]);
        self.house.run_all(&["a"]);
    }

    fn await_state(&self, outbox_id: i64, state: MessageState, attempts: u32) {
        let begun = Instant::now();
        loop {
            let found = self
                .house
                .engine
                .message(OutboxId(outbox_id))
                .unwrap()
                .message;
            if found.state == state && found.attempts == attempts {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "in vain: {state} {attempts}: {found:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// HMAC as RFC 2104 has it, from nothing but the hash.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(pad(0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

fn verify(got: &Got, key: &[u8]) {
    let header = |name| {
        got.header(name)
            .unwrap_or_else(|| panic!("{name} is there"))
    };
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    let mut signed = format!("{id}.{time}.").into_bytes();
    signed.extend_from_slice(&got.body);
    let expected = format!("v1,{}", STANDARD.encode(hmac(key, &signed)));
    assert_eq!(header("webhook-signature"), expected);
}

fn webhook(name: &str, receiver: &Receiver, secret: &str) -> String {
    let url = receiver.url("/hook");
    format!(
        "  {name}: {{ type: webhook, url: {url}, secret: {{ file: {secret} }}, on: [job_failed] }}\n"
    )
}

#[test]
fn a_webhook_is_a_signed_cloud_event() {
    let receiver = Receiver::start();
    let notify = webhook("ops", &receiver, "FOLDER/secret");
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "whsec_c2VjcmV0IGJ5dGVz\n").unwrap();
    });
    post.fail("backup");
    let got = receiver.await_got(1).remove(0);
    assert!(got.head.starts_with("POST /hook HTTP/1.1"), "{}", got.head);
    verify(&got, b"secret bytes");
    let content_type = got.header("content-type");
    assert_eq!(
        content_type.as_deref(),
        Some("application/cloudevents+json")
    );
    let json = got.json();
    assert_eq!(json["specversion"], "1.0");
    assert_eq!(json["type"], "io.stepward.job.failed.v1");
    assert_eq!(json["source"], "https://jobs.example.org");
    assert_eq!(json["subject"], "job/1");
    assert_eq!(json["datacontenttype"], "application/json");
    assert_eq!(json["time"], "2023-11-14T22:13:20.000Z");
    assert_eq!(
        Some(json["id"].as_str().unwrap()),
        got.header("webhook-id").as_deref()
    );
    assert_eq!(json["data"]["event"]["kind"], "job_failed");
    assert_eq!(json["data"]["job"]["task"], "backup");
    assert_eq!(json["data"]["job"]["status"], "failed");
    assert_eq!(
        json["data"]["job"].get("input"),
        None,
        "inputs may be secret"
    );
    post.await_state(1, MessageState::Delivered, 1);
}

#[test]
fn what_was_not_taken_is_sent_again_under_the_same_id() {
    let receiver = Receiver::start();
    receiver.answer("500 Broken");
    let notify = webhook("ops", &receiver, "FOLDER/secret");
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "raw").unwrap()
    });
    post.fail("backup");
    post.await_state(1, MessageState::Pending, 1);
    let engine = &post.house.engine;
    let error = engine.message(OutboxId(1)).unwrap().message.last_error;
    assert_eq!(
        error.as_deref(),
        Some("it answered 500 Internal Server Error: told")
    );
    engine.redeliver(OutboxId(1), post.clock.now()).unwrap();
    let got = receiver.await_got(2);
    verify(&got[1], b"raw");
    assert_eq!(got[0].header("webhook-id"), got[1].header("webhook-id"));
    assert_eq!(got[0].body, got[1].body);
    post.await_state(1, MessageState::Delivered, 2);
}

#[test]
fn redirects_are_not_followed_and_gone_is_gone() {
    let (receiver, elsewhere) = (Receiver::start(), Receiver::start());
    receiver.answer(&format!("302 Found\r\nlocation: {}", elsewhere.url("/")));
    receiver.answer("410 Gone");
    let notify = webhook("ops", &receiver, "FOLDER/secret");
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "raw").unwrap()
    });
    post.fail("backup");
    post.await_state(1, MessageState::Pending, 1);
    let now = post.clock.now();
    post.house.engine.redeliver(OutboxId(1), now).unwrap();
    post.await_state(1, MessageState::GivenUp, 2);
    assert_eq!(elsewhere.got().len(), 0);
    let log = post.house.engine.message(OutboxId(1)).unwrap().deliveries;
    let statuses: Vec<_> = log.iter().map(|row| row.status).collect();
    assert_eq!(statuses, [Some(302), Some(410)]);
}

#[test]
fn a_dead_target_holds_up_nobody_else() {
    let (dead, alive) = (Receiver::start(), Receiver::start());
    dead.be_silent(true);
    let notify = format!(
        "{}{}",
        webhook("dead", &dead, "FOLDER/secret"),
        webhook("alive", &alive, "FOLDER/secret")
    );
    let mut post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "raw").unwrap()
    });
    for _ in 0..3 {
        post.fail("backup");
    }
    let got = alive.await_got(3);
    let jobs: Vec<_> = got
        .iter()
        .map(|got| got.json()["data"]["job"]["id"].clone())
        .collect();
    assert_eq!(jobs, [1, 2, 3], "in order");
    assert_eq!(dead.await_got(1).len(), 1, "one at a time");
    // It hangs in there, and still all ends in seconds; nothing was written down, so the next life begins with it.
    let begun = Instant::now();
    post.outbox = None;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    dead.be_silent(false);
    post.start();
    let got = dead.await_got(4);
    assert_eq!(got[0].header("webhook-id"), got[1].header("webhook-id"));
    assert_eq!(alive.got().len(), 3, "who was told is not told again");
}

#[test]
fn a_chat_and_a_phone_get_what_they_can_show() {
    let receiver = Receiver::start();
    let (chat, phone) = (receiver.url("/chat"), receiver.url("/phone"));
    let notify = format!(
        "  chat: {{ type: slack, url: {{ file: FOLDER/url }}, on: [job_failed] }}\n  \
         phone: {{ type: ntfy, url: \"{phone}\", token: {{ file: FOLDER/token }}, priority: high, on: [job_failed] }}\n"
    );
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("url"), format!("{chat}\n")).unwrap();
        fs::write(folder.join("token"), "tk_secret\n").unwrap();
    });
    post.fail("größe-<!channel>-&");
    let got = receiver.await_got(2);
    let of = |path: &str| {
        let start = format!("POST {path} ");
        got.iter()
            .find(|got| got.head.starts_with(&start))
            .unwrap()
            .clone()
    };
    let text = of("/chat").json()["text"].as_str().unwrap().to_string();
    assert!(
        text.contains("größe-&lt;!channel&gt;-&amp;: job failed (job 1)"),
        "{text}"
    );
    assert!(text.ends_with("https://jobs.example.org/jobs/1"), "{text}");
    let phone = of("/phone");
    let title = phone.header("title").unwrap();
    let words = title.split(' ').map(|word| {
        let encoded = word
            .strip_prefix("=?UTF-8?B?")
            .unwrap()
            .strip_suffix("?=")
            .unwrap();
        String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
    });
    assert_eq!(
        words.collect::<String>(),
        "größe-<!channel>-&: job failed (job 1)"
    );
    assert_eq!(phone.header("priority").as_deref(), Some("high"));
    assert_eq!(phone.header("tags").as_deref(), Some("warning"));
    assert_eq!(
        phone.header("authorization").as_deref(),
        Some("Bearer tk_secret")
    );
    assert_eq!(
        phone.header("click").as_deref(),
        Some("https://jobs.example.org/jobs/1")
    );
    let body = String::from_utf8(phone.body).unwrap();
    assert!(body.starts_with("job 1 failed: step a failed: "), "{body}");
}

#[test]
fn mail_goes_through_sendmail_and_no_name_becomes_a_header() {
    let notify = "  mail: { type: email, to: [ops@example.org, ann@example.org], from: stepward@example.org, \
                  sendmail: FOLDER/sendmail, on: [job_failed] }\n";
    let post = Post::new(notify, |folder| {
        let path = folder.display();
        let script =
            format!("echo \"$@\" > {path}/words; cat > {path}/new; mv {path}/new {path}/mail");
        program(&folder.join("sendmail"), &script);
    });
    post.fail("x Bcc: eve ä");
    post.await_state(1, MessageState::Delivered, 1);
    let mail = fs::read_to_string(post.path("mail")).unwrap();
    let (head, body) = mail.split_once("\r\n\r\n").unwrap();
    assert_eq!(fs::read_to_string(post.path("words")).unwrap(), "-t -i\n");
    let names: Vec<&str> = head
        .split("\r\n")
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split_once(": ").unwrap().0)
        .collect();
    let expected = [
        "From",
        "To",
        "Subject",
        "Date",
        "Message-ID",
        "Auto-Submitted",
        "MIME-Version",
        "Content-Type",
        "Content-Transfer-Encoding",
    ];
    assert_eq!(names, expected);
    assert!(head.is_ascii() && !head.contains("Bcc"), "{head}");
    assert!(
        head.contains("To: ops@example.org,\r\n ann@example.org\r\n"),
        "{head}"
    );
    let text = STANDARD.decode(body.replace("\r\n", "")).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("job 1 failed: "), "{text}");
    assert!(
        text.ends_with("https://jobs.example.org/jobs/1\r\n"),
        "{text}"
    );
}

#[test]
fn a_command_gets_the_event_on_its_input_and_its_exit_code_counts() {
    let notify = "  any: { type: command, command: [FOLDER/tell, --now, \"$HOME; a b\"], on: [job_failed] }\n";
    let post = Post::new(notify, |folder| {
        let path = folder.display();
        let script = format!(
            "test -e {path}/ready || {{ echo 'not yet' >&2; exit 3; }}\n\
             printf '%s\\n' \"$@\" > {path}/words; env | grep ^STEPWARD_ | sort > {path}/env; cat > {path}/event"
        );
        program(&folder.join("tell"), &script);
    });
    post.fail("backup");
    post.await_state(1, MessageState::Pending, 1);
    let failed = post.house.engine.message(OutboxId(1)).unwrap();
    assert_eq!(failed.deliveries[0].status, Some(3));
    let said = &failed.deliveries[0].message;
    assert!(
        said.ends_with("tell ended with exit status: 3: not yet"),
        "{said}"
    );
    fs::write(post.path("ready"), "").unwrap();
    let now = post.clock.now();
    post.house.engine.redeliver(OutboxId(1), now).unwrap();
    post.await_state(1, MessageState::Delivered, 2);
    let words = fs::read_to_string(post.path("words")).unwrap();
    assert_eq!(words, "--now\n$HOME; a b\n", "no shell has seen it");
    let event: serde_json::Value =
        serde_json::from_slice(&fs::read(post.path("event")).unwrap()).unwrap();
    assert_eq!(event["type"], "io.stepward.job.failed.v1");
    let env = fs::read_to_string(post.path("env")).unwrap();
    assert!(env.contains("STEPWARD_EVENT=job_failed\n"), "{env}");
    assert!(env.contains("STEPWARD_JOB_ID=1\n"), "{env}");
    assert!(env.contains("STEPWARD_TASK=backup\n"), "{env}");
    assert!(
        env.contains(&format!(
            "STEPWARD_MESSAGE_ID={}\n",
            event["id"].as_str().unwrap()
        )),
        "{env}"
    );
}

#[test]
fn a_secret_that_is_not_there_is_named_and_one_that_is_there_is_kept_nowhere() {
    let receiver = Receiver::start();
    // A receiver that answers with what it was sent.
    receiver.answer("500 tk_very_secret_token");
    let phone = receiver.url("/phone");
    let notify = format!(
        "  ops: {{ type: webhook, url: {{ env: STEPWARD_TEST_NEVER_SET }}, secret: {{ file: FOLDER/secret }}, on: [job_failed] }}\n  \
         phone: {{ type: ntfy, url: \"{phone}\", token: {{ file: FOLDER/secret }}, on: [job_failed] }}\n"
    );
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "tk_very_secret_token").unwrap();
    });
    post.fail("backup");
    for outbox_id in [1, 2] {
        post.await_state(outbox_id, MessageState::Pending, 1);
        let target = post
            .house
            .engine
            .message(OutboxId(outbox_id))
            .unwrap()
            .message;
        if target.target == "ops" {
            let error = target.last_error.unwrap();
            assert!(error.contains("STEPWARD_TEST_NEVER_SET"), "{error}");
        }
    }
    let database = post.house.database();
    let folder = database.parent().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let found = memchr::memmem::find(&bytes, b"tk_very_secret");
        assert_eq!(found, None, "{}", path.display());
    }
}

#[test]
fn a_receiver_that_quotes_a_part_of_a_secret_is_not_quoted() {
    let receiver = Receiver::start();
    let path = "/services/T000/B%30SECRETPATH?key=SECRETKEY";
    let said = "Cannot POST /services/T000/B0SECRETPATH with SECRETKEY for tk_SECRETTOKEN";
    for _ in 0..3 {
        receiver.answer(&format!("404 SECRETPATH\r\n\r\n{said}"));
    }
    let phone = receiver.url("/phone");
    let notify = format!(
        "  chat: {{ type: slack, url: {{ file: FOLDER/url }}, on: [job_failed] }}\n  \
         ops: {{ type: webhook, url: {{ file: FOLDER/url }}, secret: {{ file: FOLDER/token }}, on: [job_failed] }}\n  \
         phone: {{ type: ntfy, url: \"{phone}\", token: {{ file: FOLDER/token }}, on: [job_failed] }}\n"
    );
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("url"), receiver.url(path)).unwrap();
        fs::write(folder.join("token"), "tk_SECRETTOKEN and more").unwrap();
    });
    post.fail("backup");
    for outbox_id in [1, 2, 3] {
        post.await_state(outbox_id, MessageState::Pending, 1);
        let message = post.house.engine.message(OutboxId(outbox_id));
        let error = message.unwrap().message.last_error;
        assert_eq!(error.as_deref(), Some("it answered 404 Not Found"));
    }
    let database = post.house.database();
    for entry in fs::read_dir(database.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let found = memchr::memmem::find(&bytes, b"SECRET");
        assert_eq!(found, None, "{}", path.display());
    }
}

#[test]
fn a_secret_that_a_receiver_says_is_hidden_before_its_answer_is_cut() {
    let receiver = Receiver::start();
    let secret = "signed-with-this-secret";
    let said = format!("{}{secret}", "x".repeat(190));
    receiver.answer(&format!("500 Broken\r\n\r\n{said}"));
    let notify = webhook("ops", &receiver, "FOLDER/secret");
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), secret).unwrap()
    });
    post.fail("backup");
    post.await_state(1, MessageState::Pending, 1);
    let message = post.house.engine.message(OutboxId(1)).unwrap().message;
    let error = message.last_error.unwrap();
    assert!(error.ends_with("xxx***"), "{error}");
}

#[test]
fn a_test_message_goes_the_same_way_and_says_how_it_went() {
    let receiver = Receiver::start();
    receiver.answer("200 OK");
    receiver.answer("404 Not Found");
    let notify = webhook("ops", &receiver, "FOLDER/secret");
    let post = Post::new(&notify, |folder| {
        fs::write(folder.join("secret"), "raw").unwrap()
    });
    let outbox = post.outbox.as_ref().unwrap();
    let tested = outbox.test("ops").unwrap();
    assert!(tested.sent.is_ok);
    let got = receiver.await_got(1).remove(0);
    verify(&got, b"raw");
    assert_eq!(got.json()["type"], "io.stepward.test.v1");
    let refused = outbox.test("ops").unwrap().sent;
    assert_eq!((refused.is_ok, refused.status), (false, Some(404)));
    assert_eq!(outbox.test("nobody"), Err(NotTested::Unknown));
    assert_eq!(post.house.outbox(), [], "it is no message of ours");
}
