/* In place of the LMDB store in a build without liblmdb: the front says so when a URL names it. */
#include "store/backend.h"

const struct idem_backend_ops idem_backend_lmdb = {.scheme = "lmdb"};
