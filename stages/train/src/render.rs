//! Messages and a response as what a student is trained on: ids, and which of them it shall learn to write.
//!
//! The prompt is the student's chat template; the response follows it as it was written, reasoning included, by the rule
//! that scoring has too ([`Response::ids`]). Nothing that a message says can become a control token.

use std::ops::Range;

use stage_tokens::{ChatTemplate, EndTokens, Response, Tokenizer, TokensError, Turn};

/// Which of the assistant's turns are supervised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Supervision {
    /// The response alone.
    #[default]
    Response,
    /// The response and every earlier turn of the assistant.
    EveryTurn,
}

/// Turns conversations into examples.
#[derive(Debug, Clone, Copy)]
pub struct Renderer<'a> {
    /// The student's.
    pub tokenizer: &'a Tokenizer,
    /// The student's.
    pub template: &'a ChatTemplate,
    /// The student's.
    pub ends: &'a EndTokens,
    /// Most tokens of an example.
    pub window: usize,
    /// What is supervised.
    pub supervision: Supervision,
}

/// A sequence with what is supervised in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// All ids.
    pub ids: Vec<u32>,
    /// Places of the ids that are learnt, ascending; never the first one, which nothing predicts.
    pub supervised: Vec<Range<usize>>,
}

impl Example {
    /// Number of ids that are learnt.
    pub fn supervised_tokens(&self) -> usize {
        self.supervised.iter().map(Range::len).sum()
    }
}

/// Why a row cannot be trained on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It does not fit into a window. Cutting it would teach to stop thinking or to end without an answer.
    #[error("{tokens} tokens do not fit into a window of {window}")]
    TooLong {
        /// Tokens of the prompt and the response.
        tokens: usize,
        /// Most that fit.
        window: usize,
    },
    /// The response says nothing.
    #[error("no token is supervised: the response is empty")]
    NothingSupervised,
    /// The student's template refuses the conversation.
    #[error("{0}")]
    TemplateRefused(String),
    /// The student's template cannot be filled in.
    #[error("{0}")]
    TemplateFailed(String),
    /// The template does not show an earlier turn of the assistant as it was written, say because it drops reasoning.
    #[error("the template changes turn {0} of the conversation, so that it cannot be supervised as it was written")]
    TurnChanged(usize),
    /// The tokenizer makes an end of turn of ordinary text.
    #[error("the response has an end of turn before its end")]
    EndInside,
}

impl Unusable {
    /// A short word for counting.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "too_long",
            Self::NothingSupervised => "nothing_supervised",
            Self::TemplateRefused(_) => "template_refused",
            Self::TemplateFailed(_) => "template_failed",
            Self::TurnChanged(_) => "turn_changed",
            Self::EndInside => "end_inside",
        }
    }
}

impl From<TokensError> for Unusable {
    fn from(error: TokensError) -> Self {
        match error {
            TokensError::Refused(_) => Self::TemplateRefused(error.to_string()),
            other => Self::TemplateFailed(other.to_string()),
        }
    }
}

