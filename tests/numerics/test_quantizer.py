"""The contract of quantizers: recipes, evidence, what an artifact says, and everything that is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit
from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Sink, silent
from labkit.engine.model import Model
from labkit.model import staging
from labkit.model.artifact import Artifact, read_packing
from labkit.model.origin import read_entries
from labkit.quant import write
from labkit.quant.catalog import find_quantizer, quantize
from labkit.quant.evidence import Evidence, hash_of
from labkit.quant.packing import MODES, Packing, QuantizationRefused
from labkit.quant.quantizer import QuantizerSpec, Source
from labkit.quant.recipe import LayerRule, QuantRecipe
from labkit.quant.rounding import Rounding, pack_to_nearest
from labkit.quant.write import read_making, write_artifact
from tests.numerics.tiny_directory import write_directory
from tests.numerics.tiny_quantized import TIED, differing, named, stored, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return labkit.load(write_model(tmp_path_factory.mktemp("home") / "base-bf16", TIED))


def files(directory: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in directory.iterdir()}


def test_a_second_run_gives_the_same_bytes_and_the_model_stays_as_it_was(
    tmp_path: Path, model: Model
) -> None:
    assert model.path is not None
    before = {name: mx.array(a) for name, a in named(model.graph).items()}
    source = files(model.path)
    recipe = QuantRecipe(bits=3, layers=(LayerRule("*.v_proj", bits=8),))
    one, two = (quantize(model, recipe, into=tmp_path / n / "q") for n in "ab")
    assert (one.fingerprint, one.effective_bpw) == (two.fingerprint, two.effective_bpw)
    first, second = files(one.path), files(two.path)
    assert {n: b for n, b in first.items() if n != "labkit.json"} == {
        n: b for n, b in second.items() if n != "labkit.json"
    }
    # The fingerprint's cache names the times of the files; all else in labkit.json is the same.
    told = [{k: v for k, v in read_entries(a.path).items() if k != "fingerprint"} for a in (one, two)]
    assert told[0] == told[1]
    assert differing(named(model.graph), before) == []
    assert {n: b for n, b in files(model.path).items() if n in source} == source


def test_an_artifact_says_what_it_was_made_of_and_how(tmp_path: Path, model: Model) -> None:
    recipe = QuantRecipe(bits=3, seed=7, layers=(LayerRule("model.embed_tokens", keep=True),))
    artifact = quantize(model, recipe, into=tmp_path / "made")
    making = read_making(artifact.path)
    assert QuantRecipe.from_identity(making["recipe"]) == recipe
    assert making["recipe_hash"] == recipe.hash()
    assert making["source_fingerprint"] == model.profile.fingerprint
    assert making["calibration"] == Rounding().calibrate(model).hash()
    assert (making["seed"], making["calibration_text_sha256"]) == (7, "")
    assert making["kept"] == {"model.embed_tokens": "kept by the recipe"}
    assert (artifact.name, artifact.family) == ("made", "base")
    assert labkit.load(artifact.path).artifact == artifact
    assert model.path is not None and read_making(model.path) == {}
    copied = {"config.json", "model.safetensors", "labkit.json", "tokenizer.json", "tokenizer_config.json"}
    assert set(files(artifact.path)) == copied


def test_layers_have_the_packing_of_the_last_rule_that_fits(tmp_path: Path, model: Model) -> None:
    rules = (
        LayerRule("*.mlp.*", bits=8, group_size=32),
        LayerRule("model.layers.1.mlp.down_proj", mode="mxfp4"),
        LayerRule("*.k_proj", keep=True),
    )
    artifact = quantize(model, QuantRecipe(bits=2, layers=rules), into=tmp_path / "q")
    held = {(p.bits, p.group_size): p.layers for p in read_packing(artifact.path)}
    assert held == {(2, 64): 7, (8, 32): 5, (4, 32): 1}  # 3 of each attention and the embedding
    tensors = stored(artifact.path)
    assert "model.layers.1.mlp.down_proj.biases" not in tensors
    assert tensors["model.layers.0.self_attn.k_proj.weight"].dtype == mx.float32
    assert "lm_head.weight" not in tensors
    stated = json.loads((artifact.path / "config.json").read_text())["quantization"]
    assert stated["model.layers.1.mlp.down_proj"] == {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    loaded: Any = labkit.load(artifact.path).graph
    assert loaded.model.layers[1].mlp.down_proj.mode == "mxfp4"
    assert loaded.model.layers[0].mlp.down_proj.bits == 8


def test_rows_that_do_not_divide_are_refused_by_name_or_kept_by_name(tmp_path: Path) -> None:
    model = labkit.load(write_directory(tmp_path / "m"))  # rows of 64, of the last projection 96
    recipe = QuantRecipe(group_size=64)
    names = {f"model.layers.{i}.mlp.down_proj" for i in (0, 1)}
    with pytest.raises(QuantizationRefused) as caught:
        quantize(model, recipe, into=tmp_path / "q")
    assert all(name in str(caught.value) for name in names)
    assert "rows of 96" in str(caught.value) and "indivisible" in str(caught.value)
    artifact = quantize(model, replace(recipe, indivisible="keep"), into=tmp_path / "q")
    assert read_making(artifact.path)["kept"] == dict.fromkeys(names, "groups of 64 do not divide rows of 96")
    with pytest.raises(QuantizationRefused, match="at least one layer to quantize"):
        quantize(model, QuantRecipe(group_size=128, indivisible="keep"), into=tmp_path / "none")
    assert not (tmp_path / "none").exists()


class Clipped:
    """Of one's own: weights are clipped to a number of standard deviations before they are rounded."""

    SPEC: ClassVar[QuantizerSpec] = QuantizerSpec(
        "clip", "clip, then round", modes=(MODES["affine"],), needs_calibration=True, options=("deviations",)
    )

    def calibrate(self, model: Source, text: str | None) -> Evidence:
        return Evidence("clip", model.artifact.fingerprint, hash_of(text or ""))

    def apply(
        self, model: Source, recipe: QuantRecipe, evidence: Evidence, *, into: Path, sink: Sink = silent
    ) -> Artifact:
        limit = float(recipe.options["deviations"])

        def pack(graph: Any, packed: Mapping[str, Packing]) -> None:
            for path, module in graph.named_modules():
                if path in packed:
                    bound = limit * mx.std(module.weight)
                    module.weight = mx.clip(module.weight, -bound, bound)
            pack_to_nearest(graph, packed)

        return write_artifact(model, recipe, self.SPEC, evidence, pack, into=into, sink=sink)


