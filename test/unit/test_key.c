/*
 * The rules of RFC 9651 (Strings, 3.3.3 and 4.2.5; Items and parameters, 4.2.3) and of lenient
 * syntax, each as one line of a table.
 */
#include "unit.h"

#include <idem/key.h>
#include <stdio.h>

/* The outcome of a String is the same in both syntaxes; only bare values tell them apart. */
struct key_case {
    const char *rule;
    struct idem_bytes field;
    int lenient, strict;
    const char *key; /* what the key is where the outcome is IDEM_OK */
};

#define OK    IDEM_OK
#define EMPTY IDEM_KEY_EMPTY
#define BAD   IDEM_KEY_MALFORMED

static const struct key_case key_cases[] = {
    /* Strings */
    {"a String", LITERAL("\"abc\""), OK, OK, "abc"},
    {"of one byte", LITERAL("\"a\""), OK, OK, "a"},
    {"a UUID", LITERAL("\"8e03978e-40d5-43e8-bc93-6894a57f9324\""), OK, OK,
     "8e03978e-40d5-43e8-bc93-6894a57f9324"},
    {"with spaces inside, which are part of it", LITERAL("\" a b \""), OK, OK, " a b "},
    {"with what a bare key may not hold", LITERAL("\"a,b;c\""), OK, OK, "a,b;c"},
    {"an escaped quote", LITERAL("\"a\\\"b\""), OK, OK, "a\"b"},
    {"an escaped backslash", LITERAL("\"a\\\\b\""), OK, OK, "a\\b"},
    {"escapes only", LITERAL("\"\\\"\\\\\""), OK, OK, "\"\\"},
    {"an escaped backslash before the end", LITERAL("\"\\\\\""), OK, OK, "\\"},
    {"case is kept", LITERAL("\"AbC\""), OK, OK, "AbC"},
    {"percent is nothing special", LITERAL("\"a%20b\""), OK, OK, "a%20b"},
    {"single quotes are nothing special", LITERAL("\"'a'\""), OK, OK, "'a'"},

    /* white space around: RFC 9110, 5.5 */
    {"spaces around", LITERAL("  \"abc\"  "), OK, OK, "abc"},
    {"tabs around", LITERAL("\t\"abc\"\t "), OK, OK, "abc"},
    {"around a bare value", LITERAL(" \t abc \t "), OK, BAD, "abc"},

    /* nothing */
    {"nothing", LITERAL(""), EMPTY, EMPTY, NULL},
    {"only white space", LITERAL(" \t "), EMPTY, EMPTY, NULL},
    {"an empty String", LITERAL("\"\""), EMPTY, EMPTY, NULL},
    {"an empty String with a parameter", LITERAL("\"\";a"), EMPTY, EMPTY, NULL},

    /* broken Strings */
    {"no closing quote", LITERAL("\"abc"), BAD, BAD, NULL},
    {"a lone quote", LITERAL("\""), BAD, BAD, NULL},
    {"no opening quote", LITERAL("abc\""), BAD, BAD, NULL},
    {"a closing quote that is escaped", LITERAL("\"abc\\\""), BAD, BAD, NULL},
    {"an escape of nothing", LITERAL("\"abc\\"), BAD, BAD, NULL},
    {"an escape that does not exist", LITERAL("\"a\\x\""), BAD, BAD, NULL},
    {"no escape for newline either", LITERAL("\"a\\n\""), BAD, BAD, NULL},
    {"a tab inside", LITERAL("\"a\tb\""), BAD, BAD, NULL},
    {"a newline inside", LITERAL("\"a\nb\""), BAD, BAD, NULL},
    {"NUL inside", LITERAL("\"a\0b\""), BAD, BAD, NULL},
    {"DEL inside", LITERAL("\"a\x7f\""), BAD, BAD, NULL},
    {"UTF-8 inside", LITERAL("\"f\xc3\xbc\""), BAD, BAD, NULL},

    /* behind the String */
    {"garbage behind", LITERAL("\"abc\"x"), BAD, BAD, NULL},
    {"garbage after a space", LITERAL("\"abc\" x"), BAD, BAD, NULL},
    {"two Strings in a row", LITERAL("\"a\"\"b\""), BAD, BAD, NULL},
    {"a List of two", LITERAL("\"a\", \"b\""), BAD, BAD, NULL},
    {"a List that ends early", LITERAL("\"a\","), BAD, BAD, NULL},
    {"an Inner List", LITERAL("(\"a\")"), BAD, BAD, NULL},

    /* bare values */
    {"a bare UUID", LITERAL("8e03978e-40d5-43e8-bc93-6894a57f9324"), OK, BAD,
     "8e03978e-40d5-43e8-bc93-6894a57f9324"},
    {"a Token", LITERAL("abc"), OK, BAD, "abc"},
    {"an Integer", LITERAL("42"), OK, BAD, "42"},
    {"a Decimal", LITERAL("4.2"), OK, BAD, "4.2"},
    {"a Byte Sequence", LITERAL(":YWJj:"), OK, BAD, ":YWJj:"},
    {"a Boolean", LITERAL("?1"), OK, BAD, "?1"},
    {"a Date", LITERAL("@1659578233"), OK, BAD, "@1659578233"},
    {"in single quotes, which are part of it", LITERAL("'abc'"), OK, BAD, "'abc'"},
    {"what a path could misread", LITERAL("../../etc/passwd"), OK, BAD, "../../etc/passwd"},
    {"percent-encoding is not decoded", LITERAL("a%0d%0ab"), OK, BAD, "a%0d%0ab"},
    {"a space inside", LITERAL("a b"), BAD, BAD, NULL},
    {"a comma: a list of two keys", LITERAL("a,b"), BAD, BAD, NULL},
    {"a list with a space", LITERAL("a, b"), BAD, BAD, NULL},
    {"a parameter, which only a String may have", LITERAL("a;b=1"), BAD, BAD, NULL},
    {"a quote inside", LITERAL("a\"b"), BAD, BAD, NULL},
    {"a backslash inside", LITERAL("a\\b"), BAD, BAD, NULL},
    {"UTF-8", LITERAL("f\xc3\xbc"), BAD, BAD, NULL},
    {"NUL", LITERAL("a\0"), BAD, BAD, NULL},
};

