/*
 * Json: what --json prints. Members are in a fixed order, instants are RFC 3339 in UTC to the
 * microsecond, null stands for "never" and "none". Bytes are a string when they are UTF-8;
 * otherwise the member is named NAME_base64 (RFC 4648, 4).
 */
#ifndef IDEM_CLI_JSON_H
#define IDEM_CLI_JSON_H

#include <jansson.h>

#include <idem/record.h>

/* Sets `name` (or NAME_base64) to the bytes. 0, or IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_json_set_bytes(json_t *object, const char *name, struct idem_bytes bytes);

/* Sets `name` to the instant; null for "never". */
IDEM_MUST_CHECK int idem_json_set_instant(json_t *object, const char *name, int64_t instant_us);

/* Sets `name` to a sentence or a word; null for NULL. */
IDEM_MUST_CHECK int idem_json_set_text(json_t *object, const char *name, const char *text);
IDEM_MUST_CHECK int idem_json_set_number(json_t *object, const char *name, int64_t number);
IDEM_MUST_CHECK int idem_json_set_flag(json_t *object, const char *name, bool flag);

/* Sets `name` to a value that is taken over, also on failure; NULL counts as out of memory. */
IDEM_MUST_CHECK int idem_json_set_owned(json_t *object, const char *name, json_t *value);

/* Prints a value on one line, without a line end if `bare`. IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_json_print(const json_t *value, bool bare);

#endif
