/* Fingerprints and principals: stable, unambiguous, and salted apart from each other. */
#include "unit.h"

#include <idem/fingerprint.h>
#include <idem/id.h>

static void assert_hex(const uint8_t digest[IDEM_DIGEST_SIZE], const char *hex)
{
    struct idem_id id;
    char text[IDEM_ID_TEXT_SIZE];

    memcpy(id.bytes, digest, IDEM_DIGEST_SIZE);
    idem_id_format(&id, text);
    assert_string_equal(text, hex);
}

/* The fields up to a NULL, then the body. */
static struct idem_fingerprint fingerprint_of(enum idem_fingerprint_algorithm algorithm,
                                              const char *const *fields, struct idem_bytes body)
{
    struct idem_fingerprinter f;
    struct idem_fingerprint fingerprint;

    idem_fingerprinter_init(&f, algorithm);
    for (; *fields != NULL; fields++)
        idem_fingerprinter_field(&f, idem_bytes_from_text(*fields));
    idem_fingerprinter_body(&f, body);
    idem_fingerprinter_end(&f, &fingerprint);
    return fingerprint;
}

static const char *const pay[] = {"POST", "/pay", "", NULL};

static struct idem_salt salt_counting(void)
{
    struct idem_salt salt;

    for (size_t i = 0; i < IDEM_SALT_SIZE; i++)
        salt.bytes[i] = (uint8_t)i;
    return salt;
}

/* Computed with another implementation (Python's hashlib and hmac): stored, so never to change. */
static void test_vectors(void **state)
{
    const struct idem_bytes credentials[] = {LITERAL("Bearer x"), {NULL, 0}, LITERAL("")};
    struct idem_fingerprint fingerprint =
        fingerprint_of(IDEM_FINGERPRINT_RAW, pay, TEXT("{\"amount\":5}"));
    struct idem_principal principal = idem_principal_make(credentials, COUNT(credentials));
    struct idem_salt salt = salt_counting();

    (void)state;
    assert_int_equal(fingerprint.algorithm, IDEM_FINGERPRINT_RAW);
    assert_hex(fingerprint.bytes,
               "9c6c0156b5205108de55c1f861ee65cc051499602642edf6e5cae9ecb8dfa67b");
    assert_true(principal.present);
    assert_hex(principal.bytes, "348d94d6011921cecd01c5df7817da749c3e6b876bcd9e20c2ff2794352affd7");

    fingerprint = idem_fingerprint_salt(&fingerprint, &salt);
    assert_int_equal(fingerprint.algorithm, IDEM_FINGERPRINT_RAW);
    assert_hex(fingerprint.bytes,
               "300f02e9d12f48c81a359d052b208a023b1dde467d5e21b4968c846c69fbf741");
    principal = idem_principal_salt(&principal, &salt);
    assert_true(principal.present);
    assert_hex(principal.bytes, "031c33b7d10d468308bdb3573df23837404262e4b286b0d8891b4c0d3565a618");
}

