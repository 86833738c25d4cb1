/* Writes the inside of a JSON string; plain ASCII goes many bytes at a time after a call of json_text_use(). */

#ifndef KFS_JSON_TEXT_H
#define KFS_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The constant parts of a record's line. They are macros so that the C compiler knows their lengths. */
#define SEQUENCE ",\"sequence\":"
#define TIMESTAMP ",\"timestamp\":"
#define KEY ",\"key\":"
#define KEY_ENCODING ",\"keyEncoding\":\"base64\""
#define VALUE ",\"value\":"
#define VALUE_ENCODING ",\"valueEncoding\":\"base64\""
#define HEADERS ",\"headers\":["
#define HEADER_KEY "{\"key\":"
#define HEADER_ENCODING ",\"encoding\":\"base64\""
#define LINE_END "]}\n"

/* A call may write up to 64 bytes past the end of its output. */

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#include <immintrin.h>
#define JSON_SHUFFLE __attribute__((target("ssse3")))
#define JSON_COMPRESS __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")))

/* For each mask of which of eight bytes need a backslash: the source of each output byte (a negative number means a
 * backslash), and the number of output bytes. */
static int8_t json_sources[256][16];
static uint8_t json_sizes[256];
#endif

/* The ways of json_write_plain: byte by byte, shuffles of 16 bytes (SSSE3), compression of 64 (AVX-512 VBMI2). */
enum { JSON_BYTES, JSON_BY_SHUFFLE, JSON_BY_COMPRESS };
static int json_way = JSON_BYTES;

/* Choose the best way that the processor supports, up to `most`; return it. */
static int json_text_use(int most) {
    json_way = JSON_BYTES;
#ifdef JSON_SHUFFLE
    for (int mask = 0; mask < 256; mask++) {
        int size = 0;
        memset(json_sources[mask], -1, sizeof json_sources[mask]);
        for (int at = 0; at < 8; at++) {
            size += mask >> at & 1;
            json_sources[mask][size++] = (int8_t)at;
        }
        json_sizes[mask] = (uint8_t)size;
    }
    __builtin_cpu_init();
    if (most >= JSON_BY_COMPRESS && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("popcnt")) {
        json_way = JSON_BY_COMPRESS;
    } else if (most >= JSON_BY_SHUFFLE && __builtin_cpu_supports("ssse3")) {
        json_way = JSON_BY_SHUFFLE;
    }
#endif
    return json_way;
}

static inline int json_is_escaped(uint8_t byte) { return byte == '"' || byte == '\\'; }

/* Whether a byte is ASCII and no control character, so that it is written as it is, perhaps after a backslash. */
static inline int json_is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x7F; }

#ifdef JSON_SHUFFLE

/* A bit for each byte that isn't plain. The comparison is signed: bytes outside ASCII are negative. */
static inline int json_bits_not_plain(__m128i block) {
    __m128i control = _mm_cmplt_epi8(block, _mm_set1_epi8(0x20));
    return _mm_movemask_epi8(_mm_or_si128(control, _mm_cmpeq_epi8(block, _mm_set1_epi8(0x7F))));
}

static inline __m128i json_escaped(__m128i block) {
    return _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8('"')), _mm_cmpeq_epi8(block, _mm_set1_epi8('\\')));
}

/* As json_write_plain, but in steps of eight bytes, and only as far as these go. */
JSON_SHUFFLE static inline size_t json_write_by_shuffle(
    uint8_t *out, const uint8_t *text, size_t size, size_t *written
) {
    size_t at = 0;
    uint8_t *to = out;
    for (; size - at >= 8; at += 8) {
        __m128i block = _mm_loadl_epi64((const __m128i *)(text + at));
        int mask = _mm_movemask_epi8(json_escaped(block)) & 0xFF;
        __m128i sources = _mm_loadu_si128((const __m128i *)json_sources[mask]);
        __m128i backslashes = _mm_and_si128(_mm_cmplt_epi8(sources, _mm_setzero_si128()), _mm_set1_epi8('\\'));
        if (json_bits_not_plain(block) & 0xFF) {
            break;
        }
        _mm_storeu_si128((__m128i *)to, _mm_or_si128(_mm_shuffle_epi8(block, sources), backslashes));
        to += json_sizes[mask];
    }
    *written = (size_t)(to - out);
    return at;
}

