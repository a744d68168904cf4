/*
 * Front: what stands between callers and every backend. For the store's own files and for tests,
 * which put backends of their own behind it.
 */
#ifndef IDEM_STORE_FRONT_H
#define IDEM_STORE_FRONT_H

#include "store/backend.h"

/* As idem_store_open, for a given backend. */
IDEM_MUST_CHECK int idem_store_open_backend(const struct idem_backend_ops *ops,
                                            const struct idem_url *url,
                                            const struct idem_clock *clock,
                                            struct idem_store **ret_store,
                                            struct idem_message *message);

/*
 * Proves on a reserved id that the store does what the contract says; leaves nothing behind.
 * IDEM_ERR_SELFTEST with a sentence when it does not, or what the store itself failed with.
 */
IDEM_MUST_CHECK int idem_store_selftest(struct idem_store *store, struct idem_message *message);

#endif