impl Renderer<'_> {
    /// An example of the conversation before the response, and the response.
    ///
    /// A complete response ends with one supervised end of turn; an incomplete one with its last word.
    ///
    /// # Errors
    /// Why the row cannot be trained on.
    pub fn render(&self, messages: &[Turn<'_>], response: &Response<'_>) -> Result<Example, Unusable> {
        if response.text.is_empty() {
            return Err(Unusable::NothingSupervised);
        }
        let mut ids = self.template.encode(self.tokenizer, messages, true)?;
        let mut supervised = Vec::new();
        if self.supervision == Supervision::EveryTurn {
            for (index, turn) in messages.iter().enumerate().filter(|(_, turn)| turn.role == "assistant") {
                supervised.push(self.turn(&ids, messages, index, turn.content)?);
            }
        }
        let answer = response.ids(self.tokenizer, self.ends);
        let inside = &answer[..answer.len().saturating_sub(1)];
        if inside.iter().any(|id| self.ends.ends_at(*id)) {
            return Err(Unusable::EndInside);
        }
        // what no token predicts cannot be learnt
        let start = ids.len().max(1);
        ids.extend(answer);
        if ids.len() > self.window {
            return Err(Unusable::TooLong { tokens: ids.len(), window: self.window });
        }
        if start >= ids.len() {
            return Err(Unusable::NothingSupervised);
        }
        supervised.push(start..ids.len());
        Ok(Example { ids, supervised })
    }

    /// Places of an earlier turn's words and of its end in the ids of the whole conversation.
    fn turn(&self, ids: &[u32], messages: &[Turn<'_>], index: usize, content: &str) -> Result<Range<usize>, Unusable> {
        let before = self.template.encode(self.tokenizer, &messages[..index], true)?;
        let words = self.tokenizer.encode(content);
        let rest = ids.strip_prefix(before.as_slice()).and_then(|rest| rest.strip_prefix(words.as_slice()));
        match rest.and_then(<[u32]>::first) {
            Some(id) if self.ends.ends_at(*id) && !before.is_empty() => {
                Ok(before.len()..before.len() + words.len() + 1)
            }
            _ => Err(Unusable::TurnChanged(index)),
        }
    }
}

#[cfg(test)]
mod tests {
    use stage_tokens::byte_tokenizer;

    use super::*;

    const TEMPLATE: &str = "{% for message in messages %}\
        {% if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
        <|start|>{{ message.role }}\n{{ message.content.split('</think>')[-1] }}<|end|>\n{% endfor %}\
        {% if add_generation_prompt %}<|start|>assistant\n{% endif %}";
    const START: u32 = 256;
    const END: u32 = 257;

    struct Student {
        tokenizer: Tokenizer,
        template: ChatTemplate,
        ends: EndTokens,
    }

    fn student() -> Student {
        let tokenizer = Tokenizer::from_json(byte_tokenizer(&["<|start|>", "<|end|>"]).as_bytes()).unwrap();
        let template = ChatTemplate::new(TEMPLATE, "", "<|end|>").unwrap();
        let ends = EndTokens::new(vec![END], &tokenizer, Some(&template));
        Student { tokenizer, template, ends }
    }

    impl Student {
        fn render(&self, messages: &[(&str, &str)], text: &str, supervision: Supervision) -> Result<Example, Unusable> {
            let turns: Vec<Turn<'_>> =
                messages.iter().map(|(role, content)| Turn { role, content, tool_calls: None }).collect();
            let Self { tokenizer, template, ends } = self;
            let renderer = Renderer { tokenizer, template, ends, window: 120, supervision };
            renderer.render(&turns, &Response { text, is_complete: true, ..Response::default() })
        }
    }

    /// The supervised ids as text, the end as `$` and other control tokens as `!`.
    fn supervised(example: &Example) -> Vec<String> {
        let letter = |id: &u32| match *id {
            END => '$',
            START => '!',
            id => char::from(u8::try_from(id).unwrap()),
        };
        example.supervised.iter().map(|range| example.ids[range.clone()].iter().map(letter).collect()).collect()
    }

    #[test]
    fn the_mask_is_the_one_made_by_hand() {
        let example = student().render(&[("user", "hi")], "<think>a</think>b", Supervision::Response).unwrap();
        let mut ids = vec![START];
        ids.extend(b"user\nhi".map(u32::from));
        ids.extend([END, 10, START]);
        ids.extend(b"assistant\n".map(u32::from));
        // 1 + 7 + 3 + 10 ids of the prompt; 17 of the response and its end
        assert_eq!(ids.len(), 21);
        ids.extend(b"<think>a</think>b".map(u32::from));
        ids.push(END);
        assert_eq!(example, Example { ids, supervised: std::iter::once(21..39).collect() });
        assert_eq!(supervised(&example), ["<think>a</think>b$"]);
    }

    #[test]
    fn earlier_turns_are_supervised_on_request_with_an_end_each() {
        let messages = [("user", "1"), ("assistant", "one"), ("user", "2"), ("assistant", "two"), ("user", "3")];
        let every = student().render(&messages, "three", Supervision::EveryTurn).unwrap();
        assert_eq!(supervised(&every), ["one$", "two$", "three$"]);
        let last = student().render(&messages, "three", Supervision::Response).unwrap();
        assert_eq!((supervised(&last), &last.ids), (vec!["three$".to_owned()], &every.ids));
    }

    #[test]
    fn a_turn_that_the_template_changes_is_not_supervised() {
        let messages = [("user", "1"), ("assistant", "<think>x</think>one"), ("user", "2")];
        let refused = student().render(&messages, "two", Supervision::EveryTurn).unwrap_err();
        assert_eq!((&refused, refused.reason()), (&Unusable::TurnChanged(1), "turn_changed"));
        assert!(student().render(&messages, "two", Supervision::Response).is_ok());
    }

    #[test]
    fn control_tokens_that_texts_spell_stay_text() {
        let spelled = "<|end|>\n<|start|>assistant\n";
        let example = student().render(&[("user", spelled)], spelled, Supervision::Response).unwrap();
        let controls = |ids: &[u32]| ids.iter().filter(|id| **id >= START).copied().collect::<Vec<_>>();
        assert_eq!(controls(&example.ids), [START, END, START, END]);
        assert_eq!(controls(&example.ids[example.supervised[0].clone()]), [END]);
        assert_eq!(supervised(&example), [format!("{spelled}$")]);
    }

    #[test]
    fn stored_ids_are_taken_from_the_students_tokenizer_alone_with_one_end() {
        let student = student();
        let turns = [Turn { role: "user", content: "hi", tool_calls: None }];
        let Student { tokenizer, template, ends } = &student;
        let renderer = Renderer { tokenizer, template, ends, window: 120, supervision: Supervision::Response };
        let render = |token_ids, tokenizer| {
            let response = Response { text: "ab", is_complete: true, token_ids, tokenizer };
            supervised(&renderer.render(&turns, &response).unwrap()).remove(0)
        };
        // a control token inside shows which ids were taken: it has no text
        assert_eq!(render(Some(&[97, START, 98, END, END][..]), Some(tokenizer.digest())), "a!b$");
        assert_eq!(render(Some(&[97, START, 98, END][..]), Some("sha256:other")), "ab$");
        assert_eq!(render(Some(&[97, START, 98, END][..]), None), "ab$");
    }

    #[test]
    fn rows_that_cannot_be_trained_on_say_why() {
        let student = student();
        let refused = |messages: &[(&str, &str)], text: &str| {
            let refused = student.render(messages, text, Supervision::Response).unwrap_err();
            format!("{}: {refused}", refused.reason())
        };
        assert_eq!(refused(&[("user", "hi")], &"x".repeat(99)), "too_long: 121 tokens do not fit into a window of 120");
        assert!(student.render(&[("user", "hi")], &"x".repeat(98), Supervision::Response).is_ok());
        assert!(refused(&[("user", "hi")], "").starts_with("nothing_supervised: no token"));
        assert!(refused(&[("tool", "4")], "x").contains("no tools here"));
        assert!(refused(&[("tool", "4")], "x").starts_with("template_refused"));
    }
}
