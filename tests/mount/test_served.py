"""What a mount shows is what the tree says, through every front."""

from __future__ import annotations

import errno
import filecmp
import mmap
import os
import random
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kfs.tree.node import Directory, File, Node, Symlink
from tests.mount.toy_mount import ToyMount, is_running, output
from tests.mount.toy_tree import WEIRD_NAMES, ToyTree, record_json, static_bytes

pytestmark = pytest.mark.fuse

SHOWN = ("", "static", "static/inner/deep", "names", "unsized", "live")


def nodes(tree: ToyTree) -> list[tuple[str, Node]]:
    """Every node in and of the directories that are small, by path."""
    found: list[tuple[str, Node]] = []
    for path in SHOWN:
        directory = tree.resolve(path)
        assert isinstance(directory, Directory)
        found.append((path, directory))
        for entry in directory.entries():
            found.append((os.path.join(path, entry.name), directory.lookup(entry.name)))
    return [(path, node) for path, node in found if not path.startswith("live/")]


def kind(item: os.DirEntry[str]) -> int:
    """The type that the listing itself gave, as in ``st_mode``."""
    if item.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFDIR if item.is_dir(follow_symlinks=False) else stat.S_IFREG


def test_every_attribute_is_exact(mounted: ToyMount, toy_tree: ToyTree) -> None:
    for path, node in nodes(toy_tree):
        shown = os.lstat(mounted.path(path))
        own = node.attributes()
        assert (shown.st_ino, shown.st_mode, shown.st_nlink) == (own.node_id, own.mode, own.nlink), path
        assert (shown.st_uid, shown.st_gid, shown.st_size) == (own.uid, own.gid, own.size), path
        assert (shown.st_mtime_ns, shown.st_ctime_ns, shown.st_atime_ns) == (own.mtime_ns,) * 3, path
        assert (shown.st_blocks, shown.st_blksize) == (-(-own.size // 512), 4096), path


def test_every_file_reads_as_the_tree_gives_it(mounted: ToyMount, toy_tree: ToyTree) -> None:
    for path, node in nodes(toy_tree):
        if isinstance(node, File):
            assert Path(mounted.path(path)).read_bytes() == node.read(0, 1 << 30), path
        elif isinstance(node, Symlink):
            assert os.readlink(mounted.path(path)) == node.target(), path


def test_listings_have_the_names_types_and_inodes_of_the_tree(mounted: ToyMount, toy_tree: ToyTree) -> None:
    for path in SHOWN[:-1]:
        directory = toy_tree.resolve(path)
        assert isinstance(directory, Directory)
        expected = {(entry.name, entry.node_id, stat.S_IFMT(entry.mode)) for entry in directory.entries()}
        with os.scandir(mounted.path(path)) as listing:
            shown = {(item.name, item.inode(), kind(item)) for item in listing}
        assert shown == expected


def test_dot_and_dot_dot_are_listed_with_their_inodes(mounted: ToyMount) -> None:
    lines = output(["ls", "-aif", mounted.path("static/inner")]).splitlines()
    inodes = {name: int(number) for number, name in (line.split() for line in lines)}
    assert inodes["."] == os.stat(mounted.path("static/inner")).st_ino
    assert inodes[".."] == os.stat(mounted.path("static")).st_ino
    assert set(inodes) == {".", "..", "deep"}


def test_weird_names_arrive_byte_for_byte(mounted: ToyMount) -> None:
    names = os.listdir(os.fsencode(mounted.path("names")))
    assert sorted(names) == sorted(os.fsencode(name) for name in WEIRD_NAMES)
    for name in names:
        path = os.path.join(os.fsencode(mounted.path("names")), name)
        assert Path(os.fsdecode(path)).read_bytes() == name


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("nothing", errno.ENOENT),
        ("static/nothing", errno.ENOENT),
        ("static/a.txt/more", errno.ENOTDIR),
        ("records/007.json", errno.ENOENT),
        ("dangling", errno.ENOENT),
    ],
)
def test_what_is_not_there_is_refused_with_the_right_error(mounted: ToyMount, path: str, number: int) -> None:
    with pytest.raises(OSError) as caught:
        os.stat(mounted.path(path))
    assert caught.value.errno == number


def test_a_directory_cannot_be_read_nor_a_file_listed(mounted: ToyMount) -> None:
    with pytest.raises(IsADirectoryError):
        Path(mounted.path("static")).read_bytes()
    with pytest.raises(NotADirectoryError):
        os.listdir(mounted.path("static/a.txt"))
    with pytest.raises(OSError, match="Invalid argument"):
        os.readlink(mounted.path("static/a.txt"))


def test_any_range_of_a_large_file_reads_right(mounted: ToyMount) -> None:
    whole = static_bytes(3 * 1024 * 1024 + 123)
    choose = random.Random(1)
    descriptor = os.open(mounted.path("static/big.bin"), os.O_RDONLY)
    try:
        for _ in range(300):
            offset, size = choose.randrange(len(whole) + 10), choose.randrange(200_000)
            assert os.pread(descriptor, size, offset) == whole[offset : offset + size]
        assert os.pread(descriptor, 10, len(whole)) == b""
    finally:
        os.close(descriptor)


def test_a_file_can_be_mapped(mounted: ToyMount) -> None:
    whole = static_bytes(3 * 1024 * 1024 + 123)
    with open(mounted.path("static/big.bin"), "rb") as file:
        for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            with mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as mapped:
                assert mapped[:] == whole


