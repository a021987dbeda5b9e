"""A KV scheme of one's own and a file of settings in a session: planned, checked, forked, saved, batched."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

import labkit
from labkit.bench.client import WorkerClient
from labkit.core.arm import Arm, Workload
from labkit.core.errors import PlanRefused, SessionFailed
from labkit.core.kv_setting import KVSetting
from labkit.core.own_class import own_class
from labkit.core.spec import KVSpec
from labkit.engine.logits import session_logits
from labkit.kv.affine import Affine
from labkit.kv.config_file import pinned_arm
from labkit.model.windows import Window
from tests.numerics.tiny_directory import write_directory
from tests.numerics.tiny_models import GEMMA3, LLAMA, tiny_model

PROMPT = list(range(1, 40))


class HalfCache(KVCache):
    """Keys and values in half precision, handed out in the dtype that they came in."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        held: Any = super().update_and_fetch(keys.astype(mx.float16), values.astype(mx.float16))
        return tuple(part.astype(keys.dtype) for part in held)


class Half:
    """As a person would write it in a cell."""

    SPEC: ClassVar[KVSpec] = KVSpec(
        "half", "half precision", "none", "experiment", frozenset({"full"}), settled={"full": "HalfCache"}
    )

    def __init__(self, setting: KVSetting) -> None:
        self.setting = setting

    def make(self, graph: Any) -> list[Any]:
        own = make_prompt_cache(graph)
        return [HalfCache() if type(cache) is KVCache else cache for cache in own]

    def settle(self, caches: list[Any]) -> None:
        pass


def of_a_cell() -> type:
    """The same scheme where no import finds it."""

    class Cell(Half):
        SPEC = replace(Half.SPEC, family="cell")

    return Cell


@pytest.fixture(params=[Half, of_a_cell()], ids=["of a module", "of a cell"])
def scheme(request: pytest.FixtureRequest) -> type:
    return request.param


def test_it_is_planned_by_its_label_and_halves_the_bytes(scheme: type) -> None:
    model = tiny_model(LLAMA)
    session, plain = (model.session(PROMPT, kv=kv, max_tokens=8, stop_tokens=()) for kv in (scheme, "bf16"))
    assert session.plan.kv == own_class(scheme).label
    assert session.plan.cache_layout == ("HalfCache",) * 2
    lines = session.plan.explain().splitlines()
    assert f"kv          {session.plan.kv} (half precision, float32)" in lines
    assert "oracle      none" in lines
    session.run()
    plain.run()
    assert session.state == plain.state == "completed"
    assert session.kv_bytes * 2 == plain.kv_bytes
    assert session.plan.hash() != plain.plan.hash()


def test_it_branches_and_rewinds(scheme: type) -> None:
    session = tiny_model(LLAMA).session(PROMPT, kv=scheme, max_tokens=12, stop_tokens=())
    session.run(until=lambda step: len(session.tokens) == 5)
    branch = session.fork()
    whole = session.run().tokens
    assert branch.run().tokens == whole
    again = tiny_model(LLAMA).session(PROMPT, kv=scheme, max_tokens=12, stop_tokens=())
    again.run(until=lambda step: len(again.tokens) == 8)
    again.rewind(tokens=4)
    assert again.run().tokens == whole


def test_it_is_saved_and_goes_on_with_the_class_as_it_was(scheme: type, tmp_path: Path) -> None:
    model = tiny_model(LLAMA)
    session = model.session(PROMPT, kv=scheme, max_tokens=10, stop_tokens=())
    session.run(until=lambda step: len(session.tokens) == 4)
    saved = session.save(tmp_path / "half.session")
    whole = session.run().tokens
    assert labkit.resume(saved, model=model, kv=scheme).run().tokens == whole
    if own_class(scheme).in_file:
        assert labkit.resume(saved, model=model).run().tokens == whole
    else:
        with pytest.raises(SessionFailed, match="the KV scheme Cell@"):
            labkit.resume(saved, model=model)
    with pytest.raises(SessionFailed, match="was needed"):
        labkit.resume(saved, model=model, kv=Affine)


def test_it_steps_with_others_in_a_batch(scheme: type) -> None:
    model = tiny_model(LLAMA)
    alone = [
        model.session(PROMPT[:n], kv=scheme, max_tokens=6, stop_tokens=()).run().tokens for n in (20, 39)
    ]
    with model.batch(kv=scheme, max_tokens=6, stop_tokens=()) as batch:
        rows = [batch.session(PROMPT[:n]) for n in (20, 39)]
        batch.run()
        assert [row.tokens for row in rows] == alone


def test_it_is_scored(scheme: type) -> None:
    """Half precision changes logits, and by little: 10 bits of mantissa, a few sums of 64."""
    model, window = tiny_model(LLAMA), Window(tuple(PROMPT), 20)
    plain, half = (
        mx.concatenate(list(session_logits(model, kv).scored_logits(window))) for kv in ("bf16", scheme)
    )
    assert 0 < float(mx.abs(plain - half).max()) < 0.05


def test_a_name_imports_it_and_another_text_is_refused() -> None:
    model, path = tiny_model(LLAMA), f"{__name__}:Half"
    assert model.resolve(model.request(PROMPT, kv=path)).kv == own_class(Half).label
    assert model.resolve(model.request(PROMPT, kv=own_class(Half).label)).kv_class is Half
    with pytest.raises(PlanRefused, match="another text"):
        model.request(PROMPT, kv=f"{path}@00000000")
    with pytest.raises(PlanRefused, match="a KV scheme of the catalog"):
        model.session(PROMPT, kv="no_such_module:Half")


