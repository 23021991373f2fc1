//! A server that is killed between the commit of an event and the message that tells it: the message arrives all the same,
//! and whoever gets it twice can tell by its id.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use stepward::wire::api::{DeliveryJson, JobJson, List};

use crate::house::{House, PATIENT, await_that};
use crate::receiver::Receiver;

const WORKFLOWS: &str = "
tasks:
  hello:
    flow:
      greet: { script: echo hello }
";

fn house(receiver: &Receiver, secrets: &Path) -> House {
    let secret = secrets.join("ops");
    fs::write(&secret, "the secret of ops").unwrap();
    let notify = format!(
        "{PATIENT}\nnotify:\n  ops: {{ type: webhook, url: {}, secret: {{ file: {} }}, on: [job_cancelled] }}\n",
        receiver.url("/hook"),
        secret.display(),
    );
    House::with_settings(WORKFLOWS, &notify)
}

fn cancel_one(house: &House) {
    let job = house.submit("hello");
    let _: JobJson = house.post(&format!("/api/jobs/{job}/cancel")).unwrap();
}

fn ids(receiver: &Receiver) -> Vec<String> {
    let got = receiver.got();
    got.iter()
        .map(|got| got.header("webhook-id").unwrap())
        .collect()
}

fn await_all_delivered(house: &House, count: usize) {
    await_that("all messages are delivered", || {
        let list: List<DeliveryJson> = house.get("/api/deliveries?state=delivered");
        (list.items.len() == count).then_some(())
    });
}

#[test]
fn a_message_survives_a_server_that_is_killed_before_it_is_sent() {
    let receiver = Receiver::start();
    receiver.be_silent(true);
    let secrets = tempfile::tempdir().unwrap();
    let mut house = house(&receiver, secrets.path());
    // The first is under way and gets no answer; the others have not been sent when the server dies.
    for _ in 0..3 {
        cancel_one(&house);
    }
    receiver.await_got(1);
    house.kill_server();
    let before = ids(&receiver);
    assert_eq!(before.len(), 1, "one at a time");
    receiver.be_silent(false);
    house.start_server();
    await_all_delivered(&house, 3);
    let after = ids(&receiver);
    assert_eq!(
        after.len(),
        4,
        "the one that nobody knew of was repeated: {after:?}"
    );
    assert_eq!(after[1], before[0]);
    let different: BTreeSet<&String> = after.iter().collect();
    assert_eq!(different.len(), 3, "by its id it is one: {after:?}");
    assert_eq!(receiver.got()[0].body, receiver.got()[1].body);
    house.check();
}

#[test]
fn a_message_that_was_refused_is_not_forgotten_by_the_next_life() {
    let receiver = Receiver::start();
    receiver.answer("503 Busy");
    let secrets = tempfile::tempdir().unwrap();
    let mut house = house(&receiver, secrets.path());
    cancel_one(&house);
    receiver.await_got(1);
    house.kill_server();
    house.start_server();
    // Five seconds of the server's time lie between.
    await_all_delivered(&house, 1);
    let ids = ids(&receiver);
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
    assert!(house.stop_server());
    house.start_server();
    cancel_one(&house);
    await_all_delivered(&house, 2);
    assert_eq!(
        receiver.got().len(),
        3,
        "what was delivered is not told again"
    );
    house.check();
}
