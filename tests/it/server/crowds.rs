//! Crowds: more connections, requests and streams than there is room for. Whoever takes a place for nothing goes first, and
//! those who work here are served all the while.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::tokens::{FORM, Guarded};
use super::*;

/// A small house: places for few, and for fewer of those that nobody knows.
fn small() -> Limits {
    Limits {
        connections_max: 300,
        connections_per_address_max: 200,
        strangers_per_address_max: 100,
        ..Limits::default()
    }
}

/// Connections that cost their sender nothing, and what each begins with.
const FLOODS: [(&str, &str); 5] = [
    ("silence", ""),
    ("half a head", "GET /api/jo"),
    (
        "a body that does not come",
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n{",
    ),
    (
        "health, and then nothing",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
    // Without a token everybody may: of these the one that asked first goes first.
    (
        "a question, and then nothing",
        "GET /api/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
];

/// More than there are places, as fast as they can come, and as many as `work` lets come while it goes on. None is hung up by its
/// sender while the server could still have it.
fn flood(house: &ServerHouse, begin: &str, work: impl FnOnce(&Flood)) {
    let is_over = AtomicBool::new(false);
    let flood = Flood {
        came: AtomicUsize::new(0),
        allowed: AtomicUsize::new(400),
    };
    let Flood { came, allowed } = &flood;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut crowd = std::collections::VecDeque::new();
            while !is_over.load(Ordering::SeqCst) {
                if came.load(Ordering::SeqCst) >= allowed.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                    continue;
                }
                let mut line = house.line();
                line.send(begin);
                // Whoever is let in costs more than a place: this is about those who keep one for nothing.
                if begin.contains("/api/tasks HTTP") {
                    line.try_answer();
                }
                crowd.push_back(line);
                came.fetch_add(1, Ordering::SeqCst);
                if crowd.len() > 250 {
                    crowd.pop_front();
                }
            }
        });
        // Also when the work goes wrong: otherwise nobody would learn that it did.
        let end = scopeguard(|| is_over.store(true, Ordering::SeqCst));
        work(&flood);
        drop(end);
    });
}

struct Flood {
    came: AtomicUsize,
    allowed: AtomicUsize,
}

/// Done when it is dropped.
fn scopeguard(end: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(end)
}

#[test]
fn workers_are_served_through_every_flood_from_their_own_address() {
    for (what, begin) in FLOODS {
        let begun = Instant::now();
        let house = ServerHouse::with(small(), |_| ());
        let ann = house.worker("ann", &[], 1);
        let mut waiting = ann.wait(1, &[]);
        flood(&house, begin, |flood| {
            until("there are more than places", || {
                flood.came.load(Ordering::SeqCst) >= 400
            });
            for seq in 1..=30 {
                // Two of these are more strangers than may be there at a time.
                flood.allowed.fetch_add(60, Ordering::SeqCst);
                let beat = json!({ "session": ann.session, "seq": seq, "held": [] }).to_string();
                // By a new connection each. Whoever is hung up on by chance comes again, as a worker does.
                let answered = (0..3).any(|_| {
                    let mut line = house.line();
                    line.ask("POST", "/api/worker/heartbeat", "", beat.as_bytes());
                    line.try_answer().is_some_and(|answer| answer.status == 200)
                });
                assert!(answered, "{what}: heartbeat {seq}");
            }
            until("there is work", || {
                let mut line = house.line();
                line.ask(
                    "POST",
                    "/api/tasks/hello/jobs",
                    "idempotency-key: once\r\n",
                    b"",
                );
                line.try_answer().is_some_and(|answer| answer.status < 300)
            });
        });
        if std::env::var_os("STORY").is_some() {
            println!("{what}: {:?}", begun.elapsed());
        }
        // Who waited for an answer kept its place.
        let answer = waiting.answer().expect(200);
        assert_eq!(answer["assignments"].as_array().unwrap().len(), 1, "{what}");
    }
}

#[test]
fn when_everybody_waits_for_an_answer_the_next_one_is_closed_and_finds_a_place_later() {
    let house = ServerHouse::with(small(), |_| ());
    let mut streams: Vec<Listener> = (0..200).map(|_| house.stream("", "")).collect();
    assert!(
        house.line().is_closed(),
        "all places of this address are taken"
    );
    assert_eq!(house.server.event_streams(), 200);
    streams.pop();
    until("there is a place again", || {
        let mut line = house.line();
        line.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        line.try_answer().is_some()
    });
}

#[test]
fn a_stranger_makes_room_for_the_next_one() {
    let house = ServerHouse::with(small(), |_| ());
    let mut strangers: Vec<Line> = (0..100).map(|_| house.line()).collect();
    for line in &mut strangers {
        line.ask("GET", "/healthz", "", b"");
        line.answer().expect(200);
    }
    let mut next = house.line();
    next.ask("GET", "/healthz", "", b"");
    next.answer().expect(200);
    assert!(strangers[0].is_closed(), "it was there first");
    strangers[99].ask("GET", "/healthz", "", b"");
    strangers[99].answer().expect(200);
}

#[test]
fn streams_have_a_bound() {
    let limits = Limits {
        streams_max: 3,
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |_| ());
    let mut streams: Vec<Listener> = (0..3).map(|_| house.stream("", "")).collect();
    let ask = || house.ask("GET", "/api/events", "accept: text/event-stream\r\n", b"");
    let refused = ask();
    assert_eq!(refused.refused(503), "too_many_streams");
    assert_eq!(refused.message(), "3 streams are open already, close one");
    streams.pop();
    // Whoever hung up is missed when the next one comes.
    until("there is room again", || {
        let mut line = house.line();
        line.ask("GET", "/api/events", "accept: text/event-stream\r\n", b"");
        line.bare_head().status == 200
    });
}

