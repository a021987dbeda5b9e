"""The decision procedure: what becomes of a candidate, by an ordered table of rules.

Pure, and data: the first rule that fires decides, and the last one always fires. Knows no record (`situation`
reads those) and changes nothing (`judgement` says what to do next).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from labkit.lab.deciding.crashes import DROPPED

Outcome = Literal["default-on", "kept off (kill switch)", "trade-off (Lab item)", "delete"]
DEFAULT_ON: Outcome = "default-on"
KEPT_OFF: Outcome = "kept off (kill switch)"
TRADE_OFF: Outcome = "trade-off (Lab item)"
DELETE: Outcome = "delete"


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that decides, each part one of a few words.

    record: `whole`, or why it carries nothing: `outdated` (of other code or another file), `contradicted` (by
    its own numbers, a newer record or its A/A control). machine: `sturdy` and `frail` were not quiet; the
    verdicts of a frail record hang on single pairs. visits: `crashed` where many of one arm failed. gain,
    loss: the axes that improve and those that hold; `unclaimed` where none is to improve, `absent` where one
    is equivalent or worse. unnamed: axes of speed and size that the hypothesis does not name. parity: whom
    the candidate equals in every token and log-probability: its `baseline`, only an `oracle` that does the
    same thing, or `none`. kl: the screen, `zero` where every position is, `apart` where the mean is not and
    the largest is not known. suite: the frozen suite of evaluations.
    """

    record: Literal["whole", "control", "contradicted", "outdated", "failed", "partial"]
    machine: Literal["quiet", "sturdy", "frail"]
    visits: Literal["ended", "crashed"]
    gain: Literal["came", "unresolved", "absent", "unclaimed"]
    loss: Literal["none", "unresolved", "lost"]
    unnamed: Literal["kept", "lost"]
    parity: Literal["baseline", "oracle", "none", "unmeasured"]
    kl: Literal["zero", "pass", "warn", "apart", "unscored"]
    suite: Literal["confirmed", "unresolved", "lost", "not run"]

    @property
    def is_exact(self) -> bool:
        """Whether nothing that was measured tells the candidate's output from the baseline's."""
        return self.parity == "baseline" and self.kl in ("zero", "unscored")


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table. when: whether it fires. sees: the parts that it looks at. why: what it means.

    step: what to do next, where `{name}`, `{file}` and `{pairs}` stand for the experiment's.
    """

    name: str
    outcome: Outcome
    when: Callable[[Situation], bool]
    sees: tuple[str, ...]
    why: str
    step: str


@dataclass(frozen=True, slots=True)
class Looked:
    """A rule that was looked at: what it saw, part -> word, and whether it fired."""

    rule: str
    fired: bool
    saw: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Ruling:
    """rule: the one that fired. trail: every rule looked at, in order; the last of them is that one."""

    rule: Rule
    trail: tuple[Looked, ...]

    @property
    def outcome(self) -> Outcome:
        return self.rule.outcome


_AGAIN = "labkit run {file}"
_MORE = "labkit run {file} --pairs {pairs}"
_QUIET = f"{_MORE}, on a quiet machine (labkit doctor says what is not)"
_UNDECIDED = "labkit renew {name} --until DATE --why ..., or labkit delete {name} --why ..."

RULES: tuple[Rule, ...] = (
    Rule(
        "a control",
        KEPT_OFF,
        lambda s: s.record == "control",
        ("record",),
        "its effect was known before, so that it measures the bench and decides nothing",
        "nothing is to be decided",
    ),
    Rule(
        "a contradicted record",
        KEPT_OFF,
        lambda s: s.record == "contradicted",
        ("record",),
        "its own numbers, a newer record or its A/A control say otherwise",
        _AGAIN,
    ),
    Rule(
        "an outdated record",
        KEPT_OFF,
        lambda s: s.record == "outdated",
        ("record",),
        "other code or another file was measured than is here now",
        _AGAIN,
    ),
    Rule(
        "a run that did not end",
        KEPT_OFF,
        lambda s: s.record in ("failed", "partial"),
        ("record",),
        "what was planned was not measured to its end",
        _AGAIN,
    ),
    Rule(
        "a noisy machine",
        KEPT_OFF,
        lambda s: s.machine == "frail",
        ("machine",),
        "it was not quiet, and the verdicts hang on single pairs",
        _QUIET,
    ),
    Rule(
        "visits that failed",
        KEPT_OFF,
        lambda s: s.visits == "crashed",
        ("visits",),
        DROPPED,
        f"find out why (labkit show says how each ended), then {_AGAIN}",
    ),
    Rule(
        "evidence against itself",
        KEPT_OFF,
        lambda s: (s.parity == "baseline" and s.kl == "warn") or (s.is_exact and s.suite == "lost"),
        ("parity", "kl", "suite"),
        "it equals its baseline bit for bit, and its scores do not: one of the two is wrong",
        _AGAIN,
    ),
    Rule(
        "refuted",
        DELETE,
        lambda s: s.gain == "absent" or (s.gain == "unclaimed" and "lost" in (s.loss, s.suite)),
        ("gain", "loss", "suite"),
        "what it was to improve it does not, or it loses something and was to improve nothing",
        "labkit delete {name} --why ...",
    ),
    Rule(
        "gain for loss",
        TRADE_OFF,
        lambda s: s.gain == "came" and "lost" in (s.loss, s.suite),
        ("gain", "loss", "suite"),
        "it improves what it claims and loses something that it should hold",
        "labkit promote {name} --accept-trade-off --why ..., or labkit delete {name} --why ...",
    ),
    Rule(
        "unresolved",
        KEPT_OFF,
        lambda s: "unresolved" in (s.gain, s.loss),
        ("gain", "loss"),
        "at least one axis that it names has no verdict",
        _MORE,
    ),
    Rule(
        "nothing gained",
        KEPT_OFF,
        lambda s: s.gain == "unclaimed",
        ("gain",),
        "it loses nothing, and was to improve nothing",
        _UNDECIDED,
    ),
    Rule(
        "lost where nothing was claimed",
        KEPT_OFF,
        lambda s: s.unnamed == "lost",
        ("unnamed",),
        "an axis of speed or size that its hypothesis does not name got worse",
        "name that axis in a new experiment and measure it; or labkit delete {name} --why ...",
    ),
    Rule(
        "not quiet",
        KEPT_OFF,
        lambda s: s.machine == "sturdy",
        ("machine",),
        "its verdicts stay without any one pair, which is enough for a recipe and not for a default",
        _QUIET,
    ),
    Rule(
        "parity unknown",
        KEPT_OFF,
        lambda s: s.parity == "unmeasured",
        ("parity",),
        "whose tokens and log-probabilities it equals was not measured",
        f"{_AGAIN} (a null model has none), or {_UNDECIDED}",
    ),
    Rule(
        "exact and better",
        DEFAULT_ON,
        lambda s: s.is_exact,
        ("parity", "kl"),
        "it equals its baseline bit for bit, improves what it claims and loses nothing",
        "labkit promote {name} --why ...",
    ),
    Rule(
        "not screened",
        KEPT_OFF,
        lambda s: s.kl in ("apart", "unscored"),
        ("kl",),
        "it is not exact, and no text was scored to the largest distance",
        "hold kl_mean_nats in a new experiment and measure it; or labkit delete {name} --why ...",
    ),
    Rule(
        "confirmed at a distance",
        TRADE_OFF,
        lambda s: s.kl == "warn" and s.suite == "confirmed",
        ("kl", "suite"),
        "the suite confirms it, and the screen warns of a distance that a default should not have",
        "labkit promote {name} --why ..., or labkit delete {name} --why ...",
    ),
    Rule(
        "confirmed and better",
        DEFAULT_ON,
        lambda s: s.suite == "confirmed",
        ("suite",),
        "it is not exact, passes the screen, and the frozen suite confirms it",
        "labkit promote {name} --why ...",
    ),
    Rule(
        "lossy and not confirmed",
        KEPT_OFF,
        lambda _: True,
        ("suite",),
        "it is not exact, and a screen is no substitute for the frozen suite",
        "labkit promote {name} --why ... makes it a recipe to be asked for; "
        "or labkit delete {name} --why ...",
    ),
)


def rule_on(situation: Situation) -> Ruling:
    """The first rule that fires, with every rule looked at before it."""
    trail: list[Looked] = []
    for rule in RULES:
        fired = rule.when(situation)
        saw = tuple((part, str(getattr(situation, part))) for part in rule.sees)
        trail.append(Looked(rule.name, fired, saw))
        if fired:
            return Ruling(rule, tuple(trail))
    raise AssertionError("the last rule always fires")
