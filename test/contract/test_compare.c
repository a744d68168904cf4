/* Nobody is told anything before the fingerprint was compared, and then the principal. */
#include "contract.h"

/* Ways to bring the id "k" into each state that a record can be seen in. */
static void make_in_progress(struct world *world)
{
    claim(world, "k", "A");
}

static void make_lapsed(struct world *world)
{
    struct idem_op *op = claim_make(world, "k", "A");

    op->in.claim.lease_us = 0;
    run(world, op);
}

static void make_abandoned(struct world *world)
{
    claim(world, "k", "A");
    abandon(world, "k", "A");
}

static void make_failed(struct world *world)
{
    claim(world, "k", "A");
    fail_claim(world, "k", "A");
}

static void make_completed(struct world *world)
{
    claim(world, "k", "A");
    complete(world, "k", "A", "secret");
}

static void make_resolved(struct world *world)
{
    struct idem_op *op;

    make_abandoned(world);
    op = resolve_make(world, "k");
    op->in.resolve.completed = true;
    op->in.resolve.answer = answer_of("secret");
    expect(run(world, op), OK);
}

static void (*const makers[])(struct world *) = {
    make_in_progress, make_lapsed, make_abandoned, make_failed, make_completed, make_resolved,
};

/* A get on "k" by somebody, matched. */
static struct idem_op *get_as(struct world *world, const char *payload, const char *caller)
{
    struct idem_op *op = op_make(world, IDEM_OP_GET, "k");

    op->in.get.match = true;
    op->in.get.fingerprint = payload_of(payload);
    op->in.get.principal = caller_of(caller);
    return op;
}

static struct idem_op *claim_as(struct world *world, const char *payload, const char *caller,
                                enum idem_take_unknown take)
{
    struct idem_op *op = claim_make(world, "k", "B");

    op->in.claim.fingerprint = payload_of(payload);
    op->in.claim.principal = caller_of(caller);
    op->in.claim.take = take;
    return op;
}

/* What somebody else is told about "k", on every path there is. */
static void told_to(struct world *world, const char *payload, const char *caller,
                    enum idem_result wanted)
{
    struct idem_op *peeked = peek(world, get_as(world, payload, caller));

    if (peeked) {
        assert_int_equal(peeked->result, wanted);
        assert_null(peeked->out.found.memory);
    }
    assert_int_equal(run(world, get_as(world, payload, caller))->result, wanted);
    assert_int_equal(run(world, claim_as(world, payload, caller, IDEM_TAKE_NONE))->result, wanted);
    assert_int_equal(run(world, claim_as(world, payload, caller, IDEM_TAKE_ANY))->result, wanted);
}

static void fingerprint_on_every_path(void **state)
{
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(makers); i++) {
        makers[i](world);
        told_to(world, "another payload", "alice", IDEM_RESULT_MISMATCH);
        forget(world, "k", true);
    }
}

static void fingerprint_before_principal(void **state)
{
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(makers); i++) {
        makers[i](world);
        told_to(world, "another payload", "mallory", IDEM_RESULT_MISMATCH);
        forget(world, "k", true);
    }
}

static void principal_on_every_path_but_failed(void **state)
{
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(makers); i++) {
        makers[i](world);
        if (makers[i] != make_failed)
            told_to(world, "payload", "mallory", IDEM_RESULT_OTHER_PRINCIPAL);
        forget(world, "k", true);
    }
}

static void no_credential_is_a_principal(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_completed(world);
    told_to(world, "payload", NULL, IDEM_RESULT_OTHER_PRINCIPAL);
    forget(world, "k", true);
    op = claim_as(world, "payload", NULL, IDEM_TAKE_NONE);
    op->in.claim.owner = owner_of("A");
    expect(run(world, op), ACQUIRED);
    told_to(world, "payload", "", IDEM_RESULT_OTHER_PRINCIPAL);
    expect(run(world, get_as(world, "payload", NULL)), FOUND);
}

static void same_request_is_found(void **state)
{
    static const enum idem_state states[] = {
        IDEM_STATE_PROCESSING, IDEM_STATE_UNKNOWN,   IDEM_STATE_UNKNOWN,
        IDEM_STATE_FAILED,     IDEM_STATE_COMPLETED, IDEM_STATE_COMPLETED,
    };
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(makers); i++) {
        struct idem_op *op;

        makers[i](world);
        op = run(world, get_as(world, "payload", "alice"));
        expect(op, FOUND);
        assert_int_equal(op->out.found.record.state, states[i]);
        op = peek(world, get_as(world, "payload", "alice"));
        if (op) {
            expect(op, FOUND);
            assert_int_equal(op->out.found.record.state, states[i]);
        }
        forget(world, "k", true);
    }
}

static void failed_has_nothing_to_show(void **state)
{
    struct world *world = *state;

    make_failed(world);
    expect(run(world, get_as(world, "payload", "mallory")), FOUND);
}

static void algorithms_never_match(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_completed(world);
    op = claim_make(world, "k", "B");
    op->in.claim.fingerprint.algorithm = IDEM_FINGERPRINT_NONE;
    expect(run(world, op), MISMATCH);
}

static void no_payload_matches_itself(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "k", "A");

    op->in.claim.fingerprint = (struct idem_fingerprint){0};
    expect(run(world, op), ACQUIRED);
    op = claim_make(world, "k", "B");
    op->in.claim.fingerprint = (struct idem_fingerprint){0};
    expect(run(world, op), IN_PROGRESS);
    expect(claim(world, "k", "B"), MISMATCH);
}

static void peek_sees_what_is_done(void **state)
{
    struct world *world = *state;
    struct idem_op *op = peek(world, get_as(world, "payload", "alice"));

    if (!op)
        return; /* this store has no such path */
    expect(op, ABSENT);
    make_completed(world);
    op = peek(world, get_as(world, "payload", "alice"));
    expect(op, FOUND);
    assert_bytes(op->out.found.record.answer.body, text("secret"));
    forget(world, "k", true);
    expect(peek(world, get_as(world, "payload", "alice")), ABSENT);
}

static void peek_leaves_its_op_as_it_was(void **state)
{
    struct world *world = *state;
    struct idem_op *op = get_as(world, "payload", "alice");
    struct idem_fingerprint payload = payload_of("payload");

    if (peek(world, op))
        assert_true(idem_fingerprint_equal(&op->in.get.fingerprint, &payload));
}

static const struct rule rules[] = {
    {"the fingerprint is compared on every path", fingerprint_on_every_path, 0},
    {"the fingerprint is compared before the principal", fingerprint_before_principal, 0},
    {"the principal is compared on every path but failed", principal_on_every_path_but_failed, 0},
    {"no credential is a principal of its own", no_credential_is_a_principal, 0},
    {"the same request finds the record in every state", same_request_is_found, 0},
    {"a failed record has nothing to show, and hides nothing", failed_has_nothing_to_show, 0},
    {"two ways to make a fingerprint never match", algorithms_never_match, 0},
    {"no payload is a payload of its own", no_payload_matches_itself, 0},
    {"a peek sees what is done", peek_sees_what_is_done, 0},
    {"a peek leaves its op as it was", peek_leaves_its_op_as_it_was, 0},
};

const struct chapter chapter_compare = {"comparisons", rules, COUNT(rules)};
