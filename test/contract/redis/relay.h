/*
 * A relay between the store and its server, which can lose a reply: what was asked is done, and
 * whoever asked does not hear of it.
 */
#ifndef IDEM_TEST_REDIS_RELAY_H
#define IDEM_TEST_REDIS_RELAY_H

#include <pthread.h>
#include <stdbool.h>

struct relay {
    int port; /* where it listens */
    int server_port;
    int listener;
    unsigned losses; /* replies that were lost */
    bool armed;      /* the next reply is lost, and its connection with it */
    bool ended;
    pthread_t thread;
};

void relay_begin(struct relay *relay, int server_port);
void relay_arm(struct relay *relay);
void relay_end(struct relay *relay);

#endif
