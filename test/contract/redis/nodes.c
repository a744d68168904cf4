#include "nodes.h"

#include <stdio.h>

#include "support.h"

const char *node_name(int number)
{
    static char names[4][16];
    static unsigned next;
    char *name = names[next++ % COUNT(names)];

    snprintf(name, sizeof names[0], "cluster-%d", number);
    return name;
}

int node_port(int number)
{
    return port_of(node_name(number));
}

int slot_owner(unsigned slot, int asked)
{
    redisReply *reply = ask(node_port(asked), "CLUSTER SLOTS");
    int port = 0;

    for (size_t i = 0; i < reply->elements; i++)
        if (slot >= (unsigned)reply->element[i]->element[0]->integer &&
            slot <= (unsigned)reply->element[i]->element[1]->integer)
            port = (int)reply->element[i]->element[2]->element[1]->integer;
    freeReplyObject(reply);
    for (int number = 1; number <= NODES; number++)
        if (node_port(number) == port)
            return number;
    return 0;
}

int slot_server(unsigned slot)
{
    for (int number = 1; number <= NODES / 2; number++)
        if (slot_owner(slot, number) == number)
            return number;
    fail_msg("nobody serves slot %u", slot);
    return 0;
}

unsigned key_slot(const char *key)
{
    return (unsigned)told(node_port(1), "CLUSTER KEYSLOT %s", key);
}

unsigned slot_of(const char *url, const char *key)
{
    return key_slot(record_key(url, key));
}

static const char *node_id(int number)
{
    static char ids[4][64];
    static unsigned next;
    char *id = ids[next++ % COUNT(ids)];
    redisReply *reply = ask(node_port(number), "CLUSTER MYID");

    snprintf(id, sizeof ids[0], "%s", reply->str);
    freeReplyObject(reply);
    return id;
}

void move_begin(unsigned slot, int from, int to)
{
    told(node_port(to), "CLUSTER SETSLOT %u IMPORTING %s", slot, node_id(from));
    told(node_port(from), "CLUSTER SETSLOT %u MIGRATING %s", slot, node_id(to));
}

void move_keys(unsigned slot, int from, int to)
{
    for (;;) {
        redisReply *reply = ask(node_port(from), "CLUSTER GETKEYSINSLOT %u 100", slot);
        size_t count = reply->elements;

        for (size_t i = 0; i < count; i++)
            told(node_port(from), "MIGRATE 127.0.0.1 %d %s 0 5000", node_port(to),
                 reply->element[i]->str);
        freeReplyObject(reply);
        if (count == 0)
            return;
    }
}

void move_end(unsigned slot, int from, int to)
{
    told(node_port(to), "CLUSTER SETSLOT %u NODE %s", slot, node_id(to));
    told(node_port(from), "CLUSTER SETSLOT %u NODE %s", slot, node_id(to));
}
