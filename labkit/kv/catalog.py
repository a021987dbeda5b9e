"""The KV schemes that labkit ships. Imports no mlx, so that their names can be listed at once."""

from __future__ import annotations

from labkit.kv.affine import Affine
from labkit.kv.base import Scheme
from labkit.kv.mixed import Mixed
from labkit.kv.plain import Plain

SCHEMES: tuple[type[Scheme], ...] = (Plain, Affine, Mixed)
