/*
 * A relay between the store and its server, which can lose a reply: what was asked is done, and
 * whoever asked does not hear of it. It can ask for something else, too.
 */
#ifndef IDEM_TEST_RELAY_H
#define IDEM_TEST_RELAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_BYTES_MAX (64 << 10) /* that are passed on at once */

/* Puts what is to be asked in the place of what was; returns its size. */
typedef size_t relay_rewrite(uint8_t bytes[RELAY_BYTES_MAX], size_t size);

struct relay {
    int port; /* where it listens */
    int server_port;
    int listener;
    unsigned losses; /* replies that were lost */
    bool armed;      /* the next reply is lost, and its connection with it */
    bool ended;
    relay_rewrite *rewrite; /* NULL: nothing is */
    pthread_t thread;
};

void relay_begin(struct relay *relay, int server_port, relay_rewrite *rewrite);
void relay_arm(struct relay *relay);
void relay_end(struct relay *relay);

#endif
