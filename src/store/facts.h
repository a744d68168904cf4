/*
 * Facts: what a backend tells of itself for `idem store check`, line by line.
 */
#ifndef IDEM_STORE_FACTS_H
#define IDEM_STORE_FACTS_H

#include <idem/store.h>

/* The list in the making; facts past its maximum are left out. */
struct idem_facts {
    struct idem_store_fact *list;
    size_t count, max;
};

/* Adds a line; `name` must outlive the list, the value is cut at its maximum. */
void idem_facts_add(struct idem_facts *facts, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Adds the difference of the store's clock to this host's. The store was asked at one instant of
 * the host's clock and had answered at the other: half of the time between is how exact it is.
 */
void idem_facts_add_clock(struct idem_facts *facts, int64_t store_us, int64_t asked_us,
                          int64_t answered_us);

#endif
