/*
 * Scene: an executor on the faulty memory store, the jobs of a test and what they came to.
 */
#ifndef IDEM_TEST_EXEC_SCENE_H
#define IDEM_TEST_EXEC_SCENE_H

#include "../unit/unit.h"

#include <idem/executor.h>

#include "faults.h"

#define SCENE_WAIT_US   (60 * IDEM_SECOND_US) /* only a broken test sees its end */
#define SCENE_TRACE_MAX 64

/* A job that counts what it was told. */
struct probe {
    struct idem_job job;
    unsigned done, delayed;
    int delayed_error;
    void (*then)(struct probe *probe); /* called when done */
    void *context;
};

struct scene_trace {
    int error;
    char text[IDEM_MESSAGE_SIZE_MAX];
};

/* Starts an executor on memory: and waits until it is open. NULL options: no sweeping. */
struct idem_executor *scene_start(struct idem_executor_options *options);
/* The same without waiting. */
struct idem_executor *scene_start_closed(struct idem_executor_options *options);
/* On another store in memory, such as a small one. */
struct idem_executor *scene_start_url(const char *url, struct idem_executor_options *options);
/* An executor on lmdb: in a directory of its own, NULL when this build has no such store. */
struct idem_executor *scene_start_lmdb(struct idem_executor_options *options);
struct idem_executor *scene_start_lmdb_again(struct idem_executor_options *options);
void scene_remove_lmdb(void); /* after _free */

/* Jobs on the id and by the owner with that first byte. */
void probe_claim(struct probe *probe, uint8_t id, uint8_t owner);
void probe_verdict(struct probe *probe, enum idem_op_kind kind, uint8_t id, uint8_t owner);
void probe_get(struct probe *probe, uint8_t id);
void probe_release(struct probe *probe); /* frees what the op owns */

void scene_submit(struct idem_executor *executor, struct probe *probe);
/* Collects until the probe is done, or was told that it is delayed. */
void scene_await_done(struct idem_executor *executor, const struct probe *probe);
void scene_await_delayed(struct idem_executor *executor, const struct probe *probe);
/* Submits, awaits, and says what it came to. */
enum idem_result scene_run(struct idem_executor *executor, struct probe *probe);
/* True when the eventfd is readable now. */
bool scene_rings(struct idem_executor *executor);
/* Waits for a condition that no eventfd announces. */
void scene_await(bool (*holds)(void *context), void *context);

/* Lines traced so far. */
size_t scene_traces(struct scene_trace *ret_traces, size_t max);

#endif