/* Parses from a block without a byte to spare; on any outcome but OK *ret_key must be untouched. */
static int key_parse(struct idem_bytes field, enum idem_key_syntax syntax, size_t size_max,
                     struct idem_key *ret_key)
{
    uint8_t *copy = unit_copy(field);
    struct idem_key before;
    int outcome;

    memset(ret_key, 0xa5, sizeof *ret_key);
    before = *ret_key;
    outcome = idem_key_parse(idem_bytes_make(copy, field.size), syntax, size_max, ret_key);
    if (outcome != IDEM_OK)
        assert_memory_equal(ret_key, &before, sizeof before);
    free(copy);
    return outcome;
}

static void check(const struct key_case *c, enum idem_key_syntax syntax, int wanted)
{
    struct idem_key key;
    int outcome = key_parse(c->field, syntax, IDEM_KEY_SIZE_MAX, &key);

    if (outcome != wanted)
        fail_msg("%s: outcome %d, not %d", c->rule, outcome, wanted);
    if (outcome == IDEM_OK)
        unit_assert_bytes(idem_key_view(&key), idem_bytes_from_text(c->key));
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(key_cases); i++) {
        check(&key_cases[i], IDEM_KEY_LENIENT, key_cases[i].lenient);
        check(&key_cases[i], IDEM_KEY_STRICT, key_cases[i].strict);
    }
}

