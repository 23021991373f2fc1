//! The owners of idempotency keys.

use std::fmt;

use super::TokenId;

/// The owner of an idempotency key. Two owners can use the same key for different requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyOwner {
    /// Nobody in particular: the key answers whoever repeats it. Keys that version 0.1 made have this owner, and keys that are made
    /// while the server asks for no token.
    #[default]
    Anyone,
    /// The token that `auth.token_file` names.
    Settings,
    Token(TokenId),
    /// Deliveries of webhooks, whose keys contain the name of the webhook.
    Webhook,
}

/// The text that the database keeps.
impl fmt::Display for KeyOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOwner::Anyone => f.write_str("any"),
            KeyOwner::Settings => f.write_str("settings"),
            KeyOwner::Token(token_id) => write!(f, "token:{token_id}"),
            KeyOwner::Webhook => f.write_str("webhook"),
        }
    }
}
