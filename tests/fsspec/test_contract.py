"""fsspec's own tests of filesystems, those that don't write: over a tree with the files that they expect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

from tests.fsspec.toy import MirrorTree, ToyFileSystem

Join = Callable[..., str]


class Prepared(ToyFileSystem):
    """A filesystem in which all that a test would write first is already there."""

    def _is_there(self, path: str) -> None:
        assert self.exists(path)

    mkdir = touch = _is_there  # type: ignore[assignment]


class Scenario(AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    """The scenarios of those tests, written to a directory by themselves and then shown by the filesystem."""

    @pytest.fixture
    def fs(self, tmp_path: Path, request: pytest.FixtureRequest) -> Prepared:
        remote = tmp_path / "shown" / "remote"
        (remote / "src").mkdir(parents=True)
        (remote / "src" / "file").touch()
        writers: dict[str, Callable[[Any, Join, str], object]] = {
            "fs_bulk_operations_scenario_0": self._bulk_operations_scenario_0,
            "fs_glob_edge_cases_files": self._glob_edge_cases_files,
            "fs_dir_and_file_with_same_name_prefix": self._dir_and_file_with_same_name_prefix,
            "fs_10_files_with_hashed_names": self._10_files_with_hashed_names,
        }
        for name, write in writers.items():
            if name in request.fixturenames:
                write(LocalFileSystem(auto_mkdir=True), lambda *names: "/".join(names), str(remote))
        return Prepared(MirrorTree(tmp_path / "shown", tmp_path / "control"))

    @pytest.fixture
    def fs_join(self) -> Join:
        return lambda *names: "/".join(names)

    @pytest.fixture
    def fs_path(self) -> str:
        return "remote"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self) -> str:
        return "remote/source"

    @pytest.fixture
    def fs_glob_edge_cases_files(self) -> str:
        return "remote/source"

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self) -> str:
        return "remote/source"

    @pytest.fixture
    def fs_10_files_with_hashed_names(self) -> str:
        return "remote/source"


class TestGet(AbstractGetTests, Scenario):  # type: ignore[misc]
    """Copying out of it: ``get`` of files, directories, lists and patterns."""
