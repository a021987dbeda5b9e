"""The replacement exercise: a method that emits only at the end, and a graph of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from labkit.core.request import Request
from labkit.core.spec import MethodSpec
from labkit.core.step import Step
from labkit.engine.catalog import build_engine
from labkit.engine.load import null_model
from labkit.engine.method import Clock, Execution
from labkit.engine.session import Session
from labkit.plan.plan import Plan


class FinalOnly:
    """Commits everything in one step and never makes log-probabilities."""

    SPEC: ClassVar[MethodSpec] = MethodSpec(
        "final-only", "all tokens at the end", emits="final", provider="null"
    )

    def start(self, graph: Any, scheme: Any, plan: Plan, request: Request, clock: Clock) -> Execution:
        return FinalOnlyRun(graph, plan)


class FinalOnlyRun:
    def __init__(self, graph: Any, plan: Plan) -> None:
        self._graph, self._plan = graph, plan

    def advance(self) -> Step | None:
        tokens = tuple(self._graph(index) for index in range(self._plan.max_tokens))
        return Step("decode", tokens, None, 0.0, 0, 1, len(tokens))

    def verify(self) -> None:
        pass

    def close(self) -> None:
        pass


def session(graph: Any, stop_tokens: tuple[int, ...] = ()) -> Session:
    """Only registration differs: the model gets another graph and an engine with another method."""
    null = null_model("null")
    model = replace(null, graph=graph, engine=build_engine(256, "test", methods=(FinalOnly,)))
    return model.session([1], max_tokens=5, stop_tokens=stop_tokens)


def test_a_final_output_only_method_is_a_session_like_any_other() -> None:
    done = session(lambda index: 65 + index).run()
    assert (done.text, done.finish_reason) == ("ABCDE", "length")


def test_another_graph_changes_tokens_and_nothing_else() -> None:
    assert session(lambda index: 90 - index).run().text == "ZYXWV"


def test_nothing_after_a_stop_token_is_committed() -> None:
    done = session(lambda index: 65 + index, stop_tokens=(67,)).run()
    assert (done.tokens, done.text, done.finish_reason) == ((65, 66, 67), "AB", "stop")