def test_corrupt_data_is_an_input_output_error_and_one_line_in_the_log(mounted: ToyMount) -> None:
    with pytest.raises(OSError) as caught:
        Path(mounted.path("damaged/corrupt")).read_bytes()
    assert caught.value.errno == errno.EIO
    lines = [line for line in mounted.log() if "/damaged/corrupt" in line]
    assert len(lines) == 1
    assert "/data/t-0/0.log: position 4711: the checksum is 1 and should be 2" in lines[0]


def test_only_the_page_with_the_damage_cannot_be_read(mounted: ToyMount) -> None:
    whole = static_bytes(1 << 20)
    damaged = []
    descriptor = os.open(mounted.path("damaged/partly"), os.O_RDONLY)
    try:
        for offset in range(0, len(whole), 4096):
            try:
                page = os.pread(descriptor, 4096, offset)
            except OSError as error:
                damaged.append((offset, error.errno))
            else:
                assert page == whole[offset : offset + 4096]
    finally:
        os.close(descriptor)
    assert damaged == [(602_112 // 4096 * 4096, errno.EIO)]


@pytest.mark.parametrize("name", ["bug", "too-much"])
def test_a_mistake_in_the_tree_is_an_input_output_error_and_not_the_end(mounted: ToyMount, name: str) -> None:
    with pytest.raises(OSError) as caught:
        Path(mounted.path(f"damaged/{name}")).read_bytes()
    assert caught.value.errno == errno.EIO
    assert any("Traceback" in line for line in mounted.log())
    assert is_running(mounted.pid)
    assert Path(mounted.path("static/a.txt")).read_bytes() == b"alpha\n"


def test_df_does_not_call_the_mount_full(mounted: ToyMount) -> None:
    """It has no blocks, so there is no share of them that is used."""
    shown = os.statvfs(mounted.point)
    assert (shown.f_blocks, shown.f_bfree, shown.f_bavail, shown.f_namemax) == (0, 0, 0, 255)
    assert shown.f_flag & os.ST_RDONLY
    line = output(["df", "--output=source,size,pcent", str(mounted.point)]).splitlines()[1]
    assert line.startswith("/data/kafka, old")
    assert line.split()[-2:] == ["0", "-"]


def test_du_counts_what_ls_shows(mounted: ToyMount) -> None:
    static = Path(mounted.path("static"))
    sizes = [path.stat().st_size for path in static.rglob("*") if path.is_file()]
    assert int(output(["du", "-s", "--apparent-size", "-B1", str(static)]).split()[0]) == sum(sizes)
    assert int(output(["du", "-s", "-B512", str(static)]).split()[0]) == sum(-(-size // 512) for size in sizes)


def test_cp_copies_a_directory_whole(mounted: ToyMount, tmp_path: Path) -> None:
    for name in ("static", "names"):
        source, copy = Path(mounted.path(name)), tmp_path / name
        output(["cp", "-rp", str(source), str(copy)])
        compared = filecmp.dircmp(source, copy)
        assert not compared.left_only
        assert not compared.right_only
        same, different, wrong = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
        assert (sorted(same), different, wrong) == (sorted(compared.common_files), [], [])
        for file in set(same) - {"ancient"}:  # which ext4 cannot store
            assert (copy / file).stat().st_mtime_ns == (source / file).stat().st_mtime_ns


def test_find_goes_everywhere_and_compares_times(mounted: ToyMount) -> None:
    found = output(["find", mounted.path("static"), "-type", "f", "-printf", "%P\n"]).splitlines()
    assert "inner/deep/file" in found
    assert len(found) == 10
    assert output(["find", mounted.path("static"), "-newermt", "2200-01-01", "-printf", "%P"]) == "far"


def test_grep_finds_the_record(mounted: ToyMount) -> None:
    found = output(["grep", "-rl", '"offset":421,', mounted.path("records")])
    assert found == mounted.path("records/421.json") + "\n"


def test_two_hundred_readers_at_once_get_the_right_bytes(mounted: ToyMount) -> None:
    def read_some(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(20):
            number = choose.randrange(1000)
            content = Path(mounted.path(f"records/{number}.json")).read_bytes()
            assert content == record_json(number)
            assert os.stat(mounted.path(f"records/{number}.json")).st_size == len(content)

    with ThreadPoolExecutor(200) as readers:
        for _ in readers.map(read_some, range(200)):
            pass


def test_killed_readers_harm_nobody(mounted: ToyMount) -> None:
    readers = [subprocess.Popen(["grep", "-r", "nothing", mounted.path("records")]) for _ in range(5)]
    for reader in readers:
        reader.kill()
        reader.wait()
    assert Path(mounted.path("static/b.json")).read_bytes() == b'{"b": 2}\n'


def test_a_listing_without_sizes_leaves_them_to_stat(mounted: ToyMount) -> None:
    with os.scandir(mounted.path("unsized")) as listing:
        assert [(item.name, item.stat().st_size) for item in listing] == [("a", 8)]


def test_extended_attributes_are_not_supported(mounted: ToyMount) -> None:
    with pytest.raises(OSError) as caught:
        os.getxattr(mounted.path("static/a.txt"), "user.none")
    assert caught.value.errno in (errno.ENOTSUP, errno.ENODATA)


def test_the_mount_table_names_the_source(mounted: ToyMount) -> None:
    line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {mounted.point} " in line)
    assert " - fuse.kfs /data/kafka,\\040old ro," in line
