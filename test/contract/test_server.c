/* What a URL says of a store that is reached over a network: hosts, credentials, times. */
#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "store/server.h"

#define PORT 6379

/* Parses the URL's place; NULL when it is refused, with a sentence. What is returned is static. */
static const struct idem_server *server_of(const char *text)
{
    static struct idem_server server;
    static struct idem_url url;
    struct idem_message message = {""};
    int error = idem_url_parse(text, &url, &message);

    if (!error)
        error = idem_server_parse(&url, PORT, &server, &message);
    if (!error)
        return &server;
    assert_int_equal(error, IDEM_ERR_INVALID);
    assert_true(strlen(message.text) > 20);
    return NULL;
}

static void servers_are_read(void **state)
{
    static const struct {
        const char *url, *user, *password, *host, *path;
        uint16_t port;
    } cases[] = {
        {"x://h", "", "", "h", "", PORT},
        {"x://h:1", "", "", "h", "", 1},
        {"x://h:65535/", "", "", "h", "", 65535},
        {"x://h/db", "", "", "h", "db", PORT},
        {"x://h/db/more?a=b", "", "", "h", "db/more", PORT},
        {"x://u@h", "u", "", "h", "", PORT},
        {"x://u:p@h:2/3", "u", "p", "h", "3", 2},
        {"x://:p@h", "", "p", "h", "", PORT},
        {"x://u:@h", "u", "", "h", "", PORT},
        {"x://u:p:q@h", "u", "p:q", "h", "", PORT},
        {"x://u:p@q@h", "u", "p@q", "h", "", PORT},
        {"x://u:%40%3a%2F%25%3f@h", "u", "@:/%?", "h", "", PORT},
        {"x://%75:p@%68/%64", "u", "p", "h", "d", PORT},
        {"x://[::1]", "", "", "::1", "", PORT},
        {"x://[fe80::1]:7/d", "", "", "fe80::1", "d", 7},
        {"x://h/%2e%2E", "", "", "h", "..", PORT},
        {"x://127.0.0.1:5432/idem", "", "", "127.0.0.1", "idem", 5432},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct idem_server *server = server_of(cases[i].url);

        if (!server)
            fail_msg("%s was refused", cases[i].url);
        assert_string_equal(server->user, cases[i].user);
        assert_string_equal(server->password, cases[i].password);
        assert_string_equal(server->path, cases[i].path);
        assert_int_equal(server->host_count, 1);
        assert_string_equal(server->hosts[0].name, cases[i].host);
        assert_int_equal(server->hosts[0].port, cases[i].port);
    }
}

static void hosts_are_listed(void **state)
{
    const struct idem_server *server = server_of("x://u:p@a:1,b,[::1]:3/m");

    (void)state;
    assert_non_null(server);
    assert_int_equal(server->host_count, 3);
    assert_string_equal(server->hosts[0].name, "a");
    assert_int_equal(server->hosts[0].port, 1);
    assert_string_equal(server->hosts[1].name, "b");
    assert_int_equal(server->hosts[1].port, PORT);
    assert_string_equal(server->hosts[2].name, "::1");
    assert_int_equal(server->hosts[2].port, 3);
    assert_string_equal(server->path, "m");
}

static void bad_servers_are_refused(void **state)
{
    static const char *const urls[] = {
        "x:",       "x:h",         "x:/h",        "x://",
        "x:///db",  "x://u:p@",    "x://u@/db",   "x://h:",
        "x://h:0",  "x://h:65536", "x://h:99999", "x://h:18446744073709551617",
        "x://h:1a", "x://h:-1",    "x://h:+1",    "x://h: 1",
        "x://a,,b", "x://,a",      "x://:1",      "x://[]",
        "x://[]:1", "x://h/%00",   "x://u:%00@h", "x://u:%4@h",
        "x://%zz",  "x://h/%2",    "x://h:1:x",   "x://[::1",
        "x://::1]", "x://::1",     "x://::1:1",   "x://h]:1",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(urls); i++)
        if (server_of(urls[i]))
            fail_msg("%s was taken", urls[i]);
}

/* Every part and the list of hosts have a maximum, which is taken, and one more is not. */
static void parts_have_a_maximum(void **state)
{
    char url[IDEM_URL_SIZE_MAX], part[IDEM_SERVER_TEXT_MAX + 1];
    const char *const forms[] = {"x://%s@h", "x://:%s@h", "x://%s", "x://h/%s"};

    (void)state;
    for (size_t size = IDEM_SERVER_TEXT_MAX - 1; size <= IDEM_SERVER_TEXT_MAX; size++) {
        memset(part, 'a', size);
        part[size] = '\0';
        for (size_t i = 0; i < COUNT(forms); i++) {
            size_t head = (size_t)(strchr(forms[i], '%') - forms[i]);

            snprintf(url, sizeof url, "%.*s%s%s", (int)head, forms[i], part, forms[i] + head + 2);
            if ((server_of(url) != NULL) != (size < IDEM_SERVER_TEXT_MAX))
                fail_msg("%s with %zu bytes", forms[i], size);
        }
    }
    for (size_t hosts = IDEM_SERVER_HOSTS_MAX; hosts <= IDEM_SERVER_HOSTS_MAX + 1; hosts++) {
        snprintf(url, sizeof url, "x://h");
        for (size_t i = 1; i < hosts; i++)
            snprintf(url + strlen(url), sizeof url - strlen(url), ",h%zu", i);
        assert_int_equal(server_of(url) != NULL, hosts == IDEM_SERVER_HOSTS_MAX);
    }
}

