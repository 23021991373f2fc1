//! Where somebody who looks at a failed step begins to read.

use stepward::logs::{ErrorSign, FirstError};

use super::{BUILD, JOB, LogRoom, record};

/// Lines as `o text`, `e text`, `w text`.
fn first_error(lines: &[&str]) -> Option<FirstError> {
    let records = lines.iter().flat_map(|line| {
        let (stream, text) = line.split_once(' ').unwrap();
        record(1, stream.chars().next().unwrap(), text)
    });
    let room = LogRoom::holding(&records.collect::<Vec<u8>>());
    room.logs.first_error(JOB, BUILD).unwrap()
}

fn at(line: u64, sign: ErrorSign) -> Option<FirstError> {
    Some(FirstError { line, sign })
}

#[test]
fn a_line_that_is_marked_is_before_all_others() {
    let found = first_error(&[
        "e error: not this one",
        "o x ::error::nor this",
        "o ::errors::",
        "o ::error file=a.rs,line=3::here",
        "o ::error::too late",
    ]);
    assert_eq!(found, at(4, ErrorSign::Marked));
    assert_eq!(first_error(&["o ::error::x"]), at(1, ErrorSign::Marked));
    assert_eq!(first_error(&["o ##[error]x"]), at(1, ErrorSign::Marked));
    assert_eq!(first_error(&["w ::error::x"]), None);
}

#[test]
fn lines_that_say_here_is_an_error_are_found() {
    for line in [
        "error: could not compile `x`",
        "error[E0308]: mismatched types",
        "\x1b[1m\x1b[31merror\x1b[0m: linker",
        "Error: Cannot find module 'x'",
        "src/a.c:3:5: error: expected ';'",
        "src/a.ts(3,5): error TS2304: Cannot find name 'x'.",
        "  12:5  error  'x' is not defined",
        "2026-01-01 10:00:00 ERROR disk is full",
        "2026-01-01T10:00:00Z error disk is full",
        "[ERROR] Failed to execute goal",
        "level=error msg=\"disk is full\"",
        "{\"level\":\"error\",\"msg\":\"x\"}",
        "fatal: not a git repository",
        "FATAL ERROR: out of memory",
        "npm ERR! code ELIFECYCLE",
        "panic: runtime error: index out of range",
        "thread 'main' panicked at src/main.rs:3:5:",
        "Traceback (most recent call last):",
        "ValueError: invalid literal",
        "E   AssertionError: 1 != 2",
        "java.lang.NullPointerException: x",
        "Exception in thread \"main\" x",
        "FAIL src/a.test.js",
        "--- FAIL: TestX (0.00s)",
        "test tests::x ... FAILED",
        "=================== FAILURES ===================",
        "bash: line 1: foo: command not found",
        "sh: 1: foo: not found",
        "cat: x: No such file or directory",
        "cp: x: Permission denied",
        "Segmentation fault (core dumped)",
        "Failed to connect",
        "Error: 0 tests were found",
        "exit 0, error: 3",
    ] {
        let found = first_error(&["o speaks of an error", &format!("o {line}")]);
        assert_eq!(found, at(2, ErrorSign::Named), "{line}");
    }
}

#[test]
fn lines_that_speak_of_errors_are_found_when_none_says_more() {
    for line in [
        "the build failed",
        "found 3 errors",
        "3 failing",
        "Tests: 1 failed, 2 passed",
        "an exception was thrown",
        "package x was not found",
        "WARN error: will retry",
        "make: *** [Makefile:3: all] Error 2",
    ] {
        let line = format!("o {line}");
        let found = first_error(&["e stderr", &line]);
        assert_eq!(found, at(2, ErrorSign::Named), "{line}");
        let found = first_error(&[&line, "o error: here"]);
        assert_eq!(found, at(2, ErrorSign::Named), "{line}");
    }
}

#[test]
fn lines_that_tell_of_no_error_are_not_taken_for_one() {
    for line in [
        "0 errors",
        "no errors",
        "No error.",
        "0 compile errors, 3 warnings",
        "finished without any errors",
        "errors: 0",
        "Errors: 0, Failures: 0",
        "0 error(s)",
        "error(s): 0",
        "test result: ok. 5 passed; 0 failed; 0 ignored",
        "ok=3 changed=1 unreachable=0 failed=0 skipped=0",
        "error_count=0",
        "error=nil",
        "error=<nil>",
        "error: none",
        "{\"error\":null}",
        "{\"error\":\"\"}",
        "Compiling thiserror v2.0.0",
        "Compiling error-chain v0.12.4",
        "reading /var/log/error.log",
        "src/error.rs",
        "errors.go",
        "crate::error::Error",
        "--fail-on-error",
        "test errors::are_told ... ok",
        "ok 3 - tells of an error",
        "  ✓ returns an error (3 ms)",
        "tests/test_x.py::test_error PASSED [ 50%]",
        "warning: unused variable `error`",
        "[INFO] error handling is on",
        "+ echo error: x",
        "+++ echo 'fatal: x'",
        "terror, mirrored, infallible",
        "found it, such is life, denied",
        "raise ValueError(x)",
        "fail: no",
    ] {
        let line = format!("o {line}");
        assert_eq!(first_error(&[&line]), None, "{line}");
    }
}

#[test]
fn without_words_it_is_what_went_to_stderr() {
    let found = first_error(&[
        "o fine",
        "e  ",
        "e + make",
        "e what is this?",
        "e and this?",
    ]);
    assert_eq!(found, at(4, ErrorSign::Stderr));
    // A shell that only traces has ended with what it did last.
    let found = first_error(&["e + make", "o fine", "e + false", "w exit code 1"]);
    assert_eq!(found, at(3, ErrorSign::Stderr));
    let found = first_error(&["w pulled", "w not prepared: image not found", "o fine"]);
    assert_eq!(found, at(2, ErrorSign::Worker));
    assert_eq!(first_error(&["o fine", "w exit code 1"]), None);
    assert_eq!(first_error(&[]), None);
}

#[test]
fn a_long_line_is_judged_by_its_beginning() {
    let long = format!("o {} error: far away", "x".repeat(10_000));
    assert_eq!(first_error(&[&long, "o fine"]), None);
}
