//! A value held against a schema. What is given back is the value with its safe mending.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::Unusable;
use super::shape::{Kind, Others, Shape, Shapes};

/// Schemas inside schemas that one value is led through, so that no answer exhausts the stack.
const DEEPEST: usize = 256;
/// Values looked at, those of copies for alternatives included, for each value of the answer, and beside that: schemas
/// whose alternatives branch again and again could else take longer than anyone waits.
const STEPS_A_VALUE: usize = 64;
const MORE_STEPS: usize = 500_000;
/// Characters of a value that a complaint shows.
const SHOWN: usize = 40;

/// Checks a value against the whole schema, as it is first and then with mending.
pub(super) fn check(shapes: &Shapes, value: Value) -> Result<Value, Unusable> {
    let steps = size(&value).saturating_mul(STEPS_A_VALUE).saturating_add(MORE_STEPS);
    let mut checker = Checker { shapes, mends: true, path: "$".to_owned(), depth: 0, steps };
    checker.value(shapes.root(), value)
}

struct Checker<'a> {
    shapes: &'a Shapes,
    /// Whether numbers as text and the like are taken.
    mends: bool,
    path: String,
    depth: usize,
    /// What may still be looked at.
    steps: usize,
}

type Checked = Result<Value, Unusable>;

impl<'a> Checker<'a> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Unusable> {
        Err(Unusable::Misfit { path: self.path.clone(), message: message.into() })
    }

    fn inside(&mut self, place: &str, shape: &'a Shape, value: Value) -> Checked {
        let length = self.path.len();
        self.path.push_str(place);
        let checked = self.value(shape, value);
        self.path.truncate(length);
        checked
    }

    fn value(&mut self, shape: &'a Shape, value: Value) -> Checked {
        self.depth += 1;
        self.steps = self.steps.saturating_sub(1);
        let checked = match (self.depth > DEEPEST, self.steps) {
            (true, _) => self.fail("is nested too deep"),
            (false, 0) => self.fail("branches into more alternatives than can be tried"),
            (false, _) => self.of_shape(shape, value),
        };
        self.depth -= 1;
        checked
    }

    fn of_shape(&mut self, shape: &'a Shape, value: Value) -> Checked {
        if shape.never {
            return self.fail("is not allowed here");
        }
        let value = self.of_kind(shape, value)?;
        let mut value = self.of_choices(shape, value)?;
        self.bounds(shape, &value)?;
        value = match value {
            Value::Object(map) => self.object(shape, map)?,
            Value::Array(items) => self.list(shape, items)?,
            other => other,
        };
        if let Some(pointer) = &shape.refers {
            value = self.value(self.shapes.at(pointer), value)?;
        }
        for part in &shape.all {
            value = self.value(part, value)?;
        }
        if !shape.any.is_empty() {
            value = self.choose(&shape.any, &value, false)?;
        }
        if !shape.one.is_empty() {
            value = self.choose(&shape.one, &value, true)?;
        }
        Ok(value)
    }

    /// The value as one of the types allowed.
    fn of_kind(&self, shape: &Shape, value: Value) -> Checked {
        let allows = |kind: Kind| shape.kinds.contains(&kind);
        if shape.kinds.is_empty() {
            return Ok(value);
        }
        let fits = match &value {
            Value::Null => allows(Kind::Null),
            Value::Bool(_) => allows(Kind::Boolean),
            Value::Number(number) => allows(Kind::Number) || (allows(Kind::Integer) && number.is_i64()),
            Value::String(_) => allows(Kind::String),
            Value::Array(_) => allows(Kind::Array),
            Value::Object(_) => allows(Kind::Object),
        };
        if fits {
            return Ok(value);
        }
        let wanted = shape.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
        let number = match &value {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) if self.mends => number_of(text),
            _ => None,
        };
        let number = number.filter(|_| allows(Kind::Number) || allows(Kind::Integer));
        let mended = number.and_then(|number| match (allows(Kind::Number), whole(&number)) {
            (_, Some(whole)) if allows(Kind::Integer) => Some(whole),
            (true, _) => Some(number),
            _ => None,
        });
        match mended {
            Some(number) => Ok(Value::Number(number)),
            None => self.fail(format!("{wanted} is needed, found {}", shown(&value))),
        }
    }

    fn of_choices(&self, shape: &Shape, value: Value) -> Checked {
        if shape.choices.is_empty() || shape.choices.iter().any(|choice| is_equal(choice, &value)) {
            return Ok(value);
        }
        let number = value.as_str().filter(|_| self.mends).and_then(number_of).map(Value::Number);
        if let Some(choice) = shape.choices.iter().find(|choice| number.as_ref().is_some_and(|n| is_equal(choice, n))) {
            return Ok(choice.clone());
        }
        let choices = shape.choices.iter().map(shown).collect::<Vec<_>>().join(", ");
        self.fail(format!("one of {choices} is needed, found {}", shown(&value)))
    }

    fn bounds(&self, shape: &Shape, value: &Value) -> Result<(), Unusable> {
        match value {
            Value::Number(number) => self.number(shape, number),
            Value::String(text) => self.text(shape, text),
            Value::Array(items) => {
                let count = items.len();
                if let Some(least) = shape.count.least.filter(|least| count < *least) {
                    return self.fail(format!("at least {least} items are needed, found {count}"));
                }
                match shape.count.most.filter(|most| count > *most) {
                    Some(most) => self.fail(format!("at most {most} items are allowed, found {count}")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn number(&self, shape: &Shape, number: &Number) -> Result<(), Unusable> {
        let value = number.as_f64().unwrap_or(f64::NAN);
        let complaint = match shape {
            Shape { numbers, .. } if numbers.least.is_some_and(|least| value < least) => ("at least", numbers.least),
            Shape { numbers, .. } if numbers.most.is_some_and(|most| value > most) => ("at most", numbers.most),
            Shape { above: Some(above), .. } if value <= *above => ("above", Some(*above)),
            Shape { below: Some(below), .. } if value >= *below => ("below", Some(*below)),
            _ => return Ok(()),
        };
        self.fail(format!("{number} is out of range, it must be {} {}", complaint.0, complaint.1.unwrap_or_default()))
    }

    fn text(&self, shape: &Shape, text: &str) -> Result<(), Unusable> {
        if let Some(pattern) = shape.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            return self.fail(format!("the text does not match the pattern `{pattern}`"));
        }
        let bounds = shape.length;
        if bounds.least.is_none() && bounds.most.is_none() {
            return Ok(());
        }
        let length = text.chars().count();
        if let Some(least) = bounds.least.filter(|least| length < *least) {
            return self.fail(format!("at least {least} characters are needed, found {length}"));
        }
        match bounds.most.filter(|most| length > *most) {
            Some(most) => self.fail(format!("at most {most} characters are allowed, found {length}")),
            None => Ok(()),
        }
    }

    fn object(&mut self, shape: &'a Shape, mut map: Map<String, Value>) -> Checked {
        if let Some(missing) = shape.required.iter().find(|name| !map.contains_key(*name)) {
            return self.fail(format!("`{missing}` is missing"));
        }
        for (name, value) in &mut map {
            let known = shape.properties.iter().find(|(known, _)| known == name).map(|(_, shape)| shape);
            let inner = match (known, &shape.others) {
                (Some(inner), _) => inner,
                (None, Others::Like(inner)) => inner.as_ref(),
                (None, Others::Any) => continue,
                (None, Others::None) => return self.fail(format!("`{name}` is no property of it")),
            };
            *value = self.inside(&format!(".{name}"), inner, value.take())?;
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self, shape: &'a Shape, mut items: Vec<Value>) -> Checked {
        if let Some(inner) = &shape.items {
            for (index, item) in items.iter_mut().enumerate() {
                *item = self.inside(&format!("[{index}]"), inner, item.take())?;
            }
        }
        let mut seen = HashSet::new();
        if shape.unique && !items.iter().all(|item| seen.insert(identity(item))) {
            return self.fail("an item comes twice");
        }
        Ok(Value::Array(items))
    }

    /// Tries schemas in turn: as the value is, and where none fits, with mending.
    fn choose(&mut self, shapes: &'a [Shape], value: &Value, only_one: bool) -> Checked {
        let mends = self.mends;
        let passes: &[bool] = if mends { &[false, true] } else { &[false] };
        let mut complaint = None;
        for mending in passes {
            self.mends = *mending;
            let mut fitting = Vec::new();
            for shape in shapes {
                self.steps = self.steps.saturating_sub(size(value));
                if self.steps == 0 {
                    self.mends = mends;
                    return self.fail("branches into more alternatives than can be tried");
                }
                match self.value(shape, value.clone()) {
                    Ok(value) if !only_one => {
                        self.mends = mends;
                        return Ok(value);
                    }
                    Ok(value) => fitting.push(value),
                    Err(error) => complaint = Some(error),
                }
            }
            self.mends = mends;
            if only_one && fitting.len() > 1 {
                return self.fail("fits several of the alternatives, and exactly one is wanted");
            }
            if let Some(value) = fitting.into_iter().next() {
                return Ok(value);
            }
        }
        match complaint {
            Some(error) if shapes.len() == 1 => Err(error),
            Some(error) => self.fail(format!("fits none of the alternatives, the last: {error}")),
            None => self.fail("fits none of the alternatives"),
        }
    }
}

/// The number that a text is, and nothing else is: `4`, ` -0.5 `, `1e3`; not `4/5`, `1,000`, `0x4` or `inf`.
fn number_of(text: &str) -> Option<Number> {
    let text = text.trim();
    let text = text.strip_prefix('+').filter(|rest| !rest.starts_with('-')).unwrap_or(text);
    // The numbers of JSON are exactly these, but for one that begins with a zero.
    match serde_json::from_str(text).ok()? {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// The whole number that a number is, in 64 bits: `4.0` is 4.
fn whole(number: &Number) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(whole) = number.as_i64() {
        return Some(whole.into());
    }
    let value = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < EXACT)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let whole = value as i64;
    Some(whole.into())
}

/// Equality of JSON values, numbers by their value.
fn is_equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => {
            one == two || (one.as_f64() == two.as_f64() && !(one.is_i64() && two.is_i64()))
        }
        _ => one == two,
    }
}

/// Values in a value, itself included.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// A text that equal values, and no others, share: keys sorted, whole numbers written as such.
fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) => whole(number).unwrap_or_else(|| number.clone()).to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(identity).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let mut members: Vec<String> =
                map.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), identity(value))).collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

/// The beginning of a value, for a complaint.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
