/*
 * Settle: what `idem resolve` and `idem forget` have in common. Both change records that a person
 * has judged, one by name or many by filter, and leave who and why.
 *
 *   1. read the record, show it
 *   2. apply the op that the command makes from what was seen
 *   3. tell what came of it; nothing is done when the record changed in between
 */
#ifndef IDEM_CLI_SETTLE_H
#define IDEM_CLI_SETTLE_H

#include "args.h"
#include "select.h"

struct idem_settle {
    /* what the options said */
    struct idem_select select;
    const char *id, *store, *who, *why;
    int64_t fence; /* negative: not given */
    bool force, dry_run, json;

    /* what the command is */
    const char *done;     /* "resolved" */
    const char *would_do; /* "would resolve" */
    const char *only;     /* which records it takes unless forced: "unknown records" */
    const char *effect;   /* what it means for the next request */
    bool (*allows)(enum idem_state state);
    void (*fill)(void *context, const struct idem_record *seen, struct idem_op *ret_op);
    void *context;

    /* its own */
    int64_t until_us; /* until when the record is kept that was settled last; 0: it is gone */
    bool cut;         /* the answer given with it was not kept … */
    bool oversized;   /* … because the store takes none as large: else for want of room */
    char login[IDEM_WHO_SIZE_MAX + 1];
};

/* The options that both commands have; the caller adds its own after them. */
#define IDEM_SETTLE_OPTIONS 13
void idem_settle_options(struct idem_settle *settle, struct idem_option *ret_options);

/* Checks what the options said and fills in who. IDEM_EXIT_OK or IDEM_EXIT_USAGE. */
int idem_settle_check(struct idem_settle *settle, const struct idem_usage *usage,
                      const struct idem_operands *operands);

/* Does it; the exit status. */
int idem_settle_run(struct idem_settle *settle);

#endif