/* What may follow a String: any parameters, whose meaning nobody asks for. */
static const char *const parameters_good[] = {
    "",
    ";a",
    ";a;b;c",
    "; a",
    ";   a=1;  b=2",
    ";a=1;a=2",
    ";*a",
    ";a-b_c.d*9",
    ";a=0",
    ";a=-0",
    ";a=999999999999999",
    ";a=-999999999999999",
    ";a=1.5",
    ";a=999999999999.999",
    ";a=-0.1",
    ";a=\"b\"",
    ";a=\"\"",
    ";a=\"b;c=\\\"\"",
    ";a=token",
    ";a=*",
    ";a=T0k:e/n!#$%&'*+-.^_`|~",
    ";a=::",
    ";a=:YWJj:",
    ";a=:YQ==:",
    ";a=:YQ:",
    ";a=:YWI=:",
    ";a=:YWI:",
    ";a=:+/+/:",
    ";a=?0",
    ";a=?1",
    ";a=@0",
    ";a=@-1659578233",
    ";a=%\"\"",
    ";a=%\"plain\"",
    ";a=%\"f%c3%bc\"",
    ";a=%\"%e2%82%ac %f0%9f%98%80\"",
    ";a=%\"%f4%8f%bf%bf%ed%9f%bf%e0%a0%80%f0%90%80%80\"",
    ";a=?0;b=1.0;c=:YQ==:;d=%\"x\";e",
};

static const char *const parameters_bad[] = {
    ";",
    "; ",
    ";;a",
    " ;a",
    ";\ta",
    ";A",
    ";1",
    ";-a",
    ";_a",
    ";a=",
    ";a =1",
    ";a= 1",
    ";a b",
    ";a=1 b",
    ";a=1,",
    ";a=(1)",
    ";a=-",
    ";a=--1",
    ";a=+1",
    ";a=1000000000000000",
    ";a=1.",
    ";a=.1",
    ";a=1.2345",
    ";a=1000000000000.1",
    ";a=1.2.3",
    ";a=1x",
    ";a=\"b",
    ";a=\"\\b\"",
    ";a=:",
    ";a=:YQ",
    ";a=:Y:",
    ";a=:YQ=:",
    ";a=:YQ===:",
    ";a=:YWJj=:",
    ";a=:=YWJ:",
    ";a=:Y=Q=:",
    ";a=:Y Q:",
    ";a=:Y-_Q:",
    ";a=?",
    ";a=?2",
    ";a=?true",
    ";a=@",
    ";a=@1.5",
    ";a=@x",
    ";a=%",
    ";a=%x",
    ";a=%\"",
    ";a=%\"x",
    ";a=%\"%\"",
    ";a=%\"%c\"",
    ";a=%\"%C3%BC\"",
    ";a=%\"%c3\"",
    ";a=%\"%c3x\"",
    ";a=%\"%bc\"",
    ";a=%\"%c0%80\"",
    ";a=%\"%e0%80%80\"",
    ";a=%\"%ed%a0%80\"",
    ";a=%\"%f0%80%80%80\"",
    ";a=%\"%f4%90%80%80\"",
    ";a=%\"%f5%80%80%80\"",
    ";a=%\"\xc3\xbc\"",
    ";a=#",
    ";a=;b",
};

static void check_parameters(const char *parameters, int wanted)
{
    for (int syntax = IDEM_KEY_LENIENT; syntax <= IDEM_KEY_STRICT; syntax++) {
        struct idem_key key;
        char field[128];
        int outcome;

        assert_true(snprintf(field, sizeof field, "\"key\"%s", parameters) < (int)sizeof field);
        outcome = key_parse(idem_bytes_from_text(field), (enum idem_key_syntax)syntax, 255, &key);
        if (outcome != wanted)
            fail_msg("%s: outcome %d, not %d", field, outcome, wanted);
        if (outcome == IDEM_OK)
            unit_assert_bytes(idem_key_view(&key), TEXT("key"));
    }
}

static void test_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(parameters_good); i++)
        check_parameters(parameters_good[i], IDEM_OK);
    for (size_t i = 0; i < COUNT(parameters_bad); i++)
        check_parameters(parameters_bad[i], IDEM_KEY_MALFORMED);
}

/* Each of the 256 bytes between two others, against the grammar written as plain ranges. */
static void test_every_byte(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        uint8_t string[] = {'"', 'a', (uint8_t)byte, 'b', '"'};
        uint8_t bare[] = {'a', (uint8_t)byte, 'b'};
        bool in_string = byte >= 0x20 && byte <= 0x7e && byte != '"' && byte != '\\';
        bool in_bare = in_string && byte != ' ' && byte != ',' && byte != ';';
        struct idem_key key;

        assert_int_equal(key_parse(idem_bytes_make(string, 5), IDEM_KEY_STRICT, 255, &key),
                         in_string ? IDEM_OK : IDEM_KEY_MALFORMED);
        assert_int_equal(key_parse(idem_bytes_make(bare, 3), IDEM_KEY_LENIENT, 255, &key),
                         in_bare ? IDEM_OK : IDEM_KEY_MALFORMED);
        if (in_bare)
            unit_assert_bytes(idem_key_view(&key), idem_bytes_make(bare, 3));
    }
}

