//! Messages to the outside: which is next, how its delivery went, and once more when somebody asks for it.
//!
//! A message is posted in the transaction that records its event (`Tx::record`, and `settle.rs` for hooks), so there is one
//! for each event that happened and none for one that did not. Delivery comes after the commit and may be repeated; the
//! message's id stays, so whoever receives it can tell. The failures of hook jobs are posted as those of all others: a hook
//! job fires no hooks, but somebody who subscribed wants to know that it failed.

use super::facts::Facts;
use super::views::named;
use super::{Engine, EngineError, NamedEvent};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::event::{EventKind, NewEvent};
use crate::domain::job::Job;
use crate::domain::limits::shorten;
use crate::domain::outbox::{
    AfterSending, Delivery, Message, MessageState, Sent, Target, after_sending,
};
use crate::domain::{EventSeq, Now, OutboxId};
use crate::store::{MessageFilter, Tried, Tx};

/// A message with what it tells.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub message: Message,
    pub event: NamedEvent,
    pub job: Option<Job>,
}

/// What a target is to be told.
#[derive(Debug, Clone)]
pub enum Due {
    Now(Box<Outgoing>),
    In { ms: i64 },
    Nothing,
}

/// A message with the log of its deliveries.
#[derive(Debug, Clone)]
pub struct MessageDetail {
    pub message: Message,
    pub event: Option<NamedEvent>,
    pub deliveries: Vec<Delivery>,
}

impl Engine {
    /// Who is told of what, from now on.
    pub fn set_targets(&self, targets: Vec<Target>) {
        self.store.set_targets(targets);
    }

    pub fn next_message(&self, target: &str, now: Now) -> Result<Due, EngineError> {
        let next = self.store.read(|tx| {
            let Some(message) = tx.next_message(target)? else {
                return Ok(Ok(Due::Nothing));
            };
            let in_ms = message.next_up.map_or(0, |up| up.0 - now.up.0);
            if in_ms > 0 {
                return Ok(Ok(Due::In { ms: in_ms }));
            }
            let Some(event) = event_of(tx, &message)? else {
                return Ok(Err(message));
            };
            let job = match message.job_id {
                Some(job_id) => tx.job(job_id)?,
                None => None,
            };
            Ok::<_, EngineError>(Ok(Due::Now(Box::new(Outgoing {
                message,
                event,
                job,
            }))))
        })?;
        match next {
            Ok(due) => Ok(due),
            Err(message) => {
                let sent = Sent {
                    is_final: true,
                    ..Sent::failed("what it would tell is not kept any more")
                };
                self.tell_delivery(message, sent, 0, now)?;
                Ok(Due::In { ms: 0 })
            }
        }
    }

    /// Writes down how a delivery went. `None`: somebody was faster.
    pub fn tell_delivery(
        &self,
        message: Message,
        sent: Sent,
        duration_ms: i64,
        now: Now,
    ) -> Result<Option<MessageState>, EngineError> {
        self.write(now, move |tx| {
            let (state, next_up) = match after_sending(message.outbox_id, message.tries + 1, &sent)
            {
                AfterSending::Delivered => (MessageState::Delivered, None),
                AfterSending::TryAgainIn { ms } => {
                    (MessageState::Pending, Some(now.up.plus_ms(ms)))
                }
                AfterSending::GiveUp => (MessageState::GivenUp, None),
            };
            let tried = Tried {
                message: &message,
                sent: &sent,
                duration_ms,
                state,
                next_up,
            };
            if !tx.settle_try(&tried, now)? {
                return Ok(None);
            }
            if state == MessageState::GivenUp {
                tell_given_up(tx, &message, &sent, now)?;
            }
            Ok(Some(state))
        })
    }

