#include "sim/cover.h"

#include <stdio.h>

static struct {
    uint64_t situations[COVER_COUNT];
    uint64_t results[IDEM_OP_COUNT][IDEM_RESULT_COUNT];
    uint64_t effects[IDEM_EFFECT_PROBE + 1];
    uint64_t events[IDEM_EXCHANGE_STATE_COUNT][IDEM_EVENT_KIND_COUNT];
    uint64_t problems[IDEM_PROBLEM_COUNT];
} total;

static const char *const situation_texts[COVER_COUNT] = {
#define COVER_TEXT(name, text) [COVER_##name] = text,
    COVER_LIST(COVER_TEXT)
#undef COVER_TEXT
};

static const char *const effect_texts[IDEM_EFFECT_PROBE + 1] = {
    "store", "forward", "bypass", "replay", "refuse", "deliver", "timer", "probe",
};

static const char *const event_texts[IDEM_EVENT_KIND_COUNT] = {
    "request",         "store result", "store failed", "answer head", "answer body", "answer end",
    "upstream failed", "rerouted",     "client gone",  "tick",        "wake",        "aborted",
};

/* What every op must have come to in some run. */
static const struct {
    enum idem_op_kind op;
    enum idem_result result;
} results_needed[] = {
    {IDEM_OP_CLAIM, IDEM_RESULT_ACQUIRED},  {IDEM_OP_CLAIM, IDEM_RESULT_IN_PROGRESS},
    {IDEM_OP_CLAIM, IDEM_RESULT_COMPLETED}, {IDEM_OP_CLAIM, IDEM_RESULT_UNKNOWN},
    {IDEM_OP_CLAIM, IDEM_RESULT_MISMATCH},  {IDEM_OP_CLAIM, IDEM_RESULT_OTHER_PRINCIPAL},
    {IDEM_OP_CLAIM, IDEM_RESULT_ENDED},     {IDEM_OP_CLAIM, IDEM_RESULT_FULL},
    {IDEM_OP_RENEW, IDEM_RESULT_OK},        {IDEM_OP_RENEW, IDEM_RESULT_LOST},
    {IDEM_OP_COMPLETE, IDEM_RESULT_OK},     {IDEM_OP_COMPLETE, IDEM_RESULT_LOST},
    {IDEM_OP_FAIL, IDEM_RESULT_OK},         {IDEM_OP_FAIL, IDEM_RESULT_LOST},
    {IDEM_OP_ABANDON, IDEM_RESULT_OK},      {IDEM_OP_ABANDON, IDEM_RESULT_LOST},
    {IDEM_OP_GET, IDEM_RESULT_FOUND},       {IDEM_OP_GET, IDEM_RESULT_ABSENT},
    {IDEM_OP_GET, IDEM_RESULT_MISMATCH},    {IDEM_OP_GET, IDEM_RESULT_OTHER_PRINCIPAL},
    {IDEM_OP_RESOLVE, IDEM_RESULT_OK},      {IDEM_OP_RESOLVE, IDEM_RESULT_CHANGED},
    {IDEM_OP_FORGET, IDEM_RESULT_OK},       {IDEM_OP_SWEEP, IDEM_RESULT_OK},
};

/* Problems that a gateway in this world can tell: keys are well-formed here. */
static const enum idem_problem_kind problems_needed[] = {
    IDEM_PROBLEM_KEY_REUSED,          IDEM_PROBLEM_OTHER_CALLER,
    IDEM_PROBLEM_IN_PROGRESS,         IDEM_PROBLEM_OUTCOME_UNKNOWN,
    IDEM_PROBLEM_ANSWER_NOT_KEPT,     IDEM_PROBLEM_STORE_UNAVAILABLE,
    IDEM_PROBLEM_STORE_FULL,          IDEM_PROBLEM_UPSTREAM_UNREACHABLE,
    IDEM_PROBLEM_UPSTREAM_UNANSWERED,
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void cover_add(const struct cover *cover)
{
    for (size_t i = 0; i < COVER_COUNT; i++)
        total.situations[i] += cover->situations[i];
    for (size_t i = 0; i < COUNT(total.effects); i++)
        total.effects[i] += cover->effects[i];
    for (size_t i = 0; i < IDEM_PROBLEM_COUNT; i++)
        total.problems[i] += cover->problems[i];
    for (size_t i = 0; i < IDEM_OP_COUNT; i++)
        for (size_t j = 0; j < IDEM_RESULT_COUNT; j++)
            total.results[i][j] += cover->results[i][j];
    for (size_t i = 0; i < IDEM_EXCHANGE_STATE_COUNT; i++)
        for (size_t j = 0; j < IDEM_EVENT_KIND_COUNT; j++)
            total.events[i][j] += cover->events[i][j];
}

static void line(uint64_t count, const char *what, const char *more)
{
    printf("%10llu  %s%s%s\n", (unsigned long long)count, what, *more ? " -> " : "", more);
}

void cover_report(uint64_t runs)
{
    printf("met in so many of %llu runs:\n", (unsigned long long)runs);
    for (size_t i = 0; i < COVER_COUNT; i++)
        line(total.situations[i], situation_texts[i], "");
    for (size_t i = 0; i < COUNT(total.effects); i++)
        line(total.effects[i], "effect", effect_texts[i]);
    for (size_t i = 1; i < IDEM_PROBLEM_COUNT; i++)
        if (total.problems[i] > 0)
            line(total.problems[i], "refusal", idem_problem_type((enum idem_problem_kind)i));
    for (size_t i = 0; i < IDEM_OP_COUNT; i++)
        for (size_t j = 0; j < IDEM_RESULT_COUNT; j++)
            if (total.results[i][j] > 0)
                line(total.results[i][j], idem_op_kind_text((enum idem_op_kind)i),
                     idem_result_text((enum idem_result)j));
    for (size_t i = 0; i < IDEM_EXCHANGE_STATE_COUNT; i++)
        for (size_t j = 0; j < IDEM_EVENT_KIND_COUNT; j++)
            if (total.events[i][j] > 0)
                line(total.events[i][j], idem_exchange_state_text((enum idem_exchange_state)i),
                     event_texts[j]);
}

static unsigned missing(uint64_t count, const char *what, const char *more)
{
    if (count > 0)
        return 0;
    printf("never met: %s%s%s\n", what, *more ? " -> " : "", more);
    return 1;
}

unsigned cover_missing(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < COVER_COUNT; i++)
        count += missing(total.situations[i], situation_texts[i], "");
    for (size_t i = 0; i < COUNT(total.effects); i++)
        count += missing(total.effects[i], "effect", effect_texts[i]);
    for (size_t i = 0; i < COUNT(problems_needed); i++)
        count += missing(total.problems[problems_needed[i]], "refusal",
                         idem_problem_type(problems_needed[i]));
    for (size_t i = 0; i < COUNT(results_needed); i++)
        count += missing(total.results[results_needed[i].op][results_needed[i].result],
                         idem_op_kind_text(results_needed[i].op),
                         idem_result_text(results_needed[i].result));
    return count;
}
