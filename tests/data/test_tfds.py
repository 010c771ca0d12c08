"""tfds: corpora, made here without TensorFlow and read from their directory."""

import subprocess
import sys

import pytest

from bert_jax.data import corpus, shards

MAKE = """
import sys
import tensorflow_datasets as tfds

SPLITS = (("train", 50), ("test", 7))

class Boats(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text = tfds.features.Text()
        features = tfds.features.FeaturesDict({"text": text, "title": text})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, manager):
        return {s: self._generate_examples(n) for s, n in SPLITS}

    def _generate_examples(self, count):
        for n in range(count):
            text = f"Boat {n} is \\u00e9lan. It sails.\\n\\nThe end of {n}."
            yield n, {"text": text, "title": f"Boat {n}"}

builder = Boats(data_dir=sys.argv[1], file_format="array_record")
builder.download_and_prepare()
assert "tensorflow" not in sys.modules
print(builder.data_dir)
"""


@pytest.fixture(scope="module")
def boats(tmp_path_factory):
    """Directory of a dataset prepared in another process."""
    done = subprocess.run(
        [sys.executable, "-c", MAKE, str(tmp_path_factory.mktemp("tfds"))],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


def test_records_are_documents(boats, monkeypatch):
    monkeypatch.setattr(shards, "RECORDS", 20)
    text = corpus.load(f"tfds:{boats}")
    assert [s.end - s.begin for s in text.shards] == [20, 20, 10]
    found = list(corpus.documents(text))
    assert len(found) == 50 and len({d[0] for d in found}) == 50
    for sentences in found:
        number = sentences[0].split()[1]
        want = [f"Boat {number} is élan.", "It sails.", f"The end of {number}."]
        assert sentences == want
    test = corpus.load(f"tfds:{boats}:test?field=title")
    assert sorted(d[0] for d in corpus.documents(test)) == [
        f"Boat {n}" for n in range(7)
    ]


def test_a_name_in_a_data_directory(boats):
    directory = boats.rsplit("/boats/", 1)[0]
    with pytest.raises(ValueError, match="cannot be opened"):
        corpus.load(f"tfds:no_such_dataset?data_dir={directory}")
    text = corpus.load(f"tfds:boats:test?data_dir={directory}")
    assert len(list(corpus.documents(text))) == 7


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("tfds:{}:nosplit", "cannot be opened.*nosplit"),
        ("tfds:{}?field=body", "no field 'body'; there are text, title"),
        ("tfds:/no/such/dataset", "cannot be opened"),
    ],
)
def test_what_is_not_there_is_refused(boats, spec, word):
    with pytest.raises(ValueError, match=word):
        corpus.load(spec.format(boats))
