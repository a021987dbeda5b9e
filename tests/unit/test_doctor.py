"""`labkit doctor`: every check on machines that lack, break or hide something; and once as it is here."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.lease import device_lease
from labkit.bench.probes.probe import Probe
from labkit.lab import doctor as doctor_module
from labkit.lab.checkup import compute, line, models, packages, places, quietness, records
from labkit.lab.checkup.compute import Answer
from labkit.lab.checkup.line import Line, checked, private
from labkit.lab.doctor import Doctor, Report
from labkit.model.backend import Backend
from tests.unit.command_line import EXPERIMENT, files, labkit, make_lab

TODAY = date(2026, 11, 29)
CPU = Backend("cpu", "mkl", "mkl was found; LABKIT_BLAS is unset", "Chip 9", "float32", 256)
REFERENCE = Backend("cpu", "reference", "neither mkl nor OpenBLAS was found", "Chip 9", "float32", 256)
CUDA = Backend("cuda", None, "mlx's cuda build brings its own", "NVIDIA H200", None, 2048)
CALM = Probe("busy_cores", True, 0.01, 0.2, True, "stop what else uses the processor")
BUSY = Probe("busy_cores", True, 1.9, 0.2, False, "stop what else uses the processor", within=False)
ROOT = Path(doctor_module.__file__).parents[2]


def no_probes() -> tuple[Probe, ...]:
    return (CALM,)


def fine(_environ: Mapping[str, str]) -> Answer:
    return Answer(CPU, 190.0)


def report(root: Path, **changed: object) -> Report:
    """A report with the machine's own answers replaced; models lie below the lab."""
    asked: dict[str, Any] = {
        "environ": {"LABKIT_HOME": str(root / "home")},
        "probe": no_probes,
        "ask": fine,
        **changed,
    }
    return Doctor(root, TODAY, **asked).report()


def found(lines: tuple[Line, ...], section: str, name: str) -> Line:
    return next(entry for entry in lines if (entry.section, entry.name) == (section, name))


def test_every_section_is_there_and_nothing_is_left_behind(tmp_path: Path) -> None:
    lab = make_lab(tmp_path / "lab")
    before = files(lab)
    seen = report(lab)
    sections = ["machine", "blas", "versions", "optional", "models", "disk", "permissions", "lab", "quiet"]
    assert list(seen.sections()) == sections
    assert files(lab) == before
    assert not (lab / "results").exists()
    assert not (lab / "home").exists()
    assert seen.quiet is True


def boom(*_: object) -> tuple[Probe, ...]:
    raise ZeroDivisionError("a probe that nobody expected to raise")


def test_a_check_that_raises_is_a_line_and_the_others_go_on(tmp_path: Path) -> None:
    seen = report(tmp_path, probe=boom, ask=boom)
    for section in ("quiet", "machine"):
        failed = found(seen.lines, section, "check")
        assert failed.level == "warning"
        assert "ZeroDivisionError: a probe that nobody expected" in failed.text
    assert seen.quiet is None
    assert found(seen.lines, "versions", "labkit").level == "ok"


@pytest.mark.parametrize(
    ("module", "section"),
    [
        ("models", "models"),
        ("places", "disk"),
        ("records", "lab"),
        ("packages", "versions"),
        ("compute", "blas"),
    ],
)
def test_a_package_that_is_missing_costs_one_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, section: str
) -> None:
    monkeypatch.setitem(sys.modules, f"labkit.lab.checkup.{module}", None)
    seen = report(make_lab(tmp_path / "lab"))
    assert "ModuleNotFoundError" in found(seen.lines, section, "check").text
    assert found(seen.lines, "quiet", "verdict").level == "ok"


