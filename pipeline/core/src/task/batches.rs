//! Batches of files in order, each file checked against its digest before the first read.

use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;

use super::setup::{InputFile, TaskSetup};
use crate::error::StageError;
use crate::event::Event;
use crate::table_io::{TableFile, TableReader};

pub(super) struct Piece<'a> {
    pub(super) file: &'a InputFile,
    pub(super) first: u64,
    pub(super) rows: u64,
    pub(super) ordinal: u64,
    pub(super) input: usize,
}

/// Batches of files, in order.
pub struct Batches<'a> {
    pub(super) pieces: std::vec::IntoIter<Piece<'a>>,
    pub(super) columns: Option<Vec<String>>,
    pub(super) setup: TaskSetup<'a>,
    pub(super) reports: bool,
    pub(super) current: Option<(TableReader, u64)>,
    pub(super) ordinal: u64,
    pub(super) input: usize,
}

impl std::fmt::Debug for Batches<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Batches({} files to come)", self.pieces.len())
    }
}

impl Batches<'_> {
    /// Position, among all rows of the port, of the first row of the batch given last.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Which stage of the port the batch given last came from, from 0.
    pub fn input(&self) -> usize {
        self.input
    }

    fn open(&self, piece: &Piece<'_>) -> Result<TableReader, StageError> {
        let found = self.setup.env.digest_of(&piece.file.path)?;
        if found != piece.file.digest {
            return Err(StageError::Damaged {
                path: piece.file.path.clone(),
                message: format!("its digest is {} instead of {}", found.short(), piece.file.digest.short()),
            });
        }
        let columns: Option<Vec<&str>> =
            self.columns.as_ref().map(|columns| columns.iter().map(String::as_str).collect());
        TableFile::open(&piece.file.path)?.read(piece.first, piece.rows, columns.as_deref())
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch, StageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.setup.cancel.load(Ordering::Relaxed) {
            return Some(Err(StageError::Cancelled));
        }
        loop {
            if let Some((reader, next)) = &mut self.current {
                match reader.next() {
                    Some(Ok(batch)) => {
                        let rows = batch.num_rows() as u64;
                        self.ordinal = *next;
                        *next += rows;
                        if self.reports {
                            let stage = self.setup.stage.to_owned();
                            self.setup.events.emit(&Event::Progress { stage, rows });
                        }
                        return Some(Ok(batch));
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    None => self.current = None,
                }
            }
            let piece = self.pieces.next()?;
            match self.open(&piece) {
                Ok(reader) => {
                    self.current = Some((reader, piece.ordinal));
                    self.input = piece.input;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