CLIP = QuantRecipe("clip", options={"deviations": 2.0})


def test_a_quantizer_of_ones_own_needs_no_change_to_labkit(tmp_path: Path, model: Model) -> None:
    artifact = quantize(model, CLIP, into=tmp_path / "q", text="some text", quantizer=Clipped)
    making = read_making(artifact.path)
    assert making["calibration_text_sha256"] == hash_of("some text")
    assert making["recipe"] == CLIP.identity()
    rounded = quantize(model, QuantRecipe(), into=tmp_path / "r")
    assert artifact.effective_bpw == rounded.effective_bpw
    assert differing(stored(artifact.path), stored(rounded.path))
    evidence = Clipped().calibrate(model, "some text")
    again = quantize(model, CLIP, into=tmp_path / "e", evidence=evidence, quantizer=Clipped())
    assert again.fingerprint == artifact.fingerprint


def refused_calls(model: Model) -> dict[str, tuple[Callable[[Path], Any], str]]:
    """What is asked of a path, and what is said."""
    foreign = Evidence("round", "f" * 32)
    wrong: tuple[Any, Any] = ("smollm2", QuantRecipe())
    own = Rounding().calibrate(model)

    def ask(recipe: Any, **more: Any) -> Callable[[Path], Any]:
        return lambda into: quantize(model, recipe, into=into, **more)

    return {
        "method": (ask(QuantRecipe("gguf")), "options: round"),
        "other method": (ask(QuantRecipe(), text="a", quantizer=Clipped), "a recipe for clip was needed"),
        "no class": (ask(QuantRecipe(), quantizer=int), "a class with SPEC"),
        "name": (lambda into: quantize(*wrong, into=into), r"labkit.load\('smollm2'\)"),
        "recipe": (ask("bits = 4"), "QuantRecipe.from_toml"),
        "option": (ask(QuantRecipe(options={"percdamp": 0.1})), "got:     percdamp"),
        "mode": (ask(replace(CLIP, mode="mxfp4"), text="a", quantizer=Clipped), "a packing that clip makes"),
        "text": (ask(QuantRecipe(), text="unused"), "no calibration text was needed"),
        "no text": (ask(CLIP, quantizer=Clipped), "a calibration text was needed for clip"),
        "blank text": (ask(CLIP, quantizer=Clipped, text=" \n"), "a calibration text was needed for clip"),
        "two": (ask(QuantRecipe(), text="a", evidence=own), "either a calibration text or its evidence"),
        "foreign evidence": (ask(QuantRecipe(), evidence=foreign), "calibrate again"),
        "other evidence": (ask(CLIP, evidence=own, quantizer=Clipped), "evidence of clip"),
        "pattern": (ask(QuantRecipe(layers=(LayerRule("*.dwn_proj", bits=8),))), r"got:     \*.dwn_proj"),
        "everything kept": (ask(QuantRecipe(layers=(LayerRule("*", keep=True),))), "at least one layer"),
        "null": (
            lambda into: quantize(labkit.load("null"), QuantRecipe(), into=into),
            "a model with weights",
        ),
        "taken": (
            lambda into: quantize(model, QuantRecipe(), into=into.parent),
            "a folder that is not there",
        ),
    }


