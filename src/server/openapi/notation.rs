//! The few words in which shapes are written here, and the JSON Schema that each stands for.
//!
//! | word | what it stands for |
//! |---|---|
//! | `string` `integer` `number` `boolean` `object` `any` | as in JSON |
//! | `text` | a string of at least one character |
//! | `int32` `uint32` | an integer that fits |
//! | `time` | RFC 3339, UTC, with milliseconds |
//! | `0..` `1..500` | an integer from, or from and to |
//! | `yes/no` `'yes'` | one of these texts; this text |
//! | `[T]` `[T;1..100]` `{T}` | a list, one of so many items, an object with any names |
//! | `T?` | that or null |
//! | `Name` | another shape |
//!
//! A shape is its name and what it is, then a line per field: name, type, what there is to say. `name?` may be left out;
//! `..Other` stands for the fields of another shape, which is written before it.

use serde_json::{Map, Value, json};

/// The schema of a type. A word that nobody knows is a bug of ours.
pub fn schema(word: &str) -> Value {
    if let Some(inner) = word.strip_suffix('?') {
        return nullable(schema(inner));
    }
    if let Some(inner) = within(word, '[', ']') {
        return list(inner);
    }
    if let Some(inner) = within(word, '{', '}') {
        return json!({ "type": "object", "additionalProperties": schema(inner) });
    }
    if let Some(text) = within(word, '\'', '\'') {
        return json!({ "type": "string", "const": text });
    }
    if let Some((from, to)) = word.split_once("..") {
        return range(from, to);
    }
    if word.contains('/') {
        let words: Vec<&str> = word.split('/').collect();
        return json!({ "type": "string", "enum": words });
    }
    match word {
        "any" => json!({}),
        "text" => json!({ "type": "string", "minLength": 1 }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "int32" => json!({ "type": "integer", "format": "int32" }),
        "uint32" => range("0", &u32::MAX.to_string()),
        "integer" => json!({ "type": "integer", "format": "int64" }),
        "string" | "number" | "boolean" | "object" => json!({ "type": word }),
        name => {
            assert!(
                name.starts_with(|first: char| first.is_ascii_uppercase()),
                "{name:?} is no type"
            );
            reference(name)
        }
    }
}

pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Adds the shapes of the text to those that are known. `is_closed`: a field that is not written here is refused.
pub fn add_shapes(schemas: &mut Map<String, Value>, text: &str, is_closed: bool) {
    for shape in text.split("\n\n") {
        let mut lines = shape.lines().filter(|line| !line.trim().is_empty());
        let Some(head) = lines.next() else {
            continue;
        };
        let (name, description) = words(head);
        let mut object = json!({ "type": "object", "required": [], "properties": {} });
        if !description.is_empty() {
            object["description"] = description.into();
        }
        if is_closed {
            object["additionalProperties"] = false.into();
        }
        for line in lines {
            let (field, rest) = words(line);
            match field.strip_prefix("..") {
                Some(other) => copy_fields(&mut object, &schemas[other]),
                None => add_field(&mut object, field, rest),
            }
        }
        let known = schemas.insert(name.to_string(), object);
        assert!(known.is_none(), "{name} is there twice");
    }
}

fn add_field(object: &mut Value, field: &str, rest: &str) {
    let (word, description) = words(rest);
    let name = field.trim_end_matches('?');
    if name == field {
        required(object).push(name.into());
    }
    object["properties"][name] = described(schema(word), description);
}

fn copy_fields(object: &mut Value, other: &Value) {
    for name in other["required"].as_array().into_iter().flatten() {
        required(object).push(name.clone());
    }
    for (name, schema) in other["properties"].as_object().into_iter().flatten() {
        object["properties"][name] = schema.clone();
    }
}

fn required(object: &mut Value) -> &mut Vec<Value> {
    let required = object["required"].as_array_mut();
    required.expect("an object is made with it")
}

/// With what there is to say about it.
pub fn described(mut schema: Value, description: &str) -> Value {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
    schema
}

fn nullable(schema: Value) -> Value {
    match &schema["type"] {
        Value::String(word) if schema.get("enum").is_none() => {
            let both = json!([word, "null"]);
            let mut schema = schema;
            schema["type"] = both;
            schema
        }
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

fn list(inner: &str) -> Value {
    let Some((items, bounds)) = inner.split_once(';') else {
        return json!({ "type": "array", "items": schema(inner) });
    };
    let bounds = schema(bounds);
    json!({
        "type": "array",
        "items": schema(items),
        "minItems": bounds["minimum"],
        "maxItems": bounds["maximum"],
    })
}

fn range(from: &str, to: &str) -> Value {
    let number = |text: &str| text.parse::<i64>().expect("a range is of numbers");
    let mut schema = json!({ "type": "integer", "minimum": number(from) });
    if !to.is_empty() {
        schema["maximum"] = number(to).into();
    }
    schema
}

fn within(word: &str, open: char, close: char) -> Option<&str> {
    word.strip_prefix(open)?.strip_suffix(close)
}

/// The first word, and what comes after it.
fn words(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    (first, rest.trim())
}
