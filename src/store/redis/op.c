/*
 * One op as a command: EVALSHA, the script's name, its keys, then what script_*.c say of ARGV, and
 * last what proves that it is for this store.
 */
#include "base/cursor.h"
#include "store/audit.h"
#include "store/redis/redis_store.h"
#include "store/redis/script_text.h"

#define NAMES_MAX   2
#define KEPT_MORE_S 2 /* one to round up, one for the clock's going on meanwhile */

/* "EVALSHA sha 2 key prefix:name", with `arguments` to follow; names up to a NULL. */
static void script_begin(const struct idem_backend *store, enum idem_redis_script script,
                         const char *key, const char *const names[NAMES_MAX + 1], size_t arguments,
                         struct idem_redis_request *request)
{
    static const char *const counts[] = {"1", "2", "3"};
    size_t count = 0;

    while (names[count])
        count++;
    idem_redis_request_begin(request, 4 + count + arguments);
    idem_redis_request_text(request, "EVALSHA");
    idem_redis_request_bytes(request,
                             idem_bytes_make(store->scripts.sha[script], IDEM_REDIS_SHA_SIZE));
    idem_redis_request_text(request, counts[count]);
    idem_redis_request_text(request, key);
    for (size_t i = 0; i < count; i++) {
        char name[IDEM_REDIS_KEY_MAX];

        idem_redis_key_named(&store->options, names[i], name);
        idem_redis_request_text(request, name);
    }
}

/* The next argument, of exactly `size` bytes, to be written with the writer. */
static void argument_begin(struct idem_redis_request *request, size_t size,
                           struct idem_writer *ret_writer)
{
    uint8_t *place = idem_redis_request_word(request, size);

    idem_writer_init(ret_writer, place, place ? size : 0);
}

static void owner_write(struct idem_writer *writer, const struct idem_owner *owner)
{
    idem_write_bytes(writer, idem_bytes_make(owner->bytes, IDEM_OWNER_SIZE));
}

static struct idem_bytes bytes_cut(struct idem_bytes bytes, size_t size_max)
{
    return idem_bytes_make(bytes.data, bytes.size < size_max ? bytes.size : size_max);
}

static void claim_encode(const struct idem_claim *in, struct idem_redis_request *request)
{
    struct idem_record record = {
        .kind = in->kind,
        .scope = in->scope,
        .key = in->key,
        .method = bytes_cut(in->method, IDEM_METHOD_SIZE_MAX),
        .path = bytes_cut(in->path, IDEM_PATH_SIZE_MAX),
        .fingerprint = in->fingerprint,
        .principal = in->principal,
        .owner = in->owner,
    };
    uint64_t kept_us = (uint64_t)in->lease_us + (uint64_t)in->unknown_ttl_us;
    struct idem_writer writer;

    argument_begin(request, 8 + 8 + 1 + 8, &writer);
    idem_write_u64(&writer, (uint64_t)in->lease_us);
    idem_write_u64(&writer, (uint64_t)in->unknown_ttl_us);
    idem_write_u8(&writer, (uint8_t)in->take);
    idem_write_u64(&writer, in->take_fence);
    argument_begin(request, idem_redis_claim_size(&record), &writer);
    idem_redis_claim_write(&writer, &record);
    idem_redis_request_number(request, kept_us / IDEM_SECOND_US + KEPT_MORE_S);
}

static void renew_encode(const struct idem_renew *in, struct idem_redis_request *request)
{
    struct idem_writer writer;

    argument_begin(request, IDEM_OWNER_SIZE + 8 + 8, &writer);
    owner_write(&writer, &in->owner);
    idem_write_u64(&writer, (uint64_t)in->lease_us);
    idem_write_u64(&writer, (uint64_t)in->unknown_ttl_us);
}

static void answer_encode(const struct idem_answer *answer, struct idem_redis_request *request)
{
    struct idem_writer writer;

    argument_begin(request, idem_redis_answer_size(answer), &writer);
    idem_redis_answer_write(&writer, answer);
}

