//! How long: `90`, `30s`, `5m`, `1h30m`, `2d`.

/// Milliseconds.
pub fn parse(text: &str) -> Result<i64, String> {
    let fault = || format!("{text:?} is not a duration, write 90, 30s, 5m, 1h30m or 2d");
    if let Ok(secs) = text.parse::<u32>() {
        return Ok(i64::from(secs) * 1_000);
    }
    let mut total_ms: i64 = 0;
    let mut rest = text;
    let mut last_ms = i64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().map_err(|_| fault())?;
        let unit_ms = match rest[digits..].chars().next() {
            Some('s') => 1_000,
            Some('m') => 60_000,
            Some('h') => 3_600_000,
            Some('d') => 86_400_000,
            _ => return Err(fault()),
        };
        // Each unit once, the large before the small.
        if unit_ms >= last_ms {
            return Err(fault());
        }
        last_ms = unit_ms;
        let part_ms = number.checked_mul(unit_ms).ok_or_else(fault)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(fault)?;
        rest = &rest[digits + 1..];
    }
    match text.is_empty() {
        true => Err(fault()),
        false => Ok(total_ms),
    }
}

/// What somebody probably meant who wrote `5 minutes`, `1.5h` or `500ms`.
pub fn meant(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let number: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let unit = text[number.len()..].trim();
    let unit_secs = match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => 1,
        "m" | "min" | "mins" | "minute" | "minutes" | "minuts" => 60,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        _ => return None,
    };
    let secs = number.parse::<f64>().ok()? * f64::from(unit_secs);
    if !(1.0..1e9).contains(&secs) || secs.fract() != 0.0 {
        return None;
    }
    let mut rest = secs as u64;
    let mut written = String::new();
    for (letter, unit_secs) in [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)] {
        if rest >= unit_secs {
            written.push_str(&format!("{}{letter}", rest / unit_secs));
            rest %= unit_secs;
        }
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_their_forms_and_no_others() {
        for (text, secs) in [
            ("90", 90),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5_400),
            ("2d", 172_800),
            ("1d2h3m4s", 93_784),
        ] {
            assert_eq!(parse(text), Ok(secs * 1_000), "{text}");
        }
        for text in [
            "",
            "s",
            "5",
            "-1s",
            "1.5h",
            "5 m",
            "1m1h",
            "1m1m",
            "99999999999999d",
            "5min",
        ] {
            assert_eq!(parse(text).is_ok(), text == "5", "{text}");
        }
    }
}
