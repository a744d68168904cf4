/*
 * Select: which records a command is about: one, by id or by key, or many, by filter.
 */
#ifndef IDEM_CLI_SELECT_H
#define IDEM_CLI_SELECT_H

#include <idem/store.h>

#include "damaged.h"

/* What the options said. NULL and 0 mean: not given. */
struct idem_select {
    const char *key, *scope, *kind;
    const char *states; /* "unknown,processing" */
    const char *after;  /* where the page before ended */
    int64_t since_us, before_us;
};

#define IDEM_PREFIX_DIGITS_MIN 6 /* hex digits that may stand for an id */

/* Checks words and sizes and makes the filter of a scan. IDEM_ERR_INVALID with a sentence. */
IDEM_MUST_CHECK int idem_select_filter(const struct idem_select *select, struct idem_scan *ret_scan,
                                       struct idem_message *message);

/* Outcomes of idem_select_id and idem_select_record besides IDEM_OK. */
enum idem_select_outcome {
    IDEM_SELECT_ABSENT = 1,    /* no such record */
    IDEM_SELECT_AMBIGUOUS = 2, /* the first digits fit several */
    IDEM_SELECT_DAMAGED = 3,   /* the record's bytes are damaged */
};

/*
 * Checks what names one record, without a store: the id or its first digits (`text`), or select's
 * kind, scope and key (`text` NULL). IDEM_ERR_INVALID with a sentence.
 */
IDEM_MUST_CHECK int idem_select_check(const struct idem_select *select, const char *text,
                                      struct idem_message *message);

/*
 * The id that was meant: 64 hex digits, at least IDEM_PREFIX_DIGITS_MIN of them when no other
 * record starts so (`text`), or the id of select's kind (http unless given), scope and key (`text`
 * NULL), which idem_select_check has passed. Any outcome but IDEM_OK comes with a sentence.
 */
IDEM_MUST_CHECK int idem_select_id(struct idem_store *store, const struct idem_select *select,
                                   const char *text, struct idem_id *ret_id,
                                   struct idem_message *message);

/*
 * Reads the record of an id by ret_get, a `get` that the caller releases with idem_op_deinit on
 * every return.
 */
IDEM_MUST_CHECK int idem_select_record(struct idem_store *store, const struct idem_id *id,
                                       struct idem_op *ret_get, struct idem_message *message);

/* The exit status for an outcome of the two above that is not IDEM_OK. */
int idem_select_exit(int outcome);

/* What the visitor returns besides IDEM_OK and an error. */
#define IDEM_VISIT_STOP 1

/* A walk through what a scan finds. */
struct idem_visit {
    int64_t max; /* no more are visited */
    int (*visit)(void *context, const struct idem_record *record);
    void *context;
    struct idem_damaged *damaged; /* where damaged records are noted, or NULL */

    int64_t visited;     /* out: how many */
    bool more;           /* out: records were left unvisited */
    struct idem_id next; /* out: the cursor that goes on behind them */
};

/*
 * Calls visit->visit for each record that the scan finds, page by page. The record lives for the
 * call. Stops at an error, which is passed up, and at IDEM_VISIT_STOP, which ends a walk for good:
 * `next` is then behind its page.
 */
IDEM_MUST_CHECK int idem_select_visit(struct idem_store *store, const struct idem_scan *scan,
                                      struct idem_visit *visit, struct idem_message *message);

/* idem_store_apply for one op. */
IDEM_MUST_CHECK int idem_select_apply(struct idem_store *store, struct idem_op *op,
                                      struct idem_message *message);

#endif
