/* What both parts of the library share. Nothing here knows Python: it is called with ctypes.
 *
 * Every function is given all memory that it writes, with its size, and keeps nothing. */
#ifndef LAMINAR_H
#define LAMINAR_H

#include <stddef.h>
#include <stdint.h>

#define LAMINAR_EXPORT __attribute__((visibility("default")))

/* Results of functions that can fail. */
enum { LAMINAR_OK = 0, LAMINAR_TOO_LARGE = -1, LAMINAR_CHANGED = -2 };

/* Arrow counts the bytes of a column in 31 bits. */
#define LAMINAR_MOST_BYTES INT32_MAX

#endif
