//! The floor under every stage: reads Parquet files as a task does and writes their rows as a task does, with the
//! allocator of the program, and nothing else. What a stage costs beyond this is its own work.
//!
//! ```sh
//! cargo run --release --example table_copy -- TARGET.parquet SOURCE.parquet...
//! ```

use std::error::Error;
use std::path::Path;

use pipeline_core::table_io::{TableFile, TableWriter};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let target = arguments.next().ok_or("usage: table_copy TARGET SOURCE...")?;
    let mut writer: Option<TableWriter> = None;
    for source in arguments {
        let file = TableFile::open(Path::new(&source))?;
        let mut open = match writer.take() {
            Some(open) => open,
            None => TableWriter::create(Path::new(&target), file.schema())?,
        };
        for batch in file.read(0, file.rows(), None)? {
            open.write(&batch?)?;
        }
        writer = Some(open);
    }
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(())
}
