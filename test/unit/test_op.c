/* Releasing an op: everything it owns goes (a leak checker sees to that), its inputs stay. */
#include "unit.h"

#include <idem/op.h>

#include "base/memory.h"

static void assert_released(const struct idem_op *op)
{
    struct idem_op zero;

    memset(&zero, 0, sizeof zero);
    assert_int_equal(op->result, IDEM_RESULT_NONE);
    assert_memory_equal(&op->out, &zero.out, sizeof zero.out);
}

static void test_zeroed(void **state)
{
    struct idem_op op = {0};

    (void)state;
    idem_op_deinit(&op);
    assert_released(&op);
    idem_op_deinit(&op);
    assert_released(&op);
}

static void test_found(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_CLAIM, .in.claim.lease_us = 5};

    (void)state;
    op.result = IDEM_RESULT_COMPLETED;
    op.out.found.memory = idem_malloc(10);
    op.out.fence = 7;
    idem_op_deinit(&op);
    assert_released(&op);
    assert_int_equal(op.kind, IDEM_OP_CLAIM);
    assert_int_equal(op.in.claim.lease_us, 5);
    idem_op_deinit(&op);
}

static void test_page(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 3};

    (void)state;
    op.result = IDEM_RESULT_OK;
    op.out.count = 3;
    op.out.page = idem_calloc(3, sizeof *op.out.page);
    assert_non_null(op.out.page);
    op.out.page[0].memory = idem_malloc(10);
    op.out.page[2].memory = idem_malloc(10); /* one record that views nothing of its own */
    idem_op_deinit(&op);
    assert_released(&op);
    assert_int_equal(op.in.scan.limit, 3);
}

static void test_audit(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_AUDIT};

    (void)state;
    op.out.count = 2;
    op.out.entries = idem_calloc(2, sizeof *op.out.entries);
    op.out.memory = idem_malloc(10);
    idem_op_deinit(&op);
    assert_released(&op);
}

/* A sweep counts what it removed, and there is no page of that. */
static void test_sweep(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_SWEEP};

    (void)state;
    op.out.count = 1000;
    op.out.more = true;
    idem_op_deinit(&op);
    assert_released(&op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zeroed), cmocka_unit_test(test_found), cmocka_unit_test(test_page),
        cmocka_unit_test(test_audit),  cmocka_unit_test(test_sweep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
