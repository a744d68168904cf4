/* In place of the MariaDB store in a build without libmariadb: the front says so when a URL names
 * it. */
#include "store/backend.h"

static const char *const schemes[] = {"mariadb", "mysql", NULL};

const struct idem_backend_ops idem_backend_mariadb = {.schemes = schemes};
