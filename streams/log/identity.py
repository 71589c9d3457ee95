"""Who a worker is: an id kept beside its state, made once, and held under a lock while it runs."""

import fcntl
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from streams.errors import IdentityInUse


class Identity:
    """A worker's id for as long as it is held. Two processes can never share one, and a restarted one is itself again."""

    def __init__(self, folder: Path) -> None:
        """Take the folder's id, or make one where there is none."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise IdentityInUse(
                f"{folder} is held by another running worker. Stop that one, or give this one a folder of its own with HOOKLINE_STATE_DIR"
            ) from error
        self.id = self._read_or_make()

    def _read_or_make(self) -> str:
        path = self.folder / "identity"
        if not path.exists():
            fresh = self.folder / "identity.new"
            fresh.write_text(secrets.token_hex(6))
            fresh.replace(path)
        return path.read_text().strip()

    def release(self) -> None:
        """Let another process have it."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
