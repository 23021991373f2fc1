//! Memory for long answers that their clients have not read yet.
//!
//! A long answer is counted from the moment that a handler gives it until it is sent or its client is gone. Callers that may use a
//! route by their role share one room, of which each caller has a share. Strangers have a small room of their own, so that they can
//! never take memory from callers with a token.
//!
//! A request that changes something is refused before it is carried out, if its caller already holds its share or if the room is
//! full. Once it was carried out, its answer is sent in any case, even if the room overflows: a refusal would say that nothing was
//! done. The overflow is bounded, because each handler gives its answer before it looks at the room for its next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::error::ApiError;
use super::exchange::Response;
use super::shares::{HeldShare, Limit, ShareOwner, Shares};

/// Answers up to this length are not counted.
const SHORT_ANSWER_BYTES: usize = 64 << 10;

/// Strangers get one part of so many on top of the memory for all others. No answer of ours to a stranger is long; this is a bound
/// for one that becomes long by mistake.
const STRANGERS_PART: usize = 32;

/// The room for callers with a role, and the room for strangers.
#[derive(Clone)]
pub struct AnswerRooms {
    known: Arc<AnswerRoom>,
    strangers: Arc<AnswerRoom>,
}

impl AnswerRooms {
    pub fn new(bytes_max: usize) -> AnswerRooms {
        let room = |bytes_max| {
            Arc::new(AnswerRoom {
                bytes_max,
                held: AtomicUsize::new(0),
            })
        };
        AnswerRooms {
            known: room(bytes_max),
            strangers: room(bytes_max / STRANGERS_PART),
        }
    }

    /// The limits for the answer to one request. `owner`: the caller whose share counts, `None` if the caller is exempt.
    /// `changes_something`: whether carrying out the request may have an effect.
    pub fn budget(
        &self,
        is_stranger: bool,
        changes_something: bool,
        owner: Option<ShareOwner>,
        shares: &Arc<Shares>,
    ) -> AnswerBudget {
        let room = match is_stranger {
            true => &self.strangers,
            false => &self.known,
        };
        AnswerBudget {
            room: room.clone(),
            shares: shares.clone(),
            owner,
            changes_something,
        }
    }
}

struct AnswerRoom {
    bytes_max: usize,
    /// More than `bytes_max` if answers had to be sent although there was no room for them.
    held: AtomicUsize,
}

impl AnswerRoom {
    fn is_full(&self) -> bool {
        self.held.load(Ordering::Acquire) >= self.bytes_max
    }

    /// `None`: there is no room for so many bytes, and `may_overflow` is not set.
    fn take(self: &Arc<Self>, bytes: usize, may_overflow: bool) -> Option<HeldRoom> {
        let grown =
            |held: usize| Some(held + bytes).filter(|sum| may_overflow || *sum <= self.bytes_max);
        let taken = (self.held).fetch_update(Ordering::AcqRel, Ordering::Acquire, grown);
        taken.ok().map(|_| HeldRoom {
            room: self.clone(),
            bytes,
        })
    }
}

/// Bytes of a room, given back when this value is dropped.
struct HeldRoom {
    room: Arc<AnswerRoom>,
    bytes: usize,
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// The limits for the answer to one request.
pub struct AnswerBudget {
    room: Arc<AnswerRoom>,
    shares: Arc<Shares>,
    owner: Option<ShareOwner>,
    changes_something: bool,
}

impl AnswerBudget {
    /// Whether the request may be carried out. A request that changes nothing may: its answer can be refused afterwards.
    pub fn check(&self) -> Result<(), ApiError> {
        if !self.changes_something {
            return Ok(());
        }
        self.shares.check_answers(self.owner, self.room.bytes_max)?;
        match self.room.is_full() {
            true => Err(ApiError::busy()),
            false => Ok(()),
        }
    }

