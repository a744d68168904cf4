#include "support.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_US (60 * SECOND)

void url_make(const char *variable, const char *options, char ret_url[URL_SIZE])
{
    static unsigned next;
    const char *server = getenv(variable);

    if (!server)
        fail_msg("%s is not set: run this through test/servers/with", variable);
    snprintf(ret_url, URL_SIZE, "%s?prefix=t%ld_%u%s%s", server, (long)getpid(), next++,
             options[0] ? "&" : "", options[0] ? options + 1 : "");
}

const char *prefix_of(const char *url)
{
    static char prefix[64];
    const char *start = strstr(url, "prefix=");

    assert_non_null(start);
    start += strlen("prefix=");
    snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(start, "&"), start);
    return prefix;
}

int port_of(const char *server)
{
    char name[64] = "IDEM_TEST_";
    size_t used = strlen(name);
    const char *port;

    for (; *server && used + 8 < sizeof name; server++)
        name[used++] = (char)(*server == '-' ? '_' : *server & ~(*server >= 'a' ? 0x20 : 0));
    snprintf(name + used, sizeof name - used, "_PORT");
    port = getenv(name);
    if (!port)
        fail_msg("%s is not set: run this through test/servers/with", name);
    return (int)strtol(port, NULL, 10);
}

static redisReply *ask_list(int port, const char *format, va_list arguments)
{
    redisContext *context = redisConnect("127.0.0.1", port);
    redisReply *reply;

    assert_non_null(context);
    if (context->err)
        fail_msg("port %d: %s", port, context->errstr);
    reply = redisvCommand(context, format, arguments);
    if (!reply)
        fail_msg("port %d: %s: %s", port, format, context->errstr);
    redisFree(context);
    return reply;
}

redisReply *ask(int port, const char *format, ...)
{
    va_list arguments;
    redisReply *reply;

    va_start(arguments, format);
    reply = ask_list(port, format, arguments);
    va_end(arguments);
    return reply;
}

long long told(int port, const char *format, ...)
{
    va_list arguments;
    redisReply *reply;
    long long number;

    va_start(arguments, format);
    reply = ask_list(port, format, arguments);
    va_end(arguments);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    number = reply->type == REDIS_REPLY_INTEGER ? reply->integer
             : reply->str                       ? strtoll(reply->str, NULL, 10)
                                                : 0;
    freeReplyObject(reply);
    return number;
}

const char *info_of(int port, const char *section, const char *name)
{
    static char value[64];
    redisReply *reply = ask(port, "INFO %s", section);
    const char *line = strstr(reply->str, name);

    assert_non_null(line);
    line += strlen(name) + 1;
    snprintf(value, sizeof value, "%.*s", (int)strcspn(line, "\r"), line);
    freeReplyObject(reply);
    return value;
}

struct idem_store *store_open(const char *url)
{
    struct idem_message message = {""};
    struct idem_store *store;

    if (idem_store_open(url, NULL, &store, &message))
        fail_msg("%s: %s", url, message.text);
    return store;
}

void unsafe(const char *url, const char *words)
{
    refused(url, IDEM_ERR_UNSAFE, words);
}

static void op_blank(struct idem_op *op, enum idem_op_kind kind, const char *key)
{
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->id = id_of(key);
}

void op_claim(struct idem_op *op, const char *key, const char *owner)
{
    op_blank(op, IDEM_OP_CLAIM, key);
    op->in.claim.kind = IDEM_KIND_HTTP;
    op->in.claim.scope = text("scope");
    op->in.claim.key = text(key);
    op->in.claim.method = text("POST");
    op->in.claim.path = text("/charges");
    op->in.claim.fingerprint = payload_of("payload");
    op->in.claim.principal = caller_of("alice");
    op->in.claim.owner = owner_of(owner);
    op->in.claim.lease_us = 5 * MINUTE;
    op->in.claim.unknown_ttl_us = UNKNOWN_TTL;
    op->in.claim.ttl_us = TTL;
}

void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                const char *body)
{
    op_blank(op, kind, key);
    op->in.verdict.owner = owner_of(owner);
    op->in.verdict.ttl_us = TTL;
    op->in.verdict.lease_us = LEASE;
    if (kind == IDEM_OP_COMPLETE)
        op->in.verdict.answer = (struct idem_answer){.status = 200, .body = text(body)};
}

void op_forget(struct idem_op *op, const char *key, bool force)
{
    op_blank(op, IDEM_OP_FORGET, key);
    op->in.forget.who = text("dana");
    op->in.forget.why = text("a test");
    op->in.forget.force = force;
}

int apply(struct idem_store *store, struct idem_op *op, struct idem_message *ret_message)
{
    return idem_store_apply(store, &op, 1, ret_message);
}

enum idem_result applied(struct idem_store *store, struct idem_op *op)
{
    struct idem_message message = {""};

    if (apply(store, op, &message))
        fail_msg("%s: %s", idem_op_kind_text(op->kind), message.text);
    return op->result;
}

enum idem_result claimed(struct idem_store *store, const char *key, const char *owner)
{
    enum idem_result result;
    struct idem_op op;

    op_claim(&op, key, owner);
    result = applied(store, &op);
    idem_op_deinit(&op);
    return result;
}

enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body)
{
    enum idem_result result;
    struct idem_op op;

    op_verdict(&op, IDEM_OP_COMPLETE, key, owner, body);
    result = applied(store, &op);
    idem_op_deinit(&op);
    return result;
}

enum idem_result got(struct idem_store *store, const char *key)
{
    enum idem_result result;
    struct idem_op op;

    op_blank(&op, IDEM_OP_GET, key);
    result = applied(store, &op);
    idem_op_deinit(&op);
    return result;
}

const char *record_key(const char *url, const char *key)
{
    static char name[160];
    char digits[IDEM_ID_TEXT_SIZE];
    struct idem_id id = id_of(key);

    idem_id_format(&id, digits);
    snprintf(name, sizeof name, "%s%s", prefix_of(url), digits);
    return name;
}

void control(const char *verb, const char *server)
{
    const char *program = getenv("IDEM_TEST_CONTROL");
    pid_t child;
    int status;

    if (!program)
        fail_msg("IDEM_TEST_CONTROL is not set: run this through test/servers/with");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDOUT_FILENO); /* the process id is for others */
        if (open("/dev/null", O_WRONLY) == STDOUT_FILENO)
            execl(program, program, verb, server, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int listener_open(int *ret_port)
{
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t size = sizeof place;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(listener >= 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&place, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&place, &size), 0);
    *ret_port = ntohs(place.sin_port);
    return listener;
}

int64_t steady_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

void await(bool (*holds)(void *context), void *context, const char *what)
{
    int64_t deadline_us = steady_us() + PATIENCE_US;

    while (!holds(context)) {
        if (steady_us() > deadline_us)
            fail_msg("waited in vain for: %s", what);
        (void)poll(NULL, 0, 10);
    }
}