static void complete_encode(const struct idem_verdict *in, struct idem_redis_request *request)
{
    struct idem_writer writer;

    argument_begin(request, IDEM_OWNER_SIZE + 8, &writer);
    owner_write(&writer, &in->owner);
    idem_write_u64(&writer, (uint64_t)in->ttl_us);
    answer_encode(&in->answer, request);
}

static void fail_encode(const struct idem_verdict *in, struct idem_redis_request *request)
{
    struct idem_record phantom = {.owner = in->owner};
    struct idem_writer writer;

    argument_begin(request, IDEM_OWNER_SIZE + 8 + 8, &writer);
    owner_write(&writer, &in->owner);
    idem_write_u64(&writer, (uint64_t)in->ttl_us);
    idem_write_u64(&writer, (uint64_t)in->lease_us);
    argument_begin(request, idem_redis_claim_size(&phantom), &writer);
    idem_redis_claim_write(&writer, &phantom);
}

static void abandon_encode(const struct idem_verdict *in, struct idem_redis_request *request)
{
    struct idem_writer writer;

    argument_begin(request, IDEM_OWNER_SIZE + 1, &writer);
    owner_write(&writer, &in->owner);
    idem_write_u8(&writer, (uint8_t)in->reason);
}

/* A digest that is not there is zeroes, as record.c writes it. */
static void get_encode(const struct idem_get *in, struct idem_redis_request *request)
{
    static const uint8_t none[IDEM_DIGEST_SIZE];
    bool printed = in->fingerprint.algorithm != IDEM_FINGERPRINT_NONE;
    struct idem_writer writer;

    if (!in->match) {
        idem_redis_request_text(request, "");
        return;
    }
    argument_begin(request, 2 * (1 + IDEM_DIGEST_SIZE), &writer);
    idem_write_u8(&writer, in->fingerprint.algorithm);
    idem_write_bytes(&writer,
                     idem_bytes_make(printed ? in->fingerprint.bytes : none, IDEM_DIGEST_SIZE));
    idem_write_u8(&writer, in->principal.present);
    idem_write_bytes(&writer, idem_bytes_make(in->principal.present ? in->principal.bytes : none,
                                              IDEM_DIGEST_SIZE));
}

static void people_encode(const struct idem_id *id, struct idem_bytes who, struct idem_bytes why,
                          struct idem_redis_request *request)
{
    struct idem_writer writer;

    argument_begin(request, idem_redis_people_size(who, why), &writer);
    idem_redis_people_write(&writer, who, why);
    idem_redis_request_bytes(request, idem_bytes_make(id->bytes, IDEM_ID_SIZE));
}

/* Without a status there is no answer that could be told again. */
static struct idem_answer resolved_answer(const struct idem_resolve *in)
{
    if (in->answer.tombstone == IDEM_REASON_NONE && in->answer.status == 0)
        return (struct idem_answer){.tombstone = IDEM_REASON_RESOLVED};
    return in->answer;
}

static void resolve_encode(const struct idem_redis_item *item, struct idem_redis_request *request)
{
    const struct idem_resolve *in = &item->op->in.resolve;
    struct idem_answer answer = resolved_answer(in);
    struct idem_writer writer;

    argument_begin(request, IDEM_OWNER_SIZE + 3 * 8 + 3, &writer);
    owner_write(&writer, &in->owner);
    idem_write_u64(&writer, in->fence);
    idem_write_u64(&writer, (uint64_t)in->updated_us);
    idem_write_u64(&writer, (uint64_t)in->ttl_us);
    idem_write_u8(&writer, in->completed);
    idem_write_u8(&writer, in->force);
    idem_write_u8(&writer, item->stage == IDEM_REDIS_STAGE_LOOK);
    people_encode(&item->op->id, in->who, in->why, request);
    if (in->completed)
        answer_encode(&answer, request);
    else
        idem_redis_request_text(request, "");
}

static void forget_encode(const struct idem_redis_item *item, struct idem_redis_request *request)
{
    const struct idem_forget *in = &item->op->in.forget;
    struct idem_writer writer;

    argument_begin(request, 2 + IDEM_OWNER_SIZE, &writer);
    idem_write_u8(&writer, in->force);
    idem_write_u8(&writer, item->stage == IDEM_REDIS_STAGE_LOOK);
    owner_write(&writer, &item->token);
    people_encode(&item->op->id, in->who, in->why, request);
}