def test_a_layer_that_it_does_not_fit_is_refused_when_planned() -> None:
    with pytest.raises(
        PlanRefused, match=r"every layer \(full\).* on layers 0-1, 3-4, 6 of tiny-gemma3_text: sliding"
    ):
        tiny_model(GEMMA3).session(PROMPT, kv=Half)


@pytest.mark.parametrize("changes", [{"SPEC": None}, {"make": None}, {"settle": 3}], ids=str)
def test_a_class_that_is_no_scheme_is_refused(changes: dict[str, Any]) -> None:
    class NoScheme(Half):
        pass

    for name, value in changes.items():
        setattr(NoScheme, name, value)
    with pytest.raises(PlanRefused, match=r"a class with SPEC, make\(graph\) and settle\(caches\)"):
        tiny_model(LLAMA).session(PROMPT, kv=NoScheme)


def test_caches_of_another_class_than_it_says_are_found_out() -> None:
    class Forgetful(Half):
        def make(self, graph: Any) -> list[Any]:
            return make_prompt_cache(graph)

    session = tiny_model(LLAMA).session(PROMPT, kv=Forgetful, max_tokens=2, stop_tokens=())
    with pytest.raises(SessionFailed, match="layer 0 should hold HalfCache"):
        session.run()


def test_mlx_lm_itself_does_not_have_it() -> None:
    with pytest.raises(PlanRefused, match="a scheme that mlx-lm has"):
        tiny_model(LLAMA).session(PROMPT, kv=Half, method="mlx-lm")


def test_one_that_stores_codes_has_the_first_of_its_bits() -> None:
    class Six(Affine):
        SPEC = replace(Affine.SPEC, family="six", bits=(6, 3), groups=(32,))

    model = tiny_model(LLAMA)
    session = model.session(PROMPT, kv=Six, max_tokens=6, stop_tokens=())
    assert session.plan.cache_layout == ("QuantizedKVCache(bits=6, group_size=32)",) * 2
    assert (
        session.run().tokens
        == model.session(PROMPT, kv="affine:6/g32", max_tokens=6, stop_tokens=()).run().tokens
    )


def test_a_class_of_the_catalog_goes_by_its_name() -> None:
    with pytest.raises(PlanRefused, match="one of the bits that 'affine' stores"):
        tiny_model(LLAMA).session(PROMPT, kv=Affine)


@pytest.fixture
def kv_file(tmp_path: Path) -> Path:
    entries = [{"layer_idx": 1, "bits": 8}, {"layer_idx": 2, "k_bits": 8, "v_bits": 4, "group_size": 32}]
    path = tmp_path / "kv_config.json"
    path.write_text(json.dumps(entries))
    return path


def test_a_file_of_settings_is_read_when_it_is_asked_for(
    kv_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the current folder; a session that is saved goes on without it."""
    model = tiny_model(GEMMA3)
    monkeypatch.chdir(kv_file.parent)
    session = model.session(PROMPT, kv="mixed:kv_config.json", max_tokens=10, stop_tokens=())
    assert session.plan.cache_layout[:4] == (
        "RotatingKVCache",
        "RotatingQuantizedKVCache(bits=8, group_size=64)",
        "SplitQuantizedKVCache(k_bits=8, v_bits=4, group_size=32)",
        "RotatingKVCache",
    )
    session.run(until=lambda step: len(session.tokens) == 4)
    saved = session.save(kv_file.parent / "mixed.session")
    kv_file.unlink()
    whole = session.run().tokens
    assert labkit.resume(saved, model=model).run().tokens == whole
    with pytest.raises(PlanRefused, match=r"kv_config\.json: no such file in"):
        model.session(PROMPT, kv="mixed:kv_config.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe[]", "not text in UTF-8"),
        (b" " * ((1 << 20) + 1), "1,048,577 bytes"),
        (b"[", "JSON in the file"),
    ],
    ids=["bytes", "large", "broken"],
)
def test_a_file_that_cannot_be_read_is_refused_when_planned(
    kv_file: Path, content: bytes, words: str
) -> None:
    kv_file.write_bytes(content)
    with pytest.raises(PlanRefused, match=words):
        tiny_model(LLAMA).session(PROMPT, kv=f"mixed:{kv_file}")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "kv.json").mkdir()
    with pytest.raises(PlanRefused, match="a folder or device"):
        tiny_model(LLAMA).session(PROMPT, kv=f"mixed:{tmp_path / 'kv.json'}")


def test_a_worker_runs_a_scheme_of_a_cell_and_one_of_a_file(tmp_path: Path, kv_file: Path) -> None:
    """In a process of its own, on a model of a directory whose two layers have a head of 32."""
    kv_file.write_text('[{"layer_idx": 1, "bits": 8, "group_size": 32}]')
    directory = str(write_directory(tmp_path / "m"))
    arms = [Arm(directory, kv=of_a_cell()), pinned_arm(Arm(directory, kv=f"mixed:{kv_file}"))]
    layouts = [["HalfCache"] * 2, ["KVCache", "QuantizedKVCache(bits=8, group_size=32)"]]
    for arm, layout in zip(arms, layouts, strict=True):
        with closing(WorkerClient(arm, os.environ)) as client:
            opened = client.open(Workload(20, 4))
            assert opened["plan"]["cache_layout"] == layout
            plain = 256 * 2 * 2 * 32 * 4
            share = 0.5 if layout[0] == "HalfCache" else 0.5 + 0.5 * (8 + 2) / 32
            assert client.visit(Workload(20, 4), seed=0).metrics["kv_bytes"] == plain * share
