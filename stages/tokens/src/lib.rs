//! Tokenizers, chat templates, and the metadata of GGUF files. Plain functions, nothing of ours.
//!
//! One tokenizer counts, encodes and decodes for the whole project, whether it comes from a `tokenizer.json` or from the
//! metadata of a GGUF file. Text of users and teachers is always ordinary text here: control tokens come from a chat
//! template alone, so that no text can close a turn or open another one.

mod bpe;
mod byte_tokenizer;
mod definition;
mod ends;
mod error;
pub mod gguf;
mod gguf_tokenizer;
mod pieces;
mod response;
mod template;
mod tokenizer;

pub use byte_tokenizer::byte_tokenizer;
pub use ends::EndTokens;
pub use error::TokensError;
pub use gguf::Gguf;
pub use gguf_tokenizer::gguf_tokenizer;
pub use response::Response;
pub use template::{ChatTemplate, Turn};
pub use tokenizer::Tokenizer;
