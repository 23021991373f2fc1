//! What a plain scalar means: the core schema of YAML 1.2, and the words that older readers take for something else.

use serde_json::{Number, Value};

#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    Null,
    Bool(bool),
    Number(Number),
    /// `.inf` and `.nan`, which JSON does not have.
    NoJson,
    Text,
}

pub fn meaning(plain: &str) -> Meaning {
    match plain {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "true" | "True" | "TRUE" => return Meaning::Bool(true),
        "false" | "False" | "FALSE" => return Meaning::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Meaning::NoJson,
        _ => {}
    }
    let first = plain.as_bytes()[0];
    if !(first.is_ascii_digit() || b"+-.".contains(&first)) {
        return Meaning::Text;
    }
    let unsigned = plain.trim_start_matches(['+', '-']);
    if plain.len() - unsigned.len() > 1 {
        return Meaning::Text;
    }
    if [".inf", ".Inf", ".INF"].contains(&unsigned) {
        return Meaning::NoJson;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = plain.strip_prefix(prefix) {
            return match u64::from_str_radix(digits, radix) {
                Ok(number) if !digits.starts_with('+') => Meaning::Number(number.into()),
                _ => Meaning::Text,
            };
        }
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let whole = plain.strip_prefix('+').unwrap_or(plain);
        if let Ok(number) = whole.parse::<i64>() {
            return Meaning::Number(number.into());
        }
        if let Ok(number) = whole.parse::<u64>() {
            return Meaning::Number(number.into());
        }
    }
    if is_float(unsigned) {
        let number = plain.parse().ok().and_then(Number::from_f64);
        return number.map_or(Meaning::NoJson, Meaning::Number);
    }
    Meaning::Text
}

/// `1.5`, `.5`, `5.`, `1e3`
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    digits(whole) && digits(part) && whole.len() + part.len() > 0 && exponent_is_good
}

pub fn json(plain: &str) -> Option<Value> {
    Some(match meaning(plain) {
        Meaning::Null => Value::Null,
        Meaning::Bool(flag) => Value::Bool(flag),
        Meaning::Number(number) => Value::Number(number),
        Meaning::Text => Value::String(plain.to_string()),
        Meaning::NoJson => return None,
    })
}

/// A word that YAML 1.1 takes for true or false, and which that would be.
pub fn old_boolean(plain: &str) -> Option<bool> {
    match plain.to_ascii_lowercase().as_str() {
        "yes" | "on" | "y" => Some(true),
        "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

/// `012`: ten for YAML 1.1, twelve for 1.2.
pub fn has_leading_zero(plain: &str) -> bool {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    unsigned.len() > 1
        && unsigned.starts_with('0')
        && unsigned.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn plain_scalars_mean_what_yaml_1_2_says() {
        for (plain, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("true", json!(true)),
            ("no", json!("no")),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("+3", json!(3)),
            ("012", json!(12)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("-.5", json!(-0.5)),
            ("1.2.3", json!("1.2.3")),
            ("1_000", json!("1_000")),
            ("--1", json!("--1")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615u64)),
            ("2026-11-16", json!("2026-11-16")),
            (".", json!(".")),
            ("-", json!("-")),
            ("e5", json!("e5")),
        ] {
            assert_eq!(super::json(plain), Some(expected), "{plain}");
        }
        assert_eq!(super::json(".inf"), None);
        assert_eq!(super::json("1e999"), None);
    }
}
