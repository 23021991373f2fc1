//! Who asks, and what they may.

use std::net::IpAddr;
use std::sync::Arc;

use crate::domain::TokenId;
use crate::domain::audit::Actor;
use crate::domain::idempotency::KeyOwner;
use crate::domain::token::{LOCAL, OF_SETTINGS, Owner, Role, Token};
use crate::server::error::ApiError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What events call them.
    pub name: Arc<str>,
    pub is_from: From,
}

/// Where their right to be here comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// Nobody is asked: only this machine reaches the server.
    Here,
    /// The token that the settings name, which opens everything.
    Settings,
    Token {
        token_id: TokenId,
        role: Role,
        tags: Option<Vec<String>>,
    },
}

impl Caller {
    pub fn local() -> Caller {
        Caller {
            name: LOCAL.into(),
            is_from: From::Here,
        }
    }

    /// Whether nobody asked the caller for a token.
    pub fn is_local(&self) -> bool {
        self.is_from == From::Here
    }

    pub fn of_settings() -> Caller {
        Caller {
            name: OF_SETTINGS.into(),
            is_from: From::Settings,
        }
    }

    pub fn of_token(token: &Token) -> Caller {
        Caller {
            name: token.name.as_str().into(),
            is_from: From::Token {
                token_id: token.token_id,
                role: token.role,
                tags: token.tags.clone(),
            },
        }
    }

    /// The highest that they have, for whoever looks.
    pub fn role(&self) -> Role {
        match self.is_from {
            From::Here | From::Settings => Role::Admin,
            From::Token { role, .. } => role,
        }
    }

    pub fn token_id(&self) -> Option<TokenId> {
        match self.is_from {
            From::Here | From::Settings => None,
            From::Token { token_id, .. } => Some(token_id),
        }
    }

    /// Returns the owner of the idempotency keys that the caller uses.
    pub fn key_owner(&self) -> KeyOwner {
        match self.is_from {
            From::Here => KeyOwner::Anyone,
            From::Settings => KeyOwner::Settings,
            From::Token { token_id, .. } => KeyOwner::Token(token_id),
        }
    }

    /// The caller as the audit log names them.
    pub fn actor(&self, peer: IpAddr) -> Actor {
        Actor {
            name: self.name.clone(),
            token_id: self.token_id(),
            address: Some(peer.to_canonical().to_string()),
            is_named_in_events: true,
        }
    }

    pub fn may(&self, needed: Role) -> bool {
        match self.is_from {
            From::Here | From::Settings => true,
            From::Token { role, .. } => role.covers(needed),
        }
    }

    pub fn check(&self, needed: Role) -> Result<(), ApiError> {
        if self.may(needed) {
            return Ok(());
        }
        let (name, role) = (&self.name, self.role());
        let message = format!("this takes a token of role {needed}, and {name} is of role {role}");
        Err(ApiError::new(403, "forbidden", message))
    }

    /// As a worker: whose the worker is. `None`: nobody's in particular.
    pub fn owner(&self) -> Option<Owner> {
        match &self.is_from {
            From::Here | From::Settings => None,
            From::Token { token_id, tags, .. } => Some(Owner {
                token_id: *token_id,
                tags: tags.clone(),
            }),
        }
    }
}
