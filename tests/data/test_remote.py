"""Text and stores on gs://, for real against an emulator on loopback."""

import importlib.util
import shutil
import socket
from collections import namedtuple

import numpy as np
import pytest

from bert_jax.data import building, cache, corpus, remote, shards, store, workers

pytestmark = [
    pytest.mark.gcs,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("gcp_storage_emulator", "gcsfs"))),
        reason="needs gcp-storage-emulator and gcsfs",
    ),
]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket on loopback, as a gcsfs file system."""
    from gcp_storage_emulator.server import create_server

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = create_server("localhost", port, in_memory=True, default_bucket="bucket")
    server.start()
    patch = pytest.MonkeyPatch()
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
    import gcsfs

    gcsfs.GCSFileSystem.clear_instance_cache()
    yield gcsfs.GCSFileSystem()
    server.stop()
    patch.undo()


def test_text_is_read_where_it_lies(bucket, toy_text, toy_store, tmp_path, monkeypatch):
    """Byte ranges of one file and two workers: the store of the local file."""
    bucket.pipe("bucket/text/toy.txt", toy_text.read_bytes())
    monkeypatch.setattr(shards, "SHARD", 4000)
    text = corpus.load("sentences:gs://bucket/text/*.txt")
    assert len(text.shards) > 5
    building.build(text, toy_store.vocabulary, tmp_path / "store", workers.over(2))
    made = store.open_store(tmp_path / "store")
    assert made.manifest["files"] == toy_store.manifest["files"]
    (source,) = made.manifest["corpus"]["sources"]
    assert source["files"] == toy_store.manifest["corpus"]["sources"][0]["files"]
    with pytest.raises(ValueError, match="no file matches"):
        corpus.load("sentences:gs://bucket/nothing/*.txt")


def test_a_changed_object_is_another_corpus(bucket):
    bucket.pipe("bucket/a.txt", b"One .\n\nTwo .\n")
    before = corpus.load("sentences:gs://bucket/a.txt").identity
    bucket.invalidate_cache()
    assert corpus.load("sentences:gs://bucket/a.txt").identity == before
    bucket.pipe("bucket/a.txt", b"One .\n\nSix .\n")
    bucket.invalidate_cache()
    assert corpus.load("sentences:gs://bucket/a.txt").identity != before


def test_a_store_is_copied_once_and_verified(bucket, toy_store, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path))
    for path in toy_store.directory.rglob("*"):
        if path.is_file():
            name = path.relative_to(toy_store.directory)
            bucket.pipe(f"bucket/store/{name}", path.read_bytes())
    place = remote.fetch("gs://bucket/store")
    opened = store.open_store(place)
    assert opened.content == toy_store.content and store.verify(place) == []
    np.testing.assert_array_equal(opened.tokens, toy_store.tokens)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "building", None)
        assert remote.fetch("gs://bucket/store/") == place

    shutil.rmtree(tmp_path / "remote-stores")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage(10, 0, 1000))
        with pytest.raises(ValueError, match=r"needs [\d,]+ bytes .*1,000 are free"):
            remote.fetch("gs://bucket/store")
    bucket.pipe("bucket/store/tokens.bin", b"\0" * 100)
    with pytest.raises(ValueError, match=r"tokens\.bin is not what its manifest says"):
        remote.fetch("gs://bucket/store")
    assert not list((tmp_path / "remote-stores").iterdir())
    with pytest.raises(ValueError, match="no token store"):
        remote.fetch("gs://bucket/none")
