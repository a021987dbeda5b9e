"""What the hub client raises, told as what it is: a lost connection, a folder, a name, or the unknown."""

from __future__ import annotations

import errno

import httpx2
import pytest
from huggingface_hub import errors

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.model.header import BITS
from labkit.model.hub.errors import Unreachable, one_hub_message
from labkit.model.hub.repository import HubFile, Repository
from labkit.model.hub.room import BESIDE_BYTES, copy_bytes, import_bytes

CONNECTION = "check the connection"


def told(error: Exception) -> LabkitError:
    with pytest.raises(LabkitError) as caught, one_hub_message("org/m"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        ConnectionResetError("reset"),
        TimeoutError("late"),
        errors.LocalEntryNotFoundError("not in the cache"),
    ],
)
def test_a_lost_connection_is_told_as_one(error: Exception) -> None:
    found = told(error)
    assert isinstance(found, Unreachable)
    assert CONNECTION in str(found)
    assert str(error) in str(found)


@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), ValueError("odd"), OSError("odd")])
def test_what_is_unknown_keeps_its_own_words(error: Exception) -> None:
    found = told(error)
    assert type(found) is ModelUnavailable
    assert found.got == f"{type(error).__name__}: {' '.join(str(error).split())}"
    assert CONNECTION not in str(found)


@pytest.mark.parametrize("kind", [TypeError, AttributeError, NameError, AssertionError])
def test_a_mistake_of_the_program_is_not_swallowed(kind: type[Exception]) -> None:
    with pytest.raises(kind), one_hub_message("org/m"):
        raise kind("ours")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left"), ("more free disk space", "No space left", "HF_HOME")),
        (
            PermissionError(errno.EACCES, "Permission denied", "/cache"),
            ("Permission denied: /cache", "rights"),
        ),
        (errors.FileMetadataError("no size"), ("no size", "HF_ENDPOINT")),
        (errors.HFValidationError("bad--id"), ("a hub id org/name", "bad--id")),
        (errors.OfflineModeIsEnabled("off"), ("HF_HUB_OFFLINE is set",)),
    ],
)
def test_what_a_person_can_act_on_is_named(error: Exception, words: tuple[str, ...]) -> None:
    message = str(told(error))
    assert [word for word in words if word not in message] == []
    assert CONNECTION not in message


def repository(name: str, size: int, stored: dict[str, int] | None = None, parameters: int = 0) -> Repository:
    return Repository("org/m", "c", (HubFile(name, size, "", None),), stored or {}, parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "dtype", "weights"),
    [
        ("m-F32.gguf", 0, "float32", 800),
        ("m.BF16.gguf", 0, "float32", 1600),
        ("m-f16.gguf", 0, "float16", 800),
        ("m-Q4_K_M.gguf", 0, "float32", 3200),  # at least as many weights as bytes
        ("m-Q4_K_M.gguf", 1400, "float32", 5600),  # as many as the hub states
        ("m-Q4_K_M.gguf", 10**9, "bfloat16", 8530),  # but never more than 1.5 bits each
    ],
)
def test_an_import_takes_what_its_weights_take(name: str, parameters: int, dtype: str, weights: int) -> None:
    found = repository(name, 800, None, parameters)
    assert abs(import_bytes(found, [name], dtype, packed=False) - BESIDE_BYTES - weights) <= 2 * 2
    assert import_bytes(found, [name], dtype, packed=True) == 1600


def test_a_copy_takes_what_its_tensors_take() -> None:
    name = "model.safetensors"
    found = repository(name, 100, {"BF16": 30, "U32": 10})
    assert copy_bytes(found, None) == copy_bytes(found, "bfloat16") == 0
    assert copy_bytes(found, "float32") == 30 * 4 + 10 * BITS["U32"] // 8
    assert (copy_bytes(repository(name, 100), "float16"), copy_bytes(repository(name, 100), "float32")) == (
        50,
        0,
    )
