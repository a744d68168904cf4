/*
 * Scripts for the exchange: an event by its name, and the trace of effects as one line of text that
 * the test compares. "acquired 1 7" is a store result with attempt and fence.
 */
#ifndef IDEM_TEST_EXCHANGE_SCRIPT_H
#define IDEM_TEST_EXCHANGE_SCRIPT_H

#include <idem/exchange.h>

#define SCRIPT_TRACE_SIZE 512

struct script {
    struct idem_exchange exchange;
    struct idem_policy policy;
    struct idem_op op; /* of the last store result */
    struct idem_effects effects;
    char trace[SCRIPT_TRACE_SIZE];
};

/* A fresh exchange under the default policy, with a lease of 9 s so that a third is round. */
void script_init(struct script *script);

/* Applies changes made to script->policy: to be called before the first event. */
void script_restart(struct script *script);

/*
 * Feeds one event, told by words:
 *   request · tick [MS] · wake [MS] · client gone · aborted unsent|sent
 *   claim acquired ATTEMPT FENCE · claim in_progress ATTEMPT FENCE
 *   claim unknown ATTEMPT FENCE [ago=SECONDS]     since when, by the store's clock
 *   claim mismatch|other_principal|completed|tombstone|full|ended|corrupt
 *   claim failed|refused        the store has no result; it never saw the op
 *   renew ok|lost|failed        complete|fail|abandon ok|lost|failed
 *   get absent|completed|processing|unknown|failed|error
 *   head STATUS [final|failed|unknown|length=N|own=STATUS]      body N      end
 *   upstream unsent|unanswered|truncated|invalid [STATUS]       rerouted unsent|sent [STATUS]
 * and returns the trace of its effects, "-" for none. Fails the test on other words.
 */
const char *script_feed(struct script *script, const char *words);

/* The script as a test reads it: this event has just these effects. */
#define STEP(script, words, expected) assert_string_equal(script_feed(script, words), expected)

#endif
