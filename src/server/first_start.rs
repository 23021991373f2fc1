//! The first start of a server that asks for tokens: it writes one token for commands and one for workers into the data folder, so
//! that whoever owns the folder can begin.

use std::path::Path;

use super::StartError;
use crate::domain::Now;
use crate::domain::token::{FIRST_START, NewToken, Role, TokenText};
use crate::engine::Engine;
use crate::secrets::{hash_hex, random_secret};
use crate::token_files::{self, ADMIN_TOKEN_FILE, WORKER_TOKEN_FILE};

/// The file, the role and the name of each token. A name that is taken gets a number.
const TOKENS: [(&str, Role, &str); 2] = [
    (ADMIN_TOKEN_FILE, Role::Admin, "first-admin"),
    (WORKER_TOKEN_FILE, Role::Worker, "local-worker"),
];

/// The names of the tokens that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstTokens {
    pub admin: String,
    pub worker: String,
}

/// Makes the tokens and writes their files. `None`: somebody has a token of role admin already, so none is needed.
///
/// That this start is done is recorded last. A start that is killed before is repeated by the next one, which revokes the tokens that
/// were made in vain.
pub fn write_tokens(
    engine: &Engine,
    data_dir: &Path,
    now: Now,
) -> Result<Option<FirstTokens>, StartError> {
    if engine.has_admin_of_somebody(now)? {
        engine.record_first_start(now)?;
        return Ok(None);
    }
    let mut secrets = Vec::new();
    let mut tokens = Vec::new();
    for (_, role, name) in TOKENS {
        let secret = random_secret().map_err(StartError::Randomness)?;
        tokens.push(NewToken {
            name: name.to_string(),
            role,
            hash: hash_hex(&secret),
            tags: None,
            made_by: FIRST_START.to_string(),
            expires_at: None,
            is_unasked: false,
        });
        secrets.push(secret);
    }
    token_files::keep_out_of_repositories(data_dir);
    let made = engine.by(FIRST_START).make_first_tokens(tokens, now)?;
    for (((file, ..), token), secret) in TOKENS.iter().zip(&made).zip(&secrets) {
        let file = data_dir.join(file);
        let text = TokenText {
            token_id: token.token_id,
            secret,
            is_enrolment: false,
        };
        let written = token_files::write(&file, &text.write());
        written.map_err(|source| StartError::TokenFile { file, source })?;
    }
    engine.record_first_start(now)?;
    let [admin, worker] = made.as_slice() else {
        unreachable!("as many tokens are made as were asked for");
    };
    Ok(Some(FirstTokens {
        admin: admin.name.clone(),
        worker: worker.name.clone(),
    }))
}
