"""Timing noise of the null model: one series of time factors per machine, a pure function of its seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

NoiseKind = Literal["none", "independent", "ar", "drift", "outliers"]
NOISES: Mapping[str, NoiseKind] = {kind: kind for kind in get_args(NoiseKind)}
OUTLIER_SHARE = 0.05
OUTLIER_FACTORS = (1.5, 3.0)


@dataclass(frozen=True, slots=True)
class NullNoise:
    """How much longer each visit of a machine takes, whichever arm it is made on.

    sd: SD of a visit's log time. `ar`: first-order autoregressive with correlation rho and that SD.
    `drift`: independent noise plus slope per visit, in log time. `outliers`: independent noise, and one
    visit in twenty takes 1.5 to 3 times as long.
    """

    kind: NoiseKind = "none"
    sd: float = 0.0
    rho: float = 0.0
    slope: float = 0.0
    seed: int = 0

    def factors(self, visits: int) -> NDArray[np.float64]:
        """`(visits,)` time factors from the first visit on; a longer series begins with the shorter one."""
        if self.kind == "none":
            return np.ones(visits)
        log_time = self.sd * self._draw(0).standard_normal(visits)
        if self.kind == "ar":
            for visit in range(1, visits):
                kept = self.rho * log_time[visit - 1]
                log_time[visit] = kept + math.sqrt(1 - self.rho**2) * log_time[visit]
        if self.kind == "drift":
            log_time += self.slope * np.arange(visits)
        if self.kind == "outliers":
            sizes = np.log(self._draw(2).uniform(*OUTLIER_FACTORS, visits))
            log_time += np.where(self._draw(1).random(visits) < OUTLIER_SHARE, sizes, 0.0)
        return np.exp(log_time)

    def _draw(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])
