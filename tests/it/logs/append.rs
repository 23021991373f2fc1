//! A worker sends its log in pieces: in order, again, too early, too much, and onto a disk that is full.

use std::os::unix::fs::PermissionsExt;
use std::thread;

use stepward::domain::protocol::LogDigest;
use stepward::domain::{AttemptRef, JobId, StepId};
use stepward::logs::{AppendError, Comparison, LogLimits, Logs, MARKER_BYTES_MAX};

use super::{BUILD, Dice, JOB, LogRoom, lines_of, numbered, open_files, record, shown};

#[test]
fn what_a_worker_sends_is_kept_byte_for_byte() {
    let room = LogRoom::new();
    let sent = [
        record(1, 'o', "compiling"),
        record(2, 'E', b"\xff\0 broken \xe2\x82"),
        b"no record at all\n\n".to_vec(),
        b"3 o not finis".to_vec(),
    ];
    for piece in &sent {
        room.send(piece);
    }
    assert_eq!(room.bytes(), sent.concat());
    assert_eq!(room.length(), sent.concat().len() as u64);
}

#[test]
fn sending_again_is_harmless() {
    let room = LogRoom::new();
    let (first, second) = (record(1, 'o', "one"), record(2, 'o', "two"));
    let end = (first.len() + second.len()) as u64;
    assert_eq!(room.append(0, &first).unwrap(), 8);
    assert_eq!(room.append(0, &first).unwrap(), 8);
    assert_eq!(room.append(8, &second).unwrap(), end);
    // Late, and only some of it.
    assert_eq!(room.append(0, &first).unwrap(), end);
    assert_eq!(room.append(3, &first[3..5]).unwrap(), end);
    assert_eq!(room.append(end, b"").unwrap(), end);
    assert_eq!(room.bytes(), [first, second].concat());
    assert_eq!(
        shown(&room.tail(10).lines),
        ["1 stdout: one", "2 stdout: two"]
    );
}

#[test]
fn of_bytes_that_overlap_the_end_the_new_ones_are_appended() {
    let room = LogRoom::new();
    let log = numbered(3);
    room.send(&log[..30]);
    assert_eq!(room.append(11, &log[11..]).unwrap(), log.len() as u64);
    assert_eq!(room.bytes(), log);
    assert_eq!(room.tail(10).total_lines, 3);
}

#[test]
fn a_gap_is_refused_and_the_right_offset_told() {
    let room = LogRoom::new();
    let early = room.append(5, b"x").unwrap_err();
    assert!(matches!(early, AppendError::Gap { length: 0 }));
    assert!(!room.path().join("7").exists(), "a refusal makes no file");

    room.send(&record(1, 'o', "one"));
    let early = room.append(u64::MAX, b"x").unwrap_err();
    assert!(matches!(early, AppendError::Gap { length: 8 }));
    assert_eq!(
        early.to_string(),
        "the log ends at 8, what was sent begins further on: send from there"
    );
    assert_eq!(room.bytes(), b"1 o one\n");
}

#[test]
fn what_was_accepted_is_never_replaced() {
    let room = LogRoom::holding(b"1 o one\n");
    for (offset, other) in [(0, &b"1 o uno\n"[..]), (4, b"two\n3 o more\n")] {
        let differs = room.append(offset, other).unwrap_err();
        assert!(matches!(differs, AppendError::Differs { length: 8 }));
    }
    assert_eq!(room.bytes(), b"1 o one\n");
}

#[test]
fn a_log_that_is_full_takes_no_more_and_loses_nothing() {
    let limits = LogLimits {
        attempt_bytes_max: 100,
        ..LogLimits::default()
    };
    let room = LogRoom::with(limits);
    let length_max = 100 + MARKER_BYTES_MAX;
    let log = vec![b'x'; length_max as usize];
    room.send(&log[..50]);
    let too_long = room.append(50, &[b'x'; 100_000]).unwrap_err();
    assert!(matches!(too_long, AppendError::TooLong { length: 50 }));

    assert_eq!(room.append(0, &log).unwrap(), length_max, "just as much");
    let too_long = room.append(length_max, b"x").unwrap_err();
    assert!(matches!(too_long, AppendError::TooLong { length } if length == length_max));
    assert_eq!(
        room.append(0, &log).unwrap(),
        length_max,
        "again is harmless"
    );
    assert_eq!(room.bytes(), log);
}

