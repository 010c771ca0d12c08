"""Reading text: specs, layouts, odd bytes, shards. Cases P09, P10 and P12."""

import gzip
import json
import lzma
import os
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.data import corpus, lines, shards, sources
from bert_jax.data.faults import Faults


def read(spec, strict=False):
    """Documents of a spec and what was wrong with them."""
    faults = Faults(strict)
    return list(corpus.documents(corpus.load(spec), faults)), faults.counts


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_corpora_are_read_as_they_are(tmp_path, suffix):
    text = b"One two.\nThree  four.\n\n\nFive six.\n"
    pack = {".gz": gzip, ".xz": lzma, ".zst": lines.zstd}.get(suffix)
    (tmp_path / f"a.txt{suffix}").write_bytes(pack.compress(text) if pack else text)
    found, faults = read(f"sentences:{tmp_path}/a.txt{suffix}")
    assert found == [["One two.", "Three four."], ["Five six."]] and faults == {}


def test_text_corpora(tmp_path):
    (tmp_path / "b.txt").write_text("Seven eight.\n")
    (tmp_path / "a.txt").write_text("One two. Three\nfour.\n\nFive six.\n")
    want = [["One two.", "Three four.", "Five six."], ["Seven eight."]]
    assert read(f"text:{tmp_path}/*.txt")[0] == want
    assert read(f"text:{tmp_path}/*.txt?documents=blank_line")[0] == [
        ["One two.", "Three", "four."], ["Five six."], ["Seven eight."],
    ]  # fmt: skip


def test_json_lines(tmp_path):
    records = [{"text": "One two. Three.\nFour five."}, {"text": ""}, {"body": "Six."}]
    text = "\n".join(map(json.dumps, records)) + "\n\nnot json\n[1]\n"
    (tmp_path / "a.jsonl").write_text(text)
    found, faults = read(f"jsonl:{tmp_path}/a.jsonl")
    assert found == [["One two.", "Three.", "Four five."]]
    assert faults == {"bad_records": 3}
    assert read(f"jsonl:{tmp_path}/a.jsonl?field=body")[0] == [["Six."]]
    with pytest.raises(ValueError, match=r"a\.jsonl:3: records .*no field 'text'"):
        read(f"jsonl:{tmp_path}/a.jsonl", strict=True)


def test_other_languages(tmp_path):
    (tmp_path / "zh.txt").write_text("今天天气很好。我们去公园吧！好吗？\n", "utf-8")
    (tmp_path / "de.txt").write_text("Das ist z. B. gut. Am 3. Mai ging er.\n", "utf-8")
    want = [["今天天气很好。", "我们去公园吧！", "好吗？"]]
    assert read(f"text:{tmp_path}/zh.txt?language=zh")[0] == want
    (german,), _ = read(f"text:{tmp_path}/de.txt?language=de")
    assert german == ["Das ist z. B. gut.", "Am 3. Mai ging er."]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("wiki.txt", "no kind"),
        ("text:", "names nothing"),
        ("builtin:novels", "python-docs"),
        ("text:a?documents=none", "unknown option"),
        ("text:a?documents=", "unknown option"),
        ("text:part-?.txt", "no option like"),
        ("text:a?language=english", "no code"),
        ("sentences:/no/such/*.txt", "is missing"),
        ("text:a + text:b", "has no weight"),
        ("0*text:a + 1*text:b", "has no weight"),
    ],
)
def test_bad_specs_are_refused(spec, word):
    with pytest.raises(ValueError, match=word):
        corpus.load(spec)


def test_mixtures_are_parsed():
    first, second = sources.parse("0.7*text:a/*.txt + 3e-1*jsonl:b.gz?field=body")
    assert (first.weight, first.place, second.weight) == (0.7, "a/*.txt", 0.3)
    assert second.field == "body" and second.kind == "jsonl"


def test_blank_lines_part_documents(tmp_path):
    """Case P09: white space is blank, several count as one, none at the ends."""
    path = tmp_path / "a.txt"
    path.write_text(" \t\n\nA b.\n \t \n\n\nC d.\nE f.\n\n \n", "utf-8")
    assert read(f"sentences:{path}")[0] == [["A b."], ["C d.", "E f."]]


def test_a_line_without_text_is_no_boundary(tmp_path):
    """Case P10."""
    path = tmp_path / "a.txt"
    path.write_text("hello .\n\u200d\nworld .\n\n\u200d\n\0\n\nend .\n", "utf-8")
    found, faults = read(f"sentences:{path}")
    assert found == [["hello .", "world ."], ["end ."]]
    assert faults == {"no_tokens": 3, "nul": 1}


