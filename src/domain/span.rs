//! How long something takes, as people write it.

/// `0.4s`, `12s`, `2m 14s`, `3h 5m`, `2d 4h`.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let secs = ms / 1_000;
    match secs {
        0..=9 => format!("{}.{}s", secs, ms % 1_000 / 100),
        10..=59 => format!("{secs}s"),
        60..=3_599 => two(secs, 60, "m", "s"),
        3_600..=86_399 => two(secs / 60, 60, "h", "m"),
        _ => two(secs / 3_600, 24, "d", "h"),
    }
}

fn two(small: i64, per_large: i64, large_unit: &str, small_unit: &str) -> String {
    match (small / per_large, small % per_large) {
        (large, 0) => format!("{large}{large_unit}"),
        (large, rest) => format!("{large}{large_unit} {rest}{small_unit}"),
    }
}
