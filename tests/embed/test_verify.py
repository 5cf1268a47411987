"""`embed --verify`: a sound folder has no fault, and every fault that is planted is found."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import RowSource
from layerwise.digests import file_sha256
from layerwise.embed import EmbedJob, ModelChoice, run_embed, verify_vectors
from layerwise.errors import InputError
from support.commands import call, call_json, run_main
from support.tiny import SENTENCES, save_tiny

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")


@pytest.fixture(params=["parquet", "npy"])
def folder(request, tmp_path, tiny_bert) -> Path:
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES * 3) + "\n", encoding="utf-8")
    job = EmbedJob(RowSource.of(str(tmp_path / "texts.txt"), ("text",)), shard_rows=5, format=request.param)
    run_embed(job, ModelChoice(str(tiny_bert), options={"device": "cpu"}), tmp_path / "vectors")
    return tmp_path / "vectors"


def shard(folder: Path, number: int) -> Path:
    return sorted(folder.glob(f"part-{number:06d}.*"))[0]


def change(folder: Path, number: int, edit) -> None:
    """Edit or replace the vectors of a shard, and make its checksum fit, so that only the vectors tell."""
    path = shard(folder, number)
    if path.suffix == ".npy":
        vectors = np.load(path)
        changed = edit(vectors)
        np.save(path, vectors if changed is None else changed)
    else:
        table = pq.read_table(path)
        vectors = np.stack(table["embedding"].to_numpy()).copy()
        changed = edit(vectors)
        vectors = vectors if changed is None else changed
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        pq.write_table(table.slice(0, len(vectors)).set_column(1, "embedding", column), path)
    manifest = json.loads((folder / "_embed.json").read_text())
    manifest["checksums"][path.name] = file_sha256(path)
    (folder / "_embed.json").write_text(json.dumps(manifest))


def test_a_sound_folder_has_no_fault(folder):
    result = verify_vectors(folder, sample=8)
    assert result.faults == result.notes == ()
    assert (result.rows, result.shards) == (21, 5)
    assert result.sampled >= 8
    assert result.lowest_cosine > 0.9999


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (0.0, "zeros alone"), (0.3, "one number over and over")],
)
def test_vectors_that_are_none_are_named_by_their_input_row(folder, value, message):
    def edit(vectors):
        vectors[2] = value

    change(folder, 1, edit)
    result = verify_vectors(folder, sample=0)
    assert len(result.faults) == 1
    assert f"{shard(folder, 1)}: 1 vectors hold {message}: input rows 7" in result.faults[0]


def test_one_number_that_is_not_finite_suffices(folder):
    def edit(vectors):
        vectors[4, 3] = np.nan

    change(folder, 0, edit)
    assert "input rows 4" in verify_vectors(folder, sample=0).faults[0]


def test_vectors_of_other_texts_are_found_by_embedding_again(folder):
    change(folder, 2, lambda vectors: vectors.__setitem__(slice(None), vectors[::-1].copy()))
    (fault,) = verify_vectors(folder, sample=21).faults
    assert "rows embedded again differ: the lowest cosine is" in fault


def test_vectors_of_another_length_are_found_too(folder):
    change(folder, 2, lambda vectors: vectors.__imul__(2))
    (fault,) = verify_vectors(folder, sample=21).faults
    assert "rows embedded again differ: the lowest cosine is 0.5" in fault


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda vectors: vectors[:, :-1].copy(), "has vectors of 31 numbers, the manifest says 32"),
        (lambda vectors: np.repeat(vectors, 2, axis=1), "has vectors of 64 numbers, the manifest says 32"),
    ],
)
def test_a_shard_of_another_width_is_one_line_and_the_others_are_checked(folder, edit, message, monkeypatch, capfd):
    change(folder, 2, edit)
    change(folder, 3, lambda vectors: vectors.__setitem__(1, 0))
    result = verify_vectors(folder, sample=21)
    zero = f"{shard(folder, 3)}: 1 vectors hold zeros alone: input rows 16"
    assert result.faults == (f"{shard(folder, 2)}: {message}", zero)
    assert result.sampled == 21 - 5 - 1, "neither the shard of another width nor the zeros"
    assert result.lowest_cosine > 0.9999
    code, _, error = run_main(monkeypatch, capfd, "embed", "--verify", folder)
    assert (code, error.splitlines()[0]) == (2, f"error: {shard(folder, 2)}: {message}")


def test_a_shard_that_lost_rows_is_found_by_counting(folder):
    change(folder, 4, lambda _vectors: None)
    assert verify_vectors(folder, sample=0).faults == ()
    change(folder, 2, lambda vectors: vectors[:-1].copy())
    assert verify_vectors(folder, sample=0).faults == (f"{folder}: has 20 readable rows, its manifest says 21",)


def test_a_flipped_bit_a_missing_and_a_foreign_shard_are_found(folder):
    path = shard(folder, 3)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    assert any(f"{path}: its checksum differs" in fault for fault in verify_vectors(folder, sample=0).faults)
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    assert verify_vectors(folder, sample=0).faults == ()
    shard(folder, 4).rename(folder / shard(folder, 4).name.replace("4", "7"))
    faults = " ".join(verify_vectors(folder, sample=0).faults)
    assert f"part-000004{path.suffix}: is missing" in faults
    assert f"part-000007{path.suffix}: is not of this run" in faults
    shard(folder, 7).unlink()
    assert "has 20 readable rows, its manifest says 21" in " ".join(verify_vectors(folder, sample=0).faults)


def test_a_truncated_shard_is_one_fault_among_others(folder):
    path = shard(folder, 0)
    path.write_bytes(path.read_bytes()[:50])
    faults = " ".join(verify_vectors(folder, sample=0).faults)
    assert f"{path}: is damaged" in faults


def test_rows_that_come_twice_and_runs_that_have_not_ended_are_faults(tmp_path, tiny_bert):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    job = EmbedJob(RowSource.of(str(tmp_path / "texts.txt"), ("text",)), shard_rows=3)
    out = tmp_path / "vectors"
    run_embed(job, ModelChoice(str(tiny_bert)), out)
    (out / "part-000001.parquet").write_bytes((out / "part-000000.parquet").read_bytes())
    manifest = json.loads((out / "_embed.json").read_text())
    (out / "_embed.json").write_text(json.dumps(manifest | {"finished": False}))
    faults = " ".join(verify_vectors(out, sample=0).faults)
    assert "part-000001.parquet: its row numbers do not rise, or were there before" in faults
    assert "its run has not ended" in faults


def test_another_model_is_a_fault_and_an_input_that_is_gone_a_note(folder, tmp_path):
    other = save_tiny("electra", tmp_path / "electra")
    assert "were made by another model than" in verify_vectors(folder, model=str(other)).faults[0]
    (tmp_path / "texts.txt").rename(tmp_path / "moved.txt")
    result = verify_vectors(folder)
    assert (result.sampled, result.faults) == (0, ())
    assert "no row was embedded again" in result.notes[0]
    moved = RowSource.of(str(tmp_path / "moved.txt"), ("text",))
    assert verify_vectors(folder, source=moved).sampled > 0


@pytest.mark.parametrize("name", ["one.parquet", "one.npy"])
def test_joined_files_are_checked_too(tmp_path, tiny_bert, name, monkeypatch, capfd):
    texts, one = tmp_path / "texts.txt", tmp_path / name
    texts.write_text("\n".join(SENTENCES * 3) + "\n", encoding="utf-8")
    call("embed", tiny_bert, texts, "-o", one, "--shard-rows", "4")
    monkeypatch.setattr("layerwise.embed.vectors.BATCH_ROWS", 4)
    printed = call("embed", tiny_bert, texts, "--verify", one)
    assert f"21 rows in one file; 21 embedded again, lowest cosine 1.0000: 0 faults in {one}" in printed
    alone = call_json("embed", "--verify", one)
    assert (alone["sampled"], len(alone["notes"])) == ((21, 0) if name == "one.parquet" else (0, 1))
    if name == "one.npy":
        vectors = np.load(one)
        vectors[8] = vectors[20] = 0
        np.save(one, vectors)
        expected = "2 vectors hold zeros alone: input rows 8, 20"
    else:
        data = bytearray(one.read_bytes())
        data[len(data) // 2] ^= 1
        one.write_bytes(data)
        expected = "is damaged"
    code, _, error = run_main(monkeypatch, capfd, "embed", tiny_bert, texts, "--verify", one)
    assert code == 2
    assert f"{one}: {expected}" in error


def test_the_command_ends_with_2_and_one_line_a_fault(folder, monkeypatch, capfd):
    assert "21 rows in 5 shards; 21 embedded again, lowest cosine 1.0000: 0 faults" in call("embed", "--verify", folder)
    assert call_json("embed", "--verify", folder)["faults"] == []
    change(folder, 0, lambda vectors: vectors.__setitem__(0, 0))
    code, output, error = run_main(monkeypatch, capfd, "embed", "--verify", folder)
    assert code == 2
    assert "1 faults" in output
    assert error.startswith("error: ")
    assert "1 vectors hold zeros alone: input rows 0" in error
    code, _, error = run_main(monkeypatch, capfd, "embed")
    assert (code, "Missing argument 'MODEL'" in error) == (2, True)
    with pytest.raises(InputError, match=r"has no _embed\.json; give a folder that `layerwise embed` wrote"):
        verify_vectors(folder.parent)
