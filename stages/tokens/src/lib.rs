//! Tokenizers, chat templates, and the metadata of GGUF files. Plain functions, nothing of ours.
