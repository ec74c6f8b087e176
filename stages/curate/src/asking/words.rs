//! Prompt templates that come with the program, and their digests: other words are another recipe.

use pipeline_core::{Digest, Env, External, ParamError, StageError, Task};

use crate::template::Template;

/// What is asked where an answer did not fit: the question again, the schema, and the complaint.
pub const AGAIN: &str = include_str!("again.md.jinja");

/// The parameter of a template, and the name that the recipe gives to what stands in its place.
const TEMPLATE: &str = "template";

/// The template of a kind: the program's own unless a user gives another.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// `template`.
    pub text: Option<&'a str>,
    /// `template_file`.
    pub file: Option<&'a str>,
    /// The program's own; `None` where a user must give one.
    pub built_in: Option<&'static str>,
}

impl Words<'_> {
    /// Checks the parameters against each other.
    ///
    /// # Errors
    /// When both or none are given, or the text is no template.
    pub fn ensure(&self) -> Result<(), ParamError> {
        match (self.text, self.file, self.built_in) {
            (Some(_), Some(_), _) => {
                Err(ParamError::new("template_file", "give `template` or `template_file`, not both"))
            }
            (None, None, None) => {
                Err(ParamError::new(TEMPLATE, "there is nothing to ask: give `template` or `template_file`"))
            }
            (Some(text), None, _) => Template::new(text, TEMPLATE).map(drop),
            (None, _, _) => Ok(()),
        }
    }

    /// The template that needs no file, for checks before anything runs.
    pub fn at_hand(&self) -> Option<Template> {
        let text = self.text.or(self.built_in.filter(|_| self.file.is_none()))?;
        Template::new(text, TEMPLATE).ok()
    }

    /// The template.
    ///
    /// # Errors
    /// When its file cannot be read, or it is wrong.
    pub fn template(&self, task: &Task<'_>) -> Result<Template, StageError> {
        match Template::given(task, self.text, self.file, TEMPLATE)? {
            Some(template) => Ok(template),
            None => Ok(Template::new(self.built_in.unwrap_or_default(), TEMPLATE)?),
        }
    }
}

/// What decides a kind's requests beside its parameters: the template where the parameters do not hold it, and the words
/// of a second asking.
///
/// # Errors
/// When the file of the template cannot be read.
pub fn externals(env: &Env, words: &Words<'_>) -> Result<Vec<External>, StageError> {
    let external =
        |name: &str, digest: Digest| External { name: name.to_owned(), digest: digest.to_string(), sliced: false };
    let mut externals = vec![external("asking again", Digest::of(AGAIN.as_bytes()))];
    match (words.text, words.file, words.built_in) {
        (Some(_), _, _) => {}
        (None, Some(file), _) => externals.push(external(TEMPLATE, env.digest_of(&env.path(file))?)),
        (None, None, built_in) => {
            externals.push(external(TEMPLATE, Digest::of(built_in.unwrap_or_default().as_bytes())));
        }
    }
    Ok(externals)
}
