//! Rows as JSON, without losing a digit.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Deeper lists and maps stay text; no mail shows them.
const MAX_DEPTH: usize = 32;

/// A row's columns from the object that the database has made of it.
///
/// Whole numbers become numbers. Those with a fraction, and those beyond 64 bits, become text with every
/// digit that the database wrote: no binary fraction is `0.1`.
pub(super) fn columns(object: &str) -> Result<Map<String, Value>, serde_json::Error> {
    let raw: BTreeMap<String, &RawValue> = serde_json::from_str(object)?;
    raw.into_iter().map(|(name, value)| Ok((name, exact(value, 1)?))).collect()
}

/// A number in decimal as a value, by the same rule.
pub(super) fn number(text: &str) -> Value {
    let whole = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
    whole.unwrap_or_else(|_| Value::from(text))
}

fn exact(raw: &RawValue, depth: usize) -> Result<Value, serde_json::Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => Ok(number(text)),
        Some(b'{' | b'[') if depth >= MAX_DEPTH => Ok(Value::from(text)),
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            members.into_iter().map(|(name, value)| Ok((name, exact(value, depth + 1)?))).collect()
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            items.into_iter().map(|item| exact(item, depth + 1)).collect()
        }
        _ => serde_json::from_str(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_digit_arrives() {
        let object = r#"{"n":12345678901234567890.0123456789,"big":18446744073709551615,"i":-7,"z":1.50,
            "s":"\u00e4\"","a":[1,0.1,{"b":null}],"t":true,"huge":99999999999999999999}"#;
        let columns = Value::Object(columns(object).unwrap());
        assert_eq!(
            columns,
            json!({
                "n": "12345678901234567890.0123456789", "big": 18_446_744_073_709_551_615_u64, "i": -7, "z": "1.50",
                "s": "ä\"", "a": [1, "0.1", { "b": null }], "t": true, "huge": "99999999999999999999",
            })
        );
    }

    #[test]
    fn a_deep_value_stays_text_and_no_object_is_an_error() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        let columns = columns(&format!("{{\"deep\":{deep}}}")).unwrap();
        assert!(columns["deep"].to_string().contains("\"[[["));
        assert!(super::columns("[1]").is_err());
    }
}
