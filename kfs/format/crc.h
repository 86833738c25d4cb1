/* CRC-32C (record batches, Castagnoli) and CRC-32 (messages of v0 and v1, as zlib's).
 *
 * CRC-32C uses the CPU's instruction if available: SSE 4.2 on x86-64, the CRC extension on ARMv8. With AVX-512 it uses
 * carry-less multiplication of 64 bytes at a time, which is twice as fast. CRC-32, and CRC-32C on other
 * CPUs, use tables, eight bytes at a time ("slicing by 8"). Call crc_init() first. */

#ifndef KFS_CRC_H
#define KFS_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#include <immintrin.h>
#define CRC_HARDWARE __attribute__((target("sse4.2")))
#define CRC_STEP_8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_STEP_1(crc, byte) _mm_crc32_u8((crc), (byte))
#if (defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 10)
#define CRC_WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2")))
#endif
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) && !defined(__AARCH64EB__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__clang__)
#define CRC_HARDWARE __attribute__((target("crc")))
#else
#define CRC_HARDWARE __attribute__((target("+crc")))
#endif
#include <arm_acle.h>
#define CRC_STEP_8(crc, word) __crc32cd((crc), (word))
#define CRC_STEP_1(crc, byte) __crc32cb((crc), (byte))
#endif

#define CRC32_POLYNOMIAL 0xEDB88320u /* both bit-reversed */
#define CRC32C_POLYNOMIAL 0x82F63B78u

/* table[k][b]: the effect of byte b on the CRC if k zero bytes follow it. */
typedef uint32_t crc_tables[8][256];

static crc_tables crc32_tables;
static crc_tables crc32c_tables;

static void crc_fill_tables(crc_tables tables, uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        }
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = tables[k - 1][byte];
            tables[k][byte] = tables[0][crc & 0xFF] ^ crc >> 8;
        }
    }
}

static uint32_t crc_by_tables(crc_tables tables, const uint8_t *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
              tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; size; data++, size--) {
        crc = tables[0][(crc ^ *data) & 0xFF] ^ crc >> 8;
    }
    return ~crc;
}

#ifdef CRC_HARDWARE

/* The instruction accepts a word each cycle, but its latency is three cycles. So three lanes run in parallel over equal
 * parts of the data, and their CRCs are then combined. crc32c_shift[k][b] is the effect of value b in byte k of a
 * lane's CRC after a lane's length of zero bytes. */
#define CRC_LANE 1024

static uint32_t crc32c_shift[4][256];
static int crc32c_has_hardware;

CRC_HARDWARE static void crc_fill_shift(void) {
    for (int k = 0; k < 4; k++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * k;
            for (int at = 0; at < CRC_LANE; at += 8) {
                crc = CRC_STEP_8(crc, 0);
            }
            crc32c_shift[k][byte] = crc;
        }
    }
}

static uint32_t crc_shifted(uint32_t crc) {
    return crc32c_shift[0][crc & 0xFF] ^ crc32c_shift[1][crc >> 8 & 0xFF] ^ crc32c_shift[2][crc >> 16 & 0xFF] ^
           crc32c_shift[3][crc >> 24];
}

static inline uint64_t crc_word(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* Continue from `crc`, which is not inverted. */
CRC_HARDWARE static uint32_t crc_continued(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 3 * CRC_LANE; data += 3 * CRC_LANE, size -= 3 * CRC_LANE) {
        uint32_t second = 0, third = 0;
        for (size_t at = 0; at < CRC_LANE; at += 8) {
            crc = CRC_STEP_8(crc, crc_word(data + at));
            second = CRC_STEP_8(second, crc_word(data + CRC_LANE + at));
            third = CRC_STEP_8(third, crc_word(data + 2 * CRC_LANE + at));
        }
        crc = crc_shifted(crc_shifted(crc) ^ second) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8) {
        crc = CRC_STEP_8(crc, crc_word(data));
    }
    for (; size; data++, size--) {
        crc = CRC_STEP_1(crc, *data);
    }
    return crc;
}

#ifdef CRC_WIDE

/* Data is a polynomial. A byte that is n bytes later has a weight lower by the factor x^8n. So 16 bytes, multiplied by
 * x^8n modulo the CRC's polynomial, can be added to the 16 bytes that are n bytes later without changing the CRC ("Fast
 * CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009). Four blocks of 64 bytes are
 * processed in parallel. */