/* Requests that would be one if a field could run into the next, or into the body. */
static void test_distinct(void **state)
{
    static const struct {
        const char *fields[4];
        struct idem_bytes body;
    } requests[] = {
        {{"ab", "c", NULL}, LITERAL("")},
        {{"a", "bc", NULL}, LITERAL("")},
        {{"abc", NULL}, LITERAL("")},
        {{"abc", "", NULL}, LITERAL("")},
        {{"", "abc", NULL}, LITERAL("")},
        {{"ab", NULL}, LITERAL("c")},
        {{NULL}, LITERAL("abc")},
        {{NULL}, LITERAL("")},
        {{NULL}, LITERAL("\0")},
        {{"", NULL}, LITERAL("")},
        /* a body that reads like a sized field, and one that reads like the closing size */
        {{NULL}, LITERAL("\0\0\0\0\0\0\0\3abc")},
        {{NULL}, LITERAL("\0\0\0\0\0\0\0\0")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(requests); i++) {
        struct idem_fingerprint a =
            fingerprint_of(IDEM_FINGERPRINT_RAW, requests[i].fields, requests[i].body);

        for (size_t j = 0; j < COUNT(requests); j++) {
            struct idem_fingerprint b =
                fingerprint_of(IDEM_FINGERPRINT_RAW, requests[j].fields, requests[j].body);

            assert_int_equal(idem_fingerprint_equal(&a, &b), i == j);
        }
    }
}

/* The body may come in any pieces, empty ones among them. */
static void test_pieces(void **state)
{
    static const char body[] = "a body that is longer than one block of SHA-256, which is 64 bytes";
    struct idem_fingerprint whole = fingerprint_of(IDEM_FINGERPRINT_RAW, pay, TEXT(body));

    (void)state;
    for (size_t size = 1; size < sizeof body; size++) {
        struct idem_fingerprinter f;
        struct idem_fingerprint pieces;

        idem_fingerprinter_init(&f, IDEM_FINGERPRINT_RAW);
        for (size_t i = 0; pay[i] != NULL; i++)
            idem_fingerprinter_field(&f, idem_bytes_from_text(pay[i]));
        for (size_t at = 0; at < sizeof body - 1; at += size) {
            size_t left = sizeof body - 1 - at;

            idem_fingerprinter_body(&f, idem_bytes_make(body + at, left < size ? left : size));
            idem_fingerprinter_body(&f, idem_bytes_make(NULL, 0));
        }
        idem_fingerprinter_end(&f, &pieces);
        assert_true(idem_fingerprint_equal(&whole, &pieces));
    }
}

/* Kinds without a payload have no digest at all, salted or not. */
static void test_none(void **state)
{
    struct idem_fingerprint none = fingerprint_of(IDEM_FINGERPRINT_NONE, pay, TEXT("body"));
    struct idem_fingerprint raw = fingerprint_of(IDEM_FINGERPRINT_RAW, pay, TEXT("body"));
    struct idem_fingerprint zero = {0};
    struct idem_salt salt = salt_counting();

    (void)state;
    assert_memory_equal(&none, &zero, sizeof zero);
    assert_false(idem_fingerprint_equal(&none, &raw));
    none = idem_fingerprint_salt(&none, &salt);
    assert_memory_equal(&none, &zero, sizeof zero);
    assert_true(idem_fingerprint_equal(&none, &zero));
}

/* The state holds the last bytes of the body until it is wiped. */
static void test_end_wipes(void **state)
{
    struct idem_fingerprinter f, zero;
    struct idem_fingerprint fingerprint;

    (void)state;
    memset(&zero, 0, sizeof zero);
    idem_fingerprinter_init(&f, IDEM_FINGERPRINT_RAW);
    idem_fingerprinter_body(&f, TEXT("card 4242"));
    idem_fingerprinter_end(&f, &fingerprint);
    assert_memory_equal(&f, &zero, sizeof zero);
}

static void test_fingerprint_equal(void **state)
{
    struct idem_fingerprint a = fingerprint_of(IDEM_FINGERPRINT_RAW, pay, TEXT("x"));

    (void)state;
    for (size_t i = 0; i < IDEM_DIGEST_SIZE; i++) {
        struct idem_fingerprint b = a;

        assert_true(idem_fingerprint_equal(&a, &b));
        b.bytes[i] ^= 0x80;
        assert_false(idem_fingerprint_equal(&a, &b));
    }
}

static const struct {
    const char *says;
    size_t count;
    struct idem_bytes credentials[3];
} callers[] = {
    {"a credential", 1, {LITERAL("x")}},
    {"an empty one", 1, {LITERAL("")}},
    {"one, then an absent one", 2, {LITERAL("x"), {NULL, 0}}},
    {"an absent one, then one", 2, {{NULL, 0}, LITERAL("x")}},
    {"one, then an empty one", 2, {LITERAL("x"), LITERAL("")}},
    {"two", 2, {LITERAL("x"), LITERAL("y")}},
    {"the other way around", 2, {LITERAL("y"), LITERAL("x")}},
    {"run together", 1, {LITERAL("xy")}},
};

static void test_principal_distinct(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(callers); i++) {
        struct idem_principal a = idem_principal_make(callers[i].credentials, callers[i].count);

        assert_true(a.present);
        for (size_t j = 0; j < COUNT(callers); j++) {
            struct idem_principal b = idem_principal_make(callers[j].credentials, callers[j].count);

            if (idem_principal_equal(&a, &b) != (i == j))
                fail_msg("%s / %s", callers[i].says, callers[j].says);
        }
    }
}

static void test_principal_empty(void **state)
{
    const struct idem_bytes absent[] = {{NULL, 0}, {NULL, 0}};
    struct idem_principal none = idem_principal_make(NULL, 0);
    struct idem_principal all_absent = idem_principal_make(absent, COUNT(absent));
    struct idem_principal present = idem_principal_make(callers[1].credentials, 1);
    struct idem_salt salt = salt_counting();

    (void)state;
    assert_false(none.present);
    assert_false(all_absent.present);
    assert_true(idem_principal_equal(&none, &all_absent));
    assert_false(idem_principal_equal(&none, &present));
    assert_false(idem_principal_equal(&present, &none));
    none = idem_principal_salt(&none, &salt);
    assert_false(none.present);
    assert_true(idem_principal_equal(&none, &all_absent));
}

/* Another salt gives other bytes, and so does the same digest used for the other purpose. */
static void test_salt(void **state)
{
    struct idem_fingerprint plain = fingerprint_of(IDEM_FINGERPRINT_RAW, pay, TEXT("x"));
    struct idem_principal twin = {.present = true};
    struct idem_salt salt = salt_counting(), other = salt;
    struct idem_fingerprint salted = idem_fingerprint_salt(&plain, &salt), again;

    (void)state;
    assert_false(idem_fingerprint_equal(&plain, &salted));
    again = idem_fingerprint_salt(&plain, &salt);
    assert_true(idem_fingerprint_equal(&salted, &again));
    other.bytes[IDEM_SALT_SIZE - 1] ^= 1;
    again = idem_fingerprint_salt(&plain, &other);
    assert_false(idem_fingerprint_equal(&salted, &again));
    memcpy(twin.bytes, plain.bytes, sizeof twin.bytes);
    twin = idem_principal_salt(&twin, &salt);
    assert_memory_not_equal(twin.bytes, salted.bytes, sizeof twin.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_end_wipes),
        cmocka_unit_test(test_fingerprint_equal),
        cmocka_unit_test(test_principal_distinct),
        cmocka_unit_test(test_principal_empty),
        cmocka_unit_test(test_salt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
