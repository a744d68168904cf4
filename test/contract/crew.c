#include "crew.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "servers.h"

void crew_open(struct crew *crew, struct world *world, unsigned count)
{
    assert_true(count <= CREW_MAX);
    memset(crew, 0, sizeof *crew);
    crew->world = world;
    crew->count = count;
    crew->shares = !(world->row->traits & TRAIT_SERVER);
    pthread_mutex_init(&crew->lock, NULL);
    for (unsigned i = 0; i < count; i++) {
        crew->members[i].crew = crew;
        crew->members[i].number = i;
        crew->members[i].store = crew->shares ? world->store : world_handle(world);
    }
}

void crew_close(struct crew *crew)
{
    for (unsigned i = 0; i < crew->count && !crew->shares; i++)
        idem_store_close(crew->members[i].store);
    pthread_mutex_destroy(&crew->lock);
}

void member_apply(struct member *member, struct idem_op *ops, size_t count)
{
    struct idem_op *list[IDEM_BATCH_MAX];
    struct crew *crew = member->crew;
    int error;

    for (size_t i = 0; i < count; i++)
        list[i] = &ops[i];
    if (crew->shares)
        pthread_mutex_lock(&crew->lock);
    error = idem_store_apply(member->store, list, count, &member->message);
    if (crew->shares)
        pthread_mutex_unlock(&crew->lock);
    if (error && !member->error)
        member->error = error;
}

static void *member_run(void *argument)
{
    struct member *member = argument;
    struct crew *crew = member->crew;

    pthread_barrier_wait(&crew->start);
    crew->work(member, crew->context);
    return NULL;
}

void crew_run(struct crew *crew, void (*work)(struct member *member, void *context), void *context)
{
    pthread_t threads[CREW_MAX];

    crew->work = work;
    crew->context = context;
    assert_int_equal(pthread_barrier_init(&crew->start, NULL, crew->count), 0);
    for (unsigned i = 0; i < crew->count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, member_run, &crew->members[i]), 0);
    for (unsigned i = 0; i < crew->count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crew->start);
    for (unsigned i = 0; i < crew->count; i++)
        if (crew->members[i].error)
            fail_msg("member %u: error %d, %s", i, crew->members[i].error,
                     crew->members[i].message.text);
}

struct race {
    struct idem_op *ops;
    const unsigned *delays_us;
    size_t count;
};

/* Busy, as a pause would give the processor away for longer than is meant. */
static void delay(unsigned length_us)
{
    int64_t begun_us = steady_us();

    while (steady_us() - begun_us < length_us) {
    }
}

static void race_work(struct member *member, void *context)
{
    struct race *race = context;

    if (member->number >= race->count)
        return;
    if (race->delays_us)
        delay(race->delays_us[member->number]);
    member_apply(member, &race->ops[member->number], 1);
}

void crew_race(struct crew *crew, struct idem_op *ops, const unsigned *delays_us, size_t count)
{
    struct race race = {ops, delays_us, count};

    assert_true(count <= crew->count);
    crew_run(crew, race_work, &race);
}

/* A process of its own, with a handle of its own, opened after the fork and not before. */
static int process_run(struct world *world, unsigned number,
                       int (*work)(struct idem_store *store, unsigned number, void *context),
                       void *context)
{
    struct idem_message message;
    struct idem_store *store;
    int failed;

    if (idem_store_open(world->url, &world->clock, &store, &message)) {
        print_error("process %u: %s\n", number, message.text);
        return 1;
    }
    failed = work(store, number, context);
    idem_store_close(store);
    return failed;
}

void processes_run(struct world *world, unsigned count,
                   int (*work)(struct idem_store *store, unsigned number, void *context),
                   void *context)
{
    pid_t children[CREW_MAX];

    assert_true(count <= CREW_MAX);
    world_close(world);
    for (unsigned i = 0; i < count; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(process_run(world, i, work, context));
    }
    for (unsigned i = 0; i < count; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    world->store = world_handle(world);
}

void *processes_calloc(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

void processes_free(void *memory, size_t size)
{
    munmap(memory, size);
}
