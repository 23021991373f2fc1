//! What must not be seen is not seen, however the text comes in pieces.

use stepward::worker::mask::{Added, Masker, Masks};

fn masks(secrets: &[&str]) -> Masks {
    let secrets: Vec<String> = secrets.iter().map(|secret| secret.to_string()).collect();
    Masks::new(&secrets).0
}

fn in_pieces(masks: &Masks, pieces: &[&[u8]]) -> String {
    let mut masker = Masker::default();
    let mut out = Vec::new();
    for piece in pieces {
        masker.push(masks, piece, &mut out);
    }
    masker.end_line(masks, &mut out);
    String::from_utf8(out).unwrap()
}

/// Whole, split once and twice anywhere, and byte by byte: always the same.
#[track_caller]
fn assert_hidden(masks: &Masks, line: &str, expected: &str) {
    let text = line.as_bytes();
    assert_eq!(in_pieces(masks, &[text]), expected);
    for first in 0..=text.len() {
        let (a, rest) = text.split_at(first);
        assert_eq!(in_pieces(masks, &[a, rest]), expected, "split at {first}");
        for second in 0..=rest.len() {
            let (b, c) = rest.split_at(second);
            assert_eq!(in_pieces(masks, &[a, b, c]), expected, "{first}, {second}");
        }
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(in_pieces(masks, &bytes), expected, "byte by byte");
}

#[test]
fn a_secret_is_hidden_at_every_split() {
    let masks = masks(&["hunter2-hunter2"]);
    assert_hidden(
        &masks,
        "the password is hunter2-hunter2, yes",
        "the password is ***, yes",
    );
    assert_hidden(&masks, "hunter2-hunter2hunter2-hunter2", "******");
    assert_hidden(&masks, "hunter2-hunter2-hunter2", "***");
    assert_hidden(&masks, "hunter2-hunter", "hunter2-hunter");
    assert_hidden(&masks, "hunhunter2-hunter2hun", "hun***hun");
    assert_hidden(&masks, "", "");
}

#[test]
fn secrets_that_overlap_or_begin_alike_are_hidden_whole() {
    let masks = masks(&["secret", "secret-longer", "longer-end"]);
    assert_hidden(&masks, "a secret b", "a *** b");
    assert_hidden(&masks, "a secret-longe b", "a ***-longe b");
    assert_hidden(&masks, "a secret-longer b", "a *** b");
    assert_hidden(&masks, "a secret-longer-end b", "a *** b");
}

#[test]
fn base64_of_a_text_with_the_secret_in_it_does_not_show_it() {
    let masks = masks(&["s3cr3t/value?"]);
    // Made with coreutils: the secret at the three places that it can have among groups of three bytes.
    for (line, expected) in [
        ("czNjcjN0L3ZhbHVlPw==", "***w=="),
        ("eHMzY3IzdC92YWx1ZT94", "eH***94"),
        ("eHhzM2NyM3QvdmFsdWU/eA==", "eHh***eA=="),
        ("eHhzM2NyM3QvdmFsdWU_eA==", "eHh***eA=="),
    ] {
        assert_hidden(&masks, line, expected);
    }
}

#[test]
fn base64_that_is_broken_into_lines_is_hidden_line_by_line() {
    let secret: String = (0..110).map(|n| format!("{n:03}-")).collect();
    let masks = masks(&[&secret]);
    let encoded = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$0\" | base64", &secret])
        .output()
        .unwrap();
    let encoded = String::from_utf8(encoded.stdout).unwrap();
    assert!(encoded.lines().count() > 5);
    for line in encoded.lines() {
        assert_eq!(masks.hide(line).trim_end_matches('='), "***");
    }
}

#[test]
fn base64_in_lines_of_a_secret_with_a_newline_after_it_is_hidden() {
    // One and two bytes beyond a group of three: then the newline changes the last character of the secret's own.
    for length in [70, 71, 72] {
        let secret: String = ('a'..='z').cycle().take(length).collect();
        let masks = masks(&[&secret]);
        let encoded = std::process::Command::new("sh")
            .args(["-c", "echo \"$0\" | base64", &secret])
            .output()
            .unwrap();
        let encoded = String::from_utf8(encoded.stdout).unwrap();
        assert_eq!(encoded.lines().count(), 2);
        for line in encoded.lines() {
            let hidden = masks.hide(line);
            assert!(hidden.starts_with("***") && hidden.len() <= 7, "{hidden}");
        }
    }
}

