/* Damaged: see damaged.h. */
#include "damaged.h"

#include <stdio.h>

#include "base/memory.h"
#include "cli.h"
#include "hint.h"

#define TOLD_MAX     10
#define SHORT_DIGITS 16 /* as `idem list` shows ids: other commands take the first digits */

void idem_damaged_deinit(struct idem_damaged *damaged)
{
    idem_free(damaged->ids);
    *damaged = (struct idem_damaged){.count = 0};
}

/* Where the id stands, or belongs. */
static size_t place_of(const struct idem_damaged *damaged, const struct idem_id *id)
{
    size_t first = 0, end = damaged->count;

    while (first < end) {
        size_t middle = first + (end - first) / 2;

        if (memcmp(damaged->ids[middle].bytes, id->bytes, IDEM_ID_SIZE) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

int idem_damaged_add(struct idem_damaged *damaged, const struct idem_id *id)
{
    size_t place = place_of(damaged, id);

    if (place < damaged->count && idem_id_equal(&damaged->ids[place], id)) {
        return IDEM_OK;
    }
    if (damaged->count == damaged->capacity) {
        size_t capacity = damaged->capacity > 0 ? 2 * damaged->capacity : 16;
        struct idem_id *grown = idem_realloc(damaged->ids, capacity * sizeof *grown);

        if (grown == NULL) {
            return IDEM_ERR_NOMEM;
        }
        damaged->ids = grown;
        damaged->capacity = capacity;
    }
    memmove(&damaged->ids[place + 1], &damaged->ids[place],
            (damaged->count - place) * sizeof *damaged->ids);
    damaged->ids[place] = *id;
    damaged->count++;
    return IDEM_OK;
}

int idem_damaged_add_scan(struct idem_damaged *damaged, const struct idem_op *scan)
{
    int error = IDEM_OK;

    for (size_t i = 0; i < scan->out.damaged_id_count && error == IDEM_OK; i++) {
        error = idem_damaged_add(damaged, &scan->out.damaged_ids[i]);
    }
    damaged->nameless += scan->out.damaged - scan->out.damaged_id_count;
    return error;
}

size_t idem_damaged_number(const struct idem_damaged *damaged)
{
    return damaged->count + damaged->nameless;
}

/* "4f2a…, 77b0…, and 3 more" */
static void ids_write(const struct idem_damaged *damaged, char *ret_text, size_t size)
{
    size_t told = damaged->count < TOLD_MAX ? damaged->count : TOLD_MAX;
    size_t left = idem_damaged_number(damaged) - told;
    size_t used = 0;

    for (size_t i = 0; i < told; i++) {
        char id[IDEM_ID_TEXT_SIZE];

        idem_id_format(&damaged->ids[i], id);
        used += (size_t)snprintf(ret_text + used, size - used, "%s%.*s", i > 0 ? ", " : "",
                                 SHORT_DIGITS, id);
    }
    if (told == 0) {
        snprintf(ret_text, size, "what stands where an id should is none");
    } else if (left > 0) {
        snprintf(ret_text + used, size - used, ", and %zu more", left);
    }
}

void idem_damaged_tell(const struct idem_damaged *damaged, const char *words)
{
    size_t number = idem_damaged_number(damaged);
    char ids[(TOLD_MAX + 2) * (SHORT_DIGITS + 2)];
    char show[IDEM_HINT_SIZE], forget[IDEM_HINT_SIZE];

    if (number == 0) {
        return;
    }
    ids_write(damaged, ids, sizeof ids);
    idem_say_error("%zu damaged %s %s: %s. Look at each by `%s`. `%s` removes it: the next request "
                   "with its key then executes",
                   number, number == 1 ? "record was" : "records were", words, ids,
                   idem_hint_make("show ID", show),
                   idem_hint_make("forget ID --force --why damaged", forget));
}

json_t *idem_damaged_json(const struct idem_damaged *damaged)
{
    json_t *array = json_array();
    int bad = array == NULL;

    for (size_t i = 0; i < damaged->count && bad == 0; i++) {
        char id[IDEM_ID_TEXT_SIZE];

        idem_id_format(&damaged->ids[i], id);
        bad |= json_array_append_new(array, json_string(id));
    }
    if (bad != 0) {
        json_decref(array);
        return NULL;
    }
    return array;
}
