//! A JSON schema as read: what it asks of a value, and the places that it refers to.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("JSON schema at `{path}`: {message}")]
pub struct SchemaError {
    /// Place in the schema, as a JSON pointer: `#/properties/score`.
    pub path: String,
    /// What is wrong, and the way out.
    pub message: String,
}

/// A type of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    const ALL: [(&'static str, Self); 7] = [
        ("null", Self::Null),
        ("boolean", Self::Boolean),
        ("integer", Self::Integer),
        ("number", Self::Number),
        ("string", Self::String),
        ("array", Self::Array),
        ("object", Self::Object),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// Whether properties beside the named ones may come.
#[derive(Debug, Clone, Default)]
pub(super) enum Others {
    #[default]
    Any,
    None,
    Like(Box<Shape>),
}

/// What one schema asks of a value.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// Types allowed; empty = all.
    pub(super) kinds: Vec<Kind>,
    /// Values allowed; empty = all.
    pub(super) choices: Vec<Value>,
    pub(super) properties: Vec<(String, Shape)>,
    pub(super) required: Vec<String>,
    pub(super) others: Others,
    pub(super) items: Option<Box<Shape>>,
    pub(super) unique: bool,
    pub(super) numbers: Bounds<f64>,
    pub(super) above: Option<f64>,
    pub(super) below: Option<f64>,
    pub(super) length: Bounds<usize>,
    pub(super) count: Bounds<usize>,
    pub(super) pattern: Option<Regex>,
    pub(super) any: Vec<Shape>,
    pub(super) one: Vec<Shape>,
    pub(super) all: Vec<Shape>,
    /// Pointer of another schema that must hold too.
    pub(super) refers: Option<String>,
    /// No value fits (`false`).
    pub(super) never: bool,
}

/// Least and most, both allowed themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<T> {
    pub(super) least: Option<T>,
    pub(super) most: Option<T>,
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { least: None, most: None }
    }
}

/// A schema with all that it refers to.
#[derive(Debug, Clone)]
pub(super) struct Shapes(BTreeMap<String, Shape>);

/// Pointer of the whole schema.
const ROOT: &str = "#";
/// References that are followed from one to the next without a value between them.
const MOST_HOPS: usize = 32;

impl Shapes {
    pub(super) fn new(schema: &Value) -> Result<Self, SchemaError> {
        let mut shapes = BTreeMap::new();
        let mut waiting = vec![ROOT.to_owned()];
        while let Some(pointer) = waiting.pop() {
            if shapes.contains_key(&pointer) {
                continue;
            }
            let target = pointer.strip_prefix(ROOT).and_then(|path| schema.pointer(path));
            let Some(target) = target else {
                let message = "`$ref` leads nowhere; only places in the same schema can be named, as in `#/$defs/name`";
                return Err(SchemaError { path: pointer, message: message.to_owned() });
            };
            let shape = Reader { path: pointer.clone(), references: &mut waiting }.shape(target)?;
            shapes.insert(pointer, shape);
        }
        let shapes = Self(shapes);
        match shapes.0.iter().find(|(_, shape)| shapes.is_endless(shape, &mut Vec::new())) {
            Some((pointer, _)) => {
                let message = "leads back to itself with no value between, so no answer could be checked against it";
                Err(SchemaError { path: pointer.clone(), message: message.to_owned() })
            }
            None => Ok(shapes),
        }
    }

    /// Whether a value would be held against the same schema again and again.
    fn is_endless<'a>(&'a self, shape: &'a Shape, trail: &mut Vec<&'a str>) -> bool {
        if let Some(pointer) = &shape.refers {
            if trail.contains(&pointer.as_str()) {
                return true;
            }
            trail.push(pointer);
            let is_endless = self.is_endless(self.at(pointer), trail);
            trail.pop();
            if is_endless {
                return true;
            }
        }
        let mut parts = shape.all.iter().chain(&shape.any).chain(&shape.one);
        parts.any(|part| self.is_endless(part, trail))
    }

    pub(super) fn root(&self) -> &Shape {
        static ANY: std::sync::LazyLock<Shape> = std::sync::LazyLock::new(Shape::default);
        self.0.get(ROOT).unwrap_or(&ANY)
    }

    /// The schema behind a pointer.
    pub(super) fn at(&self, pointer: &str) -> &Shape {
        self.0.get(pointer).unwrap_or_else(|| self.root())
    }

    /// The shape that says something of its own, behind references and a single choice beside null.
    pub(super) fn resolved<'a>(&'a self, mut shape: &'a Shape) -> &'a Shape {
        for _ in 0..MOST_HOPS {
            let is_null = |shape: &&Shape| shape.kinds != [Kind::Null];
            let choices: Vec<&Shape> = shape.any.iter().chain(&shape.one).filter(is_null).collect();
            if !shape.kinds.is_empty() || !shape.properties.is_empty() || !shape.choices.is_empty() {
                return shape;
            }
            shape = match (&shape.refers, choices.as_slice(), shape.all.as_slice()) {
                (Some(pointer), [], []) => self.at(pointer),
                (None, [only], []) => only,
                (None, [], [only]) => only,
                _ => return shape,
            };
        }
        shape
    }
}

