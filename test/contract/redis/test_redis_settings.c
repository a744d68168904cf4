/* Which servers a Redis store takes, and as whom it may come. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static int port;

static void set(const char *name, const char *value)
{
    told(port, "CONFIG SET %s %s", name, value);
}

static int settings_restore(void **state)
{
    (void)state;
    set("maxmemory-policy", "noeviction");
    set("appendonly", "yes");
    set("appendfsync", "always");
    set("no-appendfsync-on-rewrite", "no");
    return 0;
}

static void url_is_read(void **state)
{
    static const struct {
        const char *url, *words;
    } wrong[] = {
        {"redis:h", "no \"//\""},
        {"redis://", "names no host"},
        {"redis://h/zero", "not a number"},
        {"redis://h/-1", "not a number"},
        {"redis://a,b", "names one host"},
        {"redis://h?sync=yes", "sync=always or sync=off"},
        {"redis://h?prefix=", "prefix"},
        {"redis://h?prefix=a%2a", "prefix"},
        {"redis://h?prefix=%7Btag%7D", "prefix"},
        {"redis://h?replicas=-1", "replicas"},
        {"redis://h?replicas=65", "replicas"},
        {"redis://h?timeout=1ms", "timeout"},
        {"redis://h?size=1g", "no option \"size\""},
        {"redis://user@h", "without a password"},
        {"redis://h?tls=maybe", "tls"},
        {"redis://h?tls_cert=a", "tls_key"},
        {"redis+unix:socket", "path of a socket"},
        {"redis+sentinel://h", "names no master"},
        {"redis+cluster://a,b/1", "database 0 only"},
    };
    static const char *const right[] = {
        "redis://h",
        "redis://h/",
        "redis://u:p@[::1]:7/15?prefix=a:b-c_d./",
        "redis+unix:/run/redis.sock?password=p&database=3&user=u",
        "redis+sentinel://a,b:7/main",
        "redis+sentinel://a/main/2?sentinel_user=u&sentinel_password=p",
        "redis+cluster://a:1,b:2?replicas=1",
    };
    struct idem_message message;

    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        message.text[0] = '\0';
        assert_int_equal(idem_store_url_check(wrong[i].url, NULL, &message), IDEM_ERR_INVALID);
        if (!strstr(message.text, wrong[i].words))
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].url, message.text, wrong[i].words);
    }
    for (size_t i = 0; i < COUNT(right); i++)
        if (idem_store_url_check(right[i], NULL, &message))
            fail_msg("%s: %s", right[i], message.text);
}

static void eviction_is_refused(void **state)
{
    static const char *const policies[] = {"allkeys-lru", "volatile-ttl", "allkeys-random"};
    char url[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_REDIS", "?sync=off", url);
    for (size_t i = 0; i < COUNT(policies); i++) {
        set("maxmemory-policy", policies[i]);
        unsafe(url, policies[i]);
    }
    set("maxmemory-policy", "noeviction");
    idem_store_close(store_open(url));
}

static void sync_always_is_held_to_its_word(void **state)
{
    char always[URL_SIZE], off[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_REDIS", "", always);
    url_make("IDEM_TEST_REDIS", "?sync=off", off);
    idem_store_close(store_open(always));
    set("appendfsync", "everysec");
    unsafe(always, "appendfsync always");
    idem_store_close(store_open(off));
    set("appendfsync", "always");
    set("no-appendfsync-on-rewrite", "yes");
    unsafe(always, "no-appendfsync-on-rewrite no");
    set("no-appendfsync-on-rewrite", "no");
    set("appendonly", "no");
    unsafe(always, "appendonly yes");
    idem_store_close(store_open(off));
}

/* The URL with other credentials. */
static void url_of(const char *url, const char *user, char ret_url[URL_SIZE])
{
    const char *place = strstr(url, "//") + 2;

    snprintf(ret_url, URL_SIZE, "redis://%s:secret-word@%s", user, place);
}

#define ACL_LEAST                                                                     \
    "ACL SETUSER least reset on >secret-word ~* "                                     \
    "+evalsha +eval +script|load +get +set +del +getrange +strlen +scan +time +xadd " \
    "+pexpireat +xinfo|stream +xrange +xdel +info +select +wait +asking +cluster|slots"

