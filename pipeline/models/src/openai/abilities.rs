//! What a server can do beyond plain requests, found out by asking.
//!
//! A refusal that is about one of these is no fault of a row: the request goes out again in a plainer shape, and so do all
//! later ones to this model. Which refusal is about what is told by the words in it, since servers agree on no code.

use std::sync::atomic::{AtomicBool, Ordering};

use super::wire::{Schema, Shape};
use crate::config::{ModelConfig, Streaming, StructuredOutput};
use crate::model::Note;
use crate::request::Request;

/// `stream = "auto"` streams answers that may have so many tokens.
const LONG: u32 = 4096;
const SCHEMA_WORDS: [&str; 6] = ["response_format", "json_schema", "schema", "structured output", "guided", "grammar"];
const COUNT_WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// The abilities of one server.
#[derive(Debug)]
pub(super) struct Abilities {
    streaming: Streaming,
    structured: StructuredOutput,
    samples: u32,
    lacks: [AtomicBool; 4],
    told_logprobs: AtomicBool,
    told_tokens: AtomicBool,
    /// Streams were seen to lack tokens.
    streams_lack_tokens: AtomicBool,
}

/// An ability that a server may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ability {
    /// Enforcing a JSON schema.
    Schema,
    /// Counting the tokens of a stream.
    Count,
    /// Streaming.
    Stream,
    /// Several samples in a request.
    Samples,
}

