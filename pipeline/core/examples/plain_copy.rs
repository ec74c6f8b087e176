//! What the engine's overhead is measured against: reads Parquet files with arrow-rs and writes their rows to one file
//! with zstd level 3, on one thread, and nothing else.
//!
//! ```sh
//! cargo run --release --example plain_copy -- TARGET.parquet SOURCE.parquet...
//! ```

use std::error::Error;
use std::fs::File;
use std::sync::Arc;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let target = arguments.next().ok_or("usage: plain_copy TARGET SOURCE...")?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(Some(16_384))
        .build();
    let mut writer = None;
    for source in arguments {
        let file = File::open(&source)?;
        let natural = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
        let schema = Arc::new(pipeline_core::table_io::with_views(natural.schema()));
        let options = ArrowReaderOptions::new().with_schema(Arc::clone(&schema));
        let reader =
            ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?.with_batch_size(1024).build()?;
        let writer = match &mut writer {
            Some(writer) => writer,
            empty => empty.insert(ArrowWriter::try_new(File::create(&target)?, schema, Some(properties.clone()))?),
        };
        for batch in reader {
            writer.write(&batch?)?;
        }
    }
    if let Some(writer) = writer {
        writer.close()?;
    }
    Ok(())
}
