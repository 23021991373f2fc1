//! What a step gave, in every form, and every way to get it wrong.

use std::os::unix::fs::symlink;
use std::process::Command;

use stepward::worker::mask::Masks;
use stepward::worker::output::{OutputLine, OutputWatch, read};

#[track_caller]
fn given(file: &str) -> Result<Option<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output");
    std::fs::write(&path, file).unwrap();
    read(&path, None, &Masks::default()).map(|output| output.map(|json| json.0))
}

#[test]
fn a_file_of_lines_blocks_or_one_object() {
    for (file, output) in [
        ("", None),
        ("\n\n", None),
        ("a=1\nb=x=y\n\nc=\n", Some(r#"{"a":"1","b":"x=y","c":""}"#)),
        ("a=1\r\nb=2\r\n", Some(r#"{"a":"1","b":"2"}"#)),
        ("a=1\na=2", Some(r#"{"a":"2"}"#)),
        (
            "a<<EOF\none\n\n two=2\nEOF\nb=3",
            Some(r#"{"a":"one\n\n two=2","b":"3"}"#),
        ),
        ("a<<E\nE\n", Some(r#"{"a":""}"#)),
        ("a=1<<2", Some(r#"{"a":"1<<2"}"#)),
        (" {\"a\": [1, null]}\n", Some(r#"{"a":[1,null]}"#)),
        ("a=ä\u{1}\"", Some("{\"a\":\"ä\\u0001\\\"\"}")),
    ] {
        assert_eq!(given(file).unwrap().as_deref(), output, "{file:?}");
    }
}

#[test]
fn a_bad_file_is_told_by_its_line() {
    for (file, sentence) in [
        (
            "a=1\n\nsecret words",
            "line 3 of the output file is neither key=value nor key<<END",
        ),
        (
            "a=1\n=2",
            "line 2 of the output file: \"\" is no key: letters, digits, '_', '-' and '.', at most 128",
        ),
        (
            "a b=2",
            "line 1 of the output file: \"a b\" is no key: letters, digits, '_', '-' and '.', at most 128",
        ),
        (
            "x=1\na<<EOF\n1\n2\n",
            "line 2 of the output file begins a block that never ends: there is no line \"EOF\"",
        ),
        (
            "a<<\n1\n",
            "line 1 of the output file begins a block that never ends: there is no line \"\"",
        ),
        (
            "{\n\"a\": secret}",
            "line 2 of the output file: it begins as a JSON object, but column 6 is not JSON",
        ),
        (
            "{\"a\": 1",
            "line 1 of the output file: it begins as a JSON object, but it ends too early",
        ),
        (
            "{\"a\": 1}\nb=1",
            "line 2 of the output file: it begins as a JSON object, but column 1 is not JSON",
        ),
    ] {
        assert_eq!(given(file), Err(sentence.to_string()), "{file:?}");
    }
}

#[test]
fn too_much_is_refused_and_just_enough_is_not() {
    let limit = 64 << 10;
    let fits = "x".repeat(limit - r#"{"a":""}"#.len());
    assert!(given(&format!("a={fits}")).is_ok());
    let sentence = "is longer than the 64 KiB that an output may have: give the name of a file";
    let too_long = given(&format!("a={fits}x"));
    assert_eq!(too_long, Err(format!("what it gave {sentence}")));
    let too_long = given(&format!("a={}", "x".repeat(limit)));
    assert_eq!(too_long, Err(format!("the output file {sentence}")));
}

#[test]
fn whatever_stands_in_the_place_of_the_file_is_not_followed_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output");
    let sentence = Err("the output file is not a file any more".to_string());

    assert_eq!(read(&path, None, &Masks::default()), Ok(None));
    symlink("/etc/passwd", &path).unwrap();
    assert_eq!(read(&path, None, &Masks::default()), sentence);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(read(&path, None, &Masks::default()), sentence);
    std::fs::remove_dir(&path).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(read(&path, None, &Masks::default()), sentence);
    std::fs::remove_file(&path).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(read(&path, None, &Masks::default()), sentence);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"a=1\nb=\xff").unwrap();
    assert_eq!(
        read(&path, None, &Masks::default()),
        Err("line 2 of the output file is not UTF-8".to_string())
    );
}

fn watched(pieces: &[&[u8]]) -> Option<OutputLine> {
    let mut watch = OutputWatch::default();
    for piece in pieces {
        let mut lines = piece.split(|byte| *byte == b'\n');
        watch.push(lines.next().unwrap());
        for line in lines {
            watch.end_line();
            watch.push(line);
        }
    }
    watch.end_line();
    watch.into_last()
}

#[test]
fn the_last_output_line_counts_wherever_it_is_cut() {
    let text =
        b"OUTPUT: {\"a\":1}\nOUTPUT:\t {\"b\":2}\nOUTPUT: done\n OUTPUT: {}\nOUTPUTS: {}\nOUT";
    let expected = Some(OutputLine::Text(b"{\"b\":2}".to_vec()));
    for first in 0..=text.len() {
        let (a, b) = text.split_at(first);
        assert_eq!(watched(&[a, b]), expected, "{first}");
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(watched(&bytes), expected);
    assert_eq!(watched(&[b"nothing"]), None);
}

#[test]
fn an_output_line_of_any_length_takes_little_memory() {
    let mebibyte = vec![b'x'; 1 << 20];
    let mut pieces: Vec<&[u8]> = vec![b"OUTPUT: {"];
    pieces.extend((0..100).map(|_| mebibyte.as_slice()));
    assert_eq!(watched(&pieces), Some(OutputLine::TooLong));
    let folder = tempfile::tempdir().unwrap();
    let sentence = read(
        &folder.path().join("output"),
        Some(OutputLine::TooLong),
        &Masks::default(),
    )
    .unwrap_err();
    assert!(sentence.starts_with("the OUTPUT: line is longer than the 64 KiB"));
}

#[test]
fn a_bad_output_line_is_told_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output");
    let line = OutputLine::Text(b"{\"a\": hunter2}".to_vec());
    let sentence = read(&file, Some(line), &Masks::default()).unwrap_err();
    assert_eq!(
        sentence,
        "the last OUTPUT: line on standard output is not a JSON object: column 7 is not JSON"
    );
}

#[test]
fn no_secret_is_in_what_it_gave_nor_in_what_is_said_of_it() {
    let long = format!("hunter2{}", "-and-more".repeat(20));
    let secrets = ["hunter2hunter2", "4711081523", "line one\nline two", &long];
    let (masks, _) = Masks::new(&secrets.map(str::to_string));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output");
    let with = |file: &str, line: Option<&str>| {
        std::fs::write(&path, file).unwrap();
        let line = line.map(|line| OutputLine::Text(line.as_bytes().to_vec()));
        read(&path, line, &masks).map(|output| output.unwrap().0)
    };
    for (file, line, output) in [
        (
            "a=x hunter2hunter2 y\nhunter2hunter2=b",
            None,
            r#"{"***":"b","a":"x *** y"}"#,
        ),
        (
            "a<<E\nline one\nline two\nE\nb=aHVudGVyMmh1bnRlcjI=",
            None,
            r#"{"a":"***\n***","b":"***I="}"#,
        ),
        (
            r#"{"a": [{"hunter2hunter2": "\u0068unter2hunter2"}, 4711081523, 7, null, true]}"#,
            None,
            r#"{"a":[{"***":"***"},"***",7,null,true]}"#,
        ),
        ("", Some(r#"{"a": "hunter2hunter2"}"#), r#"{"a":"***"}"#),
    ] {
        assert_eq!(with(file, line).as_deref(), Ok(output), "{file:?}");
    }
    for file in [
        format!("{long} =1"),
        format!("a<<{long} \n"),
        format!("{long}\u{e4}=1"),
    ] {
        let sentence = with(&file, None).unwrap_err();
        assert!(!sentence.contains("hunter2"), "{sentence}");
    }
}
