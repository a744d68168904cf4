/* What every unit test of the service includes: cmocka, in the order that it asks for. */
#ifndef PAYMENTS_TEST_H
#define PAYMENTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
