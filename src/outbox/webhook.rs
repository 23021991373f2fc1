//! A webhook: a CloudEvent, signed as Standard Webhooks has it.

use super::http;
use super::message::Letter;
use super::secret::Resolved;
use super::signature::{decoded_secret, signature};
use crate::config::Text;
use crate::domain::outbox::Sent;
use crate::domain::secret::SecretRef;

pub fn deliver(url: &Text, secret: &SecretRef, letter: &Letter) -> Sent {
    let mut resolved = Resolved::default();
    let mut reached = || {
        let url = resolved.text(url)?;
        let secret = decoded_secret(&resolved.secret(secret)?)?;
        Ok::<_, String>((url, secret))
    };
    let (url, secret) = match reached() {
        Ok(reached) => reached,
        Err(fault) => return Sent::failed(fault),
    };
    let body = letter.cloud_event();
    let secs = letter.sent_at.0 / 1_000;
    let headers = [
        ("content-type", "application/cloudevents+json".to_string()),
        ("webhook-id", letter.id.clone()),
        ("webhook-timestamp", secs.to_string()),
        (
            "webhook-signature",
            signature(&secret, &letter.id, secs, &body),
        ),
    ];
    http::post(&url, &headers, &body, &resolved)
}
