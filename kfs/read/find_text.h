/* Whether a text is in some bytes. Python.h, which comes before this, asks the C library for memmem. */

#ifndef KFS_FIND_TEXT_H
#define KFS_FIND_TEXT_H

#include <string.h>

static inline int has_text(const unsigned char *data, size_t size, const unsigned char *text, size_t text_size)
{
    return memmem(data, size, text, text_size) != NULL;
}

#endif