/// Reads one schema and those inside it.
struct Reader<'a> {
    path: String,
    references: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, SchemaError> {
        Err(SchemaError { path: self.path.clone(), message: message.into() })
    }

    fn inside<T>(
        &mut self,
        place: &str,
        read: impl FnOnce(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<T, SchemaError> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(place);
        let read = read(self);
        self.path.truncate(length);
        read
    }

    fn shape(&mut self, schema: &Value) -> Result<Shape, SchemaError> {
        let map = match schema {
            Value::Bool(any) => return Ok(Shape { never: !any, ..Shape::default() }),
            Value::Object(map) => map,
            _ => return self.fail("a schema is an object or true or false"),
        };
        let mut shape = Shape::default();
        for (key, value) in map {
            self.inside(key, |reader| reader.keyword(&mut shape, key, value))?;
        }
        if let Some(missing) = impossible(&shape, map) {
            return self.fail(missing);
        }
        Ok(shape)
    }

    fn keyword(&mut self, shape: &mut Shape, key: &str, value: &Value) -> Result<(), SchemaError> {
        match key {
            "type" => shape.kinds = self.kinds(value)?,
            "enum" => shape.choices = self.list(value)?.to_vec(),
            "const" => shape.choices = vec![value.clone()],
            "properties" => shape.properties = self.properties(value)?,
            "required" => shape.required = self.texts(value)?,
            "additionalProperties" => {
                shape.others = match value {
                    Value::Bool(true) => Others::Any,
                    Value::Bool(false) => Others::None,
                    schema => Others::Like(Box::new(self.shape(schema)?)),
                }
            }
            "items" => shape.items = Some(Box::new(self.shape(value)?)),
            "uniqueItems" => shape.unique = value.as_bool() == Some(true),
            "minimum" => shape.numbers.least = Some(self.number(value)?),
            "maximum" => shape.numbers.most = Some(self.number(value)?),
            "exclusiveMinimum" => shape.above = Some(self.number(value)?),
            "exclusiveMaximum" => shape.below = Some(self.number(value)?),
            "minLength" => shape.length.least = Some(self.size(value)?),
            "maxLength" => shape.length.most = Some(self.size(value)?),
            "minItems" => shape.count.least = Some(self.size(value)?),
            "maxItems" => shape.count.most = Some(self.size(value)?),
            "pattern" => shape.pattern = Some(self.pattern(value)?),
            "anyOf" => shape.any = self.shapes(value)?,
            "oneOf" => shape.one = self.shapes(value)?,
            "allOf" => shape.all = self.shapes(value)?,
            "$ref" => shape.refers = Some(self.reference(value)?),
            "$defs" | "definitions" => drop(self.properties(value)?),
            "$schema" | "$id" | "$comment" | "title" | "description" | "default" | "examples" | "format"
            | "deprecated" | "readOnly" | "writeOnly" => {}
            other => {
                return self.fail(format!("`{other}` is not supported, and a rule must not be ignored; leave it out"));
            }
        }
        Ok(())
    }

    fn kinds(&self, value: &Value) -> Result<Vec<Kind>, SchemaError> {
        let names = match value {
            Value::String(name) => vec![name.clone()],
            list => self.texts(list)?,
        };
        let kind = |name: &String| {
            let known = Kind::ALL.map(|(name, _)| name).join(", ");
            Kind::named(name).map_or_else(|| self.fail(format!("`{name}` is no type; types are {known}")), Ok)
        };
        names.iter().map(kind).collect()
    }

    fn properties(&mut self, value: &Value) -> Result<Vec<(String, Shape)>, SchemaError> {
        let Value::Object(map) = value else { return self.fail("an object of schemas is needed") };
        map.iter().map(|(name, schema)| Ok((name.clone(), self.inside(name, |reader| reader.shape(schema))?))).collect()
    }

    fn shapes(&mut self, value: &Value) -> Result<Vec<Shape>, SchemaError> {
        let schemas = self.list(value)?.to_vec();
        let shape = |(index, schema): (usize, &Value)| self.inside(&index.to_string(), |reader| reader.shape(schema));
        schemas.iter().enumerate().map(shape).collect()
    }

    fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value], SchemaError> {
        value.as_array().map_or_else(|| self.fail("a list is needed"), |list| Ok(list.as_slice()))
    }

    fn texts(&self, value: &Value) -> Result<Vec<String>, SchemaError> {
        let texts: Option<Vec<String>> =
            self.list(value)?.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        texts.map_or_else(|| self.fail("a list of texts is needed"), Ok)
    }

    fn number(&self, value: &Value) -> Result<f64, SchemaError> {
        value.as_f64().map_or_else(|| self.fail("a number is needed"), Ok)
    }

    fn size(&self, value: &Value) -> Result<usize, SchemaError> {
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        size.map_or_else(|| self.fail("a whole number from 0 is needed"), Ok)
    }

    fn pattern(&self, value: &Value) -> Result<Regex, SchemaError> {
        let Some(text) = value.as_str() else { return self.fail("a text is needed") };
        Regex::new(text).or_else(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            self.fail(format!("the pattern cannot be used: {reason}"))
        })
    }

    fn reference(&mut self, value: &Value) -> Result<String, SchemaError> {
        let Some(pointer) = value.as_str().filter(|pointer| *pointer == ROOT || pointer.starts_with("#/")) else {
            return self.fail("only places in the same schema can be named, as in `#/$defs/name`");
        };
        self.references.push(pointer.to_owned());
        Ok(pointer.to_owned())
    }
}

/// A schema that no answer can follow is a slip of the pen.
fn impossible(shape: &Shape, map: &Map<String, Value>) -> Option<String> {
    if map.contains_key("enum") && shape.choices.is_empty() {
        return Some("`enum` allows no value".to_owned());
    }
    let is_known = |name: &&String| shape.properties.iter().any(|(known, _)| known == *name);
    match shape.others {
        Others::None => {
            let unknown = shape.required.iter().find(|name| !is_known(name))?;
            Some(format!("`{unknown}` is required and is no property, and others are not allowed"))
        }
        _ => None,
    }
}
