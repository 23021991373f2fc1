//! Lines of a log as a browser gets them: colours are kept, and nothing that anybody prints does anything to the page.

use stepward::logs::Needle;
use stepward::server::web::ansi::{html, plain};

fn shown(line: &str) -> String {
    html(line.as_bytes(), None)
}

fn found(line: &str, needle: &str) -> String {
    let needle = Needle {
        bytes: needle.as_bytes(),
        ignore_case: true,
    };
    html(line.as_bytes(), Some(needle))
}

#[test]
fn text_is_text() {
    assert_eq!(shown(""), "");
    assert_eq!(shown("a\tb ü 日本"), "a\tb ü 日本");
    assert_eq!(
        shown("<script>alert('x & \"y\"')</script>"),
        "&lt;script&gt;alert(&#39;x &amp; &quot;y&quot;&#39;)&lt;/script&gt;"
    );
    assert_eq!(
        html(b"a\xff\xfeb\xe2\x82", None),
        "a\u{fffd}\u{fffd}b\u{fffd}"
    );
    assert_eq!(plain(b"\x1b[1m<b>\xff\x1b[0m"), "<b>\u{fffd}");
}

#[test]
fn colours_are_classes() {
    for (printed, expected) in [
        ("\x1b[31mred\x1b[0m!", r#"<span class="a-f1">red</span>!"#),
        ("\x1b[1;31;44mx", r#"<span class="a-b a-f1 a-g4">x</span>"#),
        (
            "\x1b[1mb\x1b[2mbd\x1b[22m-",
            r#"<span class="a-b">b</span><span class="a-b a-d">bd</span>-"#,
        ),
        (
            "\x1b[3;4mx\x1b[23;24my",
            r#"<span class="a-i a-u">x</span>y"#,
        ),
        ("\x1b[97;100mx", r#"<span class="a-f15 a-g8">x</span>"#),
        (
            "\x1b[31;42mx\x1b[39my\x1b[49mz",
            r#"<span class="a-f1 a-g2">x</span><span class="a-g2">y</span>z"#,
        ),
        ("\x1b[7mx\x1b[27my", r#"<span class="a-v">x</span>y"#),
        ("\x1b[7;31mx", r#"<span class="a-v a-g1">x</span>"#),
        ("\x1b[7;31;44mx", r#"<span class="a-v a-f4 a-g1">x</span>"#),
        ("\x1b[31mx\x1b[my", r#"<span class="a-f1">x</span>y"#),
        ("\x1b[;31mx", r#"<span class="a-f1">x</span>"#),
        ("\x1b[4:3mx\x1b[4:0my", r#"<span class="a-u">x</span>y"#),
        // Nothing is opened for nothing, and what does not change is not opened again.
        ("\x1b[31m\x1b[32m\x1b[0mx", "x"),
        ("\x1b[31ma\x1b[31mb", r#"<span class="a-f1">ab</span>"#),
        // Not known, not obeyed: nor does anything hide text.
        ("\x1b[8mhidden\x1b[5m!", "hidden!"),
        ("\x1b[?31mx\x1b[>4;1my\x1b[99999999999mz", "xyz"),
    ] {
        assert_eq!(shown(printed), expected, "{printed:?}");
    }
}

#[test]
fn many_colours_become_the_nearest_of_sixteen() {
    for (code, class) in [
        ("38;5;9", "a-f9"),
        ("48;5;3", "a-g3"),
        ("38:5:196", "a-f9"),
        ("38;5;124", "a-f1"),
        ("38;5;208", "a-f11"),
        ("38;5;21", "a-f12"),
        ("38;5;232", "a-f0"),
        ("38;5;240", "a-f8"),
        ("38;5;250", "a-f7"),
        ("38;5;255", "a-f15"),
        ("38;2;255;0;0", "a-f9"),
        ("38;2;0;128;0", "a-f2"),
        ("38:2::0:128:128", "a-f6"),
        ("38:2:0:0:128", "a-f4"),
        ("48;2;250;250;250", "a-g15"),
        ("38;2;135;175;215", "a-f4"),
    ] {
        let line = format!("\x1b[{code}mx");
        assert_eq!(
            shown(&line),
            format!(r#"<span class="{class}">x</span>"#),
            "{code}"
        );
    }
    // What follows a colour is not taken for a part of it.
    assert_eq!(
        shown("\x1b[38;5;9;1mx"),
        r#"<span class="a-b a-f9">x</span>"#
    );
    assert_eq!(shown("\x1b[38;2;1mx"), r#"<span class="a-f0">x</span>"#);
    assert_eq!(shown("\x1b[38mx"), "x");
}

#[test]
fn other_escapes_are_dropped_and_links_keep_their_words() {
    for (printed, expected) in [
        ("\x1b[2J\x1b[10;10Hgone?", "gone?"),
        ("done\x1b[K", "done"),
        ("\x1b]0;title\x07text", "text"),
        (
            "\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\",
            "link",
        ),
        ("\x1b]1337;File=x:AAAA\x07picture", "picture"),
        ("\x1bPq#0;1\x1b\\text", "text"),
        ("\x1bcreset\x1b(0lines\x1b7", "resetlines"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("\x1b[12", ""),
        ("\x1b\x1b\x1b[31mx", r#"<span class="a-f1">x</span>"#),
        ("\x1b[31\u{fc}x", "\u{fc}x"),
        // One that does not end hides nothing.
        ("\x1b]0;<b>", "0;&lt;b&gt;"),
        (
            "\x1b]0;<b>\x1b[31mx",
            r#"0;&lt;b&gt;<span class="a-f1">x</span>"#,
        ),
    ] {
        assert_eq!(shown(printed), expected, "{printed:?}");
    }
}

#[test]
fn what_would_not_be_seen_is_shown() {
    for (printed, expected) in [
        ("a\0b", r#"a<span class="a-c">␀</span>b"#),
        ("\x07\x08\x7f", r#"<span class="a-c">␇␈␡</span>"#),
        ("\x1b[31m\0", r#"<span class="a-f1 a-c">␀</span>"#),
        ("a\u{202e}b", r#"a<span class="a-c">U+202E</span>b"#),
        (
            "\u{200e}\u{2066}",
            r#"<span class="a-c">U+200EU+2066</span>"#,
        ),
        ("\u{9b}31m", r#"<span class="a-c">U+009B</span>31m"#),
        ("\u{2028}", r#"<span class="a-c">U+2028</span>"#),
    ] {
        assert_eq!(shown(printed), expected, "{printed:?}");
    }
    assert_eq!(plain("a\0\u{202e}b\t".as_bytes()), "a␀U+202Eb\t");
}

#[test]
fn of_a_line_that_was_written_over_the_last_version_is_shown() {
    let earlier =
        |count: &str| format!(r#"<span class="a-r" title="{count} of this line">↩</span>"#);
    for (printed, count, expected) in [
        ("text\r", "", "text"),
        ("text\r\r", "", "text"),
        ("\rtext", "", "text"),
        ("10%\r20%\r30%", "2 earlier versions", "30%"),
        ("10%\r20%\r", "1 earlier version", "20%"),
        ("10%\r   \rdone\r    \r", "1 earlier version", "done"),
        ("\x1b[2K\x1b[1Ga\x1b[2K\x1b[1Gb", "1 earlier version", "b"),
        (
            "\x1b[31ma\rb",
            "1 earlier version",
            r#"<span class="a-f1">b</span>"#,
        ),
        ("\r  \r", "", "  "),
        ("\r\r", "", ""),
    ] {
        let before = if count.is_empty() {
            String::new()
        } else {
            earlier(count)
        };
        assert_eq!(shown(printed), format!("{before}{expected}"), "{printed:?}");
    }
    assert_eq!(plain(b"10%\r20%\r"), "20%");
    // What was sought may be in one that is not shown.
    let marked = format!("<mark>{}</mark>done", earlier("1 earlier version"));
    assert_eq!(found("error\rdone", "ERR"), marked);
}

#[test]
fn what_was_sought_is_marked_as_it_is_seen() {
    for (printed, needle, expected) in [
        ("an Error", "error", "an <mark>Error</mark>"),
        ("aaa", "a", "<mark>a</mark><mark>a</mark><mark>a</mark>"),
        ("<b>", "<", "<mark>&lt;</mark>b&gt;"),
        ("amp &", "amp", "<mark>amp</mark> &amp;"),
        (
            "\x1b[31mx error y",
            "error",
            r#"<span class="a-f1">x </span><span class="a-f1"><mark>error</mark></span><span class="a-f1"> y</span>"#,
        ),
        (
            "\x1b[31mer\x1b[0mror",
            "error",
            r#"<span class="a-f1"><mark>er</mark></span><mark>ror</mark>"#,
        ),
        ("\x1b[31mx", "31", r#"<span class="a-f1">x</span>"#),
        ("für", "ü", "f<mark>ü</mark>r"),
        ("x", "", "x"),
        ("x", "y", "x"),
    ] {
        // Two that touch are one to see.
        let one = |html: String| html.replace("</mark><mark>", "");
        assert_eq!(
            one(found(printed, needle)),
            one(expected.to_string()),
            "{printed:?}"
        );
    }
    let exactly = Needle {
        bytes: b"error",
        ignore_case: false,
    };
    assert_eq!(
        html(b"Error error", Some(exactly)),
        "Error <mark>error</mark>"
    );
    let no_text = Needle {
        bytes: b"\xbc",
        ignore_case: false,
    };
    assert_eq!(html("ü\u{fffd}".as_bytes(), Some(no_text)), "ü\u{fffd}");
}

#[test]
fn a_line_of_nothing_but_escapes_stays_within_bounds() {
    let coloured = "\x1b[31ma\x1b[32mb".repeat(90_000);
    let page = shown(&coloured);
    assert_eq!(page.matches("<span").count(), 5_000);
    assert!(page.ends_with(&"ab".repeat(1_000)), "the rest is plain");
    let marked = found(&coloured, "a");
    assert!(marked.matches("<span").count() + marked.matches("<mark").count() <= 5_000);
    check(&marked);
    let pictures = shown(&"\0x".repeat(500_000));
    assert!(pictures.len() < 3_000_000, "{}", pictures.len());
    let versions = shown(&"x\r".repeat(500_000));
    assert!(versions.ends_with("499999 earlier versions of this line\">↩</span>x"));
    for hostile in [
        "\x1b]",
        "\x1b[",
        "\x1b[1;",
        "\x1b]0;",
        "\x1bP",
        "\x1b[38;5;",
    ] {
        let page = shown(&hostile.repeat(1 << 18));
        assert!(page.len() <= 1 << 20, "{hostile:?}");
    }
}

/// Whatever is printed: no tag but ours, each closed, no attribute but ours, and the words are those of the plain text.
#[test]
fn nothing_that_is_printed_becomes_a_tag() {
    const PIECES: &[&str] = &[
        "<",
        ">",
        "&",
        "\"",
        "'",
        "</span>",
        "<mark>",
        "<script>",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[1;7m",
        "\x1b[38;5;",
        "\x1b]8;;",
        "\x1b\\",
        "\x07",
        "\r",
        "\x1b[K",
        "\x1b[G",
        "\x1b",
        "[",
        "]",
        "m",
        ";",
        "3",
        "\0",
        "\u{202e}",
        "\u{9b}",
        "ü",
        "a",
        "error",
        " ",
        "onload=",
        "\t",
        "\u{1f600}",
        "\x1bP",
    ];
    let mut state = 1_u64;
    let mut roll = |sides: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % sides
    };
    for _ in 0..20_000 {
        let mut line = Vec::new();
        for _ in 0..roll(30) {
            match roll(8) {
                0 => line.push(roll(256) as u8),
                _ => line.extend_from_slice(PIECES[roll(PIECES.len())].as_bytes()),
            }
        }
        let sought = PIECES[roll(PIECES.len())].as_bytes();
        let needle = Needle {
            bytes: sought,
            ignore_case: roll(2) == 0,
        };
        for needle in [None, Some(needle)] {
            let page = html(&line, needle);
            let words = check(&page);
            let words = words.strip_prefix('↩').unwrap_or(&words);
            assert_eq!(words, plain(&line), "{line:?}");
            assert!(!page.contains(['\x1b', '\r', '\0', '\u{202e}']), "{line:?}");
        }
    }
}

/// The text between the tags, all of which are ours.
fn check(page: &str) -> String {
    let mut words = String::new();
    let mut open = Vec::new();
    let mut rest = page;
    while let Some((text, tag)) = rest.split_once('<') {
        words.push_str(text);
        let (tag, behind) = tag.split_once('>').expect("a tag ends");
        rest = behind;
        match tag {
            "mark" => open.push("mark"),
            "/mark" | "/span" => assert_eq!(open.pop(), Some(&tag[1..]), "{page}"),
            tag => {
                open.push("span");
                let classes = tag.strip_prefix("span class=\"").unwrap();
                let (classes, title) = classes.split_once('"').unwrap();
                let is_ours = |class: &str| {
                    let short = class.strip_prefix("a-").unwrap();
                    short
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                };
                assert!(classes.split(' ').all(is_ours), "{page}");
                let is_title = title.starts_with(" title=\"") && title.ends_with(" of this line\"");
                assert!(title.is_empty() || is_title, "{page}");
            }
        }
    }
    words.push_str(rest);
    assert!(open.is_empty() && !words.contains('>'), "{page}");
    let words = words.replace("&lt;", "<").replace("&gt;", ">");
    let words = words.replace("&quot;", "\"").replace("&#39;", "'");
    words.replace("&amp;", "&")
}
