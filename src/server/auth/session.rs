//! The cookie that a browser shows instead of a token: which session of which token, signed, so that nothing of it is kept here.

use crate::domain::TokenId;

/// How long a browser that is not used stays let in.
pub const SESSION_MS: i64 = 12 * 3_600_000;
/// A session that is used gets a new cookie when the one it has is this old.
pub const RENEWED_MS: i64 = 3_600_000;
/// However much it is used, somebody shows the token again.
pub const SESSION_MS_MAX: i64 = 7 * 24 * 3_600_000;

/// What a browser that was let in shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The same however often its cookie is renewed.
    pub id: String,
    /// Whose it is. `None`: of whoever has the token of the settings.
    pub token_id: Option<TokenId>,
    pub begun_ms: i64,
    pub issued_ms: i64,
}

impl Session {
    pub fn words(&self) -> String {
        let Session {
            id,
            token_id,
            begun_ms,
            issued_ms,
        } = self;
        let token = token_id.map_or_else(String::new, |token_id| token_id.to_string());
        format!("{id}.{token}.{begun_ms}.{issued_ms}")
    }

    pub fn read(words: &str) -> Option<Session> {
        let mut words = words.split('.');
        Some(Session {
            id: words.next()?.to_string(),
            token_id: match words.next()? {
                "" => None,
                number => Some(TokenId(number.parse().ok()?)),
            },
            begun_ms: words.next()?.parse().ok()?,
            issued_ms: words.next()?.parse().ok()?,
        })
    }

    pub fn is_over(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.issued_ms) >= SESSION_MS
            || now_ms.saturating_sub(self.begun_ms) >= SESSION_MS_MAX
    }

    pub fn ends_ms(&self) -> i64 {
        self.begun_ms.saturating_add(SESSION_MS_MAX)
    }
}
