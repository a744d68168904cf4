/* Ids: stable over releases, different for different triples, and read back as written. */
#include "unit.h"

#include <ctype.h>
#include <idem/id.h>

/* Computed with another implementation (Python's hashlib): they are stored, so they never change.
 */
static void test_vectors(void **state)
{
    struct idem_id id = idem_id_make(IDEM_KIND_HTTP, TEXT("alice"), TEXT("k1"));
    char text[IDEM_ID_TEXT_SIZE];

    (void)state;
    idem_id_format(&id, text);
    assert_string_equal(text, "b7116abe586ac12faa69f8ddc63feb4558fd8e1f7b2a61914275aaa374122653");
    id = idem_id_make(IDEM_KIND_HTTP, TEXT(""), idem_bytes_make(NULL, 0));
    idem_id_format(&id, text);
    assert_string_equal(text, "a8a2d58bcbd1fb19dad4fc52192112bdfecb7620037421fc54669946f43b615a");
}

/* Triples that would be one if a part could run into the next, or bytes were text. */
static void test_distinct(void **state)
{
    static const struct {
        enum idem_kind kind;
        struct idem_bytes scope, key;
    } triples[] = {
        {IDEM_KIND_HTTP, LITERAL("ab"), LITERAL("c")},
        {IDEM_KIND_HTTP, LITERAL("a"), LITERAL("bc")},
        {IDEM_KIND_HTTP, LITERAL(""), LITERAL("abc")},
        {IDEM_KIND_HTTP, LITERAL("abc"), LITERAL("")},
        {IDEM_KIND_LOCK, LITERAL("ab"), LITERAL("c")},
        {IDEM_KIND_HTTP, LITERAL("ab"), LITERAL("C")},
        {IDEM_KIND_HTTP, LITERAL("ab"), LITERAL("c\0")},
        {IDEM_KIND_HTTP, LITERAL("ab\0"), LITERAL("c")},
        {IDEM_KIND_HTTP, LITERAL("ab"), LITERAL("\0c")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(triples); i++) {
        struct idem_id a = idem_id_make(triples[i].kind, triples[i].scope, triples[i].key);

        for (size_t j = 0; j < COUNT(triples); j++) {
            struct idem_id b = idem_id_make(triples[j].kind, triples[j].scope, triples[j].key);

            assert_int_equal(idem_id_equal(&a, &b), i == j);
        }
    }
}

static void test_format_and_parse(void **state)
{
    struct idem_id id, parsed;
    char text[IDEM_ID_TEXT_SIZE];

    (void)state;
    for (size_t i = 0; i < IDEM_ID_SIZE; i++)
        id.bytes[i] = (uint8_t)(i * 8 + 7);
    idem_id_format(&id, text);
    assert_int_equal(idem_id_parse(idem_bytes_from_text(text), &parsed), IDEM_OK);
    assert_true(idem_id_equal(&id, &parsed));
    for (size_t i = 0; text[i] != '\0'; i++)
        text[i] = (char)toupper((unsigned char)text[i]);
    assert_int_equal(idem_id_parse(idem_bytes_from_text(text), &parsed), IDEM_OK);
    assert_true(idem_id_equal(&id, &parsed));
}

static void test_parse_refuses(void **state)
{
    char text[2 * IDEM_ID_SIZE + 1];
    struct idem_id id, before;

    (void)state;
    memset(&id, 0xa5, sizeof id);
    before = id;
    memset(text, '0', sizeof text);
    for (size_t size = 0; size <= sizeof text; size++) {
        if (size == 2 * IDEM_ID_SIZE)
            continue;
        assert_int_equal(idem_id_parse(idem_bytes_make(text, size), &id), IDEM_ERR_INVALID);
    }
    for (size_t at = 0; at < 2 * IDEM_ID_SIZE; at++) {
        for (int byte = 0; byte < 256; byte++) {
            if (isxdigit(byte))
                continue;
            text[at] = (char)byte;
            assert_int_equal(idem_id_parse(idem_bytes_make(text, 2 * IDEM_ID_SIZE), &id),
                             IDEM_ERR_INVALID);
        }
        text[at] = '0';
    }
    assert_true(idem_id_equal(&id, &before));
}

static void test_owner(void **state)
{
    struct idem_owner a = {{0}};

    (void)state;
    for (size_t i = 0; i < IDEM_OWNER_SIZE; i++) {
        struct idem_owner b = a;

        assert_true(idem_owner_equal(&a, &b));
        b.bytes[i] ^= 1;
        assert_false(idem_owner_equal(&a, &b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_format_and_parse),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
