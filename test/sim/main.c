/*
 * idem-sim: runs the protocol in a small world of its own, from a seed, and looks for what must
 * not happen. See --help.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/checker.h"
#include "sim/mutant.h"

static const char help[] =
    "usage: idem-sim [--seed N] [--runs M] [--seconds S] [--mutant NAME] [--trace]\n";

static struct world world;

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"runs", required_argument, NULL, 'r'},
        {"trace", no_argument, NULL, 't'},
        {0},
    };
    uint64_t seed = 1, runs = 1;
    bool tracing = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            seed = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            runs = strtoull(optarg, NULL, 10);
        else if (option == 't')
            tracing = true;
        else
            return fprintf(stderr, help), 2;
    }
    for (uint64_t i = 0; i < runs; i++) {
        if (!world_run(&world, seed + i, 0, tracing)) {
            printf("seed %llu: %s: %s\n", (unsigned long long)(seed + i),
                   checker_name(world.broken), world.finding);
            return 1;
        }
        cover_add(&world.cover);
    }
    cover_report(runs);
    cover_missing();
}
