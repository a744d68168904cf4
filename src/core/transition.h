/*
 * Transition: what one op does to one record. Pure; the single place where the rules of design 4
 * and 5.2 are written in C. Stores that keep blobs (memory, LMDB) call it; Lua and SQL say the same
 * in their own language and are held to it by the contract suite.
 *
 *   1. an expired record is absent (its fence is still respected)
 *   2. the fingerprint is compared before anything is told, the principal too unless FAILED
 *   3. one move() checks every change of state against the table of allowed moves
 */
#ifndef IDEM_CORE_TRANSITION_H
#define IDEM_CORE_TRANSITION_H

#include <idem/op.h>

enum idem_change {
    IDEM_CHANGE_NONE,   /* nothing to write */
    IDEM_CHANGE_PUT,    /* write `record` in place of what is there */
    IDEM_CHANGE_DELETE, /* remove what is there */
};

struct idem_transition {
    enum idem_change change;
    struct idem_record record; /* PUT; views into the op's inputs and the current record */
    bool created;              /* PUT: nothing was physically there */
};

/*
 * Applies a claim, renew, verdict, get, resolve or forget to what the store holds for op->id, NULL
 * for nothing. Digests in the op must be salted already. Sets op->result and op->out except
 * out.found, whose record the caller copies from `current` when the result is COMPLETED or FOUND.
 *
 * `fence_floor` is the highest fence of any record that was ever removed, so that fences grow
 * across deletion. `room` false refuses claims with FULL.
 */
void idem_transition(struct idem_op *op, int64_t now_us, const struct idem_record *current,
                     uint64_t fence_floor, bool room, struct idem_transition *ret_transition);

/*
 * The table of allowed moves: whether `op` may lead a record from one state to another, where 0 is
 * absent and a lapsed lease counts as IDEM_STATE_UNKNOWN. For tests and for the printed diagram.
 */
bool idem_transition_allowed(enum idem_op_kind op, int from, int to);

#endif
