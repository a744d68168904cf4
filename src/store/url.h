/*
 * Url: "scheme:place[?name=value&name=value]", the way to name a store. Percent-escapes are decoded
 * in place and in values.
 */
#ifndef IDEM_STORE_URL_H
#define IDEM_STORE_URL_H

#include <idem/bytes.h>
#include <idem/error.h>

#define IDEM_URL_OPTIONS_MAX 16

struct idem_url_option {
    const char *name, *value; /* into `memory` */
};

struct idem_url {
    const char *scheme, *place; /* into `memory` */
    const char *raw_place;      /* the place as it was written, escapes and all */
    size_t option_count;
    struct idem_url_option options[IDEM_URL_OPTIONS_MAX];
    char memory[4 * IDEM_URL_SIZE_MAX];
};

IDEM_MUST_CHECK int idem_url_parse(const char *text, struct idem_url *ret_url,
                                   struct idem_message *message);

/* The value of an option, or NULL. */
const char *idem_url_option(const struct idem_url *url, const char *name);

/* Takes out of a sentence what it tells of options that may be the end of a password. */
void idem_url_hide(const struct idem_url *url, struct idem_message *message);

/* "64k", "16m", "2g" or bytes. IDEM_ERR_INVALID when it is none of these or overflows. */
IDEM_MUST_CHECK int idem_size_parse(const char *text, uint64_t *ret_size);

/* "500ms", "2s", "5m" or "1h" as microseconds. IDEM_ERR_INVALID when it is none of these or 0. */
IDEM_MUST_CHECK int idem_url_duration_parse(const char *text, int64_t *ret_length_us);

/* The `timeout` option, or the default. IDEM_ERR_INVALID with a sentence when it is no duration. */
IDEM_MUST_CHECK int idem_url_timeout_us(const struct idem_url *url, int64_t *ret_timeout_us,
                                        struct idem_message *message);

#endif
