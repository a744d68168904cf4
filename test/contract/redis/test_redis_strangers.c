/*
 * A URL that leads to something else than it says: each time one sentence that names the place and
 * says what to do, and never a password. Run with redis, sentinel, cluster and postgres.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define PASSWORD      "secret-word"
#define PASSWORD_PART "secret-w"

static const char *place_of(int port)
{
    static char place[32];

    snprintf(place, sizeof place, "127.0.0.1:%d", port);
    return place;
}

/* The URL's %d is the port; the sentence must have the place, and these words. */
static void told_of(const char *format, int port, int wanted_error, const char *words)
{
    struct idem_message message = {""};
    struct idem_store *store;
    const char *hole = strstr(format, "%d");
    char url[URL_SIZE];
    int error;

    snprintf(url, sizeof url, "%.*s%d%s", (int)(hole - format), format, port, hole + 2);
    error = idem_store_open(url, NULL, &store, &message);
    if (error != wanted_error || !strstr(message.text, words) ||
        !strstr(message.text, place_of(port)) || strstr(message.text, PASSWORD_PART))
        fail_msg("%s: %d (%s) instead of %d (%s)", url, error, message.text, wanted_error, words);
}

#define EACH "?timeout=2s&sync=off&prefix=strangers"

static void sentinel_taken_for_redis(void **state)
{
    static const char words[] = "is a Sentinel and keeps no data: write redis+sentinel://";
    int port = port_of("sentinel-1");

    (void)state;
    told_of("redis://127.0.0.1:%d" EACH, port, IDEM_ERR_INVALID, words);
    told_of("redis://127.0.0.1:%d/3" EACH, port, IDEM_ERR_INVALID, words);
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_INVALID, words);
    told_of("redis+cluster://127.0.0.1:%d" EACH, port, IDEM_ERR_INVALID, words);
    told_of("redis+cluster://:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_INVALID, words);
}

/* At once: no other moment makes a Sentinel of it. */
static void redis_taken_for_sentinel(void **state)
{
    static const char words[] = "is no Sentinel: name the sentinels";
    int64_t begun_us = steady_us();

    (void)state;
    told_of("redis+sentinel://127.0.0.1:%d/main?timeout=60s", port_of("redis"), IDEM_ERR_INVALID,
            words);
    told_of("redis+sentinel://127.0.0.1:%d/main?timeout=60s", port_of("cluster-1"),
            IDEM_ERR_INVALID, words);
    assert_true(steady_us() - begun_us < 30 * SECOND);
}

static void cluster_and_lone_server(void **state)
{
    (void)state;
    told_of("redis+cluster://127.0.0.1:%d" EACH, port_of("redis"), IDEM_ERR_INVALID,
            "is no part of a cluster");
    told_of("redis://127.0.0.1:%d" EACH, port_of("cluster-1"), IDEM_ERR_INVALID,
            "is part of a cluster: write redis+cluster:");
    told_of("redis://127.0.0.1:%d/3" EACH, port_of("cluster-1"), IDEM_ERR_INVALID,
            "is part of a cluster: write redis+cluster:");
}

static void database_that_is_not_there(void **state)
{
    (void)state;
    told_of("redis://127.0.0.1:%d/99" EACH, port_of("redis"), IDEM_ERR_INVALID,
            "has no database of that number: name a lower one");
}

static void passwords(void **state)
{
    int port = port_of("redis");
    redisContext *admin = redisConnect("127.0.0.1", port);

    (void)state;
    assert_int_equal(admin->err, 0);
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE,
            "has no password set, and the store's URL gives one");
    told_of("redis://nobody:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE,
            "does not take the user or the password of the store's URL: correct them");
    freeReplyObject(redisCommand(admin, "CONFIG SET requirepass right-word"));
    told_of("redis://127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE, "wants a password: write");
    told_of("redis+cluster://127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE,
            "wants a password: write");
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE,
            "does not take the user or the password of the store's URL: correct them");
    freeReplyObject(redisCommand(admin, "CONFIG SET requirepass %s", ""));
    redisFree(admin);
}

static void no_more_connections(void **state)
{
    int port = port_of("redis");
    redisContext *admin = redisConnect("127.0.0.1", port);

    (void)state;
    assert_int_equal(admin->err, 0);
    freeReplyObject(redisCommand(admin, "CONFIG SET maxclients 1"));
    told_of("redis://127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE,
            "takes no more connections: raise its maxclients");
    freeReplyObject(redisCommand(admin, "CONFIG SET maxclients 10000"));
    redisFree(admin);
}

/* PostgreSQL ends a connection that does not begin as its own do. */
static void database_of_another_sort(void **state)
{
    static const char words[] = "ends connections without an answer: see that it is Redis";

    (void)state;
    told_of("redis://127.0.0.1:%d" EACH, port_of("postgres"), IDEM_ERR_UNAVAILABLE, words);
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, port_of("postgres"), IDEM_ERR_UNAVAILABLE,
            words);
}