    /// Gives up what waits for targets that the settings do not have any more. Returns how many messages that were.
    pub fn give_up_strangers(&self, now: Now) -> Result<usize, EngineError> {
        const AT_ONCE_MAX: u32 = 1_000;
        let mut given_up = 0;
        let mut after = String::new();
        loop {
            let seen = after.clone();
            let waiting = self
                .store
                .read(|tx| Ok::<_, EngineError>(tx.next_waiting_target(&seen)?))?;
            let Some(name) = waiting else {
                return Ok(given_up);
            };
            let stranger = name.clone();
            let count = self.write(now, move |tx| {
                if tx.target(&stranger).is_some() {
                    return Ok(0);
                }
                let why = format!(
                    "the settings have no target {} any more",
                    shorten(&stranger)
                );
                let count = tx.give_up_all(&stranger, &why, AT_ONCE_MAX)?;
                let text = format!("{count} messages were given up: {why}");
                let facts = Facts::none()
                    .and("target", stranger.as_str())
                    .and("messages", count);
                let event = NewEvent::new(EventKind::DeliveryGivenUp, text).data(facts.data());
                tx.record(&event, now)?;
                Ok(count)
            })?;
            given_up += count;
            if count < AT_ONCE_MAX as usize {
                after = name;
            }
        }
    }

    /// The newest messages before one, and where to go on.
    pub fn messages(
        &self,
        before: Option<OutboxId>,
        filter: &MessageFilter,
        limit: u32,
    ) -> Result<(Vec<Message>, Option<OutboxId>), EngineError> {
        let before = before.unwrap_or(OutboxId(i64::MAX));
        self.store
            .read(|tx| Ok(tx.messages_before(before, filter, limit)?))
    }

    pub fn message(&self, outbox_id: OutboxId) -> Result<MessageDetail, EngineError> {
        self.store.read(|tx| {
            let message = find(tx, outbox_id)?;
            Ok(MessageDetail {
                event: event_of(tx, &message)?,
                deliveries: tx.deliveries(outbox_id)?,
                message,
            })
        })
    }

    /// Delivers it once more, under the same id; one that waits is tried at once.
    pub fn redeliver(&self, outbox_id: OutboxId, now: Now) -> Result<(), EngineError> {
        self.write(now, move |tx| {
            let message = find(tx, outbox_id)?;
            if tx.target(&message.target).is_none() {
                let fault = format!(
                    "{} is not in the settings any more, add it under notify",
                    shorten(&message.target)
                );
                let place = "target";
                return Err(EngineError::Invalid { place, fault });
            }
            let posted = tx.post_again(&message, now)?;
            assert!(
                posted,
                "nobody moves delivery {outbox_id} within our transaction"
            );
            let target = &message.target;
            let text = format!("message {outbox_id} is sent to {target} once more");
            let facts = Facts::none()
                .and("delivery_id", outbox_id.0)
                .and("target", target.as_str());
            let redelivered = AuditEntry::of(AuditAction::MessageRedelivered);
            let redelivered = redelivered.object("delivery", outbox_id);
            let detail = Facts::none().and("target", target.as_str()).detail();
            tx.audit(&redelivered.detail(detail), now)?;
            let event = NewEvent::new(EventKind::MessageRedelivered, text).data(facts.data());
            Ok(tx.record_quietly(&event, now)?)
        })
    }
}

fn find(tx: &Tx, outbox_id: OutboxId) -> Result<Message, EngineError> {
    let message = tx.message(outbox_id)?;
    message.ok_or(EngineError::MessageNotFound { outbox_id })
}

fn event_of(tx: &Tx, message: &Message) -> Result<Option<NamedEvent>, EngineError> {
    let found = tx.events_after(EventSeq(message.event_seq.0 - 1), 1)?;
    let found = found
        .into_iter()
        .filter(|event| event.seq == message.event_seq)
        .collect();
    Ok(named(tx, found)?.pop())
}

/// Somebody else may want to know. Who could not be told that is not told of it in turn: two dead targets would speak of
/// each other for ever.
fn tell_given_up(tx: &Tx, message: &Message, sent: &Sent, now: Now) -> Result<(), EngineError> {
    let Message {
        outbox_id, target, ..
    } = message;
    let tries = message.tries + 1;
    let text = format!(
        "message {outbox_id} to {target} was given up after {tries} tries: {}",
        sent.message
    );
    let facts = Facts::none()
        .and("target", target.as_str())
        .and("delivery_id", outbox_id.0)
        .and("tries", tries);
    let mut event = NewEvent::new(EventKind::DeliveryGivenUp, text).data(facts.data());
    event.job_id = message.job_id;
    let about = event_of(tx, message)?.map(|named| named.event.fact.kind);
    match about {
        Some(EventKind::DeliveryGivenUp) | None => tx.record_quietly(&event, now)?,
        Some(_) => tx.record_about_target(&event, target, now)?,
    }
    Ok(())
}