    /// Counts the answer until its bytes are dropped. Returns a refusal instead if the request changed nothing and there is no room.
    pub fn count(&self, response: Response) -> Response {
        let bytes = response.body.len();
        if bytes <= SHORT_ANSWER_BYTES {
            return response;
        }
        let share = match self.changes_something {
            true => self.shares.hold_answer(self.owner, bytes),
            false => {
                let mut share = self.shares.begin_answer(self.owner);
                let total = self.room.bytes_max;
                // One long answer is always allowed.
                let grown = (self.shares).grow(Limit::AnswerBytes, &mut share, bytes, total, bytes);
                if let Err(over_share) = grown {
                    return over_share.response();
                }
                share
            }
        };
        let Some(room) = self.room.take(bytes, self.changes_something) else {
            return ApiError::busy().response();
        };
        Response {
            body: Bytes::from_owner(HeldBytes {
                bytes: response.body,
                _held: (room, share),
            }),
            ..response
        }
    }
}

/// The body of an answer. It gives its room back when nobody holds it any more, the HTTP library included.
struct HeldBytes {
    bytes: Bytes,
    _held: (HeldRoom, Option<HeldShare>),
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerLimits;
    use crate::domain::TokenId;

    const ANN: Option<ShareOwner> = Some(ShareOwner::Token(TokenId(1)));
    const BOB: Option<ShareOwner> = Some(ShareOwner::Settings);

    struct Server {
        rooms: AnswerRooms,
        shares: Arc<Shares>,
    }

    impl Server {
        fn new(bytes_max: usize) -> Server {
            Server {
                rooms: AnswerRooms::new(bytes_max),
                shares: Arc::new(Shares::new(ServerLimits::default())),
            }
        }

        /// The answer to a request that changes nothing.
        fn look(&self, owner: Option<ShareOwner>, bytes: usize) -> Response {
            let budget = self.rooms.budget(false, false, owner, &self.shares);
            assert_eq!(budget.check(), Ok(()));
            budget.count(Response::text(vec![b'x'; bytes]))
        }

        /// The answer to a request that changes something, or why it is not carried out.
        fn act(&self, owner: Option<ShareOwner>, bytes: usize) -> Result<Response, u16> {
            let budget = self.rooms.budget(false, true, owner, &self.shares);
            budget.check().map_err(|error| error.status)?;
            Ok(budget.count(Response::text(vec![b'x'; bytes])))
        }
    }

    #[test]
    fn long_answers_that_nobody_has_read_have_a_bound() {
        let server = Server::new(100_000);
        let unread = server.look(None, 80_000);
        assert_eq!((unread.status, unread.body.len()), (200, 80_000));
        assert_eq!(server.look(None, 80_000).status, 503);
        assert_eq!(
            server.look(None, 60_000).status,
            200,
            "short ones take none"
        );
        drop(unread);
        assert_eq!(server.look(None, 80_000).status, 200);
    }

    #[test]
    fn one_caller_leaves_room_for_the_long_answers_of_others() {
        let server = Server::new(400_000);
        let unread = server.look(ANN, 90_000);
        assert_eq!(unread.status, 200);
        assert_eq!(server.look(ANN, 90_000).status, 429);
        assert_eq!(server.look(BOB, 90_000).status, 200);
        drop(unread);
        assert_eq!(server.look(ANN, 90_000).status, 200);
    }

    #[test]
    fn a_request_that_changes_something_is_refused_before_it_is_carried_out_or_answered() {
        let server = Server::new(400_000);
        let unread = server.act(ANN, 90_000).unwrap();
        // The second answer goes over the share, and is sent because the change was made.
        let second = server.act(ANN, 90_000).unwrap();
        assert_eq!((second.status, second.body.len()), (200, 90_000));
        assert_eq!(server.act(ANN, 10).unwrap_err(), 429);
        assert_eq!(server.look(ANN, 90_000).status, 429);
        assert_eq!(server.act(BOB, 90_000).unwrap().status, 200);
        drop((unread, second));
        assert!(server.act(ANN, 10).is_ok());

        // The same if the room of all is full.
        let unread = server.act(None, 350_000).unwrap();
        let overflow = server.act(None, 350_000).unwrap();
        assert_eq!(overflow.body.len(), 350_000);
        assert_eq!(server.act(BOB, 10).unwrap_err(), 503);
        drop((unread, overflow));
        assert!(server.act(BOB, 10).is_ok());
    }

    #[test]
    fn strangers_take_no_room_of_others() {
        let server = Server::new(32 * 100_000);
        let answer = || {
            let budget = server.rooms.budget(true, false, None, &server.shares);
            budget.count(Response::text(vec![b'x'; 80_000]))
        };
        let unread = answer();
        assert_eq!(unread.status, 200);
        assert_eq!(answer().status, 503);
        let all = server.look(None, 32 * 100_000);
        assert_eq!(all.status, 200);
    }
}
