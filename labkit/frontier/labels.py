"""Labels: short names that tell the arms of one group apart, and its workload and windows in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labkit.frontier.versions import Row


def distinct_labels(rows: Sequence[Row]) -> tuple[str, ...]:
    """The arms' labels in order; alike ones with the arm, code, packages or plan that differ."""
    found = []
    for row in rows:
        alike, parts = [r for r in rows if r["label"] == row["label"]], [row["label"]]
        for word in ("arm", "code", "packages", "plan"):
            key = f"{word}_hash"
            if len({r[key] for r in alike}) > 1:
                parts.append(f"{word} {str(row[key])[:8]}")
                alike = [r for r in alike if r[key] == row[key]]
        found.append(" ".join(parts))
    return tuple(found)


def short_label(label: str, beside: Iterable[str]) -> str:
    """An arm's label without its first word, the model, where every label beside it starts with the same."""
    rest = label.partition(" ")[2]
    return rest if rest and len({other.partition(" ")[0] for other in beside}) == 1 else label


def windows_label(row: Row) -> str:
    """What KL was taken over, `KL over 4 windows of 512 tokens`, or that nothing was scored."""
    if not row["windows_hash"]:
        return "KL not measured"
    if row["windows"] is None or row["window_tokens"] is None:
        return "KL over windows of unknown size"
    return f"KL over {int(row['windows'])} windows of {int(row['window_tokens'])} tokens"


def workload_label(row: Row) -> str:
    """Prompt and new tokens, `1024+64`, and whatever makes it more than one request."""
    return row.get("workload") or row["workload_hash"]
