//! The ways in which people write settings, besides the one that the example files show.
//!
//! Each function here reads from the YAML itself, not from a value in between, so that errors keep their line and their key.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A section or list that is written without anything below it means its defaults.
pub(super) fn or_default<'de, D, T>(written: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(written)?.unwrap_or_default())
}

/// `true` is a section with its defaults, `false` and null are none.
pub(super) fn switch<'de, D, T>(written: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    struct Switch<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Switch<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false, null or settings, each as KEY: VALUE")
        }

        fn visit_bool<E: Error>(self, is_on: bool) -> Result<Option<T>, E> {
            Ok(is_on.then(T::default))
        }

        fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, written: D) -> Result<Option<T>, D::Error> {
            written.deserialize_any(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    written.deserialize_any(Switch(PhantomData))
}

/// A list of words, or one text with commas between them as in the environment. Null is the default list.
pub(super) fn tags<'de, D: Deserializer<'de>>(written: D) -> Result<Vec<String>, D::Error> {
    struct Tags;

    impl<'de> Visitor<'de> for Tags {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list such as [script, gpu]")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(text.split(',').map(|tag| tag.trim().to_string()).collect())
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<String>, E> {
            Ok(super::WorkerConfig::default().tags)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut tags = Vec::new();
            while let Some(tag) = list.next_element()? {
                tags.push(tag);
            }
            Ok(tags)
        }
    }

    written.deserialize_any(Tags)
}

/// Values of environment variables. A number or a boolean is written as YAML writes it.
pub(super) fn env<'de, D: Deserializer<'de>>(
    written: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct Text(String);

    impl<'de> Deserialize<'de> for Text {
        fn deserialize<D: Deserializer<'de>>(written: D) -> Result<Text, D::Error> {
            written.deserialize_any(TextVisitor)
        }
    }

    struct TextVisitor;

    impl<'de> Visitor<'de> for TextVisitor {
        type Value = Text;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text, a number, true or false")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
            Ok(Text(text.to_string()))
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<Text, E> {
            Ok(Text(value.to_string()))
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<Text, E> {
            Ok(Text(value.to_string()))
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Text, E> {
            Ok(Text(value.to_string()))
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<Text, E> {
            Ok(Text(value.to_string()))
        }
    }

    let written = Option::<BTreeMap<String, Text>>::deserialize(written)?.unwrap_or_default();
    let texts = written.into_iter().map(|(name, Text(text))| (name, text));
    Ok(texts.collect())
}
