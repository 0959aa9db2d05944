"""What a device refuses while a model runs, each as one error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xfcost.ledger.errors import DeviceError
from xfcost.torch_models.shared.private_torch import is_compiler_error

_NO_KERNEL: Final = re.compile(r'"(\w+)" not implemented for \'(\w+)\'')
_LOST: Final = re.compile(r"CUDA error|CUDA driver|HIP error|no longer available|device-side assert", re.IGNORECASE)


@contextmanager
def on_device(name: str, device: str, dtype: str) -> Iterator[None]:
    """Report a missing kernel, a lost device and a failed compilation in one line; other errors pass.

    Raises:
        DeviceError: one of these.
    """
    try:
        yield
    except Exception as error:
        told = _refusal(error, name, device, dtype)
        if told is None:
            raise
        raise DeviceError(told) from None


def _refusal(error: Exception, name: str, device: str, dtype: str) -> str | None:
    first = (str(error).strip() or type(error).__name__).partition("\n")[0]
    if is_compiler_error(error):
        return f"--compile: torch could not compile {name} ({first}); leave --compile out"
    if kernel := _NO_KERNEL.search(str(error)):
        return (
            f"--dtype {dtype}: torch has no kernel for it on {device}, and {name} needs one ({kernel[1]}, "
            f"{kernel[2]}); take --dtype float32, or leave --device out: counting needs no kernel"
        )
    if isinstance(error, RuntimeError) and _LOST.search(str(error)) and "out of memory" not in str(error):
        return f"--device {device}: it failed while {name} ran ({first}); check the device, then run again"
    return None