#[test]
fn more_requests_than_can_wait_are_told_to_come_back() {
    let limits = Limits {
        queued_max: 4,
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |_| ());
    house.submit("hello");
    // Another process holds the database: whoever writes waits.
    let other = rusqlite::Connection::open(house.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let [made, refused, not_queued] = [const { AtomicUsize::new(0) }; 3];
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                let answer = house.post("/api/tasks/hello/jobs", &Value::Null);
                if answer.status == 201 {
                    made.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                assert_eq!(answer.refused(503), "busy");
                refused.fetch_add(1, Ordering::SeqCst);
                // The store says so too, to those that waited for it in vain.
                if answer.message() == "the server has more to do than it can take, try again" {
                    assert_eq!(answer.header("retry-after"), Some("1"));
                    not_queued.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // Sixteen are carried out, four wait.
        until("others are told", || not_queued.load(Ordering::SeqCst) > 0);
        // Workers do not stand behind them.
        assert_eq!(house.get("/healthz").status, 200);
        other.execute_batch("ROLLBACK").unwrap();
    });
    let made = made.load(Ordering::SeqCst);
    assert_eq!(made + refused.load(Ordering::SeqCst), 30);
    assert_eq!(house.jobs(), 1 + made);
}

#[test]
fn bodies_of_others_take_no_room_of_workers() {
    let limits = Limits {
        bodies_bytes_max: 800_000,
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |_| ());
    let ann = house.worker("ann", &[], 1);
    // Whose it is, and how much of it there is room for.
    let rooms = [
        ("/login", 100_000),
        ("/hooks/nothing", 100_000),
        ("/api/tasks/hello/jobs", 200_000),
    ];
    let mut crowd = Vec::new();
    for (path, room) in rooms {
        for _ in 0..20 {
            let mut line = house.line();
            line.send(format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 16000\r\n\r\n"
            ));
            line.send([b'x'; 15_000]);
            crowd.push(line);
        }
        assert!(20 * 15_000 > room, "they are more than there is room for");
        until("there is no room", || {
            let answer = house.ask("POST", path, "", &[b'x'; 15_000]);
            answer.status == 503
        });
    }
    for seq in 1..=30 {
        let beat = json!({ "session": ann.session, "seq": seq, "held": [] }).to_string();
        let answer = house.ask("POST", "/api/worker/heartbeat", "", beat.as_bytes());
        answer.expect(200);
    }
    drop(crowd);
    until("there is room again", || {
        let answer = house.ask("POST", "/login", "", &[b'x'; 15_000]);
        answer.status != 503
    });
    let long = house.ask("POST", "/login", "", &[b'x'; 17_000]);
    assert_eq!(long.status, 413, "nobody knows yet who that is");
}

#[test]
fn no_stranger_gets_a_long_answer() {
    let open = ServerHouse::new();
    let guarded = Guarded::with(Limits::default(), |_| ());
    let long = "\"".repeat(15_000);
    let address = "%22".repeat(2_600);
    let login = format!("token=x&next={long}");
    let local = format!("token=x&next=/jobs?{long}");
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let host = format!("x-host: x\r\norigin: http://{long}\r\n");
    let kind = format!("content-type: {long}\r\n");
    let html = "accept: text/html\r\n";
    let next = format!("/login?next=/jobs%3F{address}");
    let query = format!("/login?next=/&{address}=1");
    let [nothing, hook, task, id, key] = ["/", "/hooks/", "/api/tasks/", "/jobs/", "/api/jobs?"]
        .map(|begin| format!("{begin}{address}"));
    let asked: &[(&str, &str, &str, &[u8])] = &[
        ("POST", "/login", form, login.as_bytes()),
        ("POST", "/login", form, local.as_bytes()),
        ("POST", "/login", &kind, b"x"),
        ("POST", "/logout", &host, b""),
        ("GET", &next, "", b""),
        ("GET", &query, "", b""),
        ("GET", &nothing, html, b""),
        ("GET", &nothing, "", b""),
        ("POST", &hook, &kind, b"x"),
        ("GET", &task, "", b""),
        ("GET", &id, html, b""),
        ("GET", &key, "", b""),
        ("POST", "/api/worker/enrol", &kind, long.as_bytes()),
        ("GET", "/api/jobs", &host, b""),
    ];
    for house in [&open, &guarded.house] {
        for (method, path, headers, body) in asked {
            let answer = house.ask(method, path, headers, body);
            let (bytes, status) = (answer.body.len(), answer.status);
            assert!(
                bytes < 64 << 10,
                "{method} {path:.40}: {status}, {bytes} bytes"
            );
        }
        // A name that is not this server's is repeated.
        let mut line = house.line();
        line.send(format!("GET /api/jobs HTTP/1.1\r\nhost: {long}\r\n\r\n"));
        let answer = line.answer();
        assert!(answer.body.len() < 64 << 10, "{}", answer.body.len());
    }
    let too_many: Vec<Answer> = (0..20)
        .map(|_| {
            let form = format!("token=wrong&next=/jobs?{long}");
            guarded.house.ask("POST", "/login", FORM, form.as_bytes())
        })
        .collect();
    let too_many = too_many.last().unwrap();
    assert_eq!(too_many.status, 429);
    assert!(too_many.body.len() < 32 << 10, "{}", too_many.body.len());
}
