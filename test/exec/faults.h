/*
 * Faults: the real memory store with a layer in front (linker option --wrap) that holds, fails and
 * logs calls. For the executor's tests. All functions may be called from any thread.
 */
#ifndef IDEM_TEST_EXEC_FAULTS_H
#define IDEM_TEST_EXEC_FAULTS_H

#include <idem/op.h>

#define FAULTS_LOG_MAX 4096

/* One op that was handed to the store, in order. */
struct faults_entry {
    enum idem_op_kind kind;
    uint8_t id;     /* first byte */
    uint8_t owner;  /* first byte, 0 if the op has none */
    unsigned batch; /* number of the call, from 0 */
    int error;      /* of the call */
};

void faults_reset(void);

/* The next applies, or openings, stay inside the store until released. */
void faults_hold_applies(void);
void faults_hold_opens(void);
void faults_await_held(void);
void faults_release(void);

/* The next `count` applies, or openings, fail; applies that fail `after` reach the store first. */
void faults_fail_applies(int error, unsigned count, bool after);
void faults_fail_opens(int error, unsigned count);

/*
 * From now on about so many of a thousand applies fail, before or after they reach the store, but
 * never three in a row: that would close the store, and a store in memory forgets everything.
 */
void faults_fail_some(unsigned permille, unsigned seed);

/* Every apply with an op on this id (first byte) fails; 0 heals it. */
void faults_poison(uint8_t id, int error);

/* A peek stays inside the store until `count` more applies have failed, and a little longer. */
void faults_hold_peeks(unsigned count);
bool faults_saw_close_in_peek(void);

/* What happened since the reset. Openings' own self-tests are not counted. */
size_t faults_log(struct faults_entry *ret_entries, size_t max);
unsigned faults_batches(void);
unsigned faults_opens(void); /* tried */
unsigned faults_closes(void);
bool faults_saw_signal_open(void); /* a thread entered the store with a signal unblocked */

#endif
