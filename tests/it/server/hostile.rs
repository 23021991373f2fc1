//! Hostile HTTP: slow, huge, broken, half. The one who sends it is let go, and everybody else is served meanwhile.

use std::time::{Duration, Instant};

use stepward::server::Limits;

use super::line::Line;
use super::{ServerHouse, until};

const SHORT: Duration = Duration::from_millis(300);

/// A server that is as impatient as a test.
fn impatient() -> ServerHouse {
    let limits = Limits {
        header_timeout: SHORT,
        body_pause_max: SHORT,
        body_timeout: 3 * SHORT,
        ..Limits::default()
    };
    ServerHouse::with(limits, |_| ())
}

/// Connections that the server's port has on this side of the loopback.
fn connections(house: &ServerHouse) -> usize {
    let port = format!("0100007F:{:04X}", house.server.address().port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let established = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&port) && words.nth(1) == Some("01")
    };
    table.lines().filter(established).count()
}

/// Whoever does it right is served at once.
fn serves(house: &ServerHouse) {
    let begun = Instant::now();
    house.get("/api/jobs").expect(200);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// What the server says to these bytes: a status, or 0 if it closes without a word.
fn says(house: &ServerHouse, bytes: &[u8]) -> u16 {
    let mut line = house.line();
    line.send(bytes);
    line.try_answer().map_or(0, |answer| answer.status)
}

#[test]
fn headers_that_come_byte_by_byte_are_cut_off() {
    let house = impatient();
    let mut line = house.line();
    let begun = Instant::now();
    for byte in b"GET /api/jobs HTTP/1.1\r\nhost: localhost\r\nx-slow: 1234567890\r\n".chunks(1) {
        if !line.send(byte) || begun.elapsed() > 4 * SHORT {
            break;
        }
        std::thread::sleep(SHORT / 10);
        if begun.elapsed() > SHORT / 2 && begun.elapsed() < SHORT {
            serves(&house);
        }
    }
    assert_eq!(
        line.try_answer()
            .map(|answer| answer.status)
            .filter(|&status| status != 408),
        None
    );
    until("its place is free", || connections(&house) == 0);
}

#[test]
fn a_body_that_does_not_come_is_cut_off() {
    let house = impatient();
    // Silence.
    let mut line = house.line();
    line.send(
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{",
    );
    serves(&house);
    assert_eq!(line.answer().refused(408), "timeout");
    assert!(line.is_closed());
    // Byte by byte, each in time, all of them never.
    let mut line = house.line();
    line.send(
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000\r\n\r\n",
    );
    let begun = Instant::now();
    while begun.elapsed() < 5 * SHORT && line.send(" ") {
        std::thread::sleep(SHORT / 6);
    }
    assert_eq!(line.answer().refused(408), "timeout");
    assert_eq!(house.jobs(), 0);
    until("their places are free", || connections(&house) == 0);
}

#[test]
fn a_body_that_breaks_off_makes_nothing() {
    let house = impatient();
    let mut line = house.line();
    line.send(
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{}",
    );
    drop(line);
    let mut line = house.line();
    line.send("POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}");
    line.stop_sending();
    assert_ne!(line.try_answer().map(|answer| answer.status), Some(201));
    until("their places are free", || connections(&house) == 0);
    assert_eq!(house.jobs(), 0);
}

#[test]
fn what_is_too_much_is_refused_as_such() {
    let house = impatient();
    let long = "x".repeat(100_000);
    let with_header =
        format!("GET /api/jobs HTTP/1.1\r\nhost: localhost\r\nx-long: {long}\r\n\r\n");
    assert_eq!(says(&house, with_header.as_bytes()), 431);
    let headers: String = (0..1_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let with_headers = format!("GET /api/jobs HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    assert_eq!(says(&house, with_headers.as_bytes()), 431);
    let path = |bytes: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "x".repeat(bytes)
        )
    };
    assert_eq!(says(&house, path(10_000).as_bytes()), 414);
    let endless = says(&house, path(1 << 20).as_bytes());
    assert!([414, 431].contains(&endless), "{endless}");
    let query = format!("/api/jobs?q={}", "%25".repeat(50_000));
    let endless = says(
        &house,
        format!("GET {query} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes(),
    );
    assert!([414, 431].contains(&endless), "{endless}");
    serves(&house);
}

#[test]
fn two_ways_to_say_where_a_request_ends_are_one_too_many() {
    let house = impatient();
    let post = "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\n";
    for rest in [
        "content-length: 2\r\ncontent-length: 3\r\n\r\n{} ",
        "content-length: 2, 3\r\n\r\n{} ",
        "content-length: -2\r\n\r\n{}",
        "content-length: +2\r\n\r\n{}",
        "content-length: 0x2\r\n\r\n{}",
        "content-length: 99999999999999999999\r\n\r\n{}",
        "transfer-encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        "transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        " content-length: 2\r\n\r\n{}",
        "x y: z\r\n\r\n",
        "x\0y: z\r\n\r\n",
    ] {
        let mut line = house.line();
        line.send(format!("{post}{rest}"));
        line.stop_sending();
        let answers = std::iter::from_fn(|| line.try_answer());
        let statuses: Vec<u16> = answers.map(|answer| answer.status).collect();
        assert!(
            statuses.iter().all(|status| *status == 400),
            "{rest:?}: {statuses:?}"
        );
    }
    assert_eq!(house.jobs(), 0);
    serves(&house);
}

/// Whoever reads the same bytes in front of the server may see other requests in them, so they are refused, and with them everything that
/// comes behind them.
#[test]
fn bytes_that_two_readers_take_for_different_requests_are_refused() {
    let house = impatient();
    let post = "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\n";
    let smuggled = "GET /api/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let chunked = format!("{post}transfer-encoding: chunked\r\n");
    let get = "GET /api/jobs HTTP/1.1";
    for bytes in [
        format!("{get}\nhost: localhost\n\n"),
        format!("{get}\r\nhost: localhost\n\r\n"),
        format!("{get}\r\nhost: localhost\r\n\n"),
        format!("{get}\r\nhost: localhost\r\nx: a\rb\r\n\r\n"),
        format!("{get}\r\nhost: localhost\r\nx: a\r\n folded\r\n\r\n"),
        format!("{get}\r\nhost : localhost\r\n\r\n"),
        format!("{get}\r\nhost: localhost\r\nx: \0\r\n\r\n"),
        format!("{post}content-length: 2\r\ncontent-length: 2\r\n\r\n{{}}"),
        format!("{post}transfer-encoding: identity, chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: gzip, chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
        format!("{chunked}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
        format!("{chunked}content-length: 2\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
        format!("{post}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n")
            .replace("1.1", "1.0"),
        format!("{chunked}\r\n2\n{{}}\r\n0\r\n\r\n"),
        format!("{chunked}\r\n2;a\n{{}}\r\n0\r\n\r\n"),
        format!("{chunked}\r\n2 \r\n{{}}\r\n0\r\n\r\n"),
        format!("{chunked}\r\n2\r\n{{}}\n0\r\n\r\n"),
        format!("{chunked}\r\n2\r\n{{}}\r\n0\r\n\n"),
        format!("{chunked}\r\n2\r\n{{}}\r\n0\r\nx: y\n\r\n"),
        format!("{chunked}\r\n10000000000000002\r\n{{}}\r\n0\r\n\r\n"),
    ] {
        let mut line = house.line();
        line.send(format!("{bytes}{smuggled}"));
        let refused = line.try_answer().map(|answer| answer.status);
        assert_eq!(refused, Some(400), "{bytes:?}");
        assert!(line.is_closed(), "{bytes:?}");
        // Behind a request that is right, and in two pieces.
        let mut line = house.line();
        line.send(format!("{smuggled}{}", &bytes[..10]));
        assert_eq!(line.answer().status, 200);
        line.send(&bytes[10..]);
        let refused = line.try_answer().map(|answer| answer.status);
        assert_eq!(refused, Some(400), "{bytes:?}");
        assert!(line.is_closed(), "{bytes:?}");
    }
    for headers in ["host: localhost\r\nhost: localhost\r\n", "host: other\r\n"] {
        let asked = format!("GET http://localhost/api/jobs HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(says(&house, asked.as_bytes()), 400, "{headers:?}");
    }
    assert_eq!(house.jobs(), 0);
    serves(&house);
    until("their places are free", || connections(&house) == 0);
}

#[test]
fn what_is_no_http_is_let_go() {
    let house = impatient();
    let tls_hello = [
        0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
    ];
    let garbage: Vec<u8> = (0..4_096u32).map(|n| (n * 193 + 7) as u8).collect();
    for bytes in [
        &tls_hello[..],
        &garbage,
        b"GET /api/jobs\r\n",
        b"GET /api/jobs\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/jobs HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET  /api/jobs HTTP/1.1\r\n\r\n",
        b"GET /api/jobs\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"",
        b"G",
    ] {
        let status = says(&house, bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]).into_owned();
        assert!([0, 400, 404, 505].contains(&status), "{shown:?}: {status}");
    }
    serves(&house);
    until("their places are free", || connections(&house) == 0);
}

#[test]
fn old_and_rare_but_right_is_served() {
    let house = impatient();
    let whole = "GET http://LOCALHOST/api/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(says(&house, whole.as_bytes()), 200);
    // Chunks with an extension and a trailer, and the next request right behind them.
    let mut line = house.line();
    line.send("\r\nPOST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n");
    line.send("1;a=\"b\"\r\n{\r\n01\r\n}\r\n0\r\nx-trailer: y\r\n\r\nGET /api/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(line.answer().status, 201);
    assert_eq!(line.answer().status, 200);
    assert_eq!(says(&house, b"GET /api/jobs HTTP/1.0\r\n\r\n"), 200);
    // Whoever waits to be asked for the body is asked.
    let mut line = house.line();
    line.send("POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    assert_eq!(line.answer().status, 100);
    line.send("{}");
    assert_eq!(line.answer().status, 201);
    // One request behind the other, all of them answered, in order.
    let mut line = house.line();
    let requests: String = (1..=50)
        .map(|n| {
            format!(
                "GET /api/jobs/{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
                n % 2
            )
        })
        .collect();
    line.send(requests);
    for n in 1..=50 {
        let expected = if n % 2 == 1 { 200 } else { 404 };
        assert_eq!(line.answer().status, expected);
    }
    let zipped = "content-encoding: gzip\r\n";
    let answer = house.ask("POST", "/api/tasks/hello/jobs", zipped, b"\x1f\x8b");
    assert_eq!(answer.refused(415), "unsupported_media_type");
    let mut line = house.line();
    line.send("HEAD /api/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(line.bare_head().status, 200);
    let overridden = "x-http-method-override: DELETE\r\nx-original-url: /healthz\r\n";
    assert_eq!(
        house.ask("GET", "/api/workers/1", overridden, b"").status,
        404
    );
}

#[test]
fn a_crowd_of_idle_and_half_connections_leaves_nothing_behind() {
    let house = impatient();
    let mut crowd: Vec<Line> = (0..300).map(|_| house.line()).collect();
    for (n, line) in crowd.iter_mut().enumerate() {
        match n % 4 {
            0 => {}
            1 => {
                line.send("GET /api/jo");
            }
            2 => {
                line.send("POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{");
            }
            _ => {
                line.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
            }
        }
    }
    serves(&house);
    // They stay, and the server lets them go one by one.
    until("their places are free", || connections(&house) == 0);
    drop(crowd);
    assert_eq!(house.jobs(), 0);
}

#[test]
fn nothing_is_read_of_a_body_before_its_sender_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123").unwrap();
    let house = ServerHouse::with(Limits::default(), |config| {
        config.auth.token_file = Some(token_file);
    });
    let head = |path: &str, token: &str| {
        let mut line = house.line();
        line.send(format!(
            "PUT {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-length: 9000000\r\n\r\n"
        ));
        line.answer()
    };
    let log = "/api/worker/steps/1/attempts/1/log";
    assert_eq!(head(log, "Bearer wrong").refused(401), "unauthorized");
    // Whoever may not come in does not learn what there is.
    assert_eq!(
        head("/api/nothing", "Bearer wrong").refused(401),
        "unauthorized"
    );
    let right = "bearer 0123456789abcdef0123";
    assert_eq!(head("/api/nothing", right).refused(404), "no_route");
    assert_eq!(head("/api/jobs", right).refused(405), "method_not_allowed");
}

#[test]
fn all_bodies_together_have_a_bound() {
    let limits = Limits {
        // A quarter is for people.
        bodies_bytes_max: 400_000,
        ..Limits::default()
    };
    let house = ServerHouse::with(limits, |_| ());
    let body = format!("{{\"input\": {{\"name\": \"{}\"}}}}", "x".repeat(60_000));
    let submit = || {
        let path = "/api/tasks/hello/jobs";
        let headers = "content-type: application/json\r\n";
        house.ask("POST", path, headers, body.as_bytes())
    };
    submit().expect(201);
    let mut other = house.line();
    other.send(format!(
        "POST /api/tasks/hello/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    other.send(&body.as_bytes()[..59_000]);
    until("there is no room for a second one", || {
        submit().status == 503
    });
    drop(other);
    until("there is room again", || submit().status == 201);
}

#[test]
fn everybody_is_heard_however_much_people_search() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const SEARCHES: usize = 100;
    let house = ServerHouse::new();
    house.submit("hello");
    let ann = house.worker("ann", &[], 1);
    let greet = ann.begin();
    let log = "1763312345678 o what nobody looks for\n".repeat(20_000);
    let (step_id, session) = (&greet["step_id"], ann.session.replace(' ', "%20"));
    let path = format!("/api/worker/steps/{step_id}/attempts/1/log?session={session}&offset=0");
    house.ask("PUT", &path, "", log.as_bytes()).expect(200);
    let found = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let searches = (0..SEARCHES).map(|number| {
            let mut line = house.line();
            let address = match number % 3 {
                0 => "/api/jobs/1/steps/greet/logs?grep=needle",
                1 => "/jobs/1/steps/greet/log?only=needle",
                _ => "/jobs/1/steps/greet/log/find?find=needle",
            };
            line.ask("GET", address, "", b"");
            line
        });
        for mut line in searches.collect::<Vec<_>>() {
            let found = &found;
            scope.spawn(move || {
                assert_eq!(line.answer().status, 200);
                found.fetch_add(1, Ordering::SeqCst);
            });
        }
        ann.heartbeat(1, &serde_json::json!([])).expect(200);
        let before = found.load(Ordering::SeqCst);
        assert!(
            before < SEARCHES / 3,
            "its heartbeat waited for {before} searches"
        );
        // Nor does anybody else wait for them.
        house.get("/api/jobs").expect(200);
        let before = found.load(Ordering::SeqCst);
        assert!(
            before < SEARCHES / 2,
            "a list of jobs waited for {before} searches"
        );
    });
}