impl Abilities {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            streaming: config.stream.unwrap_or_default(),
            structured: config.structured_output.unwrap_or_default(),
            samples: config.samples_per_request.map_or(1, std::num::NonZeroU32::get),
            lacks: Default::default(),
            told_logprobs: AtomicBool::new(false),
            told_tokens: AtomicBool::new(false),
            streams_lack_tokens: AtomicBool::new(false),
        }
    }

    /// Samples that may go into one request.
    pub(super) fn samples(&self) -> u32 {
        if self.lacks(Ability::Samples) { 1 } else { self.samples }
    }

    /// The shape for a request of which so many samples are wanted.
    pub(super) fn shape(&self, request: &Request, samples: usize) -> Shape {
        let is_streamed = match self.streaming {
            Streaming::Never => false,
            Streaming::Always => true,
            Streaming::Auto => {
                let needs_tokens = request.sampling.logprobs && self.streams_lack_tokens.load(Ordering::Relaxed);
                request.sampling.max_tokens >= LONG && !needs_tokens
            }
        };
        let in_words = self.structured == StructuredOutput::Prompt || self.lacks(Ability::Schema);
        Shape {
            samples: u32::try_from(samples).unwrap_or(u32::MAX).clamp(1, self.samples()),
            is_streamed: is_streamed && !self.lacks(Ability::Stream),
            is_counted: !self.lacks(Ability::Count),
            schema: match request.schema {
                None => Schema::None,
                Some(_) if in_words => Schema::Prompt,
                Some(_) => Schema::Server,
            },
        }
    }

    /// The shape for a request that is not streamed, and for one sample.
    pub(super) fn whole(&self, request: &Request) -> Shape {
        Shape { is_streamed: false, ..self.shape(request, 1) }
    }

    /// The ability of this shape that a refusal is about.
    pub(super) fn concerned(shape: Shape, body: &str) -> Option<Ability> {
        let body = body.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
        if shape.is_streamed && shape.is_counted && says(&COUNT_WORDS) {
            Some(Ability::Count)
        } else if shape.schema == Schema::Server && says(&SCHEMA_WORDS) {
            Some(Ability::Schema)
        } else if shape.is_streamed && says(&["stream"]) {
            Some(Ability::Stream)
        } else if shape.samples > 1 {
            // A refusal of `n` may say anything; a request for one sample shows whose fault it is.
            Some(Ability::Samples)
        } else {
            None
        }
    }

    /// Whether the server must enforce schemas.
    pub(super) fn is_schema_required(&self) -> bool {
        self.structured == StructuredOutput::Server
    }

    /// Does without an ability from now on; what to tell, the first time.
    pub(super) fn do_without(&self, ability: Ability, message: String) -> Option<Note> {
        let was_lacking = self.lacks[ability as usize].swap(true, Ordering::Relaxed);
        (!was_lacking).then_some(match ability {
            Ability::Schema => Note::SchemaInPrompt { message },
            Ability::Count => Note::UncountedStream { message },
            Ability::Stream => Note::NotStreamed { message },
            Ability::Samples => Note::SamplesAlone { message },
        })
    }

    /// Log-probabilities were asked for and are not there; what to tell, the first time.
    pub(super) fn no_logprobs(&self) -> Option<Note> {
        (!self.told_logprobs.swap(true, Ordering::Relaxed)).then_some(Note::NoLogprobs)
    }

    /// The list of an answer's tokens is not whole; what to tell, the first time. Where the configuration leaves it open,
    /// answers are then no longer streamed if their tokens are wanted.
    pub(super) fn tokens_incomplete(&self, request: &Request) -> Option<Note> {
        let is_stream = self.streaming == Streaming::Auto && self.shape(request, 1).is_streamed;
        if is_stream {
            let was_known = self.streams_lack_tokens.swap(true, Ordering::Relaxed);
            return (!was_known).then_some(Note::TokensIncomplete { is_stream });
        }
        (!self.told_tokens.swap(true, Ordering::Relaxed)).then_some(Note::TokensIncomplete { is_stream })
    }

    fn lacks(&self, ability: Ability) -> bool {
        self.lacks[ability as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Message, Sampling};

    fn abilities(keys: &str) -> Abilities {
        let text = format!("engine = \"openai\"\nmodel = \"m\"\n{keys}");
        Abilities::new(&toml::from_str(&text).unwrap())
    }

    fn request(max_tokens: u32) -> Request {
        let mut request = Request::new(vec![Message::new("user", "a")], Sampling::full(0.0, max_tokens), 0);
        request.schema = Some("{}".to_owned());
        request
    }

    #[test]
    fn long_answers_are_streamed_unless_the_configuration_says_otherwise() {
        let cases = [("", false, true), ("stream = \"always\"", true, true), ("stream = \"never\"", false, false)];
        for (keys, short, long) in cases {
            let abilities = abilities(keys);
            let streamed = [4095, 4096].map(|tokens| abilities.shape(&request(tokens), 1).is_streamed);
            assert_eq!(streamed, [short, long], "{keys}");
        }
    }

    #[test]
    fn answers_whose_streams_lack_tokens_are_asked_for_whole() {
        let mut wanting = request(8192);
        wanting.sampling.logprobs = true;
        for (keys, later) in [("", false), ("stream = \"always\"", true)] {
            let abilities = abilities(keys);
            assert!(abilities.shape(&wanting, 1).is_streamed);
            assert!(abilities.tokens_incomplete(&wanting).is_some());
            assert_eq!(abilities.shape(&wanting, 1).is_streamed, later, "{keys}");
            assert!(abilities.shape(&request(8192), 1).is_streamed, "others are streamed as before");
            assert_eq!(abilities.tokens_incomplete(&wanting).is_some(), !later, "told once for each way of asking");
            assert!(abilities.tokens_incomplete(&wanting).is_none());
        }
    }

    #[test]
    fn what_a_server_refuses_is_left_out_from_then_on_and_told_once() {
        let abilities = abilities("stream = \"always\"\nsamples_per_request = 4");
        let mut seen = Vec::new();
        for words in
            ["unknown field stream_options", "unsupported response_format", "streaming is off", "n must be 1", "no"]
        {
            let shape = abilities.shape(&request(8), 9);
            let concerned = Abilities::concerned(shape, words);
            seen.push(concerned);
            if let Some(ability) = concerned {
                assert!(abilities.do_without(ability, words.to_owned()).is_some());
                assert!(abilities.do_without(ability, words.to_owned()).is_none());
            }
        }
        let all = [Some(Ability::Count), Some(Ability::Schema), Some(Ability::Stream), Some(Ability::Samples), None];
        assert_eq!(seen, all);
        let plain = abilities.shape(&request(8), 9);
        assert_eq!(plain, Shape { samples: 1, is_streamed: false, is_counted: false, schema: Schema::Prompt });
    }
}