#[test]
fn each_attempt_has_a_log_of_its_own() {
    let room = LogRoom::new();
    let second = AttemptRef {
        attempt: 2,
        ..BUILD
    };
    room.send(&record(1, 'o', "first try"));
    let again = record(2, 'o', "second try");
    room.logs.append(JOB, second, 0, &again).unwrap();
    assert_eq!(shown(&room.tail(9).lines), ["1 stdout: first try"]);
    let page = room.logs.tail(JOB, second, 9).unwrap();
    assert_eq!(shown(&page.lines), ["1 stdout: second try"]);
}

#[test]
fn wherever_the_pieces_end_the_log_is_the_same() {
    let log = [
        record(1_763_312_345_678, 'o', "grüße"),
        record(2, 'O', "a long "),
        record(3, 'O', ""),
        record(4, 'o', "line"),
        b"\nnoise\n".to_vec(),
        record(5, 'e', b"\xff\xfe"),
        b"99999999999999999999999999999999 o no time\n".to_vec(),
        b"6 o unfin".to_vec(),
    ]
    .concat();
    let at_once = LogRoom::holding(&log);
    let expected = [
        "1 stdout: grüße",
        "2 stdout: a long line",
        "3 worker: ",
        "4 worker: noise",
        "5 stderr: \u{fffd}\u{fffd}",
        "6 worker: 99999999999999999999999999999999 o no time",
    ];
    assert_eq!(shown(&at_once.seen()), expected);
    for cut in 0..=log.len() {
        let room = LogRoom::new();
        room.send(&log[..cut]);
        assert_eq!(room.seen(), lines_of(&log[..cut]), "cut at {cut}");
        room.send(&log[cut..]);
        assert_eq!(room.bytes(), log);
        assert_eq!(room.seen(), at_once.seen(), "cut at {cut}");
    }
    let byte_by_byte = LogRoom::new();
    for byte in &log {
        byte_by_byte.send(&[*byte]);
    }
    assert_eq!(byte_by_byte.seen(), at_once.seen());
}

/// Answers are lost, pieces come twice and too early, the server restarts: what is kept is what was printed.
#[test]
fn a_worker_that_follows_the_answers_delivers_everything() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let log = dice.log(300_000);
        let mut room = LogRoom::new();
        let mut sent = 0;
        while sent < log.len() as u64 {
            let back = dice.roll(3) * dice.roll(20_000);
            let offset = (sent + dice.roll(2) * dice.roll(50)).saturating_sub(back);
            let offset = offset.min(log.len() as u64);
            let end = (offset + dice.roll(30_000)).min(log.len() as u64);
            sent = match room.append(offset, &log[offset as usize..end as usize]) {
                Ok(length) => length,
                Err(AppendError::Gap { length }) => length,
                Err(error) => panic!("seed {seed}: {error}"),
            };
            if dice.roll(30) == 0 {
                room.restart();
            }
        }
        assert_eq!(room.bytes(), log, "seed {seed}");
        assert_eq!(room.seen(), lines_of(&log), "seed {seed}");
    }
}

#[test]
fn only_the_server_may_read_logs() {
    let room = LogRoom::holding(&numbered(10_000));
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(room.path()), 0o700);
    assert_eq!(mode(room.path().join("7")), 0o700);
    assert_eq!(mode(room.file("log")), 0o600);
    assert_eq!(mode(room.file("idx")), 0o600);
}

