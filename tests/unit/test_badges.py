"""Badges: what a badge of `labkit verify` needs to stand, what takes it away, and what a damaged one is."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.errors import BackendMissing, RecordInvalid
from labkit.lab.deciding.check import check
from labkit.lab.verifying import badge as badge_module
from labkit.lab.verifying.badge import Here, Standing, badge_of
from labkit.lab.verifying.carried import deciding
from labkit.model.artifact import Artifact
from labkit.store.badges import Badge, badge_path, read_badge, read_badges, withdraw_badge, write_badge
from labkit.store.index import rebuild
from labkit.store.read import read_records
from labkit.store.set_aside import set_aside
from tests.unit.verified_lab import FINGERPRINT, HERE, finished, verified_lab


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    verified_lab(tmp_path)
    return tmp_path


def standing(lab: Path, here: Here = HERE, fingerprint: str = FINGERPRINT) -> Standing:
    found = badge_of(lab, "smollm2", fingerprint, here, read_badges(lab).found)
    assert found is not None
    return found


def the_record(lab: Path) -> Path:
    (path,) = lab.glob("results/linux*/*.json")
    return path


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_badge_stands_where_everything_is_as_it_was(lab: Path) -> None:
    found = standing(lab)
    assert (found.verified, found.lost) == (True, ())
    assert found.sentence() == (
        "verified on 2026-11-05: mlx-lm's bits, decode at least 0.987x mlx-lm's; open: evals"
    )
    assert found.badge.packages == {"mlx": "0.32.4", "mlx-cpu": "0.32.4", "mlx-lm": "0.32.2"}
    assert read_badge(next((lab / "results/verified").iterdir())) == found.badge


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code_hash": "0" * 16}, "labkit's code changed"),
        ({"labkit_version": "0.2.0"}, "another labkit (0.1.0, now 0.2.0)"),
        ({"machine": "linux-x86-64-cpu-other-4c-16g"}, "another machine class"),
        ({"backend": "cpu/openblas"}, "another backend (cpu/mkl, now cpu/openblas)"),
        ({"packages": {**HERE.packages, "mlx-lm": "0.33.0"}}, "mlx-lm changed (0.32.2, now 0.33.0)"),
        ({"packages": {**HERE.packages, "mlx": "0.33.0"}}, "mlx changed"),
        ({"packages": {**HERE.packages, "mkl": "2026.0"}}, "mkl changed (none, now 2026.0)"),
    ],
)
def test_whatever_decides_bits_or_time_loses_it(lab: Path, changes: dict[str, Any], words: str) -> None:
    found = standing(lab, replace(HERE, **changes))
    assert not found.verified
    assert len(found.lost) == 1 and words in found.lost[0]


def test_without_a_working_mlx_a_badge_is_listed_as_lost(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Here:
        raise BackendMissing("labkit needs mlx")

    monkeypatch.setattr(badge_module, "here", missing)
    artifact = Artifact("smollm2", "smollm2", Path("m"), FINGERPRINT, "float32", 1, 1, 32.0)
    found = badge_module.standings(lab, [artifact]).of(artifact)
    assert found is not None
    assert found.lost == ("no mlx works here that it could be true of (labkit doctor)",)


def test_a_lab_without_badges_asks_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(badge_module, "here", lambda: pytest.fail("mlx was imported to list models"))
    artifact = Artifact("smollm2", "smollm2", Path("m"), FINGERPRINT, "float32", 1, 1, 32.0)
    assert badge_module.standings(tmp_path, [artifact]).of(artifact) is None


def test_packages_that_decide_nothing_are_left_out() -> None:
    assert deciding({"numpy": "2", "mlx-metal": "1", "transformers": "5"}) == {"mlx-metal": "1"}


def test_another_artifact_of_that_name_has_lost_it_unless_the_badge_is_anothers(lab: Path) -> None:
    found = standing(lab, fingerprint="0" * 32)
    assert found.lost == ("the artifact changed (f1f2f3f4f1f2, now 000000000000)",)
    badges = read_badges(lab).found
    assert badge_of(lab, "smollm2", "0" * 32, HERE, badges, others=[FINGERPRINT]) is None
    assert badge_of(lab, "gemma", "0" * 32, HERE, badges) is None
    renamed = badge_of(lab, "my-copy", FINGERPRINT, HERE, badges)
    assert renamed is not None and renamed.verified


@pytest.mark.parametrize("harm", ["edited", "gone", "a folder"])
def test_a_record_that_is_not_what_it_was_loses_it(lab: Path, harm: str) -> None:
    path = the_record(lab)
    if harm == "edited":
        rewrite(path, outcome="refuted")
    else:
        path.unlink()
    if harm == "a folder":
        path.mkdir()
    (lost,) = standing(lab).lost
    assert ("SHA-256" if harm == "edited" else "cannot be read") in lost
    assert lost.startswith(f"results/{HERE.machine}/")


def test_a_record_outside_of_the_lab_is_no_evidence(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = shutil.move(the_record(lab), tmp_path_factory.mktemp("elsewhere") / "r.json")
    badge = standing(lab).badge
    for told in (f"../{elsewhere}", "results/../../r.json", "results/verified/r.json"):
        write_badge(replace(badge, records=(replace(badge.records[0], path=told),)), lab)
        assert standing(lab).lost == (f"{told} is no record of this lab",)
    link = lab / badge.records[0].path
    link.symlink_to(elsewhere)
    write_badge(badge, lab)
    assert "cannot be read (a link out of the lab" in standing(lab).lost[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower_bound": 0.999}, "another bound"),
        ({"code_hash": "1" * 16}, "another code"),
        ({"labkit_version": "0.2.0"}, "another labkit"),
        ({"backend": "cpu/other"}, "another backend"),
        ({"packages": {**HERE.packages, "mlx-lm": "0.33.0"}}, "another packages"),
        ({"verified_at": "2026-12-24T00:00:00+00:00"}, "another date"),
        ({"pairs": 64}, "another number of pairs"),
        ({"parity": ()}, "parity checks that all passed are needed"),
        ({"open_checks": ()}, "another list of open checks"),
        ({"records": ()}, "it names no record"),
    ],
)
def test_a_badge_that_says_more_than_its_record_is_none(
    lab: Path, changes: dict[str, Any], words: str
) -> None:
    """Also where what it says is what is here today."""
    write_badge(replace(standing(lab).badge, **changes), lab)
    here = {name: value for name, value in changes.items() if hasattr(HERE, name)}
    assert any(words in lost for lost in standing(lab, replace(HERE, **here)).lost)


@pytest.mark.parametrize("change", ["another prompt", "another finding", "failed"])
def test_parity_that_the_record_does_not_show_is_none(lab: Path, change: str) -> None:
    badge = standing(lab).badge
    race = badge.parity[-1]
    other = {
        "another prompt": replace(race, prompt_tokens=9),
        "another finding": replace(race, found="64 tokens equal"),
        "failed": replace(race, status="failed"),
    }[change]
    write_badge(replace(badge, parity=(*badge.parity[:-1], other)), lab)
    assert "another parity of the race" in standing(lab).lost[0]


def rested(lab: Path, badge: Badge, path: Path) -> Standing:
    """The standing of a badge that names the record as that is now."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    write_badge(replace(badge, records=(replace(badge.records[0], sha256=sha256),)), lab)
    return standing(lab)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"low": 0.97}, "its interval reaches below 0.98"),
        ({"quiet": False}, "its machine was not quiet (foreign_cpu_share up to 0.40 in 3 of 64 visits)"),
        ({"fingerprint": "0" * 32}, "another model"),
        ({"same": False}, "its arms differ in their bits"),
    ],
)
def test_a_hand_made_badge_needs_a_record_that_carries_it(
    tmp_path: Path, record: dict[str, Any], words: str
) -> None:
    badge, _ = verified_lab(tmp_path)
    the_record(tmp_path).unlink()
    ended = finished(tmp_path, **record)
    badge = replace(badge, lower_bound=ended.record.axes[0].low)
    (lost,) = rested(tmp_path, badge, ended.path).lost
    assert lost.endswith(f"does not carry it: {words}")


