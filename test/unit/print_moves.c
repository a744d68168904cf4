/*
 * Prints the allowed moves of a record, or with the argument "exchange" those of an exchange, as
 * the tables that ARCHITECTURE.md shows.
 */
#include "core/exchange_parts.h"
#include "core/transition.h"

#include <stdio.h>

static const char *state_name(int state)
{
    return state == 0 ? "(absent)" : idem_state_text((enum idem_state)state);
}

static void print_row(enum idem_op_kind op, int from)
{
    const char *separator = "";

    printf("| `%s` | %s | ", idem_op_kind_text(op), state_name(from));
    for (int to = 0; to < IDEM_STATE_COUNT; to++) {
        if (idem_transition_allowed(op, from, to)) {
            printf("%s%s", separator, state_name(to));
            separator = ", ";
        }
    }
    printf(" |\n");
}

static void print_record(void)
{
    for (int op = IDEM_OP_CLAIM; op <= IDEM_OP_AUDIT; op++) {
        for (int from = 0; from < IDEM_STATE_COUNT; from++) {
            bool any = false;

            for (int to = 0; to < IDEM_STATE_COUNT; to++) {
                any |= idem_transition_allowed((enum idem_op_kind)op, from, to);
            }
            if (any) {
                print_row((enum idem_op_kind)op, from);
            }
        }
    }
}

static void print_exchange(void)
{
    for (int from = 0; from < IDEM_EXCHANGE_DONE; from++) {
        const char *separator = "";

        printf("| %s | ", idem_exchange_state_text((enum idem_exchange_state)from));
        for (int to = 0; to < IDEM_EXCHANGE_STATE_COUNT; to++) {
            if (idem_exchange_move_allowed((enum idem_exchange_state)from,
                                           (enum idem_exchange_state)to)) {
                printf("%s%s", separator, idem_exchange_state_text((enum idem_exchange_state)to));
                separator = ", ";
            }
        }
        printf(" |\n");
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "exchange") == 0) {
        print_exchange();
    } else {
        print_record();
    }
    return 0;
}
