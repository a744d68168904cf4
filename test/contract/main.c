/* Runs every chapter on every row, each rule under its own words. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define RULES_MAX 64

static const struct chapter *const chapters[] = {
    &chapter_claim, &chapter_compare, &chapter_verdict, &chapter_people, &chapter_expiry,
    &chapter_scan,  &chapter_batch,   &chapter_full,    &chapter_shared, &chapter_put,
};

static int chapter_run(const struct row *row, const struct chapter *chapter)
{
    struct CMUnitTest tests[RULES_MAX];
    char name[64];
    size_t count = 0;

    if (chapter->count > RULES_MAX)
        return 1;
    for (size_t i = 0; i < chapter->count; i++) {
        const struct rule *rule = &chapter->rules[i];

        if ((rule->needs & row->traits) != rule->needs)
            continue;
        tests[count++] = (struct CMUnitTest){
            .name = rule->words,
            .test_func = rule->check,
            .setup_func = world_setup,
            .teardown_func = world_teardown,
            .initial_state = (void *)(uintptr_t)row,
        };
    }
    snprintf(name, sizeof name, "%s: %s", row->name, chapter->name);
    return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

/* The names of rows to run as arguments; without any, all those that need no server. */
static int is_wanted(const struct row *row, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], row->name) == 0)
            return 1;
    return argc == 1 && !row->server;
}

int main(int argc, char **argv)
{
    int failures = 0;

    for (size_t r = 0; r < rows_count; r++)
        for (size_t c = 0; is_wanted(&rows[r], argc, argv) && c < COUNT(chapters); c++)
            failures += chapter_run(&rows[r], chapters[c]);
    return failures ? 1 : 0;
}
