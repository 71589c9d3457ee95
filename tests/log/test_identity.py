"""A worker's id: made once, the same again after a restart, and never two processes' at once."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams.errors import IdentityInUse
from streams.log.identity import Identity

HOLD = """
import sys
from pathlib import Path
from streams.log.identity import Identity
held = Identity(Path(sys.argv[1]))
print(held.id, flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Another process that holds the folder's id until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_an_id_is_made_once_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with Identity(tmp_path / "worker") as first:
        made = first.id
    with Identity(tmp_path / "worker") as again:
        assert again.id == made
    with Identity(tmp_path / "another") as other:
        assert other.id != made


def test_an_id_can_be_part_of_every_name_on_a_cluster(tmp_path: Path) -> None:
    with Identity(tmp_path) as identity:
        assert identity.id.isalnum() and identity.id.isascii()
        assert 8 <= len(identity.id) <= 20


def test_an_id_is_held_by_one_at_a_time_in_one_process_too(tmp_path: Path) -> None:
    with Identity(tmp_path), pytest.raises(IdentityInUse, match="HOOKLINE_STATE_DIR"):
        Identity(tmp_path)
    Identity(tmp_path).release()


def test_two_processes_cannot_share_an_id_and_a_killed_one_lets_go_of_it(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as (made, process):
        with pytest.raises(IdentityInUse, match="held by another running worker"):
            Identity(tmp_path)
        process.kill()
        process.wait()
        with Identity(tmp_path) as taken_over:
            assert taken_over.id == made


def test_a_refused_one_does_not_change_the_id_of_the_one_that_holds_it(tmp_path: Path) -> None:
    with Identity(tmp_path) as held:
        for _ in range(3):
            with pytest.raises(IdentityInUse):
                Identity(tmp_path)
    with Identity(tmp_path) as again:
        assert again.id == held.id


def test_an_id_that_was_being_made_when_the_process_died_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "identity.new").write_text("hal")
    with Identity(tmp_path) as identity:
        assert len(identity.id) > 3
