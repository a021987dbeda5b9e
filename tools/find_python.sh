#!/bin/sh
# Print the first Python from 3.11 to 3.13 that can make a virtual environment; PYTHON names the only one tried.
suits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}
without_venv=
if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3.13 python3.12 python3.11 python3
fi
for python in "$@"; do
    suits "$python" || continue
    if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        echo "$python"
        exit 0
    fi
    without_venv=$python
done
{
    echo "labkit needs Python 3.11, 3.12 or 3.13 with venv."
    if [ -n "$without_venv" ]; then
        echo "  got:     $without_venv, which has no venv"
        echo "  next:    apt-get install python3-venv (Debian, Ubuntu), then run make again"
    else
        echo "  got:     none of them as $*"
        echo "  next:    install one, or name it: make PYTHON=/path/to/python3.11 ..."
    fi
} >&2
exit 1
