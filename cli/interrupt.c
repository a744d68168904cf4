/* Interrupt: see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void interrupt_note(int number)
{
    (void)number;
    interrupted = 1;
}

void idem_interrupt_take(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = interrupt_note,
                                     .sa_flags = SA_RESTART | SA_RESETHAND};
    struct sigaction before;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        /* What is ignored, as under nohup, stays so. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}

bool idem_interrupt_noted(void)
{
    return interrupted != 0;
}
