/*
 * Runs chapters on rows, each rule under its own words.
 *
 *   contract [ROW | CHAPTER]…
 *
 * Without a row: all that need no server. Without a chapter: all of them. A row's server is started
 * by test/servers/with, as in `test/servers/with redis -- build/test/contract/contract redis
 * scans`.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define RULES_MAX 64

static const struct chapter *const chapters[] = {
    &chapter_claim,  &chapter_compare, &chapter_verdict, &chapter_people, &chapter_expiry,
    &chapter_scan,   &chapter_batch,   &chapter_order,   &chapter_full,   &chapter_put,
    &chapter_shared, &chapter_race,    &chapter_story,
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

static bool row_is(size_t number, const char *word)
{
    return strcmp(rows[number].name, word) == 0;
}

static bool chapter_is(size_t number, const char *word)
{
    return strcmp(chapters[number]->name, word) == 0;
}

/* True when a word names this one, or none of its kind was named and it goes without saying. */
static bool is_wanted(bool (*is)(size_t, const char *), size_t number, size_t count, bool unsaid,
                      char **words)
{
    bool named = false;

    for (char **word = words; *word; word++) {
        if (is(number, *word))
            return true;
        for (size_t other = 0; other < count; other++)
            named |= is(other, *word);
    }
    return !named && unsaid;
}

/* A word that means nothing would leave out what was meant to be run. */
static bool words_are_known(char **words)
{
    for (char **word = words; *word; word++) {
        bool known = false;

        for (size_t i = 0; i < rows_count; i++)
            known |= row_is(i, *word);
        for (size_t i = 0; i < COUNT(chapters); i++)
            known |= chapter_is(i, *word);
        if (!known) {
            fprintf(stderr, "\"%s\" is no row and no chapter. Chapters:\n", *word);
            for (size_t i = 0; i < COUNT(chapters); i++)
                fprintf(stderr, "  %s\n", chapters[i]->name);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    char **words = argv + 1;
    int failures = 0;

    (void)argc;
    if (!words_are_known(words))
        return 2;
    for (size_t r = 0; r < rows_count; r++) {
        if (!is_wanted(row_is, r, rows_count, !rows[r].server, words))
            continue;
        for (size_t c = 0; c < COUNT(chapters); c++)
            if (is_wanted(chapter_is, c, COUNT(chapters), true, words))
                failures += chapter_run(&rows[r], chapters[c]);
    }
    return failures ? 1 : 0;
}
