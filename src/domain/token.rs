//! What lets somebody in: tokens, the roles that they give, and what one looks like.
//!
//! A token is random, shown once and kept as a hash. Its text begins with a word that secret scanners can look for, names the row that
//! it is checked against, and ends with a checksum, so that one that was cut off or mistyped is told apart before it is sent.

use super::{Timestamp, TokenId, words};

words! {
    /// What a token lets do. Each of the first three may do what those before it may.
    pub enum Role {
        /// Looks at everything but tokens.
        Viewer = "viewer",
        /// Runs, cancels, retries and decides about what is defined; takes workers and schedules out of use.
        Operator = "operator",
        /// Everything else that a person can do.
        Admin = "admin",
        /// Runs steps, and touches nothing but its own sessions and attempts.
        Worker = "worker",
        /// Makes one worker's token, once.
        Enrolment = "enrolment",
    }
}

impl Role {
    /// Whether whoever has this role may do what the other lets do. Workers are no people, and people no workers.
    pub fn covers(self, needed: Role) -> bool {
        match self {
            Role::Viewer | Role::Operator | Role::Admin => {
                needed <= self && !matches!(needed, Role::Worker | Role::Enrolment)
            }
            Role::Worker | Role::Enrolment => self == needed,
        }
    }

    pub fn is_for_people(self) -> bool {
        Role::Admin.covers(self)
    }
}

/// What events call whoever was not asked who they are: somebody at this machine.
pub const LOCAL: &str = "local";
/// What they call whoever shows the token that the settings name.
pub const OF_SETTINGS: &str = "settings";
/// What they call whoever has the data folder of a server that does not run.
pub const CONSOLE: &str = "console";

/// Maker (`made_by`) of the two tokens that the first start of a server writes into the data folder.
pub const FIRST_START: &str = "first start";

/// The number of the token that the worker in the server's own process shows. No row has it.
pub const OWN_WORKER: TokenId = TokenId(0);

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub token_id: TokenId,
    pub name: String,
    pub role: Role,
    /// SHA-256 of its secret, in hex.
    pub hash: String,
    /// What its worker may offer. `None`: anything.
    pub tags: Option<Vec<String>>,
    pub made_by: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When it last let somebody in, give or take a minute.
    pub used_at: Option<Timestamp>,
    /// Revoked; or, of an enrolment, used up.
    pub ended_at: Option<Timestamp>,
    /// What an enrolment was exchanged for.
    pub made_token_id: Option<TokenId>,
    /// Whether somebody made this token while the server asked nobody for a token, or with a token that was made so. Anybody on
    /// the machine could have made such a token.
    pub is_unasked: bool,
}

impl Token {
    /// Whether it lets anybody in.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.ended_at.is_none() && !self.has_expired(now)
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// In a word, for lists.
    pub fn standing(&self, now: Timestamp) -> &'static str {
        match (self.ended_at, self.made_token_id) {
            (Some(_), Some(_)) => "used",
            (Some(_), None) => "revoked",
            (None, _) if self.has_expired(now) => "expired",
            (None, _) => "good",
        }
    }
}

/// A token that is about to be kept. Its secret is drawn and hashed by whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    pub hash: String,
    pub tags: Option<Vec<String>>,
    pub made_by: String,
    pub expires_at: Option<Timestamp>,
    pub is_unasked: bool,
}

/// Authentication state that is stored in the database of a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderDoor {
    /// Whether `stepward server` asks for a token on loopback, too, unless its settings say otherwise. False for folders that
    /// version 0.1 created.
    pub is_closed: bool,
    /// Whether a server that asks for tokens was started on this folder before. Only the first such start writes tokens into the
    /// folder: tokens that somebody deleted or revoked later do not come back.
    pub has_had_first_start: bool,
}

/// Who owns a worker that registers: the token that it shows, and what that lets it offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub token_id: TokenId,
    pub tags: Option<Vec<String>>,
}

/// For a person, a program or a worker, to be shown with every request.
const STANDING: &str = "stw";
/// To be shown once, by a worker that has no token yet.
const ENROLMENT: &str = "ste";
/// 256 bits in hex.
const SECRET_LETTERS: usize = 64;

/// What a token's text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenText<'t> {
    pub token_id: TokenId,
    pub secret: &'t str,
    pub is_enrolment: bool,
}

impl TokenText<'_> {
    /// `None`: it is no token of the table, or not the whole of one.
    pub fn read(text: &str) -> Option<TokenText<'_>> {
        let (body, checksum) = text.rsplit_once('_')?;
        let mut parts = body.splitn(3, '_');
        let is_enrolment = match parts.next()? {
            STANDING => false,
            ENROLMENT => true,
            _ => return None,
        };
        let token_id = parts.next()?.parse().ok()?;
        let secret = parts.next()?;
        let is_whole = secret.len() == SECRET_LETTERS && checksum == checksum_of(body);
        is_whole.then_some(TokenText {
            token_id: TokenId(token_id),
            secret,
            is_enrolment,
        })
    }

    pub fn write(&self) -> String {
        let word = if self.is_enrolment {
            ENROLMENT
        } else {
            STANDING
        };
        let body = format!("{word}_{}_{}", self.token_id, self.secret);
        let checksum = checksum_of(&body);
        format!("{body}_{checksum}")
    }

    /// It begins as one of ours does, and is not the whole of one.
    pub fn is_broken(text: &str) -> bool {
        let begins = |word: &str| {
            text.strip_prefix(word)
                .is_some_and(|rest| rest.starts_with('_'))
        };
        (begins(STANDING) || begins(ENROLMENT)) && TokenText::read(text).is_none()
    }
}

/// CRC-32, as in gzip: it finds slips, and keeps nobody out.
fn checksum_of(text: &str) -> String {
    let mut crc = !0_u32;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let carry = if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            crc = (crc >> 1) ^ carry;
        }
    }
    format!("{:08x}", !crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_a_slip_is_seen() {
        let secret = "0123456789abcdef".repeat(4);
        for is_enrolment in [false, true] {
            let token = TokenText {
                token_id: TokenId(12),
                secret: &secret,
                is_enrolment,
            };
            let text = token.write();
            assert_eq!(TokenText::read(&text), Some(token));
            assert!(!TokenText::is_broken(&text));
            for at in 0..text.len() {
                let cut = &text[..at];
                assert_eq!(TokenText::read(cut), None, "{cut}");
                let mut slip = text.clone().into_bytes();
                slip[at] = if slip[at] == b'7' { b'8' } else { b'7' };
                let slip = String::from_utf8(slip).unwrap();
                assert_eq!(TokenText::read(&slip), None, "{slip}");
            }
            assert!(TokenText::is_broken(&text[..text.len() - 1]));
        }
        assert!(!TokenText::is_broken("a-word-of-somebody-else"));
        assert_eq!(checksum_of("123456789"), "cbf43926");
    }

    #[test]
    fn people_grow_and_workers_stay_apart() {
        use Role::*;
        let covered = |role: Role| -> Vec<Role> {
            let all = Role::ALL.iter().copied();
            all.filter(|needed| role.covers(*needed)).collect()
        };
        assert_eq!(covered(Viewer), [Viewer]);
        assert_eq!(covered(Operator), [Viewer, Operator]);
        assert_eq!(covered(Admin), [Viewer, Operator, Admin]);
        assert_eq!(covered(Worker), [Worker]);
        assert_eq!(covered(Enrolment), [Enrolment]);
    }
}
