/* Text as the inside of a JSON string: how far bytes can be taken as they are, many of them at a time.
 *
 * Everything is, but for controls, the quote, the backslash, DEL, and whatever isn't ASCII. */

#ifndef KFS_JSON_TEXT_H
#define KFS_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define JSON_TEXT_SSE2 1
#endif

/* The parts of a record's line that are always the same: Cython would count their lengths anew each time. */
#define TIMESTAMP ",\"timestamp\":"
#define KEY ",\"key\":"
#define KEY_ENCODING ",\"keyEncoding\":\"base64\""
#define VALUE ",\"value\":"
#define VALUE_ENCODING ",\"valueEncoding\":\"base64\""
#define HEADERS ",\"headers\":["
#define HEADER_KEY "{\"key\":"
#define HEADER_ENCODING ",\"encoding\":\"base64\""
#define LINE_END "]}\n"

/* What a call may write past the end of what it copies. */
#define JSON_TEXT_SPARE 16

static inline int json_is_plain(uint8_t byte) {
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
}

static inline unsigned json_lowest_bit(unsigned mask) {
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctz(mask);
#else
    unsigned bit = 0;
    while (!(mask >> bit & 1)) {
        bit++;
    }
    return bit;
#endif
}

#ifdef JSON_TEXT_SSE2
/* A bit for each of 16 bytes that can't be taken as it is. */
static inline unsigned json_special_bits(__m128i block) {
    __m128i quote = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
    __m128i backslash = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'));
    __m128i del = _mm_cmpeq_epi8(block, _mm_set1_epi8(0x7F));
    __m128i control = _mm_cmplt_epi8(block, _mm_set1_epi8(0x20)); /* signed: what isn't ASCII is below too */
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), _mm_or_si128(del, control)));
}

static inline unsigned json_escaped_bits(__m128i block) {
    __m128i quote = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
    __m128i backslash = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\'));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(quote, backslash));
}
#endif

/* Copy bytes up to the first that can't be taken as it is, and return how many. */
static inline size_t json_copy_plain(uint8_t *out, const uint8_t *text, size_t size) {
    size_t at = 0;
#ifdef JSON_TEXT_SSE2
    for (; size - at >= 16; at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(text + at));
        unsigned bits = json_special_bits(block);
        _mm_storeu_si128((__m128i *)(out + at), block);
        if (bits) {
            return at + json_lowest_bit(bits);
        }
    }
#endif
    for (; at < size && json_is_plain(text[at]); at++) {
        out[at] = text[at];
    }
    return at;
}

/* Return how many bytes come before the first that is neither taken as it is nor merely preceded by a backslash;
 * add the backslashes to `escapes`. */
static inline size_t json_count_plain(const uint8_t *text, size_t size, size_t *escapes) {
    size_t at = 0;
#ifdef JSON_TEXT_SSE2
    for (; size - at >= 16; at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(text + at));
        unsigned escaped = json_escaped_bits(block);
        if (json_special_bits(block) != escaped) {
            break;
        }
        for (; escaped; escaped &= escaped - 1) {
            ++*escapes;
        }
    }
#endif
    for (; at < size && (json_is_plain(text[at]) || text[at] == '"' || text[at] == '\\'); at++) {
        *escapes += !json_is_plain(text[at]);
    }
    return at;
}

#endif
