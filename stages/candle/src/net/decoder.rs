//! The decoder, written once: over packed weights for decoding and scoring, over tensors for gradients.
//!
//! A layer is `x + attention(norm(x))`, then `x + down(silu(gate(norm x)) * up(norm x))`, as in Llama and Qwen2.

use crate::NetError;

/// What a decoder computes with.
pub trait Arithmetic {
    /// A row for each token.
    type Rows;
    /// Weights `[out, in]` of a linear layer.
    type Matrix;
    /// Weights of a norm or a bias.
    type Vector;

    /// Root-mean-square norm of each row, times `weight`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn rms_norm(&mut self, x: &Self::Rows, weight: &Self::Vector) -> Result<Self::Rows, NetError>;

    /// `x W^T + bias`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn linear(&mut self, x: &Self::Rows, weights: &Linear<Self::Matrix, Self::Vector>) -> Result<Self::Rows, NetError>;

    /// Rotates each head of each row by its position.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn rotate(&mut self, x: Self::Rows) -> Result<Self::Rows, NetError>;

    /// Causal attention within each row's own sequence.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn attend(
        &mut self,
        layer: usize,
        queries: Self::Rows,
        keys: Self::Rows,
        values: Self::Rows,
    ) -> Result<Self::Rows, NetError>;

    /// `silu(gate) * up`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn swiglu(&mut self, gate: Self::Rows, up: Self::Rows) -> Result<Self::Rows, NetError>;

    /// `x + y`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    fn add(&mut self, x: Self::Rows, y: Self::Rows) -> Result<Self::Rows, NetError>;

    /// Takes back rows that are needed no more.
    fn release(&mut self, rows: Self::Rows) {
        drop(rows);
    }
}

/// A linear layer.
#[derive(Debug, Clone)]
pub struct Linear<M, V> {
    /// `[out, in]`.
    pub weight: M,
    /// `[out]`.
    pub bias: Option<V>,
}

/// Weights of one layer.
#[derive(Debug, Clone)]
pub struct Layer<M, V> {
    /// Norm before attention.
    pub attention_norm: V,
    /// `[heads * head_dim, hidden]`.
    pub query: Linear<M, V>,
    /// `[kv_heads * head_dim, hidden]`.
    pub key: Linear<M, V>,
    /// `[kv_heads * head_dim, hidden]`.
    pub value: Linear<M, V>,
    /// `[hidden, heads * head_dim]`.
    pub output: Linear<M, V>,
    /// Norm before the feed-forward part.
    pub feed_norm: V,
    /// `[intermediate, hidden]`.
    pub gate: Linear<M, V>,
    /// `[intermediate, hidden]`.
    pub up: Linear<M, V>,
    /// `[hidden, intermediate]`.
    pub down: Linear<M, V>,
}

/// All weights of a net.
#[derive(Debug, Clone)]
pub struct Decoder<M, V> {
    /// `[vocabulary, hidden]`.
    pub embedding: M,
    /// From the first to the last.
    pub layers: Vec<Layer<M, V>>,
    /// Norm before the head.
    pub norm: V,
    /// `[vocabulary, hidden]`; `None` where the embedding serves.
    pub head: Option<M>,
}

impl<M, V> Decoder<M, V> {
    /// The matrix that gives logits.
    pub fn head(&self) -> &M {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Passes embedded tokens through all layers; the last norm is not yet applied.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn pass<A>(&self, arithmetic: &mut A, mut x: A::Rows) -> Result<A::Rows, NetError>
    where
        A: Arithmetic<Matrix = M, Vector = V>,
    {
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.pass(arithmetic, index, x)?;
        }
        Ok(x)
    }
}

impl<M, V> Layer<M, V> {
    /// Passes rows through this layer, the one of number `index`.
    ///
    /// # Errors
    /// Those of the arithmetic.
    pub fn pass<A>(&self, arithmetic: &mut A, index: usize, x: A::Rows) -> Result<A::Rows, NetError>
    where
        A: Arithmetic<Matrix = M, Vector = V>,
    {
        let normed = arithmetic.rms_norm(&x, &self.attention_norm)?;
        let queries = arithmetic.linear(&normed, &self.query)?;
        let keys = arithmetic.linear(&normed, &self.key)?;
        let values = arithmetic.linear(&normed, &self.value)?;
        arithmetic.release(normed);
        let queries = arithmetic.rotate(queries)?;
        let keys = arithmetic.rotate(keys)?;
        let attended = arithmetic.attend(index, queries, keys, values)?;
        let out = arithmetic.linear(&attended, &self.output)?;
        arithmetic.release(attended);
        let x = arithmetic.add(x, out)?;

        let normed = arithmetic.rms_norm(&x, &self.feed_norm)?;
        let gate = arithmetic.linear(&normed, &self.gate)?;
        let up = arithmetic.linear(&normed, &self.up)?;
        arithmetic.release(normed);
        let inner = arithmetic.swiglu(gate, up)?;
        let out = arithmetic.linear(&inner, &self.down)?;
        arithmetic.release(inner);
        arithmetic.add(x, out)
    }
}
