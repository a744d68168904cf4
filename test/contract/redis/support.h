/* What the tests of the Redis store alone have in common: a store each, and commands beside it. */
#ifndef IDEM_TEST_REDIS_SUPPORT_H
#define IDEM_TEST_REDIS_SUPPORT_H

#include <hiredis.h>

#include "../ops.h"
#include "../servers.h"

#define URL_SIZE 512

/* The URL in an environment variable with a prefix that no other test has; options begin with a
 * '?' or are empty. */
void url_make(const char *variable, const char *options, char ret_url[URL_SIZE]);
const char *prefix_of(const char *url); /* without a ':'; valid until the next call */

/* The port of a server of test/servers/with: "redis", "sentinel-master", "cluster-1" … */
int port_of(const char *server);

/* One command over a connection of its own; the caller frees the reply, which may be an error. */
redisReply *ask(int port, const char *format, ...);
/* The same, must not be an error; an integer reply, or the number in a text. */
long long told(int port, const char *format, ...);
/* The value of a setting in INFO or CONFIG GET; valid until the next call. */
const char *info_of(int port, const char *section, const char *name);

void unsafe(const char *url, const char *words); /* must be refused as unsafe, with these words */

/* The key in Redis that a record of that name has. */
const char *record_key(const char *url, const char *key); /* valid until the next call */

#endif
