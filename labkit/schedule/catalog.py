"""The catalog of policies: names to instances. One of a person's own is passed as a class or instance."""

from __future__ import annotations

import inspect
from typing import Any

from labkit.schedule.policies import POLICIES
from labkit.schedule.policy import Policy, PolicyInvalid, PolicySpec

_CONTRACT = "a class with SPEC, admit(queue) and next(queue), as labkit.schedule.policy.Policy says"


def find_policy(policy: str | Policy | type[Policy]) -> Policy:
    """The policy of a name, class or instance. Raises PolicyInvalid for what is none of them."""
    known = {p.SPEC.name: p for p in POLICIES}
    if isinstance(policy, str):
        if policy not in known:
            raise PolicyInvalid("a policy that labkit knows was needed", got=policy, options=tuple(known))
        return known[policy]()
    made: Any = _instance(policy) if inspect.isclass(policy) else policy
    parts = (getattr(made, "admit", None), getattr(made, "next", None))
    if not isinstance(getattr(made, "SPEC", None), PolicySpec) or not all(map(callable, parts)):
        got = getattr(policy, "__name__", type(policy).__name__)
        raise PolicyInvalid(
            "a policy was needed", got=got, options=tuple(known), next_step=f"pass {_CONTRACT}"
        )
    return made


def _instance(kind: type[Any]) -> Any:
    try:
        return kind()
    except Exception as error:
        need = f"a policy class that takes no arguments was needed of {kind.__name__}"
        got = f"{type(error).__name__}: {error}"
        raise PolicyInvalid(need, got=got, next_step="pass an instance of it") from error
