//! Who may come in. Without a token the server listens on loopback alone; with one, every request but those about health
//! and those to webhooks, which have secrets of their own, must carry it.

use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::exchange::Headers;

/// The token of this installation, as a hash: the text itself is not kept.
pub struct Gate {
    token_hash: Option<[u8; 32]>,
}

impl Gate {
    pub fn new(token: Option<&str>) -> Gate {
        Gate {
            token_hash: token.map(hash),
        }
    }

    pub fn check(&self, headers: &Headers) -> Result<(), ApiError> {
        let Some(expected) = &self.token_hash else {
            return Ok(());
        };
        let header = headers.authorization.as_deref().unwrap_or_default();
        let (scheme, token) = header.split_once(' ').unwrap_or_default();
        let token = match scheme.eq_ignore_ascii_case("bearer") {
            true => token.trim(),
            false => "",
        };
        // Hashes of a secret that cannot be guessed tell nothing by the time that comparing them takes.
        if hash(token) == *expected {
            return Ok(());
        }
        let message = "the token is missing or wrong, send it as: Authorization: Bearer TOKEN";
        Err(ApiError::new(401, "unauthorized", message))
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