static void test_every_escape(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        uint8_t field[] = {'"', '\\', (uint8_t)byte, '"'};
        bool allowed = byte == '"' || byte == '\\';
        struct idem_key key;

        assert_int_equal(key_parse(idem_bytes_make(field, 4), IDEM_KEY_STRICT, 255, &key),
                         allowed ? IDEM_OK : IDEM_KEY_MALFORMED);
        if (allowed)
            unit_assert_bytes(idem_key_view(&key), idem_bytes_make(&field[2], 1));
    }
}

/* The maximum counts the bytes of the key, not those of the field, and nothing is ever cut. */
static void test_size(void **state)
{
    static const size_t sizes_max[] = {1, 2, 36, 255, IDEM_KEY_SIZE_MAX};
    uint8_t field[2 + 2 * (IDEM_KEY_SIZE_MAX + 1)];
    struct idem_key key;

    (void)state;
    for (size_t i = 0; i < COUNT(sizes_max); i++) {
        for (size_t size = sizes_max[i]; size <= sizes_max[i] + 1; size++) {
            int wanted = size > sizes_max[i] ? IDEM_KEY_TOO_LONG : IDEM_OK;

            memset(field, 'k', size);
            assert_int_equal(
                key_parse(idem_bytes_make(field, size), IDEM_KEY_LENIENT, sizes_max[i], &key),
                wanted);
            field[0] = '"';
            memset(field + 1, '\\', 2 * size);
            field[1 + 2 * size] = '"';
            assert_int_equal(key_parse(idem_bytes_make(field, 2 + 2 * size), IDEM_KEY_STRICT,
                                       sizes_max[i], &key),
                             wanted);
            if (wanted == IDEM_OK)
                assert_int_equal(key.size, size);
        }
    }
    assert_int_equal(key_parse(TEXT("k"), IDEM_KEY_LENIENT, 0, &key), IDEM_KEY_TOO_LONG);
}

/* A field that is cut anywhere is refused or another key, and never read past its end. */
static void test_truncated(void **state)
{
    static const char field[] =
        "\"k\\\"e\\\\y\";a;b=-1.5;c=\"x\\\"\";d=:YWJj:;e=?1;f=@9;g=%\"%c3%bc\";h=*t/o:k";
    struct idem_key key;

    (void)state;
    assert_int_equal(key_parse(TEXT(field), IDEM_KEY_STRICT, 255, &key), IDEM_OK);
    for (size_t size = 0; size < sizeof field - 1; size++) {
        int outcome = key_parse(idem_bytes_make(field, size), IDEM_KEY_STRICT, 255, &key);

        assert_true(outcome >= IDEM_OK && outcome <= IDEM_KEY_MALFORMED);
        if (outcome == IDEM_OK)
            unit_assert_bytes(idem_key_view(&key), TEXT("k\"e\\y"));
        if (size < 9) /* the String is not whole */
            assert_int_equal(outcome, size == 0 ? IDEM_KEY_EMPTY : IDEM_KEY_MALFORMED);
    }
}

static void test_outcome_text(void **state)
{
    (void)state;
    for (int a = IDEM_OK; a <= IDEM_KEY_MALFORMED; a++) {
        assert_non_null(idem_key_outcome_text(a));
        for (int b = IDEM_OK; b < a; b++)
            assert_string_not_equal(idem_key_outcome_text(a), idem_key_outcome_text(b));
    }
    assert_non_null(idem_key_outcome_text(99));
    assert_non_null(idem_key_outcome_text(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_every_byte),   cmocka_unit_test(test_every_escape),
        cmocka_unit_test(test_size),         cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_outcome_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
