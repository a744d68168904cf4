/*
 * What the files of the exchange share: exchange.c has the two tables and move(), the others have
 * the handlers, by what the exchange waits for. Nothing outside src/core includes this, except the
 * program that prints the table of moves.
 */
#ifndef IDEM_CORE_EXCHANGE_PARTS_H
#define IDEM_CORE_EXCHANGE_PARTS_H

#include <idem/exchange.h>

/* Looks at the event, changes the exchange, appends effects. */
typedef void idem_exchange_handler(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects);

/* exchange.c: the only writer of `state`; asserts that the table allows the move. */
void idem_exchange_move(struct idem_exchange *x, enum idem_exchange_state next);
bool idem_exchange_move_allowed(enum idem_exchange_state from, enum idem_exchange_state to);

/* exchange.c: effects. Those that end the exchange come last in a step. */
struct idem_effect *idem_effects_add(struct idem_effects *effects, enum idem_effect_kind kind,
                                     enum idem_durable requires);
void idem_effects_store(struct idem_effects *effects, enum idem_op_kind kind, bool background);
void idem_effects_timer(struct idem_effects *effects, int64_t delay_us);
void idem_exchange_refuse(struct idem_exchange *x, struct idem_effects *effects,
                          struct idem_problem problem, enum idem_durable requires);
void idem_exchange_refuse_kind(struct idem_exchange *x, struct idem_effects *effects,
                               enum idem_problem_kind kind);

/* exchange.c: answers a completed record: with the answer, or with why there is none. */
void idem_exchange_replay(struct idem_exchange *x, struct idem_effects *effects,
                          const struct idem_op *op);

/* exchange_claim.c: getting the claim, and waiting for whoever has it. */
idem_exchange_handler idem_exchange_on_request;
idem_exchange_handler idem_exchange_on_claim_result;
idem_exchange_handler idem_exchange_on_claim_failed;
idem_exchange_handler idem_exchange_on_claim_client_gone;
idem_exchange_handler idem_exchange_on_claim_wake;
idem_exchange_handler idem_exchange_on_claim_aborted;
idem_exchange_handler idem_exchange_on_wait_over;

/* exchange_probe.c: asking the upstream, and making sure of the claim before anything is sent. */
void idem_exchange_probe(struct idem_exchange *x, struct idem_effects *effects);
idem_exchange_handler idem_exchange_on_probe_head;
idem_exchange_handler idem_exchange_on_probe_body;
idem_exchange_handler idem_exchange_on_probe_end;
idem_exchange_handler idem_exchange_on_probe_failed;
idem_exchange_handler idem_exchange_on_probe_aborted;
idem_exchange_handler idem_exchange_on_confirm_result;
idem_exchange_handler idem_exchange_on_confirm_failed;

/* exchange_execute.c: the upstream works, the lease is renewed, the verdict is given. */
void idem_exchange_execute(struct idem_exchange *x, struct idem_effects *effects);
void idem_exchange_renew(struct idem_exchange *x, struct idem_effects *effects);
void idem_exchange_overflow(struct idem_exchange *x, struct idem_effects *effects);
void idem_exchange_record(struct idem_exchange *x, struct idem_effects *effects,
                          enum idem_outcome outcome, enum idem_reason reason);
enum idem_reason idem_exchange_reason_of(enum idem_evidence evidence);
idem_exchange_handler idem_exchange_on_tick;
idem_exchange_handler idem_exchange_on_renew_result;
idem_exchange_handler idem_exchange_on_renew_failed;
idem_exchange_handler idem_exchange_on_answer_head;
idem_exchange_handler idem_exchange_on_answer_body;
idem_exchange_handler idem_exchange_on_answer_end;
idem_exchange_handler idem_exchange_on_upstream_failed;
idem_exchange_handler idem_exchange_on_rerouted;
idem_exchange_handler idem_exchange_on_execution_aborted;
idem_exchange_handler idem_exchange_on_verdict_result;
idem_exchange_handler idem_exchange_on_verdict_failed;
idem_exchange_handler idem_exchange_on_look_result;
idem_exchange_handler idem_exchange_on_look_failed;

#endif
