"""What a calibration extends instead of measuring it. Imports no mlx."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.model import calibrate
from labkit.model.calibrate import Calibration
from labkit.model.fit_matrices import Matrix
from labkit.model.stored import Stored
from tests.unit.test_cost import ROW

BENCH = Calibration("float32", hidden=64, heads=4, chunk=8, rows=1000)


def extended(count: int, most: int = 4096) -> tuple[float, list[int]]:
    """What 3 + 2n is taken to be at `count`, and at which numbers it was asked for."""
    asked: list[int] = []

    def measure(n: int) -> float:
        asked.append(n)
        return 3.0 + 2 * n

    return calibrate._extended(measure, count, most), asked


def test_a_straight_line_is_extended_as_what_it_is() -> None:
    assert extended(100) == (203.0, [100])
    assert extended(4096) == (3.0 + 2 * 4096, [4096])
    assert extended(10_001) == (3.0 + 2 * 10_001, [2048, 4096])
    assert extended(0) == (5.0, [1])


def test_noise_never_makes_more_of_it_quicker() -> None:
    assert calibrate._extended(lambda n: 1.0 / n, 64, 32) == 1 / 32


def test_products_of_many_rows_are_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def product_s(self: Calibration, matrix: Matrix, tokens: int, *, decoding: bool = False) -> float:
        asked.append((tokens, decoding))
        return float(tokens)

    monkeypatch.setattr(Calibration, "_product_s", product_s)
    assert BENCH._decoded_s(Matrix(64, 64, 16384)) == 1000.0
    assert replace(BENCH, rows=8)._decoded_s(Matrix(64, 64, 16384)) == 8.0
    assert asked == [(16, True), (32, True), (8, True)]


@pytest.mark.parametrize(("keys", "made"), [(16, 32), (4096, 16), (10**9, 1)])
def test_the_keys_of_some_rows_stand_for_those_of_all(
    monkeypatch: pytest.MonkeyPatch, keys: int, made: int
) -> None:
    """As many as take at most 256 MiB, but 32: a token of this cache has 4096 bytes."""
    rows: list[int] = []

    def attended_s(self: Calibration, cache: Stored, keys: int, queries: int, few: int) -> float:
        rows.append(few)
        return few * 0.5

    monkeypatch.setattr(Calibration, "_attended_s", attended_s)
    wide = replace(ROW, kv_heads=8, key_size=64, value_size=64, item_bytes=4)
    assert BENCH._read_s(Stored(wide), keys) == pytest.approx(500.0)
    assert rows == [made]