def halved(visit: dict[str, Any]) -> dict[str, Any]:
    metrics = visit["metrics"]
    slower = {**metrics, "decode_tps": metrics["decode_tps"] / 2}
    return {**visit, "metrics": slower} if visit["role"] == "candidate" else visit


def unquiet(visit: dict[str, Any]) -> dict[str, Any]:
    return {**visit, "quiet": {"quiet": False, "failed": ["foreign_cpu"], "foreign_cpu": 1.2}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: {"visits": []}, "decode_tps is equivalent in the record, and its visits say"),
        (lambda r: {"visits": [halved(v) for v in r["visits"]]}, "decode_tps is equivalent in the record"),
        (lambda r: {"outcome": "failed"}, "the outcome is failed in the record, and its axes say supported"),
        (lambda r: {"visits": [unquiet(v) for v in r["visits"]]}, "its machine was not quiet"),
        (lambda r: {"ended_at": "2026-11-06T10:19:00Z"}, "another date"),
        (
            lambda r: {"visits": [{**v, "metrics": {}} for v in r["visits"]]},
            "numbers that carry the verdicts are needed",
        ),
        (lambda r: {"quiet": {"quiet": "yes"}}, "record.quiet.quiet: true or false is needed"),
        (lambda r: {"state": "partial"}, "it is no whole comparison with mlx-lm"),
    ],
)
def test_an_edited_record_carries_no_badge_though_its_hash_is_renewed(
    lab: Path, change: Any, words: str
) -> None:
    badge, path = standing(lab).badge, the_record(lab)
    rewrite(path, **change(json.loads(path.read_text())))
    assert any(words in lost for lost in rested(lab, badge, path).lost)


