/*
 * Filesystem: which ones an LMDB store may live on.
 */
#ifndef IDEM_STORE_LMDB_FILESYSTEM_H
#define IDEM_STORE_LMDB_FILESYSTEM_H

#include <stdbool.h>

struct idem_filesystem {
    unsigned long magic; /* statfs.f_type */
    const char *name;
    bool refused;         /* shared between hosts, or cannot be told apart from one that is */
    bool copies_on_write; /* a page written again takes new room: preallocation promises nothing */
};

/* What is known of a file system by its magic number; name "unknown" and allowed for the rest. */
struct idem_filesystem idem_filesystem_find(unsigned long magic);

#endif