#[test]
fn a_full_disk_refuses_and_the_worker_goes_on_once_there_is_room() {
    let room = LogRoom::new();
    std::fs::create_dir(room.path().join("7")).unwrap();
    std::os::unix::fs::symlink("/dev/full", room.file("log")).unwrap();
    let refused = room.append(0, b"1 o one\n").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the log cannot be written: No space left on device (os error 28)"
    );
    std::fs::remove_file(room.file("log")).unwrap();
    room.send(b"1 o one\n");
    assert_eq!(room.bytes(), b"1 o one\n");
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_not_an_empty_log() {
    let room = LogRoom::new();
    std::fs::create_dir_all(room.file("log")).unwrap();
    assert!(room.logs.tail(JOB, BUILD, 10).is_err());
    assert!(room.logs.length(JOB, BUILD).is_err());
    assert!(room.append(0, b"x").is_err());
}

#[test]
fn a_folder_that_is_a_file_is_refused_at_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Logs::open(file.path(), LogLimits::default()).is_err());
}

#[test]
fn attempts_append_side_by_side() {
    let room = LogRoom::with(LogLimits {
        open_logs_max: 5,
        ..LogLimits::default()
    });
    let (logs, folder) = (&room.logs, &room.path());
    thread::scope(|scope| {
        for step_id in 0..12 {
            scope.spawn(move || {
                let attempt = AttemptRef {
                    step_id: StepId(step_id),
                    attempt: 1,
                };
                let log = Dice(step_id as u64).log(200_000);
                let mut length = 0;
                for piece in log.chunks(3_001) {
                    let appended = logs.append(JobId(1), attempt, length, piece).unwrap();
                    length = appended.length;
                    logs.tail(JobId(1), attempt, 3).unwrap();
                }
                let path = folder.join(format!("1/{step_id}.1.log"));
                assert!(std::fs::read(path).unwrap() == log);
                let page = logs.tail(JobId(1), attempt, 1).unwrap();
                assert_eq!(page.lines.last(), lines_of(&log).last());
            });
        }
    });
}

#[test]
fn who_reads_while_the_worker_writes_sees_whole_lines() {
    let room = LogRoom::new();
    let log = numbered(20_000);
    thread::scope(|scope| {
        let writer = scope.spawn(|| log.chunks(777).for_each(|piece| room.send(piece)));
        while !writer.is_finished() {
            let page = room.tail(50);
            for line in &page.lines {
                assert_eq!(line.text, format!("line {}", line.n).into_bytes());
            }
            assert_eq!(page.lines.last().map_or(0, |line| line.n), page.total_lines);
            assert_eq!(page.lines.len() as u64, page.total_lines.min(50));
        }
    });
    assert_eq!(room.tail(0).total_lines, 20_000);
}

/// The same worker, impatient: it sends a piece again while the first sending is still under way.
#[test]
fn the_same_bytes_at_the_same_time_are_kept_once() {
    let room = LogRoom::new();
    let log = numbered(5_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut offset = 0;
                while offset < log.len() as u64 {
                    let end = (offset + 4_000).min(log.len() as u64);
                    let piece = &log[offset as usize..end as usize];
                    offset = room.append(offset, piece).unwrap();
                }
            });
        }
    });
    assert_eq!(room.bytes(), log);
}

/// Not even while the log is closed and opened all the time, because others are in use.
#[test]
fn a_place_in_a_log_is_given_to_one_alone() {
    let room = LogRoom::with(LogLimits {
        open_logs_max: 1,
        ..LogLimits::default()
    });
    let room = &room;
    let text = |writer: i64, n: i64| record(1, 'o', format!("writer {writer}, record {n:05}"));
    let write = |writer: i64| {
        for n in 0..500 {
            let mut offset = room.length();
            let record = text(writer, n);
            while let Err(error) = room.append(offset, &record) {
                let AppendError::Differs { length } = error else {
                    panic!("{error}");
                };
                offset = length;
            }
            // Somebody else's log, so that this one has to make room for it.
            room.logs.tail(JobId(writer), BUILD, 1).unwrap();
        }
    };
    thread::scope(|scope| {
        for writer in 100..104 {
            scope.spawn(move || write(writer));
        }
    });
    let mut kept: Vec<Vec<u8>> = room
        .bytes()
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    kept.sort();
    let sent = (100..104).flat_map(|writer| (0..500).map(move |n| text(writer, n)));
    assert!(kept == sent.collect::<Vec<_>>());
}

