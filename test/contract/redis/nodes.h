/* The nodes of the cluster that tests run beside, and the slots that they serve. */
#ifndef IDEM_TEST_REDIS_NODES_H
#define IDEM_TEST_REDIS_NODES_H

#define NODES 6 /* 1 to 3 begin as masters, 4 to 6 as their replicas */

const char *node_name(int number); /* "cluster-1"; one of the last four */
int node_port(int number);

unsigned key_slot(const char *key);                 /* of a key in Redis */
unsigned slot_of(const char *url, const char *key); /* of the record of that name */

/* Which node serves the slot, by what node `asked` says; 0: none. */
int slot_owner(unsigned slot, int asked);

/* Which of the first masters serves it by its own account: others hear of a move a little later. */
int slot_server(unsigned slot);

/* The steps of moving a slot, as redis-cli takes them. */
void move_begin(unsigned slot, int from, int to);
void move_keys(unsigned slot, int from, int to);
void move_end(unsigned slot, int from, int to);

#endif
