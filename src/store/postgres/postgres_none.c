/* In place of the PostgreSQL store in a build without libpq: the front says so when a URL names it.
 */
#include "store/backend.h"

static const char *const schemes[] = {"postgresql", "postgres", NULL};

const struct idem_backend_ops idem_backend_postgres = {.schemes = schemes};
