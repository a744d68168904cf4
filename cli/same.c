/* Same: see same.h. */
#include "same.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "place.h"
#include "select.h"

#define KEY_SIZE  16
#define LEASE_US  (10 * IDEM_SECOND_US) /* then it goes by itself, should this process end here */
#define EXPIRY_US (60 * IDEM_SECOND_US)

/* The URL, and the directory of an embedded store or NULL, which the caller frees. */
static bool name_read(const char *option, char ret_url[IDEM_URL_SIZE_MAX], char **ret_directory)
{
    struct idem_message ignored;

    *ret_directory = NULL;
    return idem_place_store(option, ret_url, &ignored) == IDEM_OK &&
           idem_store_url_check(ret_url, ret_directory, &ignored) == IDEM_OK;
}

static bool directory_same(const char *one, const char *other)
{
    struct stat first, second;

    return one != NULL && other != NULL && stat(one, &first) == 0 && stat(other, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool idem_same_named(const char *one, const char *other)
{
    char first[IDEM_URL_SIZE_MAX], second[IDEM_URL_SIZE_MAX];
    char *first_directory = NULL, *second_directory = NULL;
    bool same = name_read(one, first, &first_directory) &&
                name_read(other, second, &second_directory) &&
                (strcmp(first, second) == 0 || directory_same(first_directory, second_directory));

    free(first_directory); /* malloc'd, says idem_store_url_check */
    free(second_directory);
    return same;
}

static void claim_fill(struct idem_op *op, const uint8_t key[KEY_SIZE])
{
    struct idem_claim *claim = &op->in.claim;

    op->kind = IDEM_OP_CLAIM;
    claim->kind = IDEM_KIND_SELFTEST;
    claim->key = idem_bytes_make(key, KEY_SIZE);
    claim->method = idem_bytes_from_text("SELFTEST");
    claim->fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    claim->lease_us = LEASE_US;
    claim->unknown_ttl_us = EXPIRY_US;
    claim->ttl_us = EXPIRY_US;
    randombytes_buf(claim->owner.bytes, sizeof claim->owner.bytes);
}

int idem_same_tried(struct idem_store *one, struct idem_store *other, bool *ret_same,
                    struct idem_message *message)
{
    struct idem_op claim = {0};
    struct idem_op get = {.kind = IDEM_OP_GET};
    struct idem_op forget = {.kind = IDEM_OP_FORGET, .in.forget.force = true};
    uint8_t key[KEY_SIZE];
    bool same = false;
    int error;

    randombytes_buf(key, sizeof key);
    claim_fill(&claim, key);
    claim.id = idem_id_make(IDEM_KIND_SELFTEST, idem_bytes_make(NULL, 0),
                            idem_bytes_make(key, sizeof key));
    get.id = forget.id = claim.id;
    error = idem_select_apply(one, &claim, message);
    if (error == IDEM_OK && claim.result == IDEM_RESULT_ACQUIRED) {
        error = idem_select_apply(other, &get, message);
        same = error == IDEM_OK && get.result == IDEM_RESULT_FOUND;
        idem_op_deinit(&get);
        if (error == IDEM_OK) {
            error = idem_select_apply(one, &forget, message);
        }
    }
    idem_op_deinit(&claim);
    if (error == IDEM_OK) {
        *ret_same = same;
    }
    return error;
}
