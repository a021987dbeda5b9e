"""Arms with classes of one's own and with KV files: identity, journey to a worker, record, promotion."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.bench.client import WorkerClient
from labkit.core.arm import Arm, Workload
from labkit.core.errors import DecisionRefused, JournalInvalid, WorkerFailed
from labkit.core.kv_file import KVFile
from labkit.core.kv_setting import KVSetting
from labkit.core.own_class import own_class
from labkit.core.records import Record
from labkit.core.spec import KVSpec, LayerKind
from labkit.kv.config_file import pinned_arm
from labkit.lab.deciding.ledger import read_files
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.recorded import differences
from labkit.lab.experiment import Experiment, load_experiment
from labkit.lab.file_loader import load_files
from labkit.lab.measuring.resume import check_same
from labkit.lab.measuring.run import run
from labkit.store.read import read_record
from labkit.store.recipes import add_recipe, read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import NAME, SUPPORTED, TODAY, open_lab, record_of
from tests.unit.null_experiment import SLOWER, STEADY, null_experiment
from tests.unit.sample_records import SLUG, with_candidate

ANY: frozenset[LayerKind] = frozenset({"full", "sliding", "recurrent"})
FILE = """
from labkit import Arm, Experiment, Hypothesis, Workload
from labkit.core.spec import KVSpec
KINDS = ("full", "sliding", "recurrent")
class Cell:
    SPEC = KVSpec("cell", "a scheme of a cell", "none", "experiment", frozenset(KINDS))
    def __init__(self, setting):
        self.kinds = KINDS
    def make(self, graph):
        return []
    def settle(self, caches):
        pass
experiment = Experiment("own-scheme", Hypothesis("x", improves={"kv_bytes": 0.4}), Arm("BASE"),
                        Arm("CANDIDATE", kv=Cell), Workload(8, 4), expires="2099-01-01", score=None, pairs=1)
