"""Errors of the hub, each told as one message that a person can act on."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.model.wording import one_line

_FULL = (errno.ENOSPC, errno.EDQUOT)
# A mistake of a program, ours or the client's, which no person at a prompt can act on.
_BUGS = (TypeError, AttributeError, NameError, AssertionError, ImportError)
_LOGIN = "run `hf auth login`, or set HF_TOKEN"


class Unreachable(ModelUnavailable):
    """The hub cannot be reached, or must not be."""


@contextmanager
def one_hub_message(repository: str) -> Iterator[None]:
    """Turn whatever the client raises into one LabkitError; its own warnings stay unsaid."""
    from huggingface_hub.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    except (LabkitError, *_BUGS):
        raise
    except Exception as error:
        raise _told(repository, error) from error
    finally:
        logging.set_verbosity(verbosity)


def _told(repository: str, error: Exception) -> LabkitError:
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        return _refused(repository, error)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return _unreachable(repository, "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE, or name a directory")
    if isinstance(error, errors.HFValidationError):
        return ModelUnavailable("a hub id org/name was needed", got=one_line(error))
    if isinstance(error, errors.FileMetadataError):
        next_step = "check HF_ENDPOINT and the proxy: what answers does not seem to be a hub"
        return ModelUnavailable(_need(repository), got=one_line(error), next_step=next_step)
    if isinstance(error, OSError) and (error.errno in _FULL or (error.errno and error.filename)):
        return _unusable(repository, error)
    return _unknown(repository, error)


def _unknown(repository: str, error: Exception) -> LabkitError:
    """Of a connection that was lost, or whatever else: in its own words."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    got = f"{type(error).__name__}: {one_line(error)}"
    # The first base is the error of the HTTP library that the client uses, whichever that is.
    http = HfHubHTTPError.__bases__[0]
    lost = (http, ConnectionError, TimeoutError, socket.gaierror, LocalEntryNotFoundError)
    if not isinstance(error, lost):
        return ModelUnavailable(_need(repository), got=got)
    next_step = "check the connection and repeat the command: what was fetched is kept"
    return _unreachable(repository, got, next_step)


def _unusable(repository: str, error: OSError) -> LabkitError:
    """A file or folder of the cache that cannot be written."""
    if error.errno in _FULL:
        return LabkitError(
            f"more free disk space was needed for fetching {repository}",
            got=error.strerror,
            next_step="free some space, or set HF_HOME to a folder on a larger disk",
        )
    got = f"{error.strerror}: {error.filename}"
    next_step = "check the folder's rights, or set HF_HOME to another"
    return ModelUnavailable(_need(repository), got=got, next_step=next_step)


def _refused(repository: str, error: Exception) -> LabkitError:
    """An answer of the hub that is no success. error: an HfHubHTTPError."""
    from huggingface_hub import errors

    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else 0
    server = one_line(getattr(error, "server_message", None) or "")
    got = f"{repository}: HTTP status {status}" + (f": {server}" if server else "")
    if isinstance(error, errors.GatedRepoError):
        next_step = f"accept its terms at https://huggingface.co/{repository}, then {_LOGIN}"
        return ModelUnavailable("access to a gated model was needed", got=got, next_step=next_step)
    if isinstance(error, errors.RepositoryNotFoundError):
        next_step = f"check the spelling; where it is private, {_LOGIN}"
        return ModelUnavailable("a repository that the hub has was needed", got=got, next_step=next_step)
    if status in (401, 403):
        return ModelUnavailable(_need(repository), got=got, next_step=_LOGIN)
    if status == 429 or status >= 500:
        return _unreachable(repository, got, "repeat the command later: what was fetched is kept")
    return ModelUnavailable(_need(repository), got=got, next_step="check the id and the file's name")


def _unreachable(repository: str, got: str, next_step: str) -> Unreachable:
    return Unreachable(_need(repository), got=got, next_step=next_step)


def _need(repository: str) -> str:
    return f"the model {repository} was needed from the hub"
