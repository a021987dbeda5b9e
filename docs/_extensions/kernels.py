"""Kernels of the examples: their messages are encrypted where kernel and library can.

Over plain TCP each kernel warns that whoever else is on this machine may listen; a warning of a page would
go under among those.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

import zmq
from jupyter_cache.executors import utils
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class EncryptedKernel(AsyncKernelManager):
    """A kernel whose transport is encrypted unless the machine's libzmq or the kernel cannot."""

    @default("transport_encryption")
    def _encryption(self) -> str:
        return "auto" if zmq.has("curve") else "disabled"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx. MyST-NB has no setting for the class of a kernel: its executor gets it here."""
    utils.executenb = functools.partial(utils.executenb, kernel_manager_class=EncryptedKernel)
    logging.getLogger("traitlets").setLevel(logging.WARNING)
    return {"parallel_read_safe": True}
