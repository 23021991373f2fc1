//! Tokens: who can come in, a new one, one less; and who asks.

use super::{PAGE_MAX, show};
use crate::domain::token::{NewToken, Role, Token, TokenText};
use crate::domain::{Now, Timestamp, TokenId};
use crate::engine::{Engine, EngineError};
use crate::secrets::{hash_hex, random_secret};
use crate::server::App;
use crate::server::auth::no_randomness;
use crate::server::error::ApiError;
use crate::server::exchange::{Reply, Request, Response};
use crate::wire::api::{List, MadeTokenJson, MeJson, NewTokenRequest};

/// How long an enrolment can be used, unless somebody says otherwise.
const ENROLMENT_SECS: u32 = 3_600;

pub fn me(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let caller = &request.caller;
    let me = MeJson {
        name: caller.name.to_string(),
        role: caller.role().to_string(),
        token_id: caller.token_id().map(|token_id| token_id.0),
        needs_token: app.gate.asks_for_token(),
    };
    Ok(Response::json(200, &me).into())
}

/// In the order in which they were made, ended ones too.
pub fn list(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&["limit", "after"])?;
    let after = TokenId(request.query_number("after")?.unwrap_or(0));
    let limit = request.limit(PAGE_MAX, PAGE_MAX)?;
    let tokens = app.engine.tokens(after, limit)?;
    let is_full = tokens.len() == limit as usize;
    let last = tokens.last().map(|last| last.token_id.to_string());
    let now = app.clock.now();
    let list = List {
        items: tokens.iter().map(|token| show::token(token, now)).collect(),
        next: last.filter(|_| is_full),
    };
    Ok(Response::json(200, &list).into())
}

pub fn make(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.check_query(&[])?;
    let asked: NewTokenRequest = request.json()?;
    let (token, text) = made(app, request, asked)?;
    let json = MadeTokenJson {
        token: show::token(&token, app.clock.now()),
        text,
    };
    Ok(Response::json(201, &json).into())
}

/// With its text, which is told here and never again.
pub fn made(
    app: &App,
    request: &Request,
    asked: NewTokenRequest,
) -> Result<(Token, String), ApiError> {
    let role = Role::from_word(&asked.role).ok_or_else(|| {
        let roles: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        let roles = roles.join(", ");
        ApiError::invalid(format!("role is {:?}, expected one of {roles}", asked.role))
    })?;
    let now = app.clock.now();
    let caller = &request.caller;
    let is_unasked = match caller.token_id() {
        Some(token_id) => app.engine.is_unasked(token_id)?,
        None => caller.is_local(),
    };
    let drawn = Drawn::of(asked, role, request.who(), is_unasked, now)
        .map_err(|error| no_randomness(&error))?;
    let made = drawn.make(&app.engine_for(request), now)?;
    app.gate.load(&app.engine)?;
    Ok(made)
}

/// What somebody asked for, with a secret that nobody knows yet.
pub struct Drawn {
    token: NewToken,
    secret: String,
}

impl Drawn {
    pub fn of(
        asked: NewTokenRequest,
        role: Role,
        made_by: &str,
        is_unasked: bool,
        now: Now,
    ) -> Result<Drawn, getrandom::Error> {
        let secret = random_secret()?;
        let or_default = (role == Role::Enrolment).then_some(ENROLMENT_SECS);
        let expires = asked.expires_in_secs.or(or_default);
        let token = NewToken {
            name: asked.name,
            role,
            hash: hash_hex(&secret),
            tags: asked.tags,
            made_by: made_by.to_string(),
            expires_at: expires
                .map(|secs| Timestamp(now.wall.0.saturating_add(i64::from(secs) * 1_000))),
            is_unasked,
        };
        Ok(Drawn { token, secret })
    }

    /// With its text, which is told here and never again.
    pub fn make(self, engine: &Engine, now: Now) -> Result<(Token, String), EngineError> {
        let token = engine.make_token(self.token, now)?;
        let text = TokenText {
            token_id: token.token_id,
            secret: &self.secret,
            is_enrolment: token.role == Role::Enrolment,
        };
        let text = text.write();
        Ok((token, text))
    }
}

pub fn revoke(app: &App, request: &Request) -> Result<Reply, ApiError> {
    request.says_no_more()?;
    let now = app.clock.now();
    let token_id = app.engine.select_token(request.param(0), now)?;
    let token = revoked(app, request, token_id)?;
    Ok(Response::json(200, &show::token(&token, now)).into())
}

/// It lets nobody in from now on, and whoever came in with it and still listens is sent away.
pub fn revoked(app: &App, request: &Request, token_id: TokenId) -> Result<Token, ApiError> {
    let keeps_admin = !app.gate.has_another_way_in();
    let now = app.clock.now();
    let token = (app.engine_for(request)).revoke_token(token_id, keeps_admin, now)?;
    app.gate.load(&app.engine)?;
    app.streams.look();
    Ok(token)
}
