"""Engine: the catalog as data for the planner, and the classes behind its names. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.spec import Catalog
from labkit.engine.method import Method
from labkit.kv.base import Scheme
from labkit.plan.method_name import parse_method
from labkit.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Engine:
    """The catalog as data for the planner, and the classes behind its names."""

    catalog: Catalog
    schemes: Mapping[str, Any]
    methods: Mapping[str, Any]

    def scheme(self, plan: Plan) -> Scheme:
        made = plan.kv_class or self.schemes[plan.kv_setting.family]
        return made(plan.kv_setting)

    def method(self, plan: Plan) -> Method:
        name, argument = parse_method(plan.method)
        return self.methods[name]() if argument is None else self.methods[name](argument)
