//! Webhooks in: who may make a job of a task by a request, and what of the request becomes its input.

use super::secret::SecretRef;
use super::task::Rules;
use super::{Json, words};

/// A webhook as somebody wrote it. Its name is unique over all tasks: it stands in the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDraft {
    pub task: String,
    pub name: String,
    pub secret: SecretRef,
    /// The rules that its file was accepted under.
    pub rules: Rules,
    /// `None`: any of the three, told by the headers of the request.
    pub scheme: Option<WebhookScheme>,
    /// Templates over `body` and `headers`.
    pub input: Json,
}

words! {
    /// How a request shows that it knows the secret.
    pub enum WebhookScheme {
        /// `webhook-id`, `webhook-timestamp`, `webhook-signature`
        Standard = "standard",
        /// `x-hub-signature-256`
        Github = "github",
        /// `authorization: Bearer …`
        Bearer = "bearer",
    }
}