static int put_encode(const struct idem_record *record, struct idem_redis_request *request,
                      struct idem_redis_trouble *trouble)
{
    struct idem_writer writer;
    size_t size;

    if (idem_redis_record_size(record, &size))
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSUPPORTED, false,
                                      "a record has a fence or an instant beyond 2^53, which Redis "
                                      "cannot count exactly");
    argument_begin(request, size, &writer);
    idem_redis_record_write(&writer, record);
    return IDEM_OK;
}

/* One more than the limit, to see whether there is more. */
static void audit_encode(const struct idem_audit *in, struct idem_redis_request *request)
{
    idem_redis_request_number(request, in->after_us < 0 ? 0 : (uint64_t)in->after_us + 1);
    idem_redis_request_number(request, (uint64_t)in->limit + 1);
}

/* Which script an op is, and how many arguments it has. */
static const struct {
    enum idem_redis_script script;
    size_t arguments;
} shapes[IDEM_OP_COUNT] = {
    [IDEM_OP_CLAIM] = {IDEM_REDIS_SCRIPT_CLAIM, 3},
    [IDEM_OP_RENEW] = {IDEM_REDIS_SCRIPT_RENEW, 1},
    [IDEM_OP_COMPLETE] = {IDEM_REDIS_SCRIPT_COMPLETE, 2},
    [IDEM_OP_FAIL] = {IDEM_REDIS_SCRIPT_FAIL, 2},
    [IDEM_OP_ABANDON] = {IDEM_REDIS_SCRIPT_ABANDON, 1},
    [IDEM_OP_GET] = {IDEM_REDIS_SCRIPT_GET, 1},
    [IDEM_OP_RESOLVE] = {IDEM_REDIS_SCRIPT_RESOLVE, 4},
    [IDEM_OP_FORGET] = {IDEM_REDIS_SCRIPT_FORGET, 3},
    [IDEM_OP_SWEEP] = {IDEM_REDIS_SCRIPT_SWEEP, 0},
    [IDEM_OP_AUDIT] = {IDEM_REDIS_SCRIPT_AUDIT, 2},
    [IDEM_OP_PUT] = {IDEM_REDIS_SCRIPT_PUT, 1},
};

static bool is_of_person(const struct idem_op *op)
{
    return op->kind == IDEM_OP_RESOLVE || op->kind == IDEM_OP_FORGET;
}

static bool concerns_audit(const struct idem_redis_item *item)
{
    return item->op->kind == IDEM_OP_AUDIT || item->stage == IDEM_REDIS_STAGE_RECORD ||
           item->stage == IDEM_REDIS_STAGE_TAKE_BACK;
}

void idem_redis_op_key(const struct idem_backend *store, const struct idem_redis_item *item,
                       char ret_key[IDEM_REDIS_KEY_MAX])
{
    if (concerns_audit(item))
        idem_redis_key_named(&store->options, IDEM_REDIS_NAME_AUDIT, ret_key);
    else if (item->op->kind == IDEM_OP_SWEEP)
        idem_redis_key_named(&store->options, IDEM_REDIS_NAME_SALT, ret_key);
    else
        idem_redis_key_record(&store->options, &item->op->id, ret_key);
}

/* No other keys. */
static const char *const alone[NAMES_MAX + 1] = {NULL};

/* The stages of a person's op that have commands of their own. */
static void entry_encode(const struct idem_backend *store, const struct idem_redis_item *item,
                         const char *key, struct idem_redis_request *request)
{
    struct idem_record was = {.state = item->was, .fence = item->fence};
    struct idem_audit_entry entry = idem_audit_entry_make(item->op, NULL, 0);
    uint8_t blob[IDEM_AUDIT_SIZE_MAX];

    if (item->stage == IDEM_REDIS_STAGE_TAKE_BACK) {
        const char *const words[] = {"XDEL", key, item->entry, NULL};

        idem_redis_request_texts(request, words);
        return;
    }
    entry.was = was.state;
    entry.fence = was.fence;
    script_begin(store, IDEM_REDIS_SCRIPT_AUDIT_ADD, key, alone, 1, request);
    idem_redis_request_bytes(request, idem_bytes_make(blob, idem_audit_encode(&entry, blob)));
}