def test_of_several_badges_the_one_that_holds_counts(lab: Path) -> None:
    badge = standing(lab).badge
    write_badge(replace(badge, machine="elsewhere", verified_at="2026-12-24T00:00:00+00:00"), lab)
    assert standing(lab).badge == badge


def test_what_is_lost_is_said_to_be_so_since_the_verification(lab: Path) -> None:
    told = standing(lab, replace(HERE, labkit_version="0.2.0")).sentence()
    assert told == "verified on 2026-11-05, lost since then: another labkit (0.1.0, now 0.2.0)"


def test_the_name_of_a_hub_model_leads_nowhere() -> None:
    path = badge_path(Path("lab"), "org/../name", FINGERPRINT, "slug")
    assert path == Path("lab/results/verified/org--..--name-f1f2f3f4f1f2-slug.json")
    assert badge_path(Path(), "../..", FINGERPRINT, "slug").parent == Path("results/verified")


DAMAGE: dict[str, Any] = {
    "not JSON": lambda text: text[:-9],
    "not text": lambda text: b"\xff\xfe",
    "a list": lambda text: "[]",
    "an unknown schema": lambda text: text.replace('"schema": 1', '"schema": 9'),
    "a missing field": lambda text: text.replace('"code_hash"', '"code"'),
    "a number for a text": lambda text: text.replace(f'"{HERE.code_hash}"', "7"),
    "a record that is a text": lambda text: json.dumps({**json.loads(text), "records": ["x"]}),
    "not a number": lambda text: text.replace('"pairs": 32', '"pairs": NaN'),
    "a time that is none": lambda text: text.replace('"2026-11-05T10', '"yesterday 10'),
    "an empty time": lambda text: json.dumps({**json.loads(text), "verified_at": ""}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_badge_is_told_and_left_alone(lab: Path, damage: str) -> None:
    (path,) = (lab / "results/verified").iterdir()
    made = DAMAGE[damage](path.read_text())
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    read = read_badges(lab)
    assert read.found == ()
    (bad,) = read.damaged
    assert bad.path == f"results/verified/{path.name}"
    assert bad.reason.startswith("a readable badge was needed")
    assert path.exists()


def test_a_badge_under_another_name_is_damaged(lab: Path) -> None:
    (path,) = (lab / "results/verified").iterdir()
    with pytest.raises(RecordInvalid, match="this badge belongs at results/verified/smollm2-f1f2f3f4f1f2"):
        read_badge(path.rename(path.with_name("other.json")))


def test_badges_are_no_records_and_no_damage(lab: Path) -> None:
    (lab / "results/verified/nonsense.json").write_text("nonsense")
    loaded = read_records(lab)
    assert (len(loaded.stored), loaded.damaged) == (1, ())
    index = rebuild(lab, lab / "results/lab.duckdb")
    assert (index.records, index.damaged) == (1, ())
    assert set_aside(lab) == ()
    assert check(lab).faults == ()


def test_a_badge_is_withdrawn_once(lab: Path) -> None:
    badge: Badge = standing(lab).badge
    which = (badge.model, badge.fingerprint, badge.machine)
    assert (withdraw_badge(lab, *which), withdraw_badge(lab, *which)) == (True, False)
    assert read_badges(lab).found == ()