@pytest.mark.parametrize(
    ("code", "out", "err", "need", "got"),
    [
        (-4, "", "", "importing mlx ended its process", "SIGILL: no message"),
        (
            1,
            "half a li",
            "Traceback\nImportError: boom",
            "importing mlx ended",
            "exit code 1: ImportError: boom",
        ),
        (0, '{"backend": {"device": "cpu"}}', "", "importing mlx ended", "exit code 0"),
        (0, "[]\n", "", "importing mlx ended", "exit code 0"),
        (
            0,
            compute.to_json(None, None, need="labkit needs mlx", mend="pip install x"),
            "",
            "labkit needs mlx",
            "",
        ),
    ],
)
def test_however_mlx_ends_it_is_a_problem_with_a_line_that_mends_it(
    code: int, out: str, err: str, need: str, got: str
) -> None:
    answer = compute.parse(code, out, err)
    (problem,) = [entry for entry in compute.machine_lines(answer) if entry.level == "problem"]
    assert problem.text.startswith(need)
    assert got in problem.text
    assert "pip install" in problem.mend
    assert [entry.level for entry in compute.blas_lines(answer, 2, {})] == ["absent"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "ended its process; got SIGABRT"),
        ("raise ImportError('undefined symbol: mlx_thing')", "undefined symbol"),
        ("raise SystemExit(7)", "exit code 7"),
    ],
)
def test_an_mlx_that_kills_its_process_is_a_problem_and_no_end(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("")
    (tmp_path / "mlx" / "core.py").write_text(code)
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "LABKIT_BLAS": ""}
    seen = report(tmp_path, ask=lambda _: compute.ask(environ))
    problem = found(seen.lines, "machine", "backend")
    assert problem.level == "problem"
    assert said in problem.text
    assert problem.mend
    assert not seen.ok
    assert found(seen.lines, "quiet", "verdict").level == "ok"


def test_a_process_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    answer = compute.ask(os.environ, limit_s=0.3)
    assert "no answer in 0.3 s" in answer.need


@pytest.mark.parametrize(
    ("backend", "gflops", "environ", "levels", "mend"),
    [
        (CPU, 190.0, {}, ["ok", "ok"], ""),
        (CPU, 5.0, {}, ["ok", "warning"], "OMP_NUM_THREADS"),
        (REFERENCE, 6.0, {}, ["warning", "ok"], 'pip install "labkit[mkl]"'),
        (REFERENCE, 6.0, {"LABKIT_BLAS": "reference"}, ["warning", "ok"], "unset LABKIT_BLAS"),
        (CUDA, 30000.0, {}, ["ok", "ok"], ""),
        (CUDA, 100.0, {}, ["ok", "warning"], "quiet"),
        (CUDA, None, {}, ["ok", "problem"], ""),
    ],
)
def test_a_slow_blas_is_told_with_what_mends_it(
    backend: Backend, gflops: float | None, environ: dict[str, str], levels: list[str], mend: str
) -> None:
    answer = Answer(backend, gflops, need="a product could not be computed", got="RuntimeError: no")
    lines = list(compute.blas_lines(answer, 2, environ))
    assert [entry.level for entry in lines] == levels
    assert mend in "".join(entry.mend for entry in lines)


def versions(installed: Mapping[str, str]) -> packages.Versions:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    return version


def test_missing_and_out_of_bounds_packages_are_problems_with_their_line() -> None:
    needs = [
        "mlx<0.33,>=0.32.4",
        "rich>=14.0",
        "typer>=0.20",
        'mkl; extra == "mkl"',
        'x>=1; sys_platform == "z"',
    ]
    lines = {
        entry.name: entry
        for entry in packages.bound_lines(needs, versions({"mlx": "0.33.0", "rich": "14.1"}))
    }
    assert lines["mlx"].level == lines["typer"].level == "problem"
    assert lines["mlx"].mend == 'pip install "mlx<0.33,>=0.32.4"'
    assert lines["typer"].text.startswith("not installed")
    assert lines["others"].text.startswith("1 more")
    assert lines.keys() == {"mlx", "typer", "others"}


def test_a_python_out_of_bounds() -> None:
    assert packages.python_line("3.11.7", "<3.14,>=3.11").level == "ok"
    old = packages.python_line("3.10.2", "<3.14,>=3.11")
    assert old.level == "problem" and "Python <3.14,>=3.11" in old.mend


def test_optional_pieces_matter_where_they_are_of_use(tmp_path: Path) -> None:
    on_cuda = {entry.name: entry for entry in packages.optional_lines("cuda", tmp_path / "none")}
    assert on_cuda["mkl"].level == "absent"
    assert on_cuda["nvidia-ml-py"].level in ("ok", "warning")
    unknown = {entry.name: entry for entry in packages.optional_lines(None, tmp_path / "none")}
    assert unknown["nvidia-ml-py"].level == "absent"


