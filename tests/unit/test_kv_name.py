"""Names of KV schemes: what they ask for on a model, and every way in which one is refused. No mlx."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.core.kv_file import KVFile, file_of, pinned, portable
from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.core.request import Request
from labkit.core.spec import CacheShape, Catalog, KVSpec, MethodSpec, Profile
from labkit.engine.upstream import Upstream
from labkit.kv.catalog import SCHEMES
from labkit.plan.checks_kv import parse_kv
from labkit.plan.negotiate import negotiate
from labkit.plan.plan import Plan
from labkit.plan.reason import Reason, Refusal, spans
from tests.unit.tiny_profile import PROFILE as FULL_ONLY

FULL = CacheShape("KVCache", kv_heads=2, key_size=64, value_size=64, item_bytes=4)
SLIDING = replace(FULL, name="RotatingKVCache", window=32)
STATE = CacheShape("ArraysCache", state_bytes=512)
METHODS = {"autoregressive": MethodSpec("autoregressive", "one token a step"), "mlx-lm": Upstream.SPEC}
CATALOG = Catalog({s.SPEC.family: s.SPEC for s in SCHEMES}, METHODS, 256, "cpu/mkl")
PROFILE = replace(FULL_ONLY, layers=("full", "sliding", "full"), caches=(FULL, SLIDING, FULL))
OPTIQ = '[{"layer_idx": 0, "bits": 8, "group_size": 64}, {"layer_idx": 1, "bits": 4, "group_size": 32}]'
SPLIT = '[{"layer_idx": 2, "k_bits": 8, "v_bits": 3}]'


def setting(name: Any, file: str | KVFile | None = None, profile: Profile = PROFILE) -> KVSetting:
    found = parse_kv(name, profile, CATALOG, KVFile(file) if isinstance(file, str) else file)
    assert isinstance(found, KVSetting), found
    return found


def refused(name: Any, file: str | KVFile | None = None, profile: Profile = PROFILE) -> str:
    found = parse_kv(name, profile, CATALOG, KVFile(file) if isinstance(file, str) else file)
    assert not isinstance(found, KVSetting)
    return "\n".join(reason.explain() for reason in found)


def planned(kv: str, file: str | None = None, profile: Profile = PROFILE, **changes: Any) -> Plan | Refusal:
    request = Request((1, 2), 4, kv=kv, kv_file=None if file is None else KVFile(file), **changes)
    return negotiate(request, profile, CATALOG)


@pytest.mark.parametrize(
    ("name", "kept", "start"),
    [
        ("affine:8", LayerKV(8, 8, 64), 0),
        ("affine:3/g32", LayerKV(3, 3, 32), 0),
        ("affine:8/g64", LayerKV(8, 8, 64), 0),
        ("affine:8/s16", LayerKV(8, 8, 64, short=True), 0),
        ("affine:8/start100", LayerKV(8, 8, 64), 100),
        ("affine:2/g32/s16/start7", LayerKV(2, 2, 32, short=True), 7),
    ],
)
def test_a_name_asks_for_the_same_of_every_layer(name: str, kept: LayerKV, start: int) -> None:
    assert setting(name) == KVSetting("affine", (kept,) * 3, start)


def test_a_name_without_settings_has_none() -> None:
    assert setting("bf16") == KVSetting("bf16")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "afine:8",
            ("a KV scheme of the catalog, got 'afine:8'", "did you mean 'affine:8'?", "bf16, affine:<bits>"),
        ),
        ("affine8", ("a KV scheme of the catalog", "did you mean 'affine:8'?")),
        ("", ("a KV scheme of the catalog, got ''",)),
        (8, ("the name of a KV scheme, or a class with a SPEC, got 8",)),
        (None, ("the name of a KV scheme, or a class with a SPEC, got None",)),
        ("affine", ("one of the bits that 'affine' stores in its name, got 'affine'", "affine:2, affine:3")),
        ("affine:", ("one of the bits",)),
        ("affine:7", ("one of the bits", "affine:6, affine:8")),
        ("affine: 8", ("one of the bits", "did you mean 'affine:8'?")),
        ("affine:8/", ("options that 'affine' has, got '' in 'affine:8/'", "g64, g32, g128, s16, start<n>")),
        ("affine:8/g48", ("options that 'affine' has, got 'g48'",)),
        ("affine:8/s1", ("options that 'affine' has, got 's1'", "did you mean 's16'?")),
        ("affine:8/start", ("options that 'affine' has, got 'start'",)),
        ("affine:8/start-1", ("options that 'affine' has, got 'start-1'",)),
        ("affine:8/start007", ("options that 'affine' has",)),
        ("affine:8/start" + "9" * 5000, ("options that 'affine' has",)),
        ("affine:8/s16/s16", ("an option once, got 's16' and 's16'",)),
        ("affine:8/start1/start2", ("an option once, got 'start1' and 'start2'",)),
        ("affine:8/s16/g32", ("options in the order of affine:<bits>", "kv='affine:8/g32/s16'")),
        ("bf16:8", ("'bf16' without an argument, got 'bf16:8'", "kv='bf16'")),
        (
            "mixed",
            ("the path of a .json file in its name, got 'mixed'", "mixed:<file>.json[/s16][/start<n>]"),
        ),
        ("mixed:kv.txt", ("the path of a .json file in its name",)),
        ("mixed:kv.json/g32", ("options that 'mixed' has, got 'g32'", "s16, start<n>")),
        ("mixed:kv.json@12/s16", ("the path of a .json file in its name",)),
    ],
)
def test_a_malformed_name_is_refused_with_what_is_meant(name: Any, words: tuple[str, ...]) -> None:
    text = refused(name)
    assert text.startswith("kv: ") and len(text) < 500
    for word in words:
        assert word in text


@given(st.text(alphabet="afine:mxd8642/gs16trjo.@", max_size=24))
def test_whatever_the_name_there_is_a_setting_or_a_reason(name: str) -> None:
    found = parse_kv(name, PROFILE, CATALOG, KVFile(OPTIQ))
    assert isinstance(found, KVSetting) or (all(isinstance(reason, Reason) for reason in found) and found)


def test_a_file_of_mlx_optiq_is_taken_as_it_is() -> None:
    found = setting("mixed:kv_config.json", OPTIQ)
    assert found == KVSetting("mixed", (LayerKV(8, 8, 64), LayerKV(4, 4, 32), None))
    assert setting("mixed:kv.json/s16/start9", '[{"layer_idx": 1, "bits": 6}]') == KVSetting(
        "mixed", (None, LayerKV(6, 6, 64, short=True), None), 9
    )


def test_a_file_may_have_bits_of_keys_and_of_values() -> None:
    assert setting("mixed:kv.json", SPLIT).layers == (None, None, LayerKV(8, 3, 64))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSON in the file"),
        ("{", "JSON in the file"),
        ("[" * 100_000, "JSON in the file"),
        ("{}", "a list of at least one entry"),
        ("[]", "a list of at least one entry"),
        ("[3]", "entry 0: 3, which is no object"),
        ("[{}]", "entry 0: the fields none"),
        ('[{"layer_idx": 0}]', "entry 0: the fields layer_idx"),
        ('[{"layer_idx": 0, "bits": 8, "name": "a"}]', "entry 0: the fields bits, layer_idx, name"),
        ('[{"layer_idx": 0, "bits": 8, "k_bits": 8}]', "entry 0: the fields bits, k_bits, layer_idx"),
        ('[{"layer_idx": 0, "k_bits": 8}]', "entry 0: the fields k_bits, layer_idx"),
        ('[{"layer_idx": -1, "bits": 8}]', "entry 0: layer_idx -1"),
        ('[{"layer_idx": "0", "bits": 8}]', "entry 0: layer_idx '0'"),
        ('[{"layer_idx": true, "bits": 8}]', "entry 0: layer_idx True"),
        ('[{"layer_idx": 0, "bits": 7}]', "entry 0: bits 7, which is none of 2, 3, 4, 5, 6, 8"),
        ('[{"layer_idx": 0, "bits": 8.0}]', "entry 0: bits 8.0"),
        ('[{"layer_idx": 0, "k_bits": 8, "v_bits": 1}]', "entry 0: v_bits 1"),
        ('[{"layer_idx": 0, "bits": 8, "group_size": 16}]', "group_size 16, which is none of 32, 64, 128"),
        (
            '[{"layer_idx": 0, "bits": 8}, {"layer_idx": 0, "bits": 4}]',
            "one entry a layer, got several of layers 0",
        ),
        ('[{"layer_idx": 3, "bits": 8}, {"layer_idx": 4, "bits": 8}]', "0 to 2, got layers 3-4 in kv.json"),
    ],
)
def test_a_file_that_says_something_else_is_refused(text: str, words: str) -> None:
    assert words in refused("mixed:kv.json", text)


def test_a_file_with_many_wrong_entries_does_not_fill_the_screen() -> None:
    entries = [{"layer_idx": i, "bits": 7} for i in range(100)]
    text = refused("mixed:kv.json", json.dumps(entries))
    assert text.count("entry ") == 8 and "and 92 more" in text


def test_a_file_that_was_not_read_is_refused_with_the_reason() -> None:
    assert "kv.json: no such file" in refused("mixed:kv.json", KVFile(problem="no such file"))
    assert "kv.json: not read" in refused("mixed:kv.json")


def test_a_pinned_file_is_that_content_or_none() -> None:
    pin = KVFile(OPTIQ).pin
    name = pinned("mixed:a/kv.json/s16", pin)
    assert name == f"mixed:a/kv.json@{pin}/s16" and pinned(name, "0" * 8) == name
    assert setting(name, OPTIQ).layers[0] == LayerKV(8, 8, 64, short=True)
    assert f"a/kv.json as it was, {pin}, got" in refused(name, SPLIT)
    assert pinned("affine:8/s16", pin) == "affine:8/s16"
    assert (file_of(name), portable(name)) == ("a/kv.json", f"mixed:kv.json@{pin}/s16")
    assert (file_of("affine:8"), portable("affine:8")) == (None, "affine:8")


RECURRENT = replace(PROFILE, layers=("recurrent", "recurrent", "full"), caches=(STATE, STATE, FULL))
CHUNKED = replace(PROFILE, caches=(FULL, replace(FULL, name="ChunkedKVCache", window=512), FULL))
LISTED = replace(PROFILE, caches=(FULL, CacheShape("CacheList", parts=(FULL, FULL)), FULL))
NARROW = replace(
    PROFILE, caches=(FULL, replace(SLIDING, key_size=48, value_size=96), replace(FULL, key_size=80))
)
DEAF = replace(PROFILE, quantizes=False)
LATENT = replace(DEAF, caches=(replace(FULL, kv_heads=1, key_size=512, value_size=64),) * 3)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            RECURRENT,
            ("every layer (full/sliding), got 'affine:8' on layers 0-1 of tiny: recurrent, one state",),
        ),
        (
            CHUNKED,
            ("caches with a quantized form (KVCache, RotatingKVCache)", "on layer 1 of tiny: ChunkedKVCache"),
        ),
        (LISTED, ("on layer 1 of tiny: CacheList",)),
        (
            NARROW,
            (
                "group size 64, got 'affine:8' on layer 1 of tiny: head size 48, 96",
                "layer 2 of tiny: head size 80",
            ),
        ),
        (
            DEAF,
            (
                "whose attention reads what a cache of another form gives",
                "a trial step over quantized caches",
            ),
        ),
        (LATENT, ("fails there; caches of one head, 512 and 64 wide, hold latents as a rule",)),
    ],
    ids=["recurrent", "chunked", "list", "head sizes", "attention", "latents"],
)
def test_a_layer_that_cannot_hold_it_is_named_with_the_reason(
    profile: Profile, words: tuple[str, ...]
) -> None:
    text = refused("affine:8", profile=profile)
    for word in words:
        assert word in text
    assert setting("bf16", profile=profile) == KVSetting("bf16")


def test_a_model_without_keys_is_refused_for_that_alone() -> None:
    bare = replace(DEAF, layers=("recurrent",) * 2, caches=(STATE,) * 2)
    assert refused("affine:8", profile=bare).count("kv: ") == 1


def test_a_file_is_judged_by_the_layers_that_it_lists() -> None:
    assert setting("mixed:kv.json", SPLIT, RECURRENT).layers[2] == LayerKV(8, 3, 64)
    assert "on layers 0-1 of tiny: recurrent" in refused("mixed:kv.json", OPTIQ, RECURRENT)
    assert "on layer 1 of tiny: ChunkedKVCache" in refused("mixed:kv.json", OPTIQ, CHUNKED)
    narrow = refused("mixed:kv.json", '[{"layer_idx": 1, "bits": 8, "group_size": 32}]', NARROW)
    assert "group size 32, got 'mixed:kv.json' on layer 1 of tiny: head size 48" in narrow


def test_groups_that_fit_are_told() -> None:
    assert "options: affine:4/g64, affine:4/g32, bf16" in refused("affine:4/g128/s16")
    assert "options: bf16" in refused("affine:8", profile=NARROW)


def test_a_device_without_the_kernel_is_a_reason_beside_those_of_the_file() -> None:
    found = parse_kv("mixed:kv.json", PROFILE, replace(CATALOG, backend="cuda"), KVFile("{}"))
    assert isinstance(found, tuple) and len(found) == 2
    assert "runs on cuda" in found[0].explain() and "a list" in found[1].explain()


@pytest.mark.parametrize(
    ("kv", "file"),
    [
        ("affine:8", None),
        ("mixed:kv.json", OPTIQ),
        ("mixed:kv.json", SPLIT),
    ],
)
def test_mlx_lm_itself_runs_one_setting_on_full_layers_only(kv: str, file: str | None) -> None:
    refusal = planned(kv, file, method="mlx-lm")
    assert (
        isinstance(refusal, Refusal) and "one setting for every layer, all of them full" in refusal.explain()
    )


def test_mlx_lm_itself_runs_what_it_has() -> None:
    full = replace(PROFILE, layers=("full",) * 3, caches=(FULL,) * 3)
    for kv in ("bf16", "affine:4/g32/start9"):
        assert isinstance(planned(kv, profile=full, method="mlx-lm"), Plan)
    uniform = json.dumps([{"layer_idx": i, "bits": 8} for i in range(3)])
    assert isinstance(planned("mixed:kv.json", uniform, full, method="mlx-lm"), Plan)
    short = planned("affine:8/s16", profile=full, method="mlx-lm")
    assert isinstance(short, Refusal) and "scales in the model's dtype" in short.explain()
    half = replace(full, caches=(replace(FULL, item_bytes=2),) * 3)
    assert isinstance(planned("affine:8/s16", profile=half, method="mlx-lm"), Plan)


def explained(kv: str, file: str | None = None) -> dict[str, str]:
    plan = planned(kv, file)
    assert isinstance(plan, Plan)
    return {line[:12].strip(): line[12:] for line in plan.explain().splitlines()}


def test_a_plan_says_what_each_layer_is_stored_as() -> None:
    assert explained("bf16")["kv"] == "bf16 (the model's own dtype, float32)"
    assert explained("affine:8")["kv"] == "affine:8 (8 bits, group 64, from token 0)"
    assert explained("affine:8")["caches"] == (
        "2 x QuantizedKVCache(bits=8, group_size=64), 1 x RotatingQuantizedKVCache(bits=8, group_size=64)"
    )
    assert explained("affine:8")["oracle"] == "mlx-lm kv_bits and mlx-optiq install_mixed_kv"
    short = explained("affine:4/g32/s16/start100")
    assert short["oracle"].endswith("install_mixed_kv, of the codes alone")
    assert short["kv"] == ("affine:4/g32/s16/start100 (4 bits, group 32, scales of 16 bits, from token 100)")
    assert short["caches"].startswith(
        "2 x SplitQuantizedKVCache(k_bits=4, v_bits=4, group_size=32, scales=16), 1 x Rotating"
    )
    mixed = explained("mixed:kv.json", OPTIQ)
    assert mixed["kv"] == (
        "mixed:kv.json (1 x 8 bits, group 64; 1 x 4 bits, group 32; 1 x the model's own; from token 0)"
    )
    assert mixed["oracle"] == "mlx-optiq install_mixed_kv"
    assert explained("mixed:kv.json", SPLIT)["kv"] == (
        "mixed:kv.json (1 x 8/3 bits, group 64; 2 x the model's own; from token 0)"
    )


def hashed(kv: str, file: str | None = None) -> str:
    plan = planned(kv, file)
    assert isinstance(plan, Plan)
    return plan.hash()


def test_the_hash_of_a_plan_follows_the_content_of_its_file_and_not_its_path() -> None:
    assert hashed("mixed:kv.json", OPTIQ) == hashed(
        "mixed:/elsewhere/other.json", OPTIQ.replace(", {", ",  {")
    )
    assert hashed("mixed:kv.json", OPTIQ) != hashed("mixed:kv.json", OPTIQ.replace("8", "6"))
    names = ("bf16", "affine:8", "affine:8/g32", "affine:8/s16", "affine:8/start1", "affine:8/start2")
    assert len({hashed(name) for name in names}) == len(names)


def test_indices_read_as_spans() -> None:
    assert spans((0, 1, 2, 5, 7, 8)) == "0-2, 5, 7-8" and spans(()) == ""


def test_forms_and_names_of_a_family() -> None:
    forms = [spec.form() for spec in CATALOG.kv.values()]
    assert forms == [
        "bf16",
        "affine:<bits>[/g<group>][/s16][/start<n>]",
        "mixed:<file>.json[/s16][/start<n>]",
    ]
    assert KVSpec("own", "", "", "", frozenset()).names() == ("own",)
    assert CATALOG.kv_names()[-1] == "mixed:kv_config.json"


def test_what_is_said_and_would_be_so_without_makes_no_other_plan() -> None:
    names = ("affine:8", "affine:8/g64", "affine:8/start0", "affine:8/g64/start0")
    plans = [planned(name) for name in names]
    assert all(isinstance(plan, Plan) for plan in plans)
    assert len({plan.hash() for plan in plans if isinstance(plan, Plan)}) == 1
    others = [planned(name) for name in ("affine:8/g32", "affine:8/s16", "affine:8/start4", "affine:4")]
    assert len({plan.hash() for plan in (*plans, *others) if isinstance(plan, Plan)}) == 5


def test_a_field_twice_in_an_entry_of_a_file_is_refused() -> None:
    refused = planned("mixed:kv.json", '[{"layer_idx": 0, "bits": 8, "bits": 4, "group_size": 64}]')
    assert isinstance(refused, Refusal)
    assert "the field 'bits' twice in an entry" in str(refused)
