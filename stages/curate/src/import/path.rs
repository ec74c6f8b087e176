//! Paths into a user's row: `answer`, `reward_model.ground_truth`, `prompt[0].content`, `messages[-1].content`.
//!
//! A row is kept as the text of its top-level columns ([`RowText`]); only what a path leads to is read further. So
//! numbers keep the digits they were written with, and columns that nobody asked for are copied and never parsed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hop {
    /// A key of an object.
    Key(String),
    /// A position in a list; negative ones count from its end.
    Index(i64),
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// As it was written; a column of exactly this name goes before the steps.
    pub text: String,
    /// The steps, the first of which is a key.
    pub hops: Vec<Hop>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// The row has no such key or position.
    Missing,
    /// It is there and null, or something on the way is null.
    Null,
    /// A value.
    Value(&'a RawValue),
    /// A value on the way has no parts.
    NoParts(&'a RawValue),
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// When it is empty or a bracket is not closed around a number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut hops = Vec::new();
        for part in text.split('.') {
            let (key, mut rest) = part.find('[').map_or((part, ""), |at| part.split_at(at));
            if key.is_empty() {
                return Err(format!("`{text}` is no path: a name is missing"));
            }
            hops.push(Hop::Key(key.to_owned()));
            while !rest.is_empty() {
                let inner = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let (index, after) = inner.ok_or_else(|| format!("`{text}` is no path: write positions as `[0]`"))?;
                let index = index.parse().map_err(|_| format!("`{text}` is no path: `{index}` is no position"))?;
                hops.push(Hop::Index(index));
                rest = after;
            }
        }
        Ok(Self { text: text.to_owned(), hops })
    }

    /// The top-level column it begins with.
    pub fn column(&self) -> &str {
        match self.hops.first() {
            Some(Hop::Key(key)) => key,
            _ => &self.text,
        }
    }

    /// The last key of the path.
    pub fn last_key(&self) -> &str {
        let last = self.hops.iter().rev().find_map(|hop| match hop {
            Hop::Key(key) => Some(key.as_str()),
            Hop::Index(_) => None,
        });
        last.unwrap_or(&self.text)
    }

    /// Follows the path from a row.
    pub fn follow<'a>(&self, row: &RowText<'a>) -> Found<'a> {
        if let Some(value) = row.get(&self.text) {
            return present(value);
        }
        let Some(mut value) = self.hops.first().and_then(|_| row.get(self.column())) else {
            return Found::Missing;
        };
        for hop in self.hops.iter().skip(1) {
            if is_null(value) {
                return Found::Null;
            }
            let next = match hop {
                Hop::Key(key) => match serde_json::from_str::<RowText<'a>>(value.get()) {
                    Ok(object) => object.get(key),
                    Err(_) => return Found::NoParts(value),
                },
                Hop::Index(index) => match items(value) {
                    Some(items) => position(*index, items.len()).and_then(|at| items.get(at).copied()),
                    None => return Found::NoParts(value),
                },
            };
            match next {
                Some(next) => value = next,
                None => return Found::Missing,
            }
        }
        present(value)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn present(value: &RawValue) -> Found<'_> {
    if is_null(value) { Found::Null } else { Found::Value(value) }
}

fn position(index: i64, len: usize) -> Option<usize> {
    let back = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { len.checked_sub(back) } else { Some(back) }
}

/// Whether a value is null.
pub fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The items of a list; `None` when the value is no list.
pub fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The columns of a row (or keys of an object) in order, each as the text it was written with.
#[derive(Debug, Clone, Default)]
pub struct RowText<'a> {
    /// Key and value. Of a repeated key the last value counts, as in most JSON readers.
    pub fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> RowText<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Sets a key, in place or at the end.
    pub fn set(&mut self, key: Cow<'a, str>, value: &'a RawValue) {
        match self.fields.iter_mut().find(|(name, _)| *name == key) {
            Some(field) => field.1 = value,
            None => self.fields.push((key, value)),
        }
    }

    fn without_repeated_keys(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.fields.len()).collect();
        order.sort_by(|one, two| self.fields[*one].0.cmp(&self.fields[*two].0));
        let mut repeated: Vec<usize> = order
            .windows(2)
            .filter(|pair| self.fields[pair[0]].0 == self.fields[pair[1]].0)
            .map(|pair| pair[0])
            .collect();
        repeated.sort_unstable();
        for index in repeated.into_iter().rev() {
            self.fields.remove(index);
        }
        self
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RowText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
            type Value = RowText<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut row = RowText::default();
                while let Some(key) = map.next_key::<Text<'a>>()? {
                    row.fields.push((key.0, map.next_value()?));
                }
                Ok(row.without_repeated_keys())
            }
        }
        deserializer.deserialize_map(Fields(std::marker::PhantomData))
    }
}

/// A JSON string, borrowed where it holds no escapes.
#[derive(Debug, Clone)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Borrowing<'a> {
            type Value = Text<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Borrowing(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(path: &str, row: &str) -> String {
        let row: RowText<'_> = serde_json::from_str(row).unwrap();
        match Path::parse(path).unwrap().follow(&row) {
            Found::Missing => "missing".to_owned(),
            Found::Null => "null".to_owned(),
            Found::NoParts(_) => "no parts".to_owned(),
            Found::Value(value) => value.get().to_owned(),
        }
    }

    #[test]
    fn a_path_leads_into_objects_and_lists() {
        let row = r#"{"a":{"b":[1,{"c":2.50}],"n":null},"x.y":7,"s":"t","a\n":3}"#;
        let cases = [
            ("a.b[1].c", "2.50"),
            ("a.b[-2]", "1"),
            ("a.b[2]", "missing"),
            ("a.n.q", "null"),
            ("x.y", "7"),
            ("s.t", "no parts"),
            ("z", "missing"),
            ("a.z", "missing"),
            ("a\n", "3"),
        ];
        for (path, value) in cases {
            assert_eq!(followed(path, row), value, "{path}");
        }
    }

    #[test]
    fn the_last_of_repeated_keys_counts() {
        let row: RowText<'_> = serde_json::from_str(r#"{"a":1,"b":2,"a":3,"a":4}"#).unwrap();
        assert_eq!(row.fields.len(), 2);
        assert_eq!(row.get("a").map(RawValue::get), Some("4"));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", ".a", "a.", "a[", "a[x]", "a[0]b", "[0]"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
