#include "killer.h"

#include <sched.h>
#include <string.h>

static void *killer_run(void *argument)
{
    struct killer *killer = argument;
    unsigned seen = 0;

    while (!__atomic_load_n(&killer->ended, __ATOMIC_SEQ_CST)) {
        unsigned begun = __atomic_load_n(&killer->begun, __ATOMIC_SEQ_CST);

        if (begun == seen)
            sched_yield();
        else if (killer->kill(killer->name) > 0)
            killer->kills++;
        seen = begun;
    }
    return NULL;
}

void killer_begin(struct killer *killer, killer_kill *kill, const char *name)
{
    memset(killer, 0, sizeof *killer);
    killer->kill = kill;
    killer->name = name;
    assert_int_equal(pthread_create(&killer->thread, NULL, killer_run, killer), 0);
}

void killer_aim(struct killer *killer)
{
    __atomic_fetch_add(&killer->begun, 1, __ATOMIC_SEQ_CST);
}

void killer_end(struct killer *killer)
{
    __atomic_store_n(&killer->ended, true, __ATOMIC_SEQ_CST);
    pthread_join(killer->thread, NULL);
}
