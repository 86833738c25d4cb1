# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled reply cache: the same as :mod:`kfs.mount.kernel.reply_cache`.

That module decides what is cached and for how long. This one has the loop that reads a request, looks up its answer and
writes it; it holds the GIL only for the look-up.
"""

from cpython.array cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.errno cimport ENODEV, ENOENT, errno
from libc.string cimport memcmp, memcpy

import os

from kfs.mount.kernel import reply_cache
from kfs.mount.kernel.reply_cache import ReplyCache
from kfs.metrics import Counts
from kfs.mount.kernel.protocol import entry_reply
from kfs.mount.request_counts import BOUNDS_NS, Answered

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    Py_ssize_t writev(int descriptor, const iovec* parts, int count)

cdef extern from "next_request.h" nogil:
    ctypedef struct Arrivals:
        int asks
        int comes_fast
        long long asked
        long long came
    long long nanoseconds_now()
    Py_ssize_t read_next_request(int device, void* request, size_t size, Arrivals* arrivals, long long until)

ctypedef unsigned char byte
ctypedef unsigned int uint32
ctypedef unsigned long long uint64
ctypedef long long int64

cdef enum:
    BODY_BYTES = 8192 - 40  # with the header, FUSE_MIN_READ_BUFFER
    LOOKUP = 1
    READ = 15
    MOST_DIGITS = 18  # all numbers with that many digits are below 2**63
    SECTOR_SIZE = 512
    NO_TIMESTAMP = -1
    COPIED_BYTES = 4096
    CLASSES = 8  # as in kfs.mount.request_counts
    OPERATIONS = 64  # opcodes are less; all others are counted as one

cdef Py_ssize_t MOST_GROUPS = reply_cache.MOST_GROUPS
cdef int64 NANOSECONDS = 1_000_000_000
cdef int64 NANOSECONDS_IN_MILLISECOND = 1_000_000
cdef int64[CLASSES - 1] BOUNDS  # of the classes of durations
for number in range(CLASSES - 1):
    BOUNDS[number] = BOUNDS_NS[number]
assert len(BOUNDS_NS) == CLASSES - 1

# From the kernel's fuse.h; see fuse_protocol.py.
cdef struct InHeader:
    uint32 len
    uint32 opcode
    uint64 unique
    uint64 nodeid
    uint32 rest[4]

cdef struct ReadIn:
    uint64 fh
    uint64 offset
    uint32 size
    uint32 rest[5]

cdef struct OutHeader:
    uint32 len
    int error
    uint64 unique

cdef struct EntryReply:
    OutHeader header
    uint64 nodeid
    uint64 generation
    uint64 entry_valid
    uint64 attr_valid
    uint32 entry_valid_nsec
    uint32 attr_valid_nsec
    # struct fuse_attr
    uint64 ino
    uint64 size
    uint64 blocks
    int64 times[3]
    uint32 nanoseconds[3]
    uint32 rest[7]

cdef struct Request:
    InHeader header
    byte body[BODY_BYTES]

cdef struct Answers:
    # How many answers took how long, and all of them together.
    int64 classes[CLASSES]
    int64 nanoseconds

cdef struct Reply:
    int parts  # 0 for none
    iovec part[2]
    Py_ssize_t read_bytes  # bytes of a file in it
    OutHeader header
    byte data[COPIED_BYTES]
    EntryReply entry


cdef class Group:
    """Files found together, in a directory that is not asked again for a moment."""

    cdef object contents
    cdef Directory directory
    cdef int64 id_of_zero
    cdef EntryReply entry  # the reply to LOOKUP of any of them, less the fields that differ

    def __cinit__(self, Directory directory, files):
        directory.take_stamp(files.stamp)
        self.entry = directory.entry
        self.directory = directory
        self.contents = files.contents
        self.id_of_zero = files.stamp.id_of_zero


cdef class SortedGroups:
    """Groups, ordered by the lowest key of each."""

    cdef array keys
    cdef list groups

    def __cinit__(self):
        self.keys = array("q")
        self.groups = []

    cdef int put(self, int64 key, Group group) except -1:
        cdef Py_ssize_t at = upper_bound(self.keys, key)
        if at > 0 and self.keys.data.as_longlongs[at - 1] == key:
            self.groups[at - 1] = group
        else:
            self.groups.insert(at, group)
            self.keys.insert(at, key)
        return 0

    cdef Group find(self, int64 key):
        cdef Py_ssize_t at = upper_bound(self.keys, key) - 1
        return <Group>self.groups[at] if at >= 0 else None


cdef class Directory:
    """What a directory said, and until when (monotonic clock) it is not asked again."""

    cdef object state
    cdef bytes suffix
    cdef double until
    cdef SortedGroups by_number
    cdef object stamp  # of the group put last: mostly also that of the next one
    cdef EntryReply entry

    def __cinit__(self, files):
        self.state = files.state
        self.suffix = files.suffix.encode()
        self.until = 0.0
        self.by_number = SortedGroups()
        self.stamp = None

    cdef int take_stamp(self, stamp) except -1:
        cdef bytes reply
        if stamp is not self.stamp:
            reply = entry_reply(0, stamp.attributes(-stamp.id_of_zero, 0, NO_TIMESTAMP))
            if len(reply) != sizeof(EntryReply):
                raise ValueError("the layout of an entry")
            memcpy(&self.entry, PyBytes_AS_STRING(reply), sizeof(EntryReply))
            self.stamp = stamp
        return 0


cdef class CompiledTable:
    """See :class:`kfs.mount.kernel.reply_cache.Table`."""

    cdef SortedGroups by_id
    cdef dict directories

    def __cinit__(self):
        self.by_id = SortedGroups()
        self.directories = {}

    def put(self, directory_id, files, double until):
        """See :meth:`kfs.mount.kernel.reply_cache.Table.put`."""
        cdef Directory directory = self.directories.get(directory_id)
        cdef Group group
        contents = files.contents()
        if contents is None:
            return True
        if len(self.by_id.groups) >= MOST_GROUPS or (directory is not None and directory.state != files.state):
            return False
        if directory is None:
            directory = self.directories[directory_id] = Directory(files)
        group = Group(directory, files)
        directory.by_number.put(contents.offsets[0], group)
        self.by_id.put(group.id_of_zero + <int64>contents.offsets[0], group)
        directory.until = until
        return True

    def expire(self, directory_id):
        """See :meth:`kfs.mount.kernel.reply_cache.Table.expire`."""
        cdef Directory directory = self.directories.get(directory_id)
        if directory is not None:
            directory.until = 0.0


cdef class Arrival:
    """How requests come: whether the last one came fast, and whether it pays to ask for the next before waiting."""

    cdef Arrivals times

    def __cinit__(self):
        self.times.asks = len(os.sched_getaffinity(0)) > 1
        self.times.comes_fast = 0


cdef class CompiledRequestCounts:
    """See :class:`kfs.mount.request_counts.RequestCounts`; the GIL keeps threads apart."""

    cdef readonly object errors
    cdef readonly int64 read_bytes
    cdef Answers answers[OPERATIONS]

    def __cinit__(self):
        self.errors = Counts()

    def add(self, unsigned int operation, int64 begun, int error=0, int64 read_bytes=0):
        """See :meth:`kfs.mount.request_counts.RequestCounts.add`."""
        note(&self.answers[min(operation, OPERATIONS - 1)], nanoseconds_now() - begun)
        self.read_bytes += read_bytes
        if error:
            self.errors.add((operation, error))

    def add_read(self, int64 read_bytes):
        """See :meth:`kfs.mount.request_counts.RequestCounts.add_read`."""
        self.read_bytes += read_bytes

    def answered(self):
        """See :meth:`kfs.mount.request_counts.RequestCounts.answered`."""
        cdef int operation
        cdef int number
        found = []
        for operation in range(OPERATIONS):
            classes = tuple([self.answers[operation].classes[number] for number in range(CLASSES)])
            if any(classes):
                found.append(Answered(operation, classes, self.answers[operation].nanoseconds))
        return found


class CompiledReplyCache(ReplyCache):
    """See :class:`kfs.mount.kernel.reply_cache.ReplyCache`."""

    table_class = CompiledTable
    counts_class = CompiledRequestCounts

    def __init__(self, device, is_followed, most_seconds=None):
        super().__init__(device, is_followed, most_seconds)
        os.set_blocking(device, False)
        self.arrival = Arrival()

    def next_request(self):
        """See :meth:`kfs.mount.kernel.reply_cache.ReplyCache.next_request`."""
        cdef int device = self.device
        cdef Request request
        cdef Reply reply
        cdef Py_ssize_t size = 0
        cdef int number = 0
        cdef object kept = None  # the object that the reply points into
        cdef Arrivals* times = &(<Arrival>self.arrival).times
        cdef CompiledRequestCounts counts = self.counts
        cdef Answers* answers = NULL  # where to count the reply
        cdef int64 came = 0  # when the request came that is being answered
        cdef int64 until = 0
        if self.most_seconds is not None:
            until = nanoseconds_now() + <int64>(self.most_seconds * NANOSECONDS)
        reply.parts = 0
        while True:
            with nogil:
                if reply.parts and writev(device, reply.part, reply.parts) < 0:
                    number = errno
                if number == 0 or number == ENOENT or number == ENODEV:  # as NOT_WAITED_FOR
                    size = read_next_request(device, &request, sizeof(Request), times, until)
                    number = errno if size < 0 else 0
                    if reply.parts:
                        note(answers, times.asked - came)
            if number:
                raise OSError(number, os.strerror(number))
            came = times.came
            reply.parts = 0
            if size > <Py_ssize_t>sizeof(InHeader) and request.header.opcode == LOOKUP:
                find_entry(self.table, &request, size, came, &reply)
                answers = &counts.answers[LOOKUP]
            elif size >= <Py_ssize_t>(sizeof(InHeader) + sizeof(ReadIn)) and request.header.opcode == READ:
                kept = find_data(self.table, self.is_followed, &request, came, &reply)
                answers = &counts.answers[READ]
                counts.read_bytes += reply.read_bytes
            if not reply.parts:
                return PyBytes_FromStringAndSize(<char*>&request, size)


cdef void note(Answers* answers, int64 nanoseconds) noexcept nogil:
    """Count an answer."""
    cdef int number = 0
    while number < CLASSES - 1 and nanoseconds > BOUNDS[number]:
        number += 1
    answers.classes[number] += 1
    answers.nanoseconds += nanoseconds


cdef int find_entry(CompiledTable table, Request* request, Py_ssize_t size, int64 now, Reply* reply) except -1:
    """Answer a LOOKUP from the cache, if possible."""
    cdef array starts
    cdef array timestamps
    cdef Directory directory = table.directories.get(request.header.nodeid)
    cdef Group group
    cdef EntryReply* entry = &reply.entry
    cdef Py_ssize_t at
    cdef int64 number
    cdef int64 length
    if directory is None or is_over(directory.until, now):
        return 0
    number = number_in(request.body, size - sizeof(InHeader) - 1, directory.suffix)  # a zero byte follows the name
    group = directory.by_number.find(number) if number >= 0 else None
    if group is None:
        return 0
    contents = group.contents()
    at = index_of(contents, number)
    if at < 0:
        return 0
    starts, timestamps = contents.starts, contents.timestamps
    if at >= len(timestamps):
        return 0
    entry[0] = group.entry
    entry.header.unique = request.header.unique
    entry.nodeid = entry.ino = group.id_of_zero + number
    length = starts.data.as_longlongs[at + 1] - starts.data.as_longlongs[at]
    entry.size = length
    entry.blocks = (length + SECTOR_SIZE - 1) // SECTOR_SIZE
    if timestamps.data.as_longlongs[at] != NO_TIMESTAMP:
        put_time(entry, timestamps.data.as_longlongs[at])
    reply.part[0].iov_base = entry
    reply.part[0].iov_len = sizeof(EntryReply)
    reply.parts = 1
    return 0


cdef int64 number_in(const byte* name, Py_ssize_t size, bytes suffix) noexcept:
    """Return the number in a name of digits and a suffix; -1 for any other name."""
    cdef Py_ssize_t digits = size - len(suffix)
    cdef Py_ssize_t at
    cdef int64 number = 0
    if not 0 < digits <= MOST_DIGITS or (digits > 1 and name[0] == c"0"):
        return -1
    if memcmp(name + digits, PyBytes_AS_STRING(suffix), len(suffix)):
        return -1
    for at in range(digits):
        if not c"0" <= name[at] <= c"9":
            return -1
        number = 10 * number + name[at] - c"0"
    return number


cdef object find_data(CompiledTable table, is_followed, Request* request, int64 now, Reply* reply):
    """Answer a READ from the cache, if possible; return the object that the answer points into."""
    cdef array starts
    cdef bytes buffer
    cdef Py_ssize_t at
    cdef int64 node_id = <int64>request.header.nodeid
    cdef int64 start
    cdef int64 size
    cdef const ReadIn* wanted = <ReadIn*>request.body
    cdef Group group = table.by_id.find(node_id)
    reply.read_bytes = 0
    if group is None or is_over(group.directory.until, now):
        return None
    contents = group.contents()
    at = index_of(contents, node_id - group.id_of_zero)
    if at < 0 or (wanted.offset == 0 and is_followed(node_id)):
        return None
    starts, buffer = contents.starts, contents.buffer
    start = starts.data.as_longlongs[at]
    size = starts.data.as_longlongs[at + 1] - start
    if wanted.offset >= <uint64>size:
        size = 0
    else:
        start += <int64>wanted.offset
        size = min(size - <int64>wanted.offset, wanted.size)
    if not 0 <= start <= start + size <= len(buffer):
        return None
    reply.read_bytes = size
    reply.header.len = <uint32>(sizeof(OutHeader) + size)
    reply.header.error = 0
    reply.header.unique = request.header.unique
    reply.part[0].iov_base = &reply.header
    reply.part[0].iov_len = sizeof(OutHeader)
    if size <= COPIED_BYTES:  # cheaper for the kernel than another iovec
        memcpy(reply.data, PyBytes_AS_STRING(buffer) + start, size)
        reply.part[0].iov_len += size
        reply.parts = 1
        return None
    reply.part[1].iov_base = PyBytes_AS_STRING(buffer) + start
    reply.part[1].iov_len = size
    reply.parts = 2
    return buffer


cdef Py_ssize_t index_of(contents, int64 number) except -2:
    """Return the index of a number in the contents, -1 if it is missing."""
    cdef array offsets
    cdef array starts
    cdef Py_ssize_t at
    cdef int64 guess
    if contents is None:
        return -1
    offsets, starts = contents.offsets, contents.starts
    if not len(offsets):
        return -1
    guess = number - offsets.data.as_longlongs[0]  # right if there are no gaps
    if 0 <= guess < len(offsets) and offsets.data.as_longlongs[guess] == number:
        at = guess
    else:
        at = upper_bound(offsets, number) - 1
    return at if at >= 0 and offsets.data.as_longlongs[at] == number and at + 1 < len(starts) else -1


cdef Py_ssize_t upper_bound(array keys, int64 key) noexcept:
    """Return how many of the ascending keys are not greater than ``key``."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = len(keys)
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if keys.data.as_longlongs[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low


cdef bint is_over(double until, int64 now) noexcept:
    """Return whether a time, in seconds, is over at another one, in nanoseconds."""
    return until < now * 1e-9


cdef void put_time(EntryReply* entry, int64 milliseconds) noexcept:
    """Set all times of an entry, clamped as by :func:`kfs.tree.node.clock_ns`."""
    cdef int64 time_ns
    cdef int64 seconds
    if milliseconds > LLONG_MAX // NANOSECONDS_IN_MILLISECOND:
        time_ns = LLONG_MAX
    elif milliseconds < LLONG_MIN // NANOSECONDS_IN_MILLISECOND:
        time_ns = LLONG_MIN
    else:
        time_ns = milliseconds * NANOSECONDS_IN_MILLISECOND
    seconds = time_ns // NANOSECONDS
    if time_ns % NANOSECONDS < 0:  # C rounds towards zero
        seconds -= 1
    entry.times[0] = entry.times[1] = entry.times[2] = seconds
    entry.nanoseconds[0] = entry.nanoseconds[1] = entry.nanoseconds[2] = <uint32>(time_ns - seconds * NANOSECONDS)
