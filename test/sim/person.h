/*
 * Person: somebody on call who looks at a record, finds out at the upstream what became of it, and
 * settles it. What they say is true; the record may have changed since they looked.
 */
#ifndef IDEM_TEST_SIM_PERSON_H
#define IDEM_TEST_SIM_PERSON_H

#include "sim/world.h"

void person_look(struct world *world);
void person_settle(struct world *world);

#endif