static void durations_are_read(void **state)
{
    static const struct {
        const char *text;
        int64_t length_us;
    } good[] = {
        {"1ms", 1000},        {"500ms", 500000},
        {"1s", SECOND},       {"999999999s", INT64_C(999999999) * SECOND},
        {"007s", 7 * SECOND}, {"5m", 5 * MINUTE},
        {"1h", HOUR},         {"999999999h", 999999999 * HOUR},
    };
    static const char *const bad[] = {
        "",    "s",   "0",    "0s",          "0ms", "5",   "5 s", " 5s",  "5sec",
        "-5s", "+5s", "1.5s", "1000000000s", "5S",  "5us", "5d",  "0x5s", "5s ",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        int64_t length_us = -1;

        assert_int_equal(idem_url_duration_parse(good[i].text, &length_us), IDEM_OK);
        assert_int_equal(length_us, good[i].length_us);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t length_us = -1;

        if (idem_url_duration_parse(bad[i], &length_us) != IDEM_ERR_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(length_us, -1);
    }
}

/* The time-out of a URL, and what an executor is told of it, which never fails. */
static void timeouts_are_read(void **state)
{
    static const struct {
        const char *url;
        int64_t timeout_us; /* 0: it is refused, and the default stands in for it */
    } cases[] = {
        {"redis://h", IDEM_STORE_TIMEOUT_US},
        {"redis://h?timeout=5s", IDEM_STORE_TIMEOUT_US},
        {"redis://h?timeout=10ms", IDEM_STORE_TIMEOUT_US_MIN},
        {"redis://h?timeout=10m", IDEM_STORE_TIMEOUT_US_MAX},
        {"redis://h/0?prefix=p&timeout=750ms", 750000},
        {"redis://h?timeout=9ms", 0},
        {"redis://h?timeout=601s", 0},
        {"redis://h?timeout=11m", 0},
        {"redis://h?timeout=0", 0},
        {"redis://h?timeout=soon", 0},
        {"redis://h?timeout=", 0},
    };
    static struct idem_url url;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct idem_message message = {""};
        int64_t timeout_us = -1;

        assert_int_equal(idem_url_parse(cases[i].url, &url, NULL), IDEM_OK);
        assert_int_equal(idem_url_timeout_us(&url, &timeout_us, &message),
                         cases[i].timeout_us ? IDEM_OK : IDEM_ERR_INVALID);
        if (cases[i].timeout_us)
            assert_int_equal(timeout_us, cases[i].timeout_us);
        else
            assert_non_null(strstr(message.text, "timeout=5s"));
        assert_int_equal(idem_store_url_timeout_us(cases[i].url),
                         cases[i].timeout_us ? cases[i].timeout_us : IDEM_STORE_TIMEOUT_US);
    }
    assert_int_equal(idem_store_url_timeout_us("no URL at all"), IDEM_STORE_TIMEOUT_US);
}

/* An option whose name says so, in whatever way it is written, is for nobody to see. */
static void secret_options_are_not_shown(void **state)
{
    static const char *const texts[][2] = {
        {"x://h?password=secret", "x://h?password=***"},
        {"x://h?a=b&password=secret", "x://h?a=b&password=***"},
        {"x://h?PassWord=secret&a=b", "x://h?PassWord=***&***"},
        {"x://h?pass%77ord=secret&a=b", "x://h?pass%77ord=***&***"},
        {"x://h?sslpassword=secret", "x://h?sslpassword=***"},
        {"x://h?pwd=secret&token=secret", "x://h?pwd=***&***"},
        {"x://h?password=secret=secret&x=1", "x://h?password=***&***"},
        {"x://h?a%=secret", "x://h?a%=***"},
        {"x://u:secret@h?password=secret", "x://u:***@h?password=***"},
        {"x:/pass=a?password=secret", "x:/pass=a?password=***"},
        {"x://h?a=b&&c=d&", "x://h?a=b&&c=d&"},
        {"x://h?", "x://h?"},
        {"", ""},
    };
    char shown[128];

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        idem_store_url_redact(texts[i][0], shown, sizeof shown);
        assert_string_equal(shown, texts[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a server is read part by part", servers_are_read, NULL, NULL, NULL},
        {"hosts are listed", hosts_are_listed, NULL, NULL, NULL},
        {"what is no server is refused", bad_servers_are_refused, NULL, NULL, NULL},
        {"every part has a maximum", parts_have_a_maximum, NULL, NULL, NULL},
        {"durations are read", durations_are_read, NULL, NULL, NULL},
        {"time-outs are read", timeouts_are_read, NULL, NULL, NULL},
        {"secret options are not shown", secret_options_are_not_shown, NULL, NULL, NULL},
    };

    return cmocka_run_group_tests_name("servers in a URL", tests, NULL, NULL);
}