"""


class Importable:
    """A scheme that lives in a module."""

    SPEC = KVSpec("importable", "a scheme of a module", "none", "experiment", ANY)

    def __init__(self, setting: KVSetting) -> None:
        pass

    def make(self, graph: Any) -> list[Any]:
        return []

    def settle(self, caches: list[Any]) -> None:
        pass


def local_scheme(summary: str = "a scheme of a function") -> type:
    class Local(Importable):
        SPEC = replace(Importable.SPEC, family="local", summary=summary)

        def note(self) -> str:
            return summary

    return Local


@pytest.fixture
def kv_file(tmp_path: Path) -> Path:
    path = tmp_path / "kv.json"
    path.write_text('[{"layer_idx": 0, "bits": 8}]')
    return path


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def test_a_class_in_an_arm_becomes_its_label() -> None:
    arm, named = Arm("null", kv=local_scheme()), Arm("null", kv=Importable)
    assert arm.kv == arm.classes[0].label and str(arm.kv).startswith("Local@")
    assert str(named.kv).startswith(f"{__name__}:Importable@") and named.classes == (own_class(Importable),)
    assert f"kv={arm.kv}" in arm.label("float32")
    assert arm.asked("kv").load().SPEC.summary == "a scheme of a function"
    assert (Arm("null").asked("kv"), Arm("null").asked("policy")) == ("bf16", None)


def test_the_identity_is_plain_and_reads_back() -> None:
    arm = Arm("null", kv=local_scheme(), policy=Importable)
    back = Arm.from_identity(json.loads(json.dumps(arm.identity())))
    assert back == arm and back.hash() == arm.hash()
    assert back.asked("kv").load()(None).note() == "a scheme of a function"
    assert {own.label for own in back.classes} == {arm.kv, arm.policy}


def test_the_hash_follows_the_source_and_no_class_leaves_it_as_it_was() -> None:
    first = Arm("null", kv=local_scheme())
    assert Arm("null").hash() == replace(Arm("null"), kv="bf16").hash()
    assert first.hash() == first.portable().hash() != Arm("null").hash()
    source = first.classes[0].source.replace("return summary", "return summary + ''")
    other = replace(first.classes[0], source=source, sha256="f" * 16)
    assert replace(first, kv=other.label, classes=(other,)).hash() != first.hash()


def test_a_file_in_an_arm_is_pinned_by_its_content(kv_file: Path) -> None:
    pin = KVFile(kv_file.read_text()).pin
    arm = pinned_arm(Arm("null", kv=f"mixed:{kv_file}/s16"))
    assert arm.kv == f"mixed:{kv_file}@{pin}/s16" and pinned_arm(arm) == arm
    assert arm.portable().kv == f"mixed:kv.json@{pin}/s16"
    # Where the file lies is no part of what runs.
    assert arm.hash() == replace(arm, kv=f"mixed:/elsewhere/kv.json@{pin}/s16").hash()
    kv_file.write_text('[{"layer_idx": 0, "bits": 4}]')
    assert pinned_arm(Arm("null", kv=f"mixed:{kv_file}/s16")).hash() != arm.hash()
    for plain in (Arm("null"), Arm("null", kv="mixed:no/such/file.json")):
        assert pinned_arm(plain) is plain


def test_a_worker_refuses_a_file_that_changed(kv_file: Path) -> None:
    arm = pinned_arm(Arm("null", kv=f"mixed:{kv_file}"))
    kv_file.write_text('[{"layer_idx": 0, "bits": 4}]')
    with (
        closing(WorkerClient(arm, os.environ)) as client,
        pytest.raises(WorkerFailed, match="another content"),
    ):
        client.open(Workload(8, 4))


def in_a_file(root: Path, text: str = FILE) -> Path:
    (root / "experiments").mkdir(parents=True, exist_ok=True)
    path = root / "experiments" / "own-scheme.py"
    path.write_text(text.replace("BASE", STEADY).replace("CANDIDATE", SLOWER))
    return path


def test_an_experiment_file_may_hold_the_class(tmp_path: Path) -> None:
    path = in_a_file(tmp_path)
    held, (loaded,) = load_experiment(path), load_files([path])
    assert loaded.experiment is not None, loaded.problem
    assert loaded.experiment.candidate == held.experiment.candidate
    (own,) = held.experiment.candidate.classes
    assert not own.in_file and "class Cell:" in own.source and "KINDS = (" in own.source
    changed = load_experiment(in_a_file(tmp_path, FILE.replace("self.kinds = KINDS", "self.kinds = ()")))
    assert changed.experiment.candidate.hash() != held.experiment.candidate.hash()


@pytest.mark.parametrize("candidate", [local_scheme(), Importable], ids=["by value", "by name"])
def test_a_run_takes_the_class_to_its_worker_and_its_source_to_the_record(
    candidate: type, tmp_path: Path, lease: Path
) -> None:
    experiment = null_experiment(candidate="null:slowdown=1.1", pairs=1)
    experiment = replace(experiment, candidate=replace(experiment.candidate, kv=candidate))
    record = read_record(run(experiment, root=tmp_path, lease=lease, floor=False).path)
    (own,) = record.arm("candidate").arm["classes"]
    assert own["source"] == own_class(candidate).source and own["pickled"] == ""
    measured = record.arm("candidate")
    assert measured.plan["kv"] == measured.arm["kv"] == own_class(candidate).label
    assert measured.plan_hash != record.arm("baseline").plan_hash
    assert not list(differences(experiment, record))


def test_an_unfinished_run_goes_on_with_the_class_as_it_was(tmp_path: Path) -> None:
    """By value a class is other bytes in every process, and still the same."""
    path = in_a_file(tmp_path)
    held, (other,) = load_experiment(path), load_files([path])
    then: Any = replace_findings(other.experiment, held.source_hash)
    check_same(then, held, then.provenance, then.machine)
    changed = load_experiment(in_a_file(tmp_path, FILE.replace("self.kinds = KINDS", "self.kinds = ()")))
    with pytest.raises(JournalInvalid, match="the experiment, or"):
        check_same(then, replace(changed, source_hash=held.source_hash), then.provenance, then.machine)


def replace_findings(experiment: Experiment | None, source_hash: str) -> Any:
    """What `check_same` reads of an unfinished run."""
    file = SimpleNamespace(experiment=experiment, source_hash=source_hash)
    provenance = {"code_hash": "a", "python": "3", "packages": {}}
    return SimpleNamespace(file=file, provenance=provenance, machine={"slug": "m"})


def test_the_file_of_a_promoted_arm_is_held_against_the_record(kv_file: Path) -> None:
    experiment = null_experiment(candidate=SLOWER)
    asked = replace(experiment, candidate=Arm(SLOWER, kv=f"mixed:{kv_file}")).with_files()
    record = record_with(asked.candidate)
    assert not [text for text in differences(asked, record) if text.startswith("candidate")]
    kv_file.write_text('[{"layer_idx": 0, "bits": 4}]')
    changed = replace(asked, candidate=Arm(SLOWER, kv=f"mixed:{kv_file}")).with_files()
    (said,) = [text for text in differences(changed, record) if text.startswith("candidate")]
    assert said.count("kv=mixed:") == 2


def record_with(candidate: Arm, root: Path | None = None) -> Record:
    arm = candidate.portable()
    shape = replace(SUPPORTED, candidate=arm)
    record = record_of(root or Path(), shape)
    return with_candidate(record, arm=arm.identity(), arm_hash=arm.hash())


@pytest.mark.usefixtures("sample_code")
@pytest.mark.parametrize(
    ("text", "place"),
    [("", "the experiment's own file"), ("__main__", "a notebook")],
    ids=["file", "notebook"],
)
def test_a_class_that_no_import_finds_is_not_promoted(text: str, place: str, tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    arm = Arm("null:kv_bytes_per_token=40", kv=local_scheme())
    own = replace(arm.classes[0], module=text or "<run_path>")
    write_record(record_with(replace(arm, classes=(own,)), lab), lab)
    with pytest.raises(DecisionRefused) as refused:
        promote(NAME, why="memory is short", root=lab, today=TODAY, machine=SLUG)
    said = str(refused.value)
    assert f"a recipe can import are needed, got {own.name} of {place}; move it to a module of a" in said
    assert read_recipes(lab) == () and read_files(lab / "experiments")


@pytest.mark.usefixtures("sample_code")
def test_a_class_of_a_module_is_promoted_by_its_name(tmp_path: Path) -> None:
    imports = f"from {__name__} import Importable\n"
    text = EXPERIMENT_WITH.replace("IMPORT", imports)
    lab = open_lab(tmp_path, text)
    arm = load_experiment(lab / "experiments" / f"{NAME}.py").experiment.candidate
    write_record(record_with(arm, lab), lab)
    promote(NAME, why="memory is short", root=lab, today=TODAY, machine=SLUG)
    (recipe,) = read_recipes(lab)
    assert recipe.arm.kv == own_class(Importable).label and recipe.arm.classes == ()
    assert recipe.arm.hash() == arm.hash()
    add_recipe(tmp_path / "other", recipe)
    assert "class Importable" not in (tmp_path / "other/experiments/promoted.toml").read_text()


EXPERIMENT_WITH = """
from labkit import Arm, Experiment, Hypothesis, ScoreText, Workload
IMPORT
experiment = Experiment(
    "null-ab",
    Hypothesis("less memory at hardly any cost", improves={"kv_bytes": 0.4},
               holds={"decode_tps": 0.2, "kl_mean_nats": 0.001}),
    Arm("null:kv_bytes_per_token=100"), Arm("null:kv_bytes_per_token=40", kv=Importable),
    Workload(64, 16), expires="2027-02-01", score=ScoreText(windows=16), pairs=1)
"""


def test_the_module_of_this_test_can_be_imported_elsewhere() -> None:
    """Else the tests by name would pass for another reason."""
    assert own_class(Importable).in_file and __name__ in sys.modules
