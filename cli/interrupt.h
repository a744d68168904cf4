/*
 * Interrupt: how a long command ends in good order. The first SIGINT or SIGTERM ends it behind what
 * is under way, the second one at once.
 */
#ifndef IDEM_CLI_INTERRUPT_H
#define IDEM_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on signals are noted. */
void idem_interrupt_take(void);

bool idem_interrupt_noted(void);

#endif
