//! Small languages in which people write one word or one line: cron, durations, selectors, addresses, secrets, values.

use stepward::cron::Cron;
use stepward::domain::Timestamp;
use stepward::domain::selector::JobSelector;
use stepward::domain::value::{ValueSpec, ValueType};
use stepward::language::{duration, values};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

#[rustfmt::skip]
const SEEDS: &[&str] = &[
    "0 2 * * *", "*/10 * * * 1-5", "0 0 29 2 *", "30 1 L * *", "0 0 * * 5L", "0 0 15W * *", "@daily",
    "0 0 1 jan,jul mon#2", "0 0 * * SUN-SAT", "59 23 31 12 ?", "90s", "1h 30m", "2d", "1w", "500ms", "PT1H", "0.5h",
    "latest", "42", "#42", "@latest", "hello", "deploy@-1", "https://example.org:8443/a?b=c", "127.0.0.1:7777",
    "[::1]:80", "true", "1e3", "[1, 2]", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "*", "*/", "-", ",", "L", "W", "#", "?", "@", "60", "0", "99999999999", "h", "m", "s", "ms", "d", "jan", "mon",
    "latest", "e",
];

pub fn play(dice: &mut Dice, tried: &Tried) {
    let seeds: Vec<String> = SEEDS.iter().map(|seed| seed.to_string()).collect();
    for _ in 0..40 {
        let text = match dice.roll(10) {
            0 => mutate::noise(dice, 20),
            1 | 2 => cron(dice),
            _ => mutate::text(dice, &seeds, WORDS),
        };
        let zones = [
            "UTC",
            "Europe/Oslo",
            "Australia/Lord_Howe",
            "America/New_York",
            "nowhere",
            "",
        ];
        let zone = dice.pick(&zones).expect("there are some");
        let now = dice.between(0, 4_000_000_000_000);
        examine(&text, zone, now, tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    let text = String::from_utf8_lossy(bytes);
    for now in [
        0,
        1_763_312_345_678,
        253_402_300_799_999,
        i64::MAX,
        i64::MIN,
    ] {
        examine(&text, "Europe/Oslo", now, tried);
    }
}

/// Right in every field, more often than not.
fn cron(dice: &mut Dice) -> String {
    let mut field = |low: i64, high: i64| {
        let (a, b) = (dice.between(low, high), dice.between(low, high + 1));
        match dice.roll(8) {
            0 => format!("{a}"),
            1 => format!("{a}-{b}"),
            2 => format!("*/{b}"),
            3 => format!("{a},{b}"),
            4 => format!("{a}-{b}/{}", a + 1),
            _ => "*".to_string(),
        }
    };
    let fields = [
        field(0, 59),
        field(0, 23),
        field(1, 31),
        field(1, 12),
        field(0, 7),
    ];
    fields.join(" ")
}

fn examine(text: &str, zone: &str, now: i64, tried: &Tried) {
    tried.now(format!("{text:?} in {zone} at {now}"));
    due(text, zone, now);
    match duration::parse(text) {
        Ok(ms) => assert!(ms >= 0, "{ms}"),
        Err(message) => one_line(&message),
    }
    if let Some(meant) = duration::meant(text) {
        assert!(
            duration::parse(&meant).is_ok(),
            "{meant} is meant, and is none"
        );
    }
    let _ = JobSelector::parse(text);
    if let Err(message) = stepward::config::listen_address(text) {
        one_line(&message);
    }
    let _ = stepward::config::leads_to_a_host(text);
    for value_type in ValueType::ALL {
        let spec = ValueSpec::new("x", *value_type);
        match values::from_text(&spec, text) {
            // What is understood is what the check takes.
            Ok(value) => match values::check_value(&spec, &value) {
                Ok(_) => {}
                Err(message) => one_line(&message),
            },
            Err(message) => one_line(&message),
        }
    }
}

fn one_line(message: &str) {
    assert!(
        !message.is_empty() && !message.contains('\n'),
        "{message:?}"
    );
}

/// An expression that is taken fires again and again, each time later than the last.
fn due(text: &str, zone: &str, now: i64) {
    let cron = match Cron::parse(text, zone) {
        Ok(cron) => cron,
        Err(fault) => return assert!(!fault.to_string().is_empty()),
    };
    assert!(!cron.in_words().is_empty());
    let now = Timestamp(now);
    let Some(first) = cron.next_after(now) else {
        return;
    };
    assert!(first > now, "{first:?} is not after {now:?}");
    let before = cron.next_after(Timestamp(first.0 - 1));
    assert_eq!(before, Some(first), "it is the next of the instant before");
    let mut last = first;
    let mut instants = vec![first];
    for _ in 0..5 {
        let Some(next) = cron.next_after(last) else {
            break;
        };
        assert!(next > last);
        instants.push(next);
        last = next;
    }
    let due = cron.due(first, last, 10);
    assert_eq!((due.passed_over, &due.instants), (None, &instants));
    let due = cron.due(first, last, 2);
    assert!(
        instants.ends_with(&due.instants) && due.instants.len() <= 2,
        "{due:?}"
    );
}
