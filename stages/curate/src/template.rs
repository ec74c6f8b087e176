//! Jinja templates of parameters: what a user wants a model to be asked.

use std::collections::BTreeSet;

use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value};
use pipeline_core::{ParamError, StageError, Task};

/// Name of the only template of an environment.
const NAME: &str = "template";

/// Steps of a template for one row; one that loops needs no more than a few for each letter it writes.
const FUEL: u64 = 5_000_000;

/// A template that was checked.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    /// Parameter that it came from, for messages.
    parameter: &'static str,
    /// What it needs to be given.
    variables: BTreeSet<String>,
}

impl Template {
    /// Checks a template. A variable that it names and nobody gives is an error when it is rendered.
    ///
    /// # Errors
    /// When it is no Jinja template, with the line.
    pub fn new(text: &str, parameter: &'static str) -> Result<Self, ParamError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment
            .add_template_owned(NAME, text.to_owned())
            .map_err(|error| ParamError::new(parameter, format!("the template is wrong: {error:#}")))?;
        let named = environment.get_template(NAME).map(|template| template.undeclared_variables(false));
        let mut variables: BTreeSet<String> = named.unwrap_or_default().into_iter().collect();
        for (global, _) in environment.globals() {
            variables.remove(global);
        }
        Ok(Self { environment, parameter, variables })
    }

    /// Variables that it needs to be given.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.variables
    }

    /// Whether it needs a variable of this name.
    pub fn names(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Parameter that it came from.
    pub fn parameter(&self) -> &'static str {
        self.parameter
    }

    /// The template of a parameter or of the file that stands in its place; `None` where neither is given.
    ///
    /// # Errors
    /// When the file cannot be read, or the template is wrong.
    pub fn given(
        task: &Task<'_>,
        text: Option<&str>,
        file: Option<&str>,
        parameter: &'static str,
    ) -> Result<Option<Self>, StageError> {
        let text = match (text, file) {
            (Some(text), _) => text.to_owned(),
            (None, Some(file)) => {
                let path = task.env().path(file);
                std::fs::read_to_string(&path).map_err(StageError::io("read", path))?
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Self::new(&text, parameter)?))
    }

    /// The text for these variables.
    ///
    /// # Errors
    /// When the template names a variable that is not among them.
    pub fn render(&self, variables: Value) -> Result<String, StageError> {
        let rendered = self.environment.get_template(NAME).and_then(|template| template.render(variables));
        rendered.map_err(|error| {
            let mut wrong = ParamError::new(self.parameter, format!("{error:#}"));
            if error.kind() == ErrorKind::UndefinedError {
                wrong = wrong
                    .hint("a row lacks a value that the template names; `{{ NAME | default(\"\") }}` does without it");
            }
            StageError::Param(wrong)
        })
    }
}