#[test]
fn hexadecimal_is_hidden_in_both_cases_at_every_split() {
    let masks = masks(&["s3cr\u{e9}t"]);
    for (line, expected) in [
        ("73336372c3a974", "***"),
        ("73336372C3A974", "***"),
        ("0x73336372c3a974", "0x***"),
        ("aa73336372c3a974aa", "aa***aa"),
        ("a73336372c3a974a", "a***a"),
        ("73336372c3a9", "73336372c3a9"),
    ] {
        assert_hidden(&masks, line, expected);
    }
}

#[test]
fn hexadecimal_that_is_broken_into_lines_is_hidden_line_by_line() {
    let secret: String = ('a'..='z').cycle().take(100).collect();
    let masks = masks(&[&secret]);
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    // As `xxd -p` prints it.
    for line in hex.as_bytes().chunks(60) {
        let line = String::from_utf8(line.to_vec()).unwrap();
        assert_eq!(masks.hide(&line), "***");
    }
}

#[test]
fn other_spellings_are_hidden() {
    let masks = masks(&["pä$$ word/\"1\""]);
    for line in [
        "pä$$ word/\"1\"",
        "p%C3%A4%24%24%20word%2F%221%22",
        "p%c3%a4%24%24+word%2f%221%22",
        "p%C3%A4%24%24%20word/%221%22",
        "pä$$ word/\\\"1\\\"",
        "p\\u00e4$$ word/\\\"1\\\"",
        "p\\u00e4$$ word\\/\\\"1\\\"",
    ] {
        assert_hidden(&masks, &format!("x={line}&y"), "x=***&y");
    }
}

#[test]
fn each_line_of_a_secret_is_hidden_and_the_whole_in_one_line() {
    let masks = masks(&["-----BEGIN KEY-----\nabcdefgh\nxyz\n-----END KEY-----\n"]);
    let text = "-----BEGIN KEY-----\nabcdefgh\nxyz\n-----END KEY-----";
    assert_eq!(masks.hide(text), "***\n***\nxyz\n***");
    let json = r"-----BEGIN KEY-----\nabcdefgh\nxyz\n-----END KEY-----\n";
    assert_hidden(&masks, json, "***");
}

#[test]
fn each_line_of_a_secret_is_hidden_where_a_step_encodes_it_by_itself() {
    let masks = masks(&["admin-user\nabc/def=ghi\n"]);
    for shown in [
        // base64, base64 with the newline that `echo` adds, `xxd -p`, `jq @uri`, `jq @html` and Gson
        "YWRtaW4tdXNlcg==",
        "YWJjL2RlZj1naGkK",
        "6162632f6465663d676869",
        "abc%2Fdef%3Dghi",
        "abc/def\\u003dghi",
    ] {
        let hidden = masks.hide(shown);
        // The last character of base64 depends on what follows.
        assert!(hidden.starts_with("***") && hidden.len() <= 6, "{hidden}");
    }
}

#[test]
fn what_cannot_be_part_of_a_secret_is_not_held_back() {
    let masks = masks(&["hunter2-hunter2"]);
    let mut masker = Masker::default();
    let mut out = Vec::new();
    masker.push(&masks, b"Continue? [y/n] ", &mut out);
    assert_eq!(out, b"Continue? [y/n] ");
    masker.push(&masks, b"name: hunt", &mut out);
    assert_eq!(out, b"Continue? [y/n] name: ");
    masker.push(&masks, b"ing", &mut out);
    assert_eq!(out, b"Continue? [y/n] name: hunting");
}

#[test]
fn short_values_are_not_hidden_and_counted() {
    let secrets = ["12345", "", "123456"].map(str::to_string);
    let (mut masks, short) = Masks::new(&secrets);
    assert_eq!(short, 1);
    assert_eq!(masks.hide("12345 123456"), "12345 ***");
    assert_eq!(masks.add("abc"), Added::TooShort);
    assert_eq!(masks.add("abcdef"), Added::Hidden);
    assert_eq!(masks.hide("abcdef 123456"), "*** ***");
    assert_eq!(masks.add(&"x".repeat(1 << 20)), Added::TooMany);
    assert_eq!(masks.hide("abcdef 123456"), "*** ***");
}

