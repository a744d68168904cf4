#include "store/facts.h"

#include <stdarg.h>
#include <stdio.h>

void idem_facts_add(struct idem_facts *facts, const char *name, const char *format, ...)
{
    struct idem_store_fact *fact = &facts->list[facts->count];
    va_list arguments;

    if (facts->count == facts->max)
        return;
    facts->count++;
    fact->name = name;
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
}

void idem_facts_add_clock(struct idem_facts *facts, int64_t store_us, int64_t asked_us,
                          int64_t answered_us)
{
    int64_t middle_us = asked_us + (answered_us - asked_us) / 2;

    idem_facts_add(facts, "clock difference", "%+.1f ms", (double)(store_us - middle_us) / 1000.0);
}