#[test]
fn few_logs_are_open_and_all_of_them_go_on() {
    let room = LogRoom::with(LogLimits {
        open_logs_max: 3,
        ..LogLimits::default()
    });
    let attempt = |step_id| AttemptRef {
        step_id: StepId(step_id),
        attempt: 1,
    };
    for round in 0..5 {
        for step_id in 0..10 {
            let job_id = JobId(step_id % 4);
            let text = record(round, 'o', format!("round {round}"));
            let length = room.logs.length(job_id, attempt(step_id)).unwrap();
            let appended = room.logs.append(job_id, attempt(step_id), length, &text);
            assert_eq!(appended.unwrap().length, length + text.len() as u64);
            assert!(open_files(&room.path()) <= 3);
        }
    }
    for step_id in 0..10 {
        let page = room.logs.tail(JobId(step_id % 4), attempt(step_id), 2);
        let page = page.unwrap();
        assert_eq!(page.total_lines, 5);
        assert_eq!(
            shown(&page.lines),
            ["4 stdout: round 3", "5 stdout: round 4"]
        );
    }
}

#[test]
fn who_reads_many_logs_closes_none_that_grow() {
    let mut room = LogRoom::with(LogLimits {
        open_logs_max: 16,
        ..LogLimits::default()
    });
    let attempt = |step_id| AttemptRef {
        step_id: StepId(step_id),
        attempt: 1,
    };
    let text = record(1, 'o', "one");
    let append = |room: &LogRoom, step_id, offset| {
        let appended = room.logs.append(JOB, attempt(step_id), offset, &text);
        assert_eq!(appended.unwrap().length, offset + text.len() as u64);
    };
    for old in 100..200 {
        append(&room, old, 0);
    }
    room.restart();
    for growing in 0..14 {
        append(&room, growing, 0);
    }
    for old in 100..200 {
        room.logs.tail(JOB, attempt(old), 1).unwrap();
    }
    let before = room.logs.bytes_read();
    for growing in 0..14 {
        append(&room, growing, text.len() as u64);
    }
    assert_eq!(room.logs.bytes_read(), before, "none was opened again");
    assert!(open_files(&room.path()) <= 16);
}

#[test]
fn a_job_that_is_removed_takes_its_logs_along_and_no_others() {
    let room = LogRoom::holding(&numbered(5));
    let other = JobId(70);
    room.logs.append(other, BUILD, 0, &numbered(2)).unwrap();
    room.logs.remove_job(JOB).unwrap();
    room.logs.remove_job(JOB).unwrap();
    assert!(!room.path().join("7").exists());
    assert_eq!(room.tail(10).total_lines, 0);
    assert_eq!(room.length(), 0);
    assert_eq!(open_files(&room.path()), 1);
    assert_eq!(room.logs.tail(other, BUILD, 10).unwrap().total_lines, 2);
}

#[test]
fn a_long_log_is_compared_also_after_a_restart() {
    let mut room = LogRoom::new();
    let piece = numbered(5_000);
    let mut crc = flate2::Crc::new();
    while room.length() < 9 << 20 {
        room.send(&piece);
        crc.update(&piece);
    }
    let written = LogDigest {
        length: room.length(),
        crc32: crc.sum(),
    };
    let other = LogDigest {
        crc32: !written.crc32,
        ..written
    };
    room.restart();
    let compare = |digest| room.logs.compare(JOB, BUILD, digest).unwrap();
    let length = written.length;
    assert_eq!(compare(other), Comparison::Differs { length });
    assert_eq!(compare(written), Comparison::Same);
}
