/* A buffer that grows as it is written to. */

#ifndef KFS_OUTPUT_H
#define KFS_OUTPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* How far a copy may write past the end of its output. */
#define OUTPUT_SPARE 16

typedef struct {
    uint8_t* data;
    ptrdiff_t size;
    ptrdiff_t room;
    int is_lent; /* the memory belongs to another owner; output that outgrows it moves to memory of its own */
} Output;

static const char output_pairs[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "50515253545556575859606162636465666768697071727374757677787980818283848586878889909192939495969798"
    "99";

/* Make room for more bytes and for the spare ones; return 0 if memory runs out. */
static inline int output_reserve(Output* output, ptrdiff_t more) {
    ptrdiff_t room, needed = output->size + more + OUTPUT_SPARE;
    uint8_t* grown;
    if (needed <= output->room)
        return 1;
    room = output->room + output->room / 2;
    if (room < needed)
        room = needed;
    grown = (uint8_t*)realloc(output->is_lent ? NULL : output->data, (size_t)room);
    if (grown == NULL)
        return 0;
    if (output->is_lent)
        memcpy(grown, output->data, (size_t)output->size);
    output->data = grown;
    output->room = room;
    output->is_lent = 0;
    return 1;
}

/* Forget the output, and free its memory unless it is lent. */
static inline void output_clear(Output* output) {
    if (!output->is_lent)
        free(output->data);
    memset(output, 0, sizeof(Output));
}

static inline void output_put(Output* output, const uint8_t* text, ptrdiff_t size) {
    memcpy(output->data + output->size, text, (size_t)size);
    output->size += size;
}

/* A macro, so that the compiler knows the length of a literal. */
#define output_literal(output, text) output_put(output, (const uint8_t*)(text), (ptrdiff_t)strlen(text))

/* Write two digits. */
static inline void output_pair(uint8_t* out, int number) { memcpy(out, output_pairs + 2 * number, 2); }

static inline void output_number(Output* output, int64_t number) {
    uint8_t digits[20];
    int at = 20;
    uint64_t rest = (uint64_t)number;
    if (number < 0) {
        output->data[output->size++] = '-';
        rest = 0 - rest;
    }
    while (rest >= 100) {
        at -= 2;
        output_pair(digits + at, (int)(rest % 100));
        rest /= 100;
    }
    if (rest >= 10) {
        at -= 2;
        output_pair(digits + at, (int)rest);
    } else {
        digits[--at] = (uint8_t)('0' + rest);
    }
    output_put(output, digits + at, 20 - at);
}

#endif
