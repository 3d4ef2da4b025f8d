#include "laminar.h"

/* Goes up with every change of a function's arguments or of a struct: see library.py. */
LAMINAR_EXPORT int64_t laminar_interface(void) { return 1; }
