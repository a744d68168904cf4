/* In place of the LMDB store in a build without liblmdb: the front says so when a URL names it. */
#include "store/backend.h"

static const char *const schemes[] = {"lmdb", NULL};

const struct idem_backend_ops idem_backend_lmdb = {.schemes = schemes};