#[test]
fn a_value_that_a_step_adds_is_hidden_whatever_the_step_was_given() {
    let large: String = (0..6_000).map(|n| format!("{n:09}\n")).collect();
    let long = large.replace('\n', "-");
    let mut masks = masks(&[&large, &long]);
    assert_eq!(masks.add("abcdef"), Added::Hidden);
    assert_eq!(masks.hide("abcdef 000000042"), "*** ***");
    // What is hidden already takes no room, and other values share a bound.
    assert_eq!(masks.add(&large), Added::Hidden);
    let value = |start: u32| {
        (start..start + 4_000)
            .map(|n| format!("{n:08}"))
            .collect::<String>()
    };
    let added: Vec<Added> = (0..50).map(|n| masks.add(&value(n * 4_000))).collect();
    assert_eq!(added[0], Added::Hidden);
    assert_eq!(added[49], Added::TooMany);
    assert_eq!(masks.add("ghijkl"), Added::Hidden);
}

#[test]
fn a_secret_of_short_lines_counts_as_too_short() {
    let (mut masks, short) = Masks::new(&["abc\ndef\nghi".to_string()]);
    assert_eq!(short, 1);
    assert_eq!(masks.hide(r"abc\ndef\nghi"), "***");
    assert_eq!(masks.add("jkl\nmno\npqr"), Added::TooShort);
    assert_eq!(masks.add("jkl\nmnopqr"), Added::Hidden);
}

#[test]
fn base64_in_lines_of_64_characters_is_hidden() {
    let secret: String = ('a'..='z').cycle().take(110).collect();
    let masks = masks(&[&secret]);
    let whole = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &secret);
    for line in whole.as_bytes().chunks(64) {
        let line = String::from_utf8(line.to_vec()).unwrap();
        assert_eq!(masks.hide(&line).trim_end_matches('='), "***");
    }
}

#[test]
fn a_secret_is_hidden_as_the_writers_of_urls_escape_it() {
    let masks = masks(&["a+b/c=d:e@f,g;h&i$j k"]);
    for shown in [
        // `url.UserPassword` of Go
        "a+b%2Fc=d%3Ae%40f,g;h&i$j%20k",
        // `url.PathEscape` of Go
        "a+b%2Fc=d:e@f%2Cg%3Bh&i$j%20k",
        // A segment of a path in RFC 3986
        "a+b%2Fc=d:e@f,g;h&i$j%20k",
        // `encodeURI` of JavaScript
        "a+b/c=d:e@f,g;h&i$j%20k",
        // `url.QueryEscape` of Go
        "a%2Bb%2Fc%3Dd%3Ae%40f%2Cg%3Bh%26i%24j+k",
    ] {
        let line = format!("https://u:{shown}@host");
        assert_eq!(masks.hide(&line), "https://u:***@host", "{shown}");
    }
}

#[test]
fn a_secret_is_hidden_as_the_writers_of_html_escape_more() {
    let masks = masks(&["a\"b'c+d/e`f=g"]);
    for shown in [
        // PHP
        "a&quot;b&#039;c+d/e`f=g",
        // `html/template` of Go
        "a&#34;b&#39;c&#43;d/e`f=g",
        // Mustache
        "a&quot;b&#39;c+d&#x2F;e&#x60;f&#x3D;g",
        // Handlebars
        "a&quot;b&#x27;c+d/e&#x60;f&#x3D;g",
        // Underscore
        "a&quot;b&#x27;c+d/e&#x60;f=g",
        // Tera, and MiniJinja
        "a&quot;b&#x27;c+d&#x2F;e`f=g",
        "a&quot;b&#x27;c+d&#x2f;e`f=g",
    ] {
        assert_eq!(masks.hide(shown), "***", "{shown}");
    }
}

#[test]
fn a_secret_is_hidden_as_the_writers_of_json_and_html_escape_it() {
    let masks = masks(&["<a&b>'\"/é\u{1b}x"]);
    let shown = [
        // serde_json, JSON.stringify
        r#"<a&b>'\"/é\u001bx"#,
        // Python's json.dumps
        r#"<a&b>'\"/\u00e9\u001bx"#,
        // Go's encoding/json
        r#"\u003ca\u0026b\u003e'\"/é\u001bx"#,
        // Rails, and PHP with JSON_HEX_TAG, JSON_HEX_AMP and JSON_HEX_APOS
        r#"\u003Ca\u0026b\u003E\u0027\"\/\u00E9\u001Bx"#,
        // html.escape of Python
        "&lt;a&amp;b&gt;&#x27;&quot;/é\u{1b}x",
        // html.EscapeString of Go
        "&lt;a&amp;b&gt;&#39;&#34;/é\u{1b}x",
    ];
    for shown in shown {
        assert_eq!(
            masks.hide(&format!("it is {shown}.")),
            "it is ***.",
            "{shown}"
        );
    }
}
