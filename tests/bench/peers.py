"""One tool of others over the benchmark's corpus, as its documentation shows it, from Parquet to Parquet.

    python3 peers.py NAME FOLDER OUT

reads FOLDER/corpus.parquet (and FOLDER/eval.jsonl), works on the column `response`, writes the rows that stay to
OUT/*.parquet. Run in a process of its own by bench.py, which measures it.
"""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def batches(folder):
    for batch in pq.ParquetFile(folder / "corpus.parquet").iter_batches(1000):
        yield batch


def questions(folder):
    return [json.loads(line)["question"] for line in open(folder / "eval.jsonl", encoding="utf-8")]


def write_kept(folder, out, is_kept):
    """Filters row by row without any library but pyarrow."""
    with pq.ParquetWriter(out / "kept.parquet", pq.read_schema(folder / "corpus.parquet"), compression="zstd") as writer:
        for batch in batches(folder):
            mask = [is_kept(row, text) for row, text in zip(batch["row"].to_pylist(), batch["response"].to_pylist())]
            writer.write_batch(batch.filter(pa.array(mask)))


def copy(folder, out):
    write_kept(folder, out, lambda row, text: True)


def python_set(folder, out):
    """The script that open decontamination code has: 8-grams of words, any of them is a hit."""

    def grams(text):
        words = text.lower().split()
        return {" ".join(words[at : at + 8]) for at in range(len(words) - 7)}

    index = set().union(*map(grams, questions(folder)))
    write_kept(folder, out, lambda row, text: index.isdisjoint(grams(text)))


def word_shingles(text):
    words = text.split()
    return [" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))]


def datasketch(folder, out):
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=0.8, num_perm=128)

    def is_kept(row, text):
        sketch = MinHash(num_perm=128)
        sketch.update_batch([shingle.encode() for shingle in set(word_shingles(text))])
        if index.query(sketch):
            return False
        index.insert(row, sketch)
        return True

    write_kept(folder, out, is_kept)


def rensa(folder, out):
    from rensa import RMinHashDeduplicator

    dedup = RMinHashDeduplicator(threshold=0.8, num_perm=128, use_lsh=True)
    with pq.ParquetWriter(out / "kept.parquet", pq.read_schema(folder / "corpus.parquet"), compression="zstd") as writer:
        for batch in batches(folder):
            pairs = zip(map(str, batch["row"].to_pylist()), map(word_shingles, batch["response"].to_pylist()))
            writer.write_batch(batch.filter(pa.array(list(dedup.add_pairs(pairs)))))


def executor(steps, work, tasks=1):
    from datatrove.executor import LocalPipelineExecutor

    LocalPipelineExecutor(pipeline=steps, tasks=tasks, workers=1, logging_dir=str(work)).run()


def reader(folder):
    from datatrove.pipeline.readers import ParquetReader

    return ParquetReader(str(folder), glob_pattern="corpus.parquet", text_key="response", id_key="row")


def writer(out):
    from datatrove.pipeline.writers import ParquetWriter

    # its own adapter leaves out what is false, such as the number of row 0, and the columns then differ
    def adapter(_, document):
        return {"text": document.text, "row": int(document.id), "metadata": document.metadata}

    return ParquetWriter(str(out), compression="zstd", adapter=adapter)


def datatrove_decontamination(folder, out):
    import numpy as np
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.text import ngrams, simplify_text

    config = NGramsDecontConfig(find_query_ngrams=True)
    index = out / "index"
    index.mkdir()
    # the indexer itself wants lighteval installed; these are its lines for a question
    maker = NGramsDecontFilter(str(index), config)
    hashes = set()
    for question in questions(folder):
        tokens = maker.tokenizer.word_tokenize(simplify_text(question, config.norm_config))
        hashes.update(maker.hash_func(" ".join(gram)) for gram in ngrams(tokens, config.n_grams))
    np.array(list(hashes), dtype=config.hash_config.np_descr).tofile(index / "eval.index.hashes")
    executor([reader(folder), NGramsDecontFilter(str(index), config), writer(out)], out / "logs")


def datatrove_gopher(folder, out):
    from datatrove.pipeline.filters import GopherRepetitionFilter

    executor([reader(folder), GopherRepetitionFilter(), writer(out)], out / "logs")


def datatrove_minhash(folder, out):
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.utils.hashing import HashConfig

    config = MinhashConfig(n_grams=5, num_buckets=16, hashes_per_bucket=8, hash_config=HashConfig(precision=64))
    work = {name: str(out / "work" / name) for name in ("signatures", "buckets", "removed")}
    executor([reader(folder), MinhashDedupSignature(work["signatures"], config=config)], out / "logs1")
    buckets = MinhashDedupBuckets(work["signatures"], work["buckets"], config=config)
    executor([buckets], out / "logs2", tasks=config.num_buckets)
    executor([MinhashDedupCluster(work["buckets"], work["removed"], config=config)], out / "logs3")
    executor([reader(folder), MinhashDedupFilter(work["removed"]), writer(out)], out / "logs4")
    shutil.rmtree(out / "work")


def main():
    name, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    globals()[name](folder, out)


if __name__ == "__main__":
    main()
