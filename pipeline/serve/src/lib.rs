//! A local model behind the OpenAI protocol.
