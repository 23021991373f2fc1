//! Secrets in what a step prints: however it is cut into pieces, none of them comes out, as it is or encoded, and nothing else
//! is lost.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use stepward::worker::mask::{Added, Masker, Masks, SECRET_BYTES_MIN};

use super::dice::Dice;
use super::mutate;
use super::watch::Tried;

/// Few, so that secrets are nearly in the text, overlap, and begin alike. What stands for a secret is made of none of them.
const FEW: &[char] = &['a', 'b', ' ', '/', '"', 'é', '%', '\\', '\t'];

pub fn play(dice: &mut Dice, tried: &Tried) {
    let secrets: Vec<String> = (0..dice.roll(4) + 1).map(|_| secret(dice)).collect();
    let mut masks = Masks::new(&secrets[1..]).0;
    let is_hidden = masks.add(&secrets[0]) == Added::Hidden;
    let mut hidden: Vec<&str> = secrets[usize::from(!is_hidden)..]
        .iter()
        .filter(|secret| secret.trim().len() >= SECRET_BYTES_MIN)
        .flat_map(|secret| secret.lines())
        .filter(|line| line.len() >= SECRET_BYTES_MIN)
        .collect();
    hidden.sort();
    for _ in 0..20 {
        let line = line(dice, &secrets);
        tried.now(format!("{secrets:?} in {line:?}"));
        let whole = in_pieces(&masks, &[line.as_bytes()]);
        for secret in &hidden {
            let bytes = secret.as_bytes();
            let is_seen = whole.windows(bytes.len()).any(|seen| seen == bytes);
            assert!(
                !is_seen,
                "{secret:?} is in {:?}",
                String::from_utf8_lossy(&whole)
            );
        }
        if !hidden.iter().any(|secret| line.contains(secret)) {
            let seen = String::from_utf8_lossy(&whole);
            let rest = seen.replace("***", "");
            assert!(
                seen.contains("***") || rest == line,
                "{seen:?} is not what was printed"
            );
        }
        for _ in 0..8 {
            let pieces = cut(dice, line.as_bytes());
            assert_eq!(in_pieces(&masks, &pieces), whole, "in pieces: {pieces:?}");
        }
        assert_eq!(masks.hide(&line).as_bytes(), whole);
    }
    for secret in &secrets[usize::from(!is_hidden)..] {
        if secret.trim().len() >= SECRET_BYTES_MIN {
            encoded(dice, secret, &masks, tried);
        }
    }
}

/// In whatever stands before and behind it, base64 and hexadecimal of the secret are hidden too.
fn encoded(dice: &mut Dice, secret: &str, masks: &Masks, tried: &Tried) {
    let text = format!("{}{secret}{}", plain(dice), plain(dice));
    tried.now(format!("{secret:?} in {text:?}, encoded"));
    for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
        let shown = in_pieces(masks, &cut(dice, encoded.as_bytes()));
        let shown = String::from_utf8(shown).expect("it is ASCII");
        // Of six bytes, eight characters are made of them alone in the best case, and six in the worst.
        assert!(
            shown.contains("***") || secret.len() < 8,
            "{shown} for {encoded}"
        );
        for engine in [&STANDARD, &URL_SAFE_NO_PAD] {
            let read = engine.decode(&shown).unwrap_or_default();
            let is_seen = read
                .windows(secret.len())
                .any(|seen| seen == secret.as_bytes());
            assert!(!is_seen, "{shown}");
        }
    }
    for upper in [false, true] {
        let (hex, whole) = (hex(&text, upper), hex(secret, upper));
        let shown = in_pieces(masks, &cut(dice, hex.as_bytes()));
        let shown = String::from_utf8(shown).expect("it is ASCII");
        assert!(
            shown.contains("***") && !shown.contains(&whole),
            "{shown} for {hex}"
        );
    }
}

fn hex(text: &str, upper: bool) -> String {
    let digits = text.bytes().map(|byte| match upper {
        true => format!("{byte:02X}"),
        false => format!("{byte:02x}"),
    });
    digits.collect()
}

fn secret(dice: &mut Dice) -> String {
    match dice.roll(3) {
        0 => {
            let length = dice.roll(30);
            (0..length)
                .map(|_| *dice.pick(FEW).expect("there are some"))
                .collect()
        }
        1 => mutate::noise(dice, 40).replace('*', "+"),
        _ => format!("{}\n{}", plain(dice), plain(dice)),
    }
}

fn plain(dice: &mut Dice) -> String {
    let length = dice.roll(20);
    (0..length)
        .map(|_| char::from(b'a' + dice.roll(26) as u8))
        .collect()
}

/// Pieces of secrets, whole ones, and other text.
fn line(dice: &mut Dice, secrets: &[String]) -> String {
    let mut line = String::new();
    for _ in 0..dice.roll(8) {
        let secret = dice.pick(secrets).expect("there is one");
        match dice.roll(5) {
            0 => line += &plain(dice),
            1 => line.push(*dice.pick(FEW).expect("there are some")),
            2 => {
                let characters = secret.chars().count() as u64;
                let from = dice.roll(characters + 1) as usize;
                let length = dice.roll(characters + 1) as usize;
                line.extend(secret.chars().skip(from).take(length));
            }
            _ => line += secret,
        }
    }
    line.replace(['\n', '\r'], "").replace('*', "+")
}

fn cut<'a>(dice: &mut Dice, text: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let longest = [1, 3, 20][dice.roll(3) as usize];
    while !rest.is_empty() {
        let length = (dice.roll(longest) as usize + 1).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn in_pieces(masks: &Masks, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut masker, mut out) = (Masker::default(), Vec::new());
    for piece in pieces {
        masker.push(masks, piece, &mut out);
    }
    masker.end_line(masks, &mut out);
    out
}
