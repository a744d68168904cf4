/*
 * A field: a crew, and the ops that its members apply at once. What the ops hold is released when
 * the field is cleared for the next race, and at the end.
 */
#ifndef IDEM_TEST_FIELD_H
#define IDEM_TEST_FIELD_H

#include "crew.h"

struct field {
    struct crew crew;
    struct idem_op ops[CREW_MAX];
    unsigned delays_us[CREW_MAX]; /* by which each of them begins later */
    size_t count;
};

struct field *field_open(struct world *world); /* the one there is; as many members as a crew has */
void field_clear(struct field *field);
void field_close(struct field *field);
void field_run(struct field *field);

/* Puts an op into the field as the world's helpers make it. */
struct idem_op *enter(struct field *field, const struct idem_op *op);
void enter_claim(struct field *field, const char *key, const char *owner,
                 enum idem_take_unknown take, uint64_t fence);
void enter_verdict(struct field *field, enum idem_op_kind kind, const char *key, const char *owner);
void enter_renew(struct field *field, const char *key, const char *owner, int64_t lease_us);

/* A key for each number; what is returned is good for a while. */
const char *race_key(unsigned number);

#endif
