/*
 * idem-sim: runs the protocol in a small world of its own, from a seed, and looks for what must
 * never happen.
 *
 *   1. runs from --seed on, --runs of them or as many as --seconds allow, until a checker finds
 *      something; then the seed is told, and with --trace the story
 *   2. --caught turns this round: of each mutant some run must be found by the checker it is for
 *   3. --seeds reruns the seeds of a file: those that once found something
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/checker.h"
#include "sim/mutant.h"

#define COVER_RUNS  20000 /* so many runs must have met everything */
#define CATCH_RUNS  20000 /* so many runs must be enough for a mutant to be caught */
#define TWICE_EVERY 1000  /* of so many runs one is run twice */
#define LINE_SIZE   200

static const char help[] =
    "usage: idem-sim [OPTION]...\n"
    "Runs the protocol in a simulated world and checks what must hold in it.\n\n"
    "  --seed N        the first run's number (1)\n"
    "  --runs M        how many runs (1)\n"
    "  --seconds S     instead: as many as begin within so many seconds\n"
    "  --trace         tells the story of each run\n"
    "  --cover         reports in how many runs each situation was met\n"
    "  --mutant NAME   breaks the protocol in one place; see --list\n"
    "  --caught        fails unless each mutant, or that one, is found by the checker it is for\n"
    "  --seeds FILE    runs the seeds in this file: a number, and what it found, on each line\n"
    "  --list          tells the checkers and the mutants\n"
    "Exits with 0 when all is well, 1 when not, 2 when an option is wrong.\n";

struct options {
    uint64_t seed, runs, seconds;
    unsigned mutant;
    bool tracing, cover, caught;
    const char *seeds;
};

static struct world world; /* too large for the stack */

static int list(void)
{
    int status = 0;

    for (int checker = CHECKER_NONE + 1; checker < CHECKER_COUNT; checker++) {
        unsigned count = 0;

        printf("checker %-10s %s\n", checker_name(checker), checker_what(checker));
        for (unsigned mutant = 1; mutant < MUTANT_COUNT; mutant++) {
            if (mutant_checker(mutant) != (enum checker)checker)
                continue;
            printf("    mutant %-18s %s\n", mutant_name(mutant), mutant_what(mutant));
            count++;
        }
        if (count == 0 && checker != CHECKER_WORLD) {
            printf("    no mutant shows that it sees\n");
            status = 1;
        }
    }
    return status;
}

