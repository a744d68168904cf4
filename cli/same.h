/* Same: whether two names of stores mean one store. */
#ifndef IDEM_CLI_SAME_H
#define IDEM_CLI_SAME_H

#include <idem/store.h>

/*
 * By what is written: the same URL, or two for the directory of one embedded store. What --store
 * takes may be given. False when either cannot be read; who opens it says why.
 */
bool idem_same_named(const char *one, const char *other);

/*
 * By trying: what is put into one is found in the other, as when a server has two names. It is put
 * under a reserved id, as the self-test of an opening does, and taken away again. A full store is
 * not tried: false. The error of either store is passed on.
 */
IDEM_MUST_CHECK int idem_same_tried(struct idem_store *one, struct idem_store *other,
                                    bool *ret_same, struct idem_message *message);

#endif
