/* Prints the allowed moves of a record as the table that ARCHITECTURE.md shows. */
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

int main(void)
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
    return 0;
}
