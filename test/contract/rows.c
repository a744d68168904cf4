#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "contract.h"

/* A name that no other world of this run, nor another run on the same server, has. */
static void world_name(const struct world *world, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "w%ld_%u", (long)getpid(), world->number);
}

static void memory_url(const struct world *world, const char *options, char *ret_url, size_t size)
{
    (void)world;
    snprintf(ret_url, size, "memory:%s", options);
}

static void lmdb_url(const struct world *world, const char *options, char *ret_url, size_t size)
{
    snprintf(ret_url, size, "lmdb:%s%s", world->directory, options);
}

/* The rules are not about speed: a busy machine may take its time over 40 MiB on six servers. */
#define PATIENT "timeout=60s"

/* The server's URL with the world's own name as its `option`, then the options after their '?'. */
static void server_url(const struct world *world, const char *option, const char *options,
                       char *ret_url, size_t size)
{
    const char *server = getenv(world->row->server);
    char name[64];

    if (!server)
        fail_msg("%s is not set: run this through test/servers/with", world->row->server);
    world_name(world, name, sizeof name);
    snprintf(ret_url, size, "%s%c" PATIENT "&%s=%s%s%s", server, strchr(server, '?') ? '&' : '?',
             option, name, options[0] ? "&" : "", options[0] ? options + 1 : "");
}

static void redis_url(const struct world *world, const char *options, char *ret_url, size_t size)
{
    server_url(world, "prefix", options, ret_url, size);
}

static void postgres_url(const struct world *world, const char *options, char *ret_url, size_t size)
{
    server_url(world, "schema", options, ret_url, size);
}

/* The world's name is the database's, which migration creates. */
static void mariadb_url(const struct world *world, const char *options, char *ret_url, size_t size)
{
    const char *server = getenv(world->row->server);
    char name[64];

    if (!server)
        fail_msg("%s is not set: run this through test/servers/with", world->row->server);
    world_name(world, name, sizeof name);
    snprintf(ret_url, size, "%s/%s?" PATIENT "%s%s", server, name, options[0] ? "&" : "",
             options[0] ? options + 1 : "");
}

/*
 * Empties the Redis at the port that test/servers/with has put into this variable. One that was
 * started by somebody else is left alone.
 */
static void redis_flush(const char *variable)
{
    static const char command[] = "FLUSHALL\r\n";
    const char *port = getenv(variable);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char reply[5];
    int fd;

    if (!port)
        return;
    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(write(fd, command, sizeof command - 1), sizeof command - 1);
    assert_int_equal(recv(fd, reply, sizeof reply, MSG_WAITALL), sizeof reply);
    assert_memory_equal(reply, "+OK\r\n", sizeof reply);
    close(fd);
}

static void redis_clean(void)
{
    redis_flush("IDEM_TEST_REDIS_PORT");
}

static void sentinel_clean(void)
{
    redis_flush("IDEM_TEST_SENTINEL_MASTER_PORT");
}

static void cluster_clean(void)
{
    redis_flush("IDEM_TEST_CLUSTER_1_PORT");
    redis_flush("IDEM_TEST_CLUSTER_2_PORT");
    redis_flush("IDEM_TEST_CLUSTER_3_PORT");
}

#define TRAITS_SERVER (TRAIT_CLOCK | TRAIT_KEPT | TRAIT_SHARED | TRAIT_SERVER)
#define TRAITS_TABLE  (TRAIT_ORDERED | TRAIT_SWEPT | TRAIT_FLOOR)
#define TRAITS_SQL    (TRAITS_SERVER | TRAITS_TABLE | TRAIT_SCHEMA)

/* The stores. The servers of a row are started by test/servers/with, which sets its variable. */
const struct row rows[] = {
    {
        .name = "memory",
        .traits = TRAIT_CLOCK | TRAIT_BOUND | TRAIT_LONG | TRAITS_TABLE,
        .url = memory_url,
        .bounded = "?size=256k",
    },
    {
        .name = "lmdb",
        .traits = TRAIT_CLOCK | TRAIT_BOUND | TRAIT_KEPT | TRAIT_SHARED | TRAIT_LONG | TRAITS_TABLE,
        .url = lmdb_url,
        .bounded = "?size=1m&sync=off",
    },
    {
        .name = "redis",
        .traits = TRAITS_SERVER | TRAIT_LONG,
        .url = redis_url,
        .clean = redis_clean,
        .server = "IDEM_TEST_REDIS",
    },
    {
        .name = "sentinel",
        .traits = TRAITS_SERVER,
        .url = redis_url,
        .clean = sentinel_clean,
        .server = "IDEM_TEST_SENTINEL",
    },
    {
        .name = "cluster",
        .traits = TRAITS_SERVER | TRAIT_LONG,
        .url = redis_url,
        .clean = cluster_clean,
        .server = "IDEM_TEST_CLUSTER",
    },
    {
        .name = "postgres",
        .traits = TRAITS_SQL | TRAIT_LONG,
        .url = postgres_url,
        .server = "IDEM_TEST_POSTGRES",
    },
    {
        .name = "pgbouncer",
        .traits = TRAITS_SQL,
        .url = postgres_url,
        .server = "IDEM_TEST_PGBOUNCER",
    },
    {
        .name = "mariadb",
        .traits = TRAITS_SQL | TRAIT_LONG,
        .url = mariadb_url,
        .server = "IDEM_TEST_MARIADB",
    },
};

const size_t rows_count = COUNT(rows);

const struct row *row_find(const char *name)
{
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fail_msg("there is no row \"%s\"", name);
    return NULL;
}