def test_models_missing_and_damaged(tmp_path: Path) -> None:
    bad = tmp_path / "broken-float32"
    bad.mkdir()
    (bad / "config.json").write_text("{")
    lines = {entry.name: entry for entry in models.model_lines(tmp_path)}
    assert lines["smollm2"].mend == "labkit models get smollm2"
    assert lines["broken-float32"].level == "warning"
    assert f"rm -r '{bad}'" in lines["broken-float32"].mend


def test_a_home_that_nobody_has_is_a_problem_and_the_rest_is_still_told(tmp_path: Path) -> None:
    seen = report(tmp_path, environ={"LABKIT_HOME": "~no-such-user-here/models"})
    assert found(seen.lines, "models", "folder").mend == "set LABKIT_HOME to a folder of yours"
    assert [entry.name for entry in seen.lines if entry.section == "disk"] == ["results", "temporary"]
    assert not seen.ok


@pytest.mark.parametrize(
    ("free", "level"), [(30e6, "problem"), (0.9e9, "warning"), (1.2e9, "ok"), (0, "problem")]
)
def test_room(free: float, level: str) -> None:
    place = places.Place("results", Path("results"), "give --root another folder")
    entry = places.disk_line(place, free, 1e9)
    assert entry.level == level
    assert bool(entry.mend) == (level != "ok")


def test_room_for_the_model_that_must_still_come(tmp_path: Path) -> None:
    assert places.starter_bytes() > 0.6e9  # 135M weights of 4 bytes each, and the wheel
    found_places = places.places(tmp_path, tmp_path / "not" / "yet" / "there")
    assert [entry.level for entry in places.disk_lines(found_places, wants_starter=True)] != []
    assert found_places[0].nearest() == tmp_path


def test_a_file_in_the_place_of_a_folder_and_a_folder_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    lines = {
        entry.name: entry for entry in places.permission_lines(places.places(tmp_path), tmp_path / "lock")
    }
    assert lines["results"].level == "problem"
    assert "is a file where a folder is needed" in lines["results"].text
    if Path("/proc/self").is_dir():  # a file system that refuses files, for root too
        refused = places.Place("results", Path("/proc/self"), "give --root another folder")
        (entry, _) = places.permission_lines((refused,), tmp_path / "lock")
        assert entry.level == "problem" and "cannot be written" in entry.text


def test_who_holds_the_device_is_named_and_no_file_is_made(tmp_path: Path) -> None:
    lock = tmp_path / "labkit-device.lock"
    assert places.lease_line(lock).text.startswith("free")
    assert not lock.exists()
    with device_lease("kv8-at-256", lock):
        held = places.lease_line(lock)
    assert held.level == "warning" and "held by kv8-at-256" in held.text
    assert places.lease_line(lock).level == "ok"
    unreadable = tmp_path / "folder" / "lock"
    unreadable.parent.write_text("")
    assert places.lease_line(unreadable).level == "problem"


def test_a_lab_with_damage_and_an_expired_experiment(tmp_path: Path) -> None:
    lab = make_lab(tmp_path / "lab", EXPERIMENT.replace("2099", "2001"))
    (lab / "experiments" / "broken.py").write_text("raise RuntimeError('no')")
    (lab / "results" / "m").mkdir(parents=True)
    for number in range(5):
        (lab / "results" / "m" / f"{number}.json").write_text("{")
    lines = list(records.lab_lines(lab, TODAY))
    texts = [f"{entry.level} {entry.name} {entry.text} | {entry.mend}" for entry in lines]
    assert any("ok records 0 that can be read" in text for text in texts)
    assert sum("warning damaged results/m/" in text for text in texts) == 3
    assert any("warning damaged 2 more" in text for text in texts)
    assert any("warning null-ab expired" in text and "renew null-ab" in text for text in texts)
    assert any("warning broken.py does not load" in text for text in texts)


