#include "support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

void unsafe(const char *url, const char *words)
{
    refused(url, IDEM_ERR_UNSAFE, words);
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