REFUSED = (
    "method",
    "other method",
    "no class",
    "name",
    "recipe",
    "option",
    "mode",
    "text",
    "no text",
    "blank text",
    "two",
    "foreign evidence",
    "other evidence",
    "pattern",
    "everything kept",
    "null",
    "taken",
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_together_is_refused_and_leaves_nothing(
    tmp_path: Path, model: Model, case: str
) -> None:
    ask, words = refused_calls(model)[case]
    with pytest.raises(QuantizationRefused, match=words):
        ask(tmp_path / "q")
    assert list(tmp_path.iterdir()) == []


def test_every_refused_call_is_tried(model: Model) -> None:
    assert set(REFUSED) == set(refused_calls(model))


def test_what_is_quantized_already_is_refused(tmp_path: Path, model: Model) -> None:
    once = quantize(model, QuantRecipe(), into=tmp_path / "once")
    with pytest.raises(QuantizationRefused, match=r"not quantized was needed\n  got:     once, 5\.0\d bits"):
        quantize(labkit.load(once.path), QuantRecipe(bits=2), into=tmp_path / "twice")
    assert {p.name for p in tmp_path.iterdir()} == {"once"}


def test_a_model_that_changed_on_disk_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "m", TIED)
    model = labkit.load(directory)
    changed = {n: a * 2 for n, a in stored(directory).items()}
    mx.save_safetensors(str(directory / "model.safetensors"), changed, {"format": "mlx"})
    with pytest.raises(QuantizationRefused, match="changed since m was loaded"):
        quantize(model, QuantRecipe(), into=tmp_path / "q")


def other_bits(graph: Any, packed: Mapping[str, Packing]) -> None:
    pack_to_nearest(graph, {path: Packing.of("affine", 8) for path in packed})


def too_few(graph: Any, packed: Mapping[str, Packing]) -> None:
    pack_to_nearest(graph, dict(list(packed.items())[1:]))


def twin(graph: Any, packed: Mapping[str, Packing]) -> None:
    """As many words and scales a row as 4 bits by 64 would give to rows twice as long."""
    pack_to_nearest(graph, {path: Packing("affine", 8, 32) for path in packed})


def not_finite(graph: Any, packed: Mapping[str, Packing]) -> None:
    graph.model.norm.weight = graph.model.norm.weight * mx.inf
    pack_to_nearest(graph, packed)


def too_large(graph: Any, packed: Mapping[str, Packing]) -> None:
    """Finite weights whose logits are not."""
    graph.model.norm.weight = mx.full(graph.model.norm.weight.shape, 3e38)
    pack_to_nearest(graph, packed)


@pytest.mark.parametrize(
    ("pack", "error", "words"),
    [
        (other_bits, QuantizationRefused, "stored as the recipe says"),
        (too_few, QuantizationRefused, "stored as the recipe says"),
        (twin, QuantizationRefused, "stored as the recipe says"),
        (not_finite, ModelUnavailable, "finite weights"),
        (too_large, QuantizationRefused, "finite logits"),
    ],
)
def test_what_was_not_packed_as_planned_is_never_published(
    tmp_path: Path, model: Model, pack: write.Pack, error: type[Exception], words: str
) -> None:
    spec, evidence = Rounding.SPEC, Rounding().calibrate(model)
    with pytest.raises(error, match=words):
        write_artifact(model, QuantRecipe(), spec, evidence, pack, into=tmp_path / "q")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError(28, "No space left on device")])
