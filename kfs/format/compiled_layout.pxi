"""Layouts, big-endian integers and checksums in C (kfs.format.layout). Part of compiled_decode.pyx."""

cdef extern from "crc.h" nogil:
    void crc_init()
    unsigned int crc32c_of(const byte* data, size_t size)
    unsigned int crc32_of(const byte* data, size_t size)

cdef extern from *:
    """
    static inline uint32_t read_uint32(const uint8_t *data) {
        return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    }
    static inline int32_t read_int32(const uint8_t *data) { return (int32_t)read_uint32(data); }
    static inline int64_t read_int64(const uint8_t *data) {
        return (int64_t)((uint64_t)read_uint32(data) << 32 | read_uint32(data + 4));
    }
    static inline uint16_t read_uint16(const uint8_t *data) { return (uint16_t)(data[0] << 8 | data[1]); }
    """
    long long read_int64(const byte* data) nogil
    int read_int32(const byte* data) nogil
    unsigned int read_uint32(const byte* data) nogil
    unsigned short read_uint16(const byte* data) nogil

cdef enum:
    BATCH_OVERHEAD = 61
    BATCH_MIN_LENGTH = 49
    BATCH_CRC_START = 21
    LOG_OVERHEAD = 12
    MAGIC_V1 = 1
    MAGIC_V2 = 2
    MOST_CODEC = 4
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    CONTROL_MASK = 0x20
    KIND_MASK = 0x2F  # codec, timestamp type, control: equal for all records of one block
    LEAST_RECORD_BYTES = 7
    LEGACY_HEADER_SIZE = 18
    LEGACY_CRC_START = 16
    MIN_SIZE_V0 = 14
    MIN_SIZE_V1 = 22
    NO_TIMESTAMP = -1

cdef long long MAX_INT64 = 0x7FFFFFFFFFFFFFFF
cdef long long MIN_INT64 = -MAX_INT64 - 1
cdef Py_ssize_t MAX_INT32 = 0x7FFFFFFF