static void finding_tell(const struct options *options)
{
    char mutant[64] = "";

    if (options->mutant != MUTANT_NONE)
        snprintf(mutant, sizeof mutant, " --mutant %s", mutant_name(options->mutant));
    printf("seed %llu: %s: %s\n    (%s)\n    the story: idem-sim --seed %llu%s --trace\n",
           (unsigned long long)world.seed, checker_name(world.broken), world.finding,
           checker_what(world.broken), (unsigned long long)world.seed, mutant);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The mutant must be found, and by the checker that is there for it. */
static int catch_mutant(const struct options *options, unsigned mutant)
{
    enum checker wanted = mutant_checker(mutant);
    uint64_t runs = options->runs > 1 ? options->runs : CATCH_RUNS;
    unsigned others = 0;

    for (uint64_t i = 0; i < runs; i++) {
        if (world_run(&world, options->seed + i, mutant, false))
            continue;
        if (world.broken == (int)wanted) {
            printf("caught  %-16s by %s, seed %llu: %s (%u runs found something else)\n",
                   mutant_name(mutant), checker_name(wanted), (unsigned long long)world.seed,
                   world.finding, others);
            return 0;
        }
        others++;
    }
    printf("LIVES   %-16s %s found nothing in %llu runs, other checkers in %u\n",
           mutant_name(mutant), checker_name(wanted), (unsigned long long)runs, others);
    return 1;
}

static int catch_mutants(const struct options *options)
{
    int status = 0;

    if (options->mutant != MUTANT_NONE)
        return catch_mutant(options, options->mutant);
    for (unsigned mutant = MUTANT_NONE + 1; mutant < MUTANT_COUNT; mutant++)
        status |= catch_mutant(options, mutant);
    return status;
}

/* Each line: a seed, then words about it. Comments begin with #. */
static int rerun(const struct options *options)
{
    FILE *file = fopen(options->seeds, "r");
    char line[LINE_SIZE];
    unsigned count = 0;
    int status = 0;

    if (!file)
        return fprintf(stderr, "idem-sim: cannot read %s\n", options->seeds), 2;
    while (fgets(line, sizeof line, file)) {
        char *end;
        uint64_t seed = strtoull(line, &end, 10);

        if (end == line)
            continue;
        count++;
        if (!world_run(&world, seed, options->mutant, options->tracing)) {
            finding_tell(options);
            status = 1;
        }
    }
    fclose(file);
    printf("%u seeds %s\n", count, status ? "rerun, and not all is well" : "are clean");
    return status;
}

/* The same seed gives the same run, whatever was run before it. */
static bool again_the_same(const struct options *options)
{
    uint64_t digest = world.digest, seed = world.seed;

    if (world_run(&world, seed, options->mutant, false) && world.digest == digest)
        return true;
    printf("seed %llu: another run than the first time\n", (unsigned long long)seed);
    return false;
}

static int explore(const struct options *options)
{
    double begun = now_s(), end = begun + (double)options->seconds, last;
    uint64_t count = 0;

    if (!options->tracing) {
        printf("seeds from %llu on\n", (unsigned long long)options->seed);
        fflush(stdout); /* known even if this is killed */
    }
    while (options->seconds > 0 ? now_s() < end : count < options->runs) {
        if (!world_run(&world, options->seed + count++, options->mutant, options->tracing)) {
            finding_tell(options);
            return 1;
        }
        cover_add(&world.cover);
        if (count % TWICE_EVERY == 0 && !again_the_same(options))
            return 1;
    }
    last = now_s() - begun;
    if (options->cover)
        cover_report(count);
    printf("seeds %llu to %llu: %llu runs clean, %.0f runs/s\n", (unsigned long long)options->seed,
           (unsigned long long)(options->seed + count - 1), (unsigned long long)count,
           (double)count / (last > 0 ? last : 1));
    if (count >= COVER_RUNS && cover_missing() > 0) {
        printf("a simulator that never meets these shows nothing about them\n");
        return 1;
    }
    return 0;
}

static bool number_read(const char *text, uint64_t *ret_number)
{
    char *end;

    *ret_number = strtoull(text, &end, 10);
    return end != text && *end == '\0';
}

/* 0, or the status to exit with, one higher. */
static int options_read(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"seed", required_argument, NULL, 'n'},
        {"runs", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 's'},
        {"mutant", required_argument, NULL, 'm'},
        {"seeds", required_argument, NULL, 'f'},
        {"trace", no_argument, NULL, 't'},
        {"cover", no_argument, NULL, 'c'},
        {"caught", no_argument, NULL, 'k'},
        {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    bool good = true;
    int option;

    while (good && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'n')
            good = number_read(optarg, &options->seed);
        else if (option == 'r')
            good = number_read(optarg, &options->runs);
        else if (option == 's')
            good = number_read(optarg, &options->seconds);
        else if (option == 'm')
            good = (options->mutant = mutant_find(optarg)) < MUTANT_COUNT;
        else if (option == 'f')
            options->seeds = optarg;
        else if (option == 't')
            options->tracing = true;
        else if (option == 'c')
            options->cover = true;
        else if (option == 'k')
            options->caught = true;
        else if (option == 'l')
            return list() + 1;
        else if (option == 'h')
            return printf("%s", help), 1;
        else
            good = false;
    }
    if (good && optind == argc)
        return 0;
    fprintf(stderr, "idem-sim: an option is wrong; --help tells them all\n");
    return 3;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1, .runs = 1};
    int status = options_read(argc, argv, &options);

    if (status)
        return status - 1;
    if (options.caught)
        return catch_mutants(&options);
    if (options.seeds)
        return rerun(&options);
    return explore(&options);
}