def test_an_end_midway_leaves_nothing(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(shutil, "copyfile", stop)
    with pytest.raises(LabkitError if isinstance(error, OSError) else error):
        quantize(model, QuantRecipe(), into=tmp_path / "q")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(LabkitError, match="free disk space were needed for quantizing base-bf16"):
        quantize(model, QuantRecipe(), into=tmp_path / "q")
    assert list(tmp_path.iterdir()) == []


def test_a_large_model_is_written_in_shards_of_the_same_content(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quantize(model, QuantRecipe(), into=tmp_path / "whole")
    monkeypatch.setattr(write, "SHARD_BYTES", 20_000)
    sharded = quantize(model, QuantRecipe(), into=tmp_path / "sharded")
    shards = sorted(f.name for f in sharded.path.glob("*.safetensors"))
    assert len(shards) > 3 and shards[0] == f"model-00001-of-{len(shards):05}.safetensors"
    assert sharded.fingerprint == whole.fingerprint
    index = json.loads((sharded.path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sharded.artifact_bytes == whole.artifact_bytes
    assert labkit.load(sharded.path).artifact == sharded


rules = st.one_of(
    st.builds(LayerRule, st.text(min_size=1), keep=st.just(True)),
    st.builds(LayerRule, st.text(min_size=1), bits=st.sampled_from([2, 3, 4, 5, 6, 8])),
    st.builds(LayerRule, st.text(min_size=1), mode=st.sampled_from(["mxfp4", "nvfp4", "mxfp8"])),
)
values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
recipes = st.builds(
    QuantRecipe,
    method=st.text(min_size=1),
    bits=st.sampled_from([None, 2, 3, 4, 5, 6, 8]),
    group_size=st.sampled_from([None, 32, 64, 128]),
    layers=st.lists(rules, max_size=4).map(tuple),
    indivisible=st.sampled_from(["refuse", "keep"]),
    seed=st.integers(0, 2**62),
    options=st.dictionaries(st.text(), values, max_size=3),
)


@given(recipes)
def test_a_recipe_round_trips_through_toml_and_json(recipe: QuantRecipe) -> None:
    assert QuantRecipe.from_toml(recipe.to_toml()) == recipe
    assert QuantRecipe.from_identity(json.loads(json.dumps(recipe.identity()))) == recipe
    assert QuantRecipe.from_toml(recipe.to_toml()).to_toml() == recipe.to_toml()


def test_a_recipe_as_text_and_its_hash_are_fixed() -> None:
    rules = (LayerRule("*.v_proj", bits=8), LayerRule("lm_head", keep=True))
    recipe = QuantRecipe(bits=3, group_size=32, layers=rules)
    assert recipe.to_toml() == (
        'method = "round"\nmode = "affine"\nbits = 3\ngroup_size = 32\n\n[[layers]]\npattern = "*.v_proj"\n'
        'bits = 8\n\n[[layers]]\npattern = "lm_head"\nkeep = true\n'
    )
    assert recipe.hash() == "e8a0faee9b9b829f"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bits = ", "a recipe in TOML"),
        ("bitz = 4", "got:     bitz"),
        ("bits = 7", "options: 2, 3, 4, 5, 6, 8"),
        ("bits = true", "bits of type int"),
        ("bits = 4.0", "bits of type int"),
        ("group_size = 16", "options: 32, 64, 128"),
        ('mode = "fp4"', "options: affine, mxfp4, nvfp4, mxfp8"),
        ('mode = "mxfp4"\nbits = 8', "bits that mxfp4 takes"),
        ('indivisible = "skip"', "options: refuse, keep"),
        ("layers = 3", "a list `layers`"),
        ("layers = [3]", "keys of a LayerRule"),
        ("[[layers]]\nbits = 4", "no pattern"),
        ('[[layers]]\npattern = "a"', "either keep or"),
        ('[[layers]]\npattern = ""\nbits = 4', "a pattern"),
        ('[[layers]]\npattern = "a"\nkeep = true\nbits = 4', "either keep or"),
        ('[[layers]]\npattern = "a"\nkeep = 1', "keep of type bool"),
        ('[[layers]]\npattern = "a"\nbits = 7', "bits that affine takes"),
        ("[options]\nfloors = [1]", "got:     floors"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(QuantizationRefused) as caught:
        QuantRecipe.from_toml(text)
    assert words in str(caught.value)


def test_evidence_round_trips_and_its_hash_is_of_its_content() -> None:
    evidence = Evidence("imatrix", "f" * 32, hash_of("text"), {"lm_head": {"kl": 0.5}}, {"windows": 4})
    read = Evidence.from_json(json.loads(json.dumps(evidence.to_json())))
    assert read == evidence and read.hash() == evidence.hash()
    assert replace(evidence, layers={"lm_head": {"kl": 0.6}}).hash() != evidence.hash()
    with pytest.raises(QuantizationRefused, match="data of a calibration"):
        Evidence.from_json({"methods": "imatrix"})


def test_a_quantizer_is_found_by_its_name_class_and_instance() -> None:
    for given_ in ("round", Rounding, Rounding()):
        assert type(find_quantizer(given_)) is Rounding