@pytest.mark.parametrize(
    ("expires", "said"),
    [("2026-11-28", "expired 1 day ago"), ("2026-11-27", "expired 2 days ago"), ("2026-11-29", None)],
)
def test_how_long_ago_an_experiment_expired(tmp_path: Path, expires: str, said: str | None) -> None:
    lab = make_lab(tmp_path / "lab", EXPERIMENT.replace("2099-01-01", expires))
    texts = [entry.text for entry in records.lab_lines(lab, TODAY) if entry.name == "null-ab"]
    assert texts == ([said] if said else [])


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("read_records", "records"),
        ("unfinished", "unfinished runs"),
        ("board", "experiments"),
    ],
)
def test_a_part_of_a_lab_that_cannot_be_told_is_named_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'duckdb'")

    lab = make_lab(tmp_path / "lab")
    told = {entry.name for entry in records.lab_lines(lab, TODAY)}
    monkeypatch.setattr(records, part, missing)
    lines = {entry.name: entry for entry in records.lab_lines(lab, TODAY)}
    assert lines.keys() == told
    assert lines[name].text.startswith("could not be checked: ModuleNotFoundError: No module named 'duckdb'")


@pytest.mark.parametrize("zone", ["UTC+12", "UTC-14"])
def test_today_is_the_day_of_utc(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """At any hour one of the two zones has another date than UTC."""
    days: list[date] = []

    def examined(_root: Path, today: date) -> Report:
        days.append(today)
        return Report((), (CALM,))

    monkeypatch.setattr("labkit.lab.doctor.examine", examined)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        before = datetime.now(UTC).date()
        assert labkit("doctor").code == 0
        assert before <= days[0] <= datetime.now(UTC).date()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_folder_without_a_lab_is_no_fault(tmp_path: Path) -> None:
    assert [entry.level for entry in records.lab_lines(tmp_path, TODAY)] == ["absent"]


def test_a_large_lab_is_counted_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "QUICK_RECORDS", 1)
    (tmp_path / "results" / "m").mkdir(parents=True)
    for number in range(2):
        (tmp_path / "results" / "m" / f"{number}.json").write_text("{")
    lines = {entry.name: entry for entry in records.lab_lines(tmp_path, TODAY)}
    assert lines["records"].text.startswith("2; too many")
    assert lines["records"].mend == ""
    assert "damaged" not in lines


def test_the_verdict_says_why_a_machine_is_not_quiet() -> None:
    gone = Probe("turbo", False, 0.0, 1.0, True, role="shows")
    hot = Probe("heat_margin_c", True, 3, 5, True, "let it cool", "warns", within=False, bound="least")
    lines = {entry.name: entry for entry in quietness.quiet_lines((BUSY, gone, hot))}
    assert lines["verdict"].level == "warning"
    assert "busy_cores 1.9" in lines["verdict"].text and "heat" not in lines["verdict"].text
    assert lines["busy_cores"].mend == BUSY.advice
    assert lines["heat_margin_c"].text == "3 C (at least 5 C, not judged)"
    assert (lines["heat_margin_c"].level, lines["turbo"].level) == ("warning", "absent")
    assert next(iter(quietness.quiet_lines((CALM, hot)))).level == "ok"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_free_share", 0.961, "96%"),
        ("swap_used_mib", 100.0, "100 MiB"),
        ("swap_used_mib", 3072.0, "3.0 GiB"),
        ("cpu_speed_limit_percent", 63.0, "63%"),
        ("busy_cores", 0.1, "0.1"),
    ],
)
def test_values_are_shown_in_the_unit_of_their_name(name: str, value: float, shown: str) -> None:
    text = quietness.probe_text(Probe(name, True, value, 2.0, True))
    assert text.partition(" (")[0] == shown
    assert "at most" in text


@pytest.fixture
def anna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/anna"))
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")
    monkeypatch.setattr(platform, "node", lambda: "bench7.example")


@pytest.mark.usefixtures("anna")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/anna/lab and '/home/anna'", "~/lab and '~'"),
        ("/home/annabel/lab", "/home/annabel/lab"),
        ("/data/anna/models", "/data/user/models"),
        ("/tmp/anna-7/x", "/tmp/user-7/x"),
        ("/net/bench7.example/lab", "/net/host/lab"),
        ("labkit models get anna", "labkit models get anna"),
    ],
)
def test_names_and_homes_are_not_told(text: str, shown: str) -> None:
    assert private(text) == shown


