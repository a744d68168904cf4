/*
 * Errors: `0` is done; a negative number is a fault that the caller passes up untouched; a positive
 * number is a named outcome of that very function and is handled by its caller.
 *
 * A replay, a key in progress or a mismatch are outcomes, never errors.
 */
#ifndef IDEM_ERROR_H
#define IDEM_ERROR_H

#include <idem/limits.h>

enum idem_error {
    IDEM_OK = 0,
    IDEM_ERR_NOMEM = -1,       /* an allocation failed */
    IDEM_ERR_INVALID = -2,     /* an argument or setting is not allowed; the message says what is */
    IDEM_ERR_UNAVAILABLE = -3, /* the store cannot be reached or opened now; later it may */
    IDEM_ERR_CORRUPT = -4,     /* the store holds bytes that no version of idem wrote */
    IDEM_ERR_FULL = -5,        /* no room on the device or in the map, even for a verdict */
    IDEM_ERR_TIMEOUT = -6,     /* not done within the time allowed, and maybe applied */
    IDEM_ERR_BUSY = -7,        /* too much is waiting already; nothing was done */
    IDEM_ERR_UNSAFE = -8,      /* the store's settings cannot keep what was asked (design 5.3) */
    IDEM_ERR_UNSUPPORTED = -9, /* this build has no such store, or the store no such operation */
    IDEM_ERR_IO = -10,         /* the system refused a read or write */
    IDEM_ERR_SELFTEST = -11,   /* the store works, and not as it must: its self-test shows it */
};

/* A short constant text for any of the above, never NULL. Thread-safe. */
const char *idem_error_text(int error);

/*
 * A sentence for a person: what is wrong and what to do about it. Functions that can fail for many
 * reasons take a pointer to one, which may be NULL; it is written on failure only.
 */
struct idem_message {
    char text[IDEM_MESSAGE_SIZE_MAX];
};

/* Formats the sentence, cutting it at the maximum. A NULL message is fine. */
void idem_message_set(struct idem_message *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define IDEM_MUST_CHECK __attribute__((warn_unused_result))

#endif