static void rights_suffice(const char *url)
{
    struct idem_store *store = store_open(url);
    struct idem_op op;

    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(claimed(store, "k", "B"), IN_PROGRESS);
    wanted(completed(store, "k", "A", "paid"), OK);
    wanted(claimed(store, "k", "B"), COMPLETED);
    op_forget(&op, "k", false);
    wanted(applied(store, &op), OK);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_AUDIT;
    op.in.audit.limit = 10;
    wanted(applied(store, &op), OK);
    assert_int_equal(op.out.count, 1);
    idem_op_deinit(&op);
    op.kind = IDEM_OP_SCAN;
    op.in.scan = (struct idem_scan){.limit = 10};
    wanted(applied(store, &op), OK);
    idem_op_deinit(&op);
    idem_store_close(store);
}

/* Where CONFIG is forbidden, INFO still tells the policy, but not appendfsync. */
static void least_rights_suffice(void **state)
{
    char url[URL_SIZE], least[URL_SIZE];

    (void)state;
    told(port, ACL_LEAST);
    url_make("IDEM_TEST_REDIS", "?sync=off", url);
    url_of(url, "least", least);
    rights_suffice(least);
    set("maxmemory-policy", "allkeys-lfu");
    unsafe(least, "allkeys-lfu");
    set("maxmemory-policy", "noeviction");
    url_make("IDEM_TEST_REDIS", "", url);
    url_of(url, "least", least);
    unsafe(least, "CONFIG GET");
    told(port, "ACL SETUSER least +config|get");
    rights_suffice(least);
}

static void what_cannot_be_seen_is_refused(void **state)
{
    char url[URL_SIZE], blind[URL_SIZE];

    (void)state;
    told(port, ACL_LEAST " -info");
    url_make("IDEM_TEST_REDIS", "?sync=off", url);
    url_of(url, "least", blind);
    unsafe(blind, "run INFO");
}

static void missing_right_is_told(void **state)
{
    char url[URL_SIZE], less[URL_SIZE];

    (void)state;
    told(port, ACL_LEAST " -evalsha");
    url_make("IDEM_TEST_REDIS", "?sync=off", url);
    url_of(url, "least", less);
    refused(less, IDEM_ERR_UNAVAILABLE, "evalsha");
}

static void no_password_is_told(const char *url, const char *words)
{
    struct idem_message message = {""};
    struct idem_store *store;

    assert_int_equal(idem_store_open(url, NULL, &store, &message), IDEM_ERR_UNAVAILABLE);
    if (!strstr(message.text, words))
        fail_msg("\"%s\" does not say \"%s\"", message.text, words);
    assert_null(strstr(message.text, "secret-word"));
}

static void wrong_credentials_are_told(void **state)
{
    char url[URL_SIZE], other[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    url_of(url, "nobody", other);
    no_password_is_told(other, "user or the password");
}

static void a_password_that_is_asked_for(void **state)
{
    char url[URL_SIZE], right[URL_SIZE];
    redisContext *admin = redisConnect("127.0.0.1", port);

    (void)state;
    assert_int_equal(admin->err, 0);
    url_make("IDEM_TEST_REDIS", "", url);
    snprintf(right, sizeof right, "redis://:right-word@%s", strstr(url, "//") + 2);
    freeReplyObject(redisCommand(admin, "CONFIG SET requirepass right-word"));
    no_password_is_told(url, "wants a password");
    idem_store_close(store_open(right));
    freeReplyObject(redisCommand(admin, "CONFIG SET requirepass %s", ""));
    redisFree(admin);
    idem_store_close(store_open(url));
}

/* The key lives in that database and no other. */
static void databases_are_apart(void **state)
{
    char url[URL_SIZE], seventh[URL_SIZE];
    struct idem_store *store, *other;
    redisContext *context = redisConnect("127.0.0.1", port);
    redisReply *reply;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    snprintf(seventh, sizeof seventh, "redis://127.0.0.1:%d/7%s", port, strchr(url, '?'));
    store = store_open(url);
    other = store_open(seventh);
    assert_true(idem_store_is_new(other));
    wanted(claimed(other, "k", "A"), ACQUIRED);
    wanted(claimed(store, "k", "B"), ACQUIRED);
    freeReplyObject(redisCommand(context, "SELECT 7"));
    reply = redisCommand(context, "EXISTS %s", record_key(url, "k"));
    assert_int_equal(reply->integer, 1);
    freeReplyObject(reply);
    redisFree(context);
    idem_store_close(store);
    idem_store_close(other);
}

static void prefixes_are_apart(void **state)
{
    char url[URL_SIZE], longer[URL_SIZE + 1];
    struct idem_store *store, *other;
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 10};

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    snprintf(longer, sizeof longer, "%sx", url); /* one prefix begins as the other */
    store = store_open(url);
    other = store_open(longer);
    assert_memory_not_equal(idem_store_salt(store).bytes, idem_store_salt(other).bytes,
                            IDEM_SALT_SIZE);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(claimed(other, "k", "B"), ACQUIRED);
    wanted(claimed(other, "l", "B"), ACQUIRED);
    wanted(applied(store, &op), OK);
    assert_int_equal(op.out.count, 1);
    idem_op_deinit(&op);
    idem_store_close(store);
    idem_store_close(other);
}

