//! The spanned tree: every value of a dag file with the place it stands at.
//!
//! The tree is our own because includes put values of several files into one, and because it survives the text.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{DagError, DagErrors};
use super::source::{FileId, Place, Sources};
use super::variables;

/// Tables and arrays that may stand inside one another. A dotted key in an inline table can nest far deeper than the
/// TOML parser's own limit, and deep trees overflow the stack when they are dropped.
const MAX_DEPTH: usize = 64;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value; for a table with a header, the header; for a table made by a dotted key, the key.
    pub place: Place,
    /// The key it stands under; none for elements of an array and the root.
    pub key_place: Option<Place>,
    /// The value itself.
    pub value: NodeValue,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// Text (variables filled in), number or boolean; dates are text.
    Scalar(Value),
    /// A list, or an array of tables.
    Array(Vec<Node>),
    /// A table, inline or not.
    Table(BTreeMap<String, Node>),
    /// Something already reported; whoever meets it stays silent.
    Invalid,
}

impl Node {
    /// The key's place, or the value's where there is no key.
    pub fn key_or_value_place(&self) -> &Place {
        self.key_place.as_ref().unwrap_or(&self.place)
    }

    /// The entry of a table.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_table()?.get(key)
    }

    /// The entries of a table.
    pub fn as_table(&self) -> Option<&BTreeMap<String, Node>> {
        match &self.value {
            NodeValue::Table(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Node]> {
        match &self.value {
            NodeValue::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        self.scalar()?.as_str()
    }

    /// The number, whole or not.
    pub fn as_f64(&self) -> Option<f64> {
        self.scalar()?.as_f64()
    }

    /// The whole number from 0 on.
    pub fn as_u64(&self) -> Option<u64> {
        self.scalar()?.as_u64()
    }

    /// The boolean.
    pub fn as_bool(&self) -> Option<bool> {
        self.scalar()?.as_bool()
    }

    /// Whether the value was reported already.
    pub fn is_invalid(&self) -> bool {
        matches!(self.value, NodeValue::Invalid)
    }

    /// The value without places; keys of tables in code point order, `null` for what was reported already.
    pub fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Scalar(value) => value.clone(),
            NodeValue::Array(elements) => elements.iter().map(Node::to_json).collect(),
            NodeValue::Table(entries) => {
                Value::Object(entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect::<Map<_, _>>())
            }
            NodeValue::Invalid => Value::Null,
        }
    }

    /// What the value is, in words: "a text", "a table".
    pub fn type_name(&self) -> &'static str {
        match &self.value {
            NodeValue::Scalar(Value::String(_)) => "a text",
            NodeValue::Scalar(Value::Bool(_)) => "a boolean",
            NodeValue::Scalar(Value::Number(number)) if number.is_f64() => "a number",
            NodeValue::Scalar(_) => "a whole number",
            NodeValue::Array(_) => "a list",
            NodeValue::Table(_) => "a table",
            NodeValue::Invalid => "nothing",
        }
    }

    fn scalar(&self) -> Option<&Value> {
        match &self.value {
            NodeValue::Scalar(value) => Some(value),
            _ => None,
        }
    }
}

/// Turns the TOML crate's tree into ours, filling in variables.
pub(super) struct Converter<'a> {
    pub(super) file: FileId,
    pub(super) sources: &'a Sources,
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    pub(super) errors: &'a mut DagErrors,
}

impl Converter<'_> {
    /// The entries of a table that nothing encloses.
    pub(super) fn root(&mut self, table: Spanned<DeTable<'_>>) -> BTreeMap<String, Node> {
        self.table(table.into_inner(), 0)
    }

    fn table(&mut self, table: DeTable<'_>, depth: usize) -> BTreeMap<String, Node> {
        let mut entries = BTreeMap::new();
        for (key, value) in table {
            let key_place = self.sources.place(self.file, key.span());
            let node = self.node(value, Some(key_place), depth + 1);
            entries.insert(key.into_inner().into_owned(), node);
        }
        entries
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, key_place: Option<Place>, depth: usize) -> Node {
        let place = self.sources.place(self.file, value.span());
        let value = value.into_inner();
        let is_container = matches!(value, DeValue::Array(_) | DeValue::Table(_));
        let value = if is_container && depth > MAX_DEPTH {
            dismantle(value);
            self.errors.push(DagError::new(format!("tables are nested more than {MAX_DEPTH} deep")).at(&place));
            NodeValue::Invalid
        } else {
            self.value(value, &place, depth)
        };
        Node { place, key_place, value }
    }

    fn value(&mut self, value: DeValue<'_>, place: &Place, depth: usize) -> NodeValue {
        let scalar = match value {
            DeValue::Array(elements) => {
                return NodeValue::Array(
                    elements.into_iter().map(|element| self.node(element, None, depth + 1)).collect(),
                );
            }
            DeValue::Table(table) => return NodeValue::Table(self.table(table, depth)),
            DeValue::String(text) => variables::fill(&text, self.lookup)
                .map(Value::String)
                .map_err(|problem| problem.into_error(place, self.sources)),
            DeValue::Boolean(value) => Ok(Value::Bool(value)),
            DeValue::Datetime(value) => Ok(Value::String(value.to_string())),
            DeValue::Integer(integer) => whole_number(integer.as_str(), integer.radix())
                .ok_or_else(|| DagError::new("a whole number must lie between -2^63 and 2^64 - 1").at(place)),
            DeValue::Float(float) => finite_number(float.as_str())
                .ok_or_else(|| DagError::new("`inf`, `nan` and numbers beyond 1.8e308 are not allowed").at(place)),
        };
        scalar.map_or_else(
            |error| {
                self.errors.push(error);
                NodeValue::Invalid
            },
            NodeValue::Scalar,
        )
    }
}

fn whole_number(digits: &str, radix: u32) -> Option<Value> {
    let signed = i64::from_str_radix(digits, radix).ok().map(Value::from);
    signed.or_else(|| u64::from_str_radix(digits, radix).ok().map(Value::from))
}

fn finite_number(text: &str) -> Option<Value> {
    Number::from_f64(text.parse().ok()?).map(Value::Number)
}

/// Drops a tree without recursion.
pub(super) fn dismantle(value: DeValue<'_>) {
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        match value {
            DeValue::Array(elements) => {
                waiting.extend(elements.into_iter().map(Spanned::into_inner));
            }
            DeValue::Table(table) => {
                waiting.extend(table.into_iter().map(|(_, value)| value.into_inner()));
            }
            _ => {}
        }
    }
}