static int arguments_encode(const struct idem_redis_item *item, struct idem_redis_request *request,
                            struct idem_redis_trouble *trouble)
{
    const struct idem_op *op = item->op;

    switch (op->kind) {
    case IDEM_OP_CLAIM:
        claim_encode(&op->in.claim, request);
        break;
    case IDEM_OP_RENEW:
        renew_encode(&op->in.renew, request);
        break;
    case IDEM_OP_COMPLETE:
        complete_encode(&op->in.verdict, request);
        break;
    case IDEM_OP_FAIL:
        fail_encode(&op->in.verdict, request);
        break;
    case IDEM_OP_ABANDON:
        abandon_encode(&op->in.verdict, request);
        break;
    case IDEM_OP_GET:
        get_encode(&op->in.get, request);
        break;
    case IDEM_OP_RESOLVE:
        resolve_encode(item, request);
        break;
    case IDEM_OP_FORGET:
        forget_encode(item, request);
        break;
    case IDEM_OP_AUDIT:
        audit_encode(&op->in.audit, request);
        break;
    case IDEM_OP_SWEEP:
        break;
    default:
        return put_encode(&op->in.put.record, request, trouble);
    }
    return IDEM_OK;
}

/* Of what may have been written anew. */
static struct idem_owner undo_owner(const struct idem_op *op)
{
    if (op->kind == IDEM_OP_CLAIM)
        return op->in.claim.owner;
    return op->kind == IDEM_OP_PUT ? op->in.put.record.owner : op->in.verdict.owner;
}

static void undo_encode(const struct idem_backend *store, const struct idem_redis_item *item,
                        const char *key, struct idem_redis_request *request)
{
    struct idem_owner owner = undo_owner(item->op);
    struct idem_writer writer;

    script_begin(store, IDEM_REDIS_SCRIPT_UNDO, key, alone, 1, request);
    argument_begin(request, IDEM_OWNER_SIZE + 8, &writer);
    owner_write(&writer, &owner);
    idem_write_u64(&writer, item->fence);
}

/* The op itself. Where the salt is in reach, its script looks at that first. */
static int act_encode(const struct idem_backend *store, const struct idem_redis_item *item,
                      const char *key, struct idem_redis_request *request,
                      struct idem_redis_trouble *trouble)
{
    const struct idem_op *op = item->op;
    const char *names[NAMES_MAX + 1] = {NULL};
    bool is_salt = op->kind == IDEM_OP_SWEEP;
    bool in_reach = store->options.topology != IDEM_REDIS_CLUSTER || is_salt;
    int error;

    if (in_reach && !is_salt)
        names[0] = IDEM_REDIS_NAME_SALT;
    if (in_reach && is_of_person(op))
        names[1] = IDEM_REDIS_NAME_AUDIT;
    script_begin(store, shapes[op->kind].script, key, names,
                 shapes[op->kind].arguments + (in_reach ? 1 : 0), request);
    error = arguments_encode(item, request, trouble);
    if (!error && in_reach)
        idem_redis_request_bytes(request,
                                 idem_bytes_make(store->salt.bytes, IDEM_REDIS_PROOF_SIZE));
    return error;
}

int idem_redis_op_encode(const struct idem_backend *store, const struct idem_redis_item *item,
                         struct idem_redis_request *request, struct idem_redis_trouble *trouble)
{
    char key[IDEM_REDIS_KEY_MAX];

    idem_redis_op_key(store, item, key);
    switch (item->stage) {
    case IDEM_REDIS_STAGE_RECORD:
    case IDEM_REDIS_STAGE_TAKE_BACK:
        entry_encode(store, item, key, request);
        return IDEM_OK;
    case IDEM_REDIS_STAGE_UNDO:
        undo_encode(store, item, key, request);
        return IDEM_OK;
    default:
        return act_encode(store, item, key, request, trouble);
    }
}