static void a_socket_is_a_place(void **state)
{
    const char *path = getenv("IDEM_TEST_REDIS_SOCKET");
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    assert_non_null(path);
    snprintf(url, sizeof url, "redis+unix:%s?prefix=socket", path);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
    snprintf(url, sizeof url, "redis+unix:%s.none?prefix=socket", path);
    refused(url, IDEM_ERR_UNAVAILABLE, "cannot be reached");
}

static void a_lone_server_is_no_cluster(void **state)
{
    char url[URL_SIZE];

    (void)state;
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", port);
    refused(url, IDEM_ERR_INVALID, "no part of a cluster");
}

static void lost_salt_is_no_new_store(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    assert_true(idem_store_is_new(store));
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
    store = store_open(url);
    assert_false(idem_store_is_new(store));
    idem_store_close(store);
    told(port, "DEL %ssalt", prefix_of(url));
    refused(url, IDEM_ERR_CORRUPT, "salt");
    told(port, "SET %ssalt short", prefix_of(url));
    refused(url, IDEM_ERR_CORRUPT, "did not write");
}

static const char *fact_of(struct idem_store *store, const char *name)
{
    static struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX);

    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, name) == 0)
            return facts[i].value;
    fail_msg("there is no fact \"%s\"", name);
    return NULL;
}

static void facts_are_told(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?sync=off", url);
    store = store_open(url);
    assert_non_null(strstr(fact_of(store, "version"), "Redis 7"));
    assert_non_null(strstr(fact_of(store, "clock difference"), " ms"));
    assert_non_null(strstr(fact_of(store, "durability"), "appendfsync always"));
    assert_non_null(strstr(fact_of(store, "can lose"), "nothing"));
    set("appendfsync", "everysec");
    assert_non_null(strstr(fact_of(store, "can lose"), "second"));
    set("appendonly", "no");
    assert_non_null(strstr(fact_of(store, "can lose"), "all keys"));
    assert_non_null(strstr(fact_of(store, "claims"), "taken"));
    set("maxmemory", "1mb");
    assert_non_null(strstr(fact_of(store, "claims"), "refused"));
    set("maxmemory", "0");
    idem_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(url_is_read),
        cmocka_unit_test_teardown(eviction_is_refused, settings_restore),
        cmocka_unit_test_teardown(sync_always_is_held_to_its_word, settings_restore),
        cmocka_unit_test_teardown(least_rights_suffice, settings_restore),
        cmocka_unit_test(what_cannot_be_seen_is_refused),
        cmocka_unit_test(missing_right_is_told),
        cmocka_unit_test(wrong_credentials_are_told),
        cmocka_unit_test(a_password_that_is_asked_for),
        cmocka_unit_test(databases_are_apart),
        cmocka_unit_test(prefixes_are_apart),
        cmocka_unit_test(a_socket_is_a_place),
        cmocka_unit_test(a_lone_server_is_no_cluster),
        cmocka_unit_test(lost_salt_is_no_new_store),
        cmocka_unit_test_teardown(facts_are_told, settings_restore),
    };

    op_lease_us = 5 * MINUTE;
    port = port_of("redis");
    return cmocka_run_group_tests_name("redis settings", tests, NULL, NULL);
}