#define CRC_BLOCK 64
#define CRC_STRIDE (4 * CRC_BLOCK)

static uint64_t crc_over_stride[2]; /* for the first and the second eight bytes of 16 */
static uint64_t crc_over_block[2];
static int crc32c_has_wide_hardware;

static uint64_t crc_power_of_x(int exponent) {
    uint32_t power = 0x80000000u; /* bit-reversed, like everything here */
    for (; exponent; exponent--) {
        power = power & 1 ? power >> 1 ^ CRC32C_POLYNOMIAL : power >> 1;
    }
    return power;
}

static void crc_fill_powers(uint64_t powers[2], int distance) {
    powers[0] = crc_power_of_x(8 * distance + 64 - 33); /* the product of bit-reversed factors is shifted by one bit */
    powers[1] = crc_power_of_x(8 * distance - 33);
}

CRC_WIDE static inline __m512i crc_load(const uint8_t *data) { return _mm512_loadu_si512((const void *)data); }

CRC_WIDE static inline __m512i crc_powers(const uint64_t powers[2]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)powers));
}

CRC_WIDE static inline __m512i crc_fold(__m512i block, __m512i powers, __m512i further_on) {
    __m512i first = _mm512_clmulepi64_epi128(block, powers, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(block, powers, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(first, second), further_on);
}

/* For at least CRC_STRIDE bytes. */
CRC_WIDE static uint32_t crc32c_by_wide_hardware(const uint8_t *data, size_t size) {
    uint8_t rest[CRC_BLOCK];
    __m512i a = _mm512_xor_si512(crc_load(data), _mm512_maskz_set1_epi32(1, -1)); /* the initial CRC is inverted */
    __m512i b = crc_load(data + CRC_BLOCK);
    __m512i c = crc_load(data + 2 * CRC_BLOCK);
    __m512i d = crc_load(data + 3 * CRC_BLOCK);
    __m512i powers = crc_powers(crc_over_stride);
    for (data += CRC_STRIDE, size -= CRC_STRIDE; size >= CRC_STRIDE; data += CRC_STRIDE, size -= CRC_STRIDE) {
        a = crc_fold(a, powers, crc_load(data));
        b = crc_fold(b, powers, crc_load(data + CRC_BLOCK));
        c = crc_fold(c, powers, crc_load(data + 2 * CRC_BLOCK));
        d = crc_fold(d, powers, crc_load(data + 3 * CRC_BLOCK));
    }
    powers = crc_powers(crc_over_block);
    d = crc_fold(crc_fold(crc_fold(a, powers, b), powers, c), powers, d);
    for (; size >= CRC_BLOCK; data += CRC_BLOCK, size -= CRC_BLOCK) {
        d = crc_fold(d, powers, crc_load(data));
    }
    _mm512_storeu_si512((void *)rest, d);
    return ~crc_continued(crc_continued(0, rest, CRC_BLOCK), data, size);
}

#endif

static int crc_find_hardware(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & (1 << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1; /* every 64-bit Mac */
#endif
}

#endif

static void crc_init(void) {
    crc_fill_tables(crc32_tables, CRC32_POLYNOMIAL);
    crc_fill_tables(crc32c_tables, CRC32C_POLYNOMIAL);
#ifdef CRC_HARDWARE
    crc32c_has_hardware = crc_find_hardware();
    if (crc32c_has_hardware) {
        crc_fill_shift();
    }
#ifdef CRC_WIDE
    crc32c_has_wide_hardware = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    crc_fill_powers(crc_over_stride, CRC_STRIDE);
    crc_fill_powers(crc_over_block, CRC_BLOCK);
#endif
#endif
}

static uint32_t crc32c_of(const uint8_t *data, size_t size) {
#ifdef CRC_WIDE
    if (crc32c_has_wide_hardware && size >= CRC_STRIDE) {
        return crc32c_by_wide_hardware(data, size);
    }
#endif
#ifdef CRC_HARDWARE
    if (crc32c_has_hardware) {
        return ~crc_continued(0xFFFFFFFFu, data, size);
    }
#endif
    return crc_by_tables(crc32c_tables, data, size);
}

static uint32_t crc32_of(const uint8_t *data, size_t size) {
    return crc_by_tables(crc32_tables, data, size);
}

#endif
