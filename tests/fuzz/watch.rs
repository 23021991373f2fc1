//! What is being tried, for whoever has to be told; and an end for what does not end by itself.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// No case takes a hundredth of it. What does hangs.
const CASE_MAX: Duration = Duration::from_secs(60);

/// Of what is told.
const TOLD_BYTES_MAX: usize = 4_000;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    static IS_CASE: RefCell<bool> = const { RefCell::new(false) };
}

/// What panicked in threads that no case waits for: those of a server.
static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A panic is told with its case, and once.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let told = info.to_string();
        match IS_CASE.with_borrow(|is_case| *is_case) {
            true => LAST.set(told),
            false => lock(&ELSEWHERE).push(told),
        }
    }));
}

pub fn last_panic() -> String {
    LAST.take()
}

pub fn panics_elsewhere() -> Vec<String> {
    std::mem::take(&mut lock(&ELSEWHERE))
}

/// What a case tries at the moment.
#[derive(Clone, Default)]
pub struct Tried(Arc<Mutex<Vec<u8>>>);

impl Tried {
    pub fn now(&self, what: impl AsRef<[u8]>) {
        let mut tried = lock(&self.0);
        tried.clear();
        tried.extend_from_slice(what.as_ref());
    }

    /// One more of many.
    pub fn also(&self, what: &str) {
        let mut tried = lock(&self.0);
        tried.push(b'\n');
        tried.extend_from_slice(what.as_bytes());
    }

    /// The end of it, if it is long: there the fault is.
    pub fn told(&self) -> String {
        let tried = lock(&self.0);
        let from = tried.len().saturating_sub(TOLD_BYTES_MAX);
        let dots = if from > 0 { "… " } else { "" };
        format!("{dots}{}", tried[from..].escape_ascii())
    }
}

/// Ends the process if the case does not end, and says which it was.
pub struct Watch {
    tried: Tried,
    is_over: Arc<AtomicBool>,
}

/// The cases that are being played: (since when, of which target, how to replay it, what it tries, whether it is over).
type Played = (Instant, &'static str, String, Tried, Arc<AtomicBool>);
static PLAYED: Mutex<Vec<Played>> = Mutex::new(Vec::new());
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

impl Watch {
    pub fn begin(target: &'static str, replay: String) -> Watch {
        IS_CASE.set(true);
        let watch = Watch {
            tried: Tried::default(),
            is_over: Arc::default(),
        };
        let (tried, is_over) = (watch.tried.clone(), watch.is_over.clone());
        lock(&PLAYED).push((Instant::now(), target, replay, tried, is_over));
        if !IS_WATCHED.swap(true, Ordering::Relaxed) {
            std::thread::spawn(watch_all);
        }
        watch
    }

    pub fn tried(&self) -> &Tried {
        &self.tried
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        lock(&PLAYED).retain(|(.., is_over)| !is_over.load(Ordering::Relaxed));
    }
}

fn watch_all() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for (begun, target, replay, tried, _) in lock(&PLAYED).iter() {
            if begun.elapsed() > CASE_MAX {
                eprintln!(
                    "fuzz: {target} does not end within {} s\ntried: {}\nreplay it: {replay}",
                    CASE_MAX.as_secs(),
                    tried.told()
                );
                std::process::abort();
            }
        }
    }
}