def test_line_ends_marks_and_locales(tmp_path):
    """Case P12: CRLF, a byte-order mark and the locale change nothing."""
    text = "Grüße an alle .\nZwei .\n\nDrei — vier .\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    want = read(f"sentences:{tmp_path}/a.txt")
    for changed in (
        text.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.removesuffix("\n").encode(),
    ):
        (tmp_path / "b.txt").write_bytes(changed)
        assert read(f"sentences:{tmp_path}/b.txt") == want
    code = (
        "import sys; from bert_jax.data import corpus\n"
        "found = list(corpus.documents(corpus.load(sys.argv[1])))\n"
        "sys.stdout.buffer.write(repr(found).encode())"
    )
    for locale in ("C", "C.UTF-8"):
        done = subprocess.run(
            [sys.executable, "-c", code, f"sentences:{tmp_path}/a.txt"],
            env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0"},
            capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout.decode() == repr(want[0])


def test_bad_bytes_are_counted_with_their_place(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ok .\n" * 6 + b"caf\xe9 .\nok .\n")
    faults = Faults()
    (found,) = corpus.documents(corpus.load(f"sentences:{path}"), faults)
    assert found[6] == "caf ." and len(found) == 8
    assert faults.counts == {"bad_bytes": 1}
    assert faults.places["bad_bytes"] == [f"{path}:7"]
    with pytest.raises(ValueError, match=r"a\.txt:7: lines not UTF-8"):
        read(f"sentences:{path}", strict=True)


def test_places_count_from_the_start_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 50)
    path = tmp_path / "a.txt"
    path.write_bytes(b"ten bytes\n\n" * 20 + b"bad \xff\n\nmore\n")
    faults = Faults()
    list(corpus.documents(corpus.load(f"sentences:{path}"), faults))
    assert faults.places["bad_bytes"] == [f"{path}:41"]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_file_cut_off_is_counted_or_refused(tmp_path, suffix):
    text = np.random.default_rng(0).bytes(400_000).hex().encode()
    pack = {".gz": gzip, ".xz": lzma, ".zst": lines.zstd}[suffix]
    packed = pack.compress(b"A b .\n" + text)
    for damaged in (packed[: len(packed) // 2], text):
        (tmp_path / f"a{suffix}").write_bytes(damaged)
        assert read(f"sentences:{tmp_path}/a{suffix}")[1]["cut_off"] == 1
        with pytest.raises(ValueError, match=f"a{suffix}: compressed files that end"):
            read(f"sentences:{tmp_path}/a{suffix}", strict=True)


def test_a_line_of_any_length(tmp_path, monkeypatch):
    """Cut at spaces, between characters where there is none; nothing is lost."""
    monkeypatch.setattr(lines, "LONGEST", 1000)
    monkeypatch.setattr(lines, "BLOCK", 300)
    words = [f"w{n}" for n in range(2000)]
    path = tmp_path / "a.txt"
    path.write_text(" ".join(words) + "\nshort .\n" + "é" * 5000 + "\n", "utf-8")
    (found,), faults = read(f"sentences:{path}")
    assert " ".join(found).split(" short . ")[0].split() == words
    assert "".join(found[found.index("short .") + 1 :]) == "é" * 5000
    assert max(len(s.encode()) for s in found) <= 1000 and faults["long_lines"] > 10


def test_empty_files(tmp_path):
    for name, text in (("a", ""), ("b", "\n \n\n"), ("c", "Some text .\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    found, faults = read(f"sentences:{tmp_path}/*.txt")
    assert found == [["Some text ."]] and faults == {"empty_files": 2}


@pytest.mark.parametrize("kind", ["sentences", "text", "jsonl"])
def test_a_file_that_cannot_be_read(tmp_path, monkeypatch, kind):
    """Refused before hours of work, not at its turn."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("A b .\n" * 10)
    may = os.access
    # Root may read anything, so the answer of the system is given here.
    monkeypatch.setattr(
        os, "access", lambda p, mode: not str(p).endswith("b.txt") and may(p, mode)
    )
    with pytest.raises(ValueError, match=r"b\.txt cannot be read: no permission"):
        corpus.load(f"{kind}:{tmp_path}/*.txt")


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 10**6])
@pytest.mark.parametrize("kind", ["sentences:{}", "text:{}?documents=blank_line"])
def test_shards_hold_every_document_once(tmp_path, monkeypatch, size, kind):
    draw = np.random.default_rng(size)
    blank = ["\n", " \t\n", "\r\n"]
    text = "".join(
        f"Line {n} of it .\n" * draw.integers(1, 4)
        + "".join(draw.choice(blank, draw.integers(1, 4)))
        for n in range(60)
    )
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    spec = kind.format(path)
    monkeypatch.setattr(shards, "SHARD", 10**9)
    want = read(spec)
    monkeypatch.setattr(shards, "SHARD", size)
    loaded = corpus.load(spec)
    assert list(corpus.documents(loaded)) == want[0] and len(want[0]) == 60
    assert len(loaded.shards) == 1 if size > len(text) else len(loaded.shards) > 1
    ends = [s.end for s in loaded.shards]
    assert [s.begin for s in loaded.shards[1:]] == ends[:-1] and ends[-1] == len(text)


def test_json_shards_hold_every_record_once(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    rows = [json.dumps({"text": f"Number {n} ."}) for n in range(100)]
    path.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(shards, "SHARD", 64)
    loaded = corpus.load(f"jsonl:{path}")
    assert len(loaded.shards) > 20
    assert [d[0] for d in corpus.documents(loaded)] == [
        f"Number {n} ." for n in range(100)
    ]


def test_order_of_files_is_that_of_their_names(tmp_path):
    for name in ("b", "a/z", "a/b", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"File {name} .\n")
    spec = f"sentences:{tmp_path}/c,{tmp_path}/a/*,{tmp_path}/b"
    found = [document[0] for document in read(spec)[0]]
    assert found == [f"File {n} ." for n in ("a/b", "a/z", "b", "c")]
