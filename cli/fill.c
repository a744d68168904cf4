/*
 * Fill: a tool for the black-box tests of the command. Opens a store and applies the ops that
 * standard input holds as a JSON array, so that a test can make any record without a gateway.
 * Prints a word for each op. Built beside `idem`, never installed.
 *
 *   [{"op": "claim", "scope": "t", "key": "k", "lease_ms": 1000, "owner": 1},
 *    {"op": "complete", "scope": "t", "key": "k", "owner": 1, "status": 201, "body": "…"}]
 *
 * Any text may be given as NAME_hex instead; a negative ttl_ms is for ever.
 */
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>

#include <idem/store.h>

#define TEXT_SIZE_MAX 65536

/* Memory behind the views of one op. */
struct texts {
    uint8_t scope[TEXT_SIZE_MAX], key[TEXT_SIZE_MAX], method[TEXT_SIZE_MAX], path[TEXT_SIZE_MAX],
        body[TEXT_SIZE_MAX], headers[IDEM_HEADERS_SIZE_MAX];
};

static struct idem_bytes text_get(json_t *step, const char *name, uint8_t *memory)
{
    json_t *plain = json_object_get(step, name);
    const char *hex;
    char hex_name[64];
    size_t size = 0;

    if (plain != NULL) {
        return idem_bytes_make(json_string_value(plain), json_string_length(plain));
    }
    snprintf(hex_name, sizeof hex_name, "%s_hex", name);
    hex = json_string_value(json_object_get(step, hex_name));
    if (hex != NULL &&
        sodium_hex2bin(memory, TEXT_SIZE_MAX, hex, strlen(hex), NULL, &size, NULL) != 0) {
        fprintf(stderr, "idem-fill: %s is no hex\n", hex_name);
    }
    return idem_bytes_make(memory, size);
}

static int64_t number_get(json_t *step, const char *name, int64_t otherwise)
{
    json_t *number = json_object_get(step, name);

    return number != NULL ? (int64_t)json_integer_value(number) : otherwise;
}

static struct idem_bytes headers_get(json_t *step, uint8_t *memory)
{
    json_t *list = json_object_get(step, "headers");
    size_t size = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *line = json_array_get(list, i);

        size =
            idem_headers_append(memory, size, IDEM_HEADERS_SIZE_MAX,
                                idem_bytes_from_text(json_string_value(json_array_get(line, 0))),
                                idem_bytes_from_text(json_string_value(json_array_get(line, 1))));
    }
    return idem_bytes_make(memory, size);
}

static void claim_fill(json_t *step, struct texts *texts, struct idem_op *op)
{
    struct idem_claim *claim = &op->in.claim;

    op->kind = IDEM_OP_CLAIM;
    claim->kind = (enum idem_kind)number_get(step, "kind", IDEM_KIND_HTTP);
    claim->scope = text_get(step, "scope", texts->scope);
    claim->key = text_get(step, "key", texts->key);
    claim->method = text_get(step, "method", texts->method);
    claim->path = text_get(step, "path", texts->path);
    claim->fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    claim->principal.present = json_is_true(json_object_get(step, "principal"));
    claim->owner.bytes[0] = (uint8_t)number_get(step, "owner", 1);
    claim->lease_us = number_get(step, "lease_ms", 60000) * 1000;
    claim->unknown_ttl_us = number_get(step, "unknown_ttl_ms", 3600000) * 1000;
    claim->ttl_us = number_get(step, "ttl_ms", 3600000) * 1000;
}

static void verdict_fill(json_t *step, struct texts *texts, enum idem_op_kind kind,
                         struct idem_op *op)
{
    struct idem_verdict *verdict = &op->in.verdict;

    op->kind = kind;
    verdict->owner.bytes[0] = (uint8_t)number_get(step, "owner", 1);
    verdict->ttl_us = number_get(step, "ttl_ms", 3600000) * 1000;
    if (verdict->ttl_us < 0) {
        verdict->ttl_us = IDEM_NEVER_US;
    }
    verdict->lease_us = 60 * IDEM_SECOND_US;
    verdict->reason = kind == IDEM_OP_ABANDON ? IDEM_REASON_UNANSWERED : IDEM_REASON_NONE;
    if (kind == IDEM_OP_COMPLETE) {
        verdict->answer.status = (uint16_t)number_get(step, "status", 200);
        verdict->answer.tombstone = (enum idem_reason)number_get(step, "tombstone", 0);
        verdict->answer.headers = headers_get(step, texts->headers);
        verdict->answer.body = text_get(step, "body", texts->body);
    }
}

static bool op_fill(json_t *step, struct texts *texts, struct idem_op *op)
{
    static const enum idem_op_kind verdicts[] = {IDEM_OP_COMPLETE, IDEM_OP_FAIL, IDEM_OP_ABANDON};
    const char *word = json_string_value(json_object_get(step, "op"));
    size_t i = 0;

    if (word != NULL && strcmp(word, "claim") == 0) {
        claim_fill(step, texts, op);
    } else {
        while (i < 3 && (word == NULL || strcmp(word, idem_op_kind_text(verdicts[i])) != 0)) {
            i++;
        }
        if (i == 3) {
            return false;
        }
        verdict_fill(step, texts, verdicts[i], op);
    }
    op->id = idem_id_make((enum idem_kind)number_get(step, "kind", IDEM_KIND_HTTP),
                          text_get(step, "scope", texts->scope), text_get(step, "key", texts->key));
    return true;
}

static int steps_apply(json_t *steps, struct idem_store *store, struct idem_message *message)
{
    static struct texts texts;
    int error = IDEM_OK;

    for (size_t i = 0; i < json_array_size(steps) && error == IDEM_OK; i++) {
        struct idem_op op = {0};
        struct idem_op *const ops[] = {&op};

        if (!op_fill(json_array_get(steps, i), &texts, &op)) {
            idem_message_set(message, "step %zu has no known op", i);
            return IDEM_ERR_INVALID;
        }
        error = idem_store_apply(store, ops, 1, message);
        if (error == IDEM_OK) {
            puts(idem_result_text(op.result));
        }
        idem_op_deinit(&op);
    }
    return error;
}

int main(int argc, char **argv)
{
    struct idem_message message = {{0}};
    struct idem_store *store = NULL;
    json_error_t where;
    json_t *steps = json_loadf(stdin, 0, &where);
    int error = IDEM_ERR_INVALID;

    if (argc != 2 || !json_is_array(steps)) {
        fprintf(stderr, "usage: idem-fill STORE-URL < STEPS (%s)\n", where.text);
        return 2;
    }
    error = idem_store_open(argv[1], NULL, &store, &message);
    if (error == IDEM_OK) {
        error = steps_apply(steps, store, &message);
    }
    idem_store_close(store);
    json_decref(steps);
    if (error != IDEM_OK) {
        fprintf(stderr, "idem-fill: %s (%s)\n", message.text, idem_error_text(error));
    }
    return error == IDEM_OK ? 0 : 1;
}
