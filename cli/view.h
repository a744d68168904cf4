/*
 * View: one record, for a person or as JSON.
 */
#ifndef IDEM_CLI_VIEW_H
#define IDEM_CLI_VIEW_H

#include <jansson.h>

#include <idem/record.h>

/* Prints every field, and the answer with at most IDEM_VIEW_BODY_MAX bytes of its body. */
#define IDEM_VIEW_BODY_MAX 4096
IDEM_MUST_CHECK int idem_view_print(const struct idem_record *record, int64_t now_us);

/* The record as an object; with headers and body only if `whole`. IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_view_json(const struct idem_record *record, bool whole, json_t **ret_json);

#endif