/* A bit for each byte of a block that is plain, and is in `loaded`. */
JSON_COMPRESS static inline __mmask32 json_plain_mask(__m256i block, __mmask32 loaded) {
    __m256i above = _mm256_sub_epi8(block, _mm256_set1_epi8(0x20));
    return _mm256_mask_cmplt_epu8_mask(loaded, above, _mm256_set1_epi8(0x7F - 0x20));
}

/* Write the bytes of a block that are in `taken`; return the number of bytes written. Each byte gets room for two, with
 * a possible backslash before it; then the unused room is squeezed out. */
JSON_COMPRESS static inline size_t json_compress(uint8_t *out, __m256i block, __mmask32 taken) {
    __mmask32 escaped = _mm256_mask_cmpeq_epi8_mask(taken, block, _mm256_set1_epi8('"')) |
                        _mm256_mask_cmpeq_epi8_mask(taken, block, _mm256_set1_epi8('\\'));
    __m512i pairs = _mm512_slli_epi16(_mm512_maskz_cvtepu8_epi16(taken, block), 8);
    pairs = _mm512_or_si512(pairs, _mm512_maskz_set1_epi16(escaped, '\\'));
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(_mm512_test_epi8_mask(pairs, pairs), pairs));
    return (size_t)(__builtin_popcount(taken) + __builtin_popcount(escaped));
}

/* As json_write_plain, but 32 bytes at a time. */
JSON_COMPRESS static inline size_t json_write_by_compress(
    uint8_t *out, const uint8_t *text, size_t size, size_t *written
) {
    const __mmask32 all = 0xFFFFFFFFu;
    size_t at = 0;
    uint8_t *to = out;
    __mmask32 plain;
    __m256i block;
    for (; size - at >= 32; at += 32) {
        block = _mm256_loadu_si256((const __m256i *)(text + at));
        plain = json_plain_mask(block, all);
        if (plain != all) {
            break;
        }
        to += json_compress(to, block, all);
    }
    if (at < size) {
        __mmask32 loaded = size - at >= 32 ? all : ((__mmask32)1 << (size - at)) - 1;
        block = _mm256_maskz_loadu_epi8(loaded, text + at);
        plain = json_plain_mask(block, loaded);
        plain &= ~(plain + 1); /* up to the first byte that isn't plain */
        to += json_compress(to, block, plain);
        at += (size_t)__builtin_popcount(plain);
    }
    *written = (size_t)(to - out);
    return at;
}

#endif

/* Write bytes up to the first that isn't plain, with backslashes as needed; return the number of bytes read, and set
 * `written` to the number of bytes written. */
static inline size_t json_write_plain(uint8_t *out, const uint8_t *text, size_t size, size_t *written) {
    size_t at = 0;
    uint8_t *to = out;
#ifdef JSON_SHUFFLE
    if (json_way == JSON_BY_COMPRESS) {
        return json_write_by_compress(out, text, size, written);
    }
    if (json_way == JSON_BY_SHUFFLE && size >= 8) {
        at = json_write_by_shuffle(out, text, size, written);
        to += *written;
    }
#endif
    for (; at < size && json_is_plain(text[at]); at++) {
        *to = '\\';
        to += json_is_escaped(text[at]);
        *to++ = text[at];
    }
    *written = (size_t)(to - out);
    return at;
}

/* Return how many bytes json_write_plain would read; add the number of bytes it would write to `written`. */
static inline size_t json_measure_plain(const uint8_t *text, size_t size, size_t *written) {
    size_t at = 0;
    size_t backslashes = 0;
#ifdef JSON_SHUFFLE
    while (size - at >= 16) {
        __m128i counts = _mm_setzero_si128();
        /* A byte can count to 255. */
        size_t end = size - at >= 255 * 16 ? at + 255 * 16 : at + (size - at) / 16 * 16;
        int others = 0;
        for (; at < end; at += 16) {
            __m128i block = _mm_loadu_si128((const __m128i *)(text + at));
            others = json_bits_not_plain(block);
            if (others) {
                break;
            }
            counts = _mm_sub_epi8(counts, json_escaped(block));
        }
        counts = _mm_sad_epu8(counts, _mm_setzero_si128());
        backslashes += (size_t)_mm_cvtsi128_si64(counts) + (size_t)_mm_cvtsi128_si64(_mm_srli_si128(counts, 8));
        if (others) {
            break;
        }
    }
#endif
    for (; at < size && json_is_plain(text[at]); at++) {
        backslashes += json_is_escaped(text[at]);
    }
    *written += at + backslashes;
    return at;
}

#endif
