//! Hears of what happens as it happens, whatever becomes of the connection: whoever shows a job looks again when it is told to.

use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::reach::Remote;
use crate::client::{CallError, Told};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub enum News {
    /// The server is there: what happens from now on is told.
    Connected,
    Told(Told),
    /// The server is not there. It is tried again and again.
    Lost(String),
    /// It is there, and does not want to tell. Nothing follows.
    Refused(CallError),
}

/// Of one job, or of everything. `after` is the place that was last told. The thread ends with the process, or soon after nobody
/// listens any more.
pub fn follow(remote: &Remote, job_id: Option<i64>, after: Option<String>) -> Receiver<News> {
    let (news, heard) = unbounded();
    let client = remote.client.clone();
    let mut place = after;
    let listen = move || {
        let mut pause = PAUSE_MIN;
        loop {
            let why = match client.stream(job_id, place.as_deref()) {
                Ok(stream) => {
                    pause = PAUSE_MIN;
                    if news.send(News::Connected).is_err() {
                        return;
                    }
                    for told in stream {
                        place = told.place.clone().or(place);
                        if news.send(News::Told(told)).is_err() {
                            return;
                        }
                    }
                    "the connection broke off".to_string()
                }
                Err(error) if error.passes() => error.to_string(),
                Err(refused) => {
                    // Nobody listens: then nobody needs to know.
                    let _ = news.send(News::Refused(refused));
                    return;
                }
            };
            if news.send(News::Lost(why)).is_err() {
                return;
            }
            std::thread::sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
    };
    let thread = std::thread::Builder::new().name("follow".to_string());
    if let Err(error) = thread.spawn(listen) {
        // Whoever follows looks by themselves from time to time.
        log::warn!("a thread could not be started: {error}");
    }
    heard
}
