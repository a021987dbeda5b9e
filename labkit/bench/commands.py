"""The commands of one arm in its worker process. Knows one model and one workload; nothing of pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit.bench.load import check_load, is_served, run_load, serving_plan
from labkit.bench.parity import measure_parity
from labkit.bench.prediction import predict
from labkit.bench.visit import run_visit, workload_request
from labkit.core.arm import Arm, Workload
from labkit.engine.load import load
from labkit.engine.logits import session_logits
from labkit.engine.model import Model
from labkit.model.artifact import count_parameters
from labkit.model.backend import prepare
from labkit.model.ceilings import measure_ceilings
from labkit.model.cost import Weights, roofline, untied_embedding
from labkit.model.memory import peak_metrics, reset_peak
from labkit.model.origin import read_config
from labkit.model.score import score_against, write_reference
from labkit.model.tensors import read_directory
from labkit.model.vocabulary import vocabulary_hash
from labkit.model.windows import Window
from labkit.plan.plan import Plan
from labkit.schedule.of_workload import arrivals_of

Answer = dict[str, Any]


class ArmCommands:
    """State of one worker: the arm and its model. Every public method answers one command."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._model: Model = load(arm.model)

    @property
    def _null(self) -> bool:
        """A null model has no machine behind it: no backend, no costs, no memory, no text to score."""
        return self._model.path is None

    def open(self, message: Answer) -> Answer:
        """Plan the workload; give plan, artifact, backend and what decides whether arms compare."""
        workload = Workload(**message["workload"])
        artifact = self._model.artifact.identity()
        backend = {} if self._null else asdict(prepare())
        return self._planned(workload) | {
            "artifact": artifact,
            "backend": backend,
            "family": self._model.profile.family,
            "context_length": self._model.profile.context_length,
            "bos": self._model.leading_token(),
            "vocab_size": self._model.profile.vocab_size,
            # A null model scores no text, so nothing may be compared with it.
            "tokenizer_hash": "" if self._null else vocabulary_hash(self._model.tokenizer),
        }

    def roofline(self, message: Answer) -> Answer:
        """The cost card, with ceilings measured in this very process (its BLAS), and what is predicted."""
        if self._null:
            return {}
        workload, profile = Workload(**message["workload"]), self._model.profile
        plan, weights = self._plan(workload), _weights(self._model)
        card = roofline(
            profile,
            weights,
            plan.kv_setting,
            workload.prompt_tokens,
            workload.new_tokens,
            measure_ceilings(profile.dtype),
        )
        predicted = predict(self._model, plan, workload)
        text = card.card() + ("\nof a request alone; rows share the weights" if workload.several else "")
        return {**card.to_json(), "card": text, "prediction": predicted}

    def parity(self, message: Answer) -> Answer:
        """What the arm generates on the workload and what its oracle does, as digests; {} of a null model."""
        return measure_parity(self._model, self._arm, Workload(**message["workload"]))

    def visit(self, message: Answer) -> Answer:
        """Run the workload once. index: the visit's place in the run, which a null model's noise needs."""
        workload, seed = Workload(**message["workload"]), message["seed"]
        if self._null:
            # Each request draws a place of its own in the series.
            self._model.graph.seek(message["index"] * len(arrivals_of(workload)))
        else:
            reset_peak()
        meter = dict if self._null else peak_metrics
        if is_served(self._arm, workload):
            return run_load(self._model, self._arm, workload, seed, meter, self._wait()).to_json()
        request = workload_request(self._model, self._arm, workload, seed)
        return run_visit(self._model, request, meter).to_json()

    def encode(self, message: Answer) -> Answer:
        """Token ids of a text without special tokens."""
        return {"tokens": self._model.tokenizer.encode(message["text"], add_special_tokens=False)}

    def reference(self, message: Answer) -> Answer:
        """Write this arm's log-probabilities of one window to a file."""
        window = _window(message["window"])
        write_reference(session_logits(self._model, self._arm.asked("kv")), window, Path(message["path"]))
        return {}

    def score(self, message: Answer) -> Answer:
        """Score this arm on one window against a reference file."""
        window = _window(message["window"])
        source = session_logits(self._model, self._arm.asked("kv"))
        return score_against(Path(message["path"]), source, window).to_json()

    def _planned(self, workload: Workload) -> Answer:
        plan = self._plan(workload)
        if not is_served(self._arm, workload):
            return {"plan": plan.identity(), "plan_hash": plan.hash(), "explain": plan.explain()}
        check_load(self._model, self._arm, workload)
        return serving_plan(self._arm, plan)

    def _wait(self) -> Callable[[float], None]:
        """Lets seconds pass on the model's clock."""
        return self._model.graph.clock.advance if self._null else time.sleep

    def _plan(self, workload: Workload) -> Plan:
        return self._model.resolve(workload_request(self._model, self._arm, workload, 0))

    def table(self) -> Mapping[str, Callable[[Answer], Answer]]:
        """Command name -> the method that answers it."""
        return {
            "open": self.open,
            "roofline": self.roofline,
            "parity": self.parity,
            "visit": self.visit,
            "encode": self.encode,
            "reference": self.reference,
            "score": self.score,
        }


def _window(data: dict[str, Any]) -> Window:
    return Window(tuple(data["tokens"]), data["context_tokens"])


def _weights(model: Model) -> Weights:
    """Sizes of the artifact, with the embedding apart where it is only looked up."""
    artifact = model.artifact
    table = untied_embedding(read_directory(artifact.path), model.profile.vocab_size)
    return Weights(
        stored_bytes=artifact.artifact_bytes,
        parameters=artifact.parameters,
        lookup_bytes=sum(tensor.nbytes for tensor in table.values()),
        lookup_parameters=count_parameters(table, read_config(artifact.path)) if table else 0,
    )