/* Python's, on a port of its choice. */
static pid_t http_begin(int *ret_port)
{
    static const char server[] = "import http.server as h\n"
                                 "s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
                                 "print(s.server_port, flush=True)\n"
                                 "s.serve_forever()\n";
    char digits[16] = "";
    int ends[2];
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO); /* its log */
        execl("/usr/bin/python3", "python3", "-c", server, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_true(read(ends[0], digits, sizeof digits - 1) > 0);
    close(ends[0]);
    *ret_port = (int)strtol(digits, NULL, 10);
    return child;
}

static void server_of_another_protocol(void **state)
{
    static const char words[] = "is no Redis: see the host and the port in the store's URL";
    int port;
    pid_t server = http_begin(&port);

    (void)state;
    told_of("redis://127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE, words);
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE, words);
    told_of("redis+sentinel://127.0.0.1:%d/main" EACH, port, IDEM_ERR_UNAVAILABLE, words);
    told_of("redis+cluster://127.0.0.1:%d" EACH, port, IDEM_ERR_UNAVAILABLE, words);
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
}

/* Something that takes connections, and gives one answer to whatever it is told, or none. */
struct stranger {
    int listener, port;
    const char *answer;
    bool hangs_up; /* after its answer */
    bool ended;
    pthread_t thread;
};

static void *stranger_run(void *argument)
{
    struct stranger *stranger = argument;
    struct pollfd listener = {.fd = stranger->listener, .events = POLLIN};
    struct pollfd client = {.fd = -1, .events = POLLIN};
    char told_it[512];
    bool over;

    while (!__atomic_load_n(&stranger->ended, __ATOMIC_SEQ_CST)) {
        if (client.fd < 0 && poll(&listener, 1, 10) > 0)
            client.fd = accept(stranger->listener, NULL, NULL);
        if (client.fd < 0 || poll(&client, 1, 10) <= 0)
            continue;
        over = recv(client.fd, told_it, sizeof told_it, 0) <= 0;
        if (!over)
            (void)send(client.fd, stranger->answer, strlen(stranger->answer), MSG_NOSIGNAL);
        if (over || stranger->hangs_up) {
            close(client.fd);
            client.fd = -1;
        }
    }
    if (client.fd >= 0)
        close(client.fd);
    return NULL;
}

static void stranger_begin(struct stranger *stranger, const char *answer, bool hangs_up)
{
    *stranger = (struct stranger){.answer = answer, .hangs_up = hangs_up};
    stranger->listener = listener_open(&stranger->port);
    assert_int_equal(pthread_create(&stranger->thread, NULL, stranger_run, stranger), 0);
}

static void stranger_end(struct stranger *stranger)
{
    __atomic_store_n(&stranger->ended, true, __ATOMIC_SEQ_CST);
    pthread_join(stranger->thread, NULL);
    close(stranger->listener);
}

static void nobody_answers(void **state)
{
    struct stranger stranger;

    (void)state;
    stranger_begin(&stranger, "", false);
    told_of("redis://127.0.0.1:%d?timeout=300ms", stranger.port, IDEM_ERR_TIMEOUT,
            "did not answer in time: see that it is Redis");
    stranger_end(&stranger);
    stranger_begin(&stranger, "", true);
    told_of("redis://127.0.0.1:%d" EACH, stranger.port, IDEM_ERR_UNAVAILABLE,
            "ends connections without an answer");
    stranger_end(&stranger);
}

/* It speaks as Redis does, and goes: that is a connection that was lost. */
static void one_answer_and_no_more(void **state)
{
    struct stranger stranger;

    (void)state;
    stranger_begin(&stranger, "+OK\r\n", true);
    told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, stranger.port, IDEM_ERR_UNAVAILABLE,
            "was lost");
    stranger_end(&stranger);
}

/* A server may say a command again that it does not know; a proxy in words of its own. */
static void password_is_not_told_again(void **state)
{
    static const char *const answers[] = {
        "-ERR unknown command 'AUTH', with args beginning with: '" PASSWORD "' \r\n",
        "-ERR not allowed: AUTH " PASSWORD " (" PASSWORD ")\r\n",
        "-ERR unknown command 'AUTH', with args beginning with: '" PASSWORD_PART "\r\n",
        "-WRONGPASS for " PASSWORD "\r\n",
    };
    static const char *const words[] = {"does not know a command that idem needs",
                                        "an error that idem does not expect",
                                        "does not know a command that idem needs", "correct them"};

    (void)state;
    for (size_t i = 0; i < COUNT(answers); i++) {
        struct stranger stranger;

        stranger_begin(&stranger, answers[i], false);
        told_of("redis://:" PASSWORD "@127.0.0.1:%d" EACH, stranger.port,
                i % 2 == 0 ? IDEM_ERR_INVALID : IDEM_ERR_UNAVAILABLE, words[i]);
        stranger_end(&stranger);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentinel_taken_for_redis),
        cmocka_unit_test(redis_taken_for_sentinel),
        cmocka_unit_test(cluster_and_lone_server),
        cmocka_unit_test(database_that_is_not_there),
        cmocka_unit_test(passwords),
        cmocka_unit_test(no_more_connections),
        cmocka_unit_test(database_of_another_sort),
        cmocka_unit_test(server_of_another_protocol),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(one_answer_and_no_more),
        cmocka_unit_test(password_is_not_told_again),
    };

    op_lease_us = 5 * MINUTE;
    return cmocka_run_group_tests_name("redis, others in its place", tests, NULL, NULL);
}
