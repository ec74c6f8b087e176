//! Operations on tensors that have a gradient.
//!
//! The fused operations of `candle_nn` (norms, rotary positions, softmax of the last dimension) have none and say
//! nothing: the gradient upstream of them is lost. These here compute forward with the kernels that decoding uses, on
//! the CPU and in `f32`, and know their backward.

mod attention;
mod head;
mod linear;
mod rows;

use std::cell::RefCell;
use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Layout, Result, Shape, Storage, Tensor, bail};

use crate::kernels::Matrix;

pub use attention::attention;
pub use head::log_probs;
pub(crate) use head::{Head, HeadSlopes};
pub use linear::linear;
pub(crate) use linear::{Sink, linear_into};
pub use rows::{Angles, rms_norm, rotate, swiglu};

/// The elements of a contiguous tensor in memory.
fn elements<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    let CpuStorage::F32(values) = storage else { bail!("{op} computes in f32 only") };
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&values[start..end]),
        None => bail!("{op} needs contiguous tensors"),
    }
}

/// Rows and columns of a matrix.
fn sizes(layout: &Layout, op: &str) -> Result<(usize, usize)> {
    match layout.dims() {
        [rows, columns] => Ok((*rows, *columns)),
        other => bail!("{op} needs a matrix, not shape {other:?}"),
    }
}

/// The elements of a tensor, held for reading.
struct Elements<S> {
    storage: S,
    place: Range<usize>,
}

impl<S: Deref<Target = Storage>> Deref for Elements<S> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.place.clone()],
            _ => &[],
        }
    }
}

/// The elements of a contiguous tensor, without a copy.
fn read(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(_)), Some((start, end))) => Ok(Elements { storage, place: start..end }),
        _ => bail!("backward needs contiguous tensors in f32 on the processor"),
    }
}

thread_local! {
    /// Buffers of packed matrices that are needed no more: fresh memory costs more than packing.
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs with a matrix that is packed for the purpose, in a buffer of an earlier one.
fn with_matrix<T>(pack: impl FnOnce(Vec<f32>) -> Matrix, run: impl FnOnce(&Matrix) -> T) -> T {
    let matrix = pack(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default());
    let result = run(&matrix);
    SPARE.with_borrow_mut(|spare| spare.push(matrix.into_spare()));
    result
}

/// A tensor of the shape of `like`.
fn tensor(values: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(values, like.shape(), like.device())
}

/// A result as the tensor library takes it.
fn output(values: Vec<f32>, shape: impl Into<Shape>) -> (CpuStorage, Shape) {
    (CpuStorage::F32(values), shape.into())
}

#[cfg(test)]
mod tests;