@pytest.mark.usefixtures("anna")
def test_a_home_that_cannot_be_told_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert private("/data/anna/x") == "/data/user/x"


def test_lines_before_an_error_are_kept() -> None:
    def half() -> Iterator[Line]:
        yield Line("lab", "first", "ok", "fine")
        raise OSError(5, "Input/output error", "/data/x")

    names = [(entry.name, entry.level) for entry in checked("lab", half)]
    assert names == [("first", "ok"), ("check", "warning")]
    assert line.failed("lab", "check", OSError(5, "Input/output error")).text.endswith("Input/output error")


def command(
    monkeypatch: pytest.MonkeyPatch, lines: tuple[Line, ...], *arguments: str | Path
) -> tuple[int, str]:
    monkeypatch.setattr("labkit.lab.doctor.examine", lambda *_: Report(lines, (CALM,)))
    ended = labkit("doctor", *arguments)
    assert not ended.err
    return ended.code, ended.out


WARNING = Line("disk", "models", "warning", "0.4 GB free; 1.0 GB are safe", "free some space")
PROBLEM = Line("machine", "backend", "problem", "labkit needs mlx, which is not installed", "pip install mlx")


def test_exit_codes_follow_problems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch, (Line("machine", "cores", "ok", "2"),)) == (
        0,
        "machine\n  ok       cores                 2\n\nNothing to mend. This machine is quiet.\n",
    )
    assert command(monkeypatch, (WARNING,))[0] == 0
    code, out = command(monkeypatch, (PROBLEM, WARNING))
    assert code == 1
    assert "1 problem and 1 warning. This machine is quiet." in out


def test_json_has_the_same_code_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = command(monkeypatch, (PROBLEM, WARNING), "--json")
    told = json.loads(out)
    assert code == 1
    assert (told["ok"], told["quiet"], told["problems"], told["warnings"]) == (False, True, 1, 1)
    assert told["lines"][0] == {
        "section": "machine",
        "name": "backend",
        "level": "problem",
        "text": PROBLEM.text,
        "mend": "pip install mlx",
    }
    assert told["probes"][0]["name"] == "busy_cores"


def test_long_texts_fold_below_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = Line("models", "a-name-that-is-longer-than-its-column", "warning", "word " * 40, "[mend] this")
    absent = (Line("quiet", "turbo", "absent", "x"), Line("quiet", "heat", "absent", "x"))
    _, out = command(monkeypatch, (long, *absent))
    assert max(map(len, out.splitlines())) <= 80
    assert "[mend] this" in out
    assert "not on this machine   turbo, heat" in out
    assert all(row == row.rstrip() for row in out.splitlines())


def test_as_it_is_here_at_80_columns_without_a_terminal(tmp_path: Path) -> None:
    lab = make_lab(tmp_path / "a lab with späces")
    command_line = [sys.executable, "-m", "labkit.cli.main", "doctor", "--root", str(lab)]
    environ = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    # It is to be quick; the limit only says that nothing hangs on a machine that others use too.
    said = subprocess.run(command_line, capture_output=True, env=environ, timeout=60, check=False)
    out = said.stdout.decode()
    assert said.returncode in (0, 1) and not said.stderr
    assert said.returncode == int("problem" in out.rpartition("\n\n")[2])
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert [row for row in out.splitlines() if row and not row.startswith(" ")][:3] == [
        "machine",
        "blas",
        "versions",
    ]


def test_as_it_is_here_no_name_is_in_the_json(tmp_path: Path) -> None:
    command_line = [sys.executable, "-m", "labkit.cli.main", "doctor", "--json", "--root", str(tmp_path)]
    home = tmp_path / "homes" / "zebulon"
    home.mkdir(parents=True)
    environ = {**os.environ, "HOME": str(home), "USER": "zebulon", "LOGNAME": "zebulon"}
    environ = {**environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "XDG_CACHE_HOME": ""}
    said = subprocess.run(command_line, capture_output=True, env=environ, timeout=60, check=False)
    told = json.loads(said.stdout.decode("ascii"))
    assert told["lines"] and told["probes"]
    text = json.dumps(told)
    assert "zebulon" not in text
    assert "~/" in text
    assert str(home) not in text
    if len(platform.node()) > 3:
        assert platform.node() not in text
