/*
 * What a reply means. Scripts answer a letter and numbers (script_text.h); Redis itself answers
 * errors, whose first word says what is the matter.
 */
#include <stdlib.h>

#include "base/cursor.h"
#include "store/audit.h"
#include "store/keep.h"
#include "store/redis/redis_store.h"

bool idem_redis_reply_is_error(const redisReply *reply, const char *word)
{
    size_t size = strlen(word);

    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, word, size) == 0 &&
           (reply->str[size] == ' ' || reply->str[size] == '\0');
}

/* "MOVED 3999 127.0.0.1:6381": without a host it is the one that answers. An IPv6 address has
 * colons of its own, so the last one is the port's. */
static bool address_read(const char *text, const char *host, struct idem_redis_address *ret_address)
{
    const char *colon = strrchr(text, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    size_t size = colon ? (size_t)(colon - text) : 0;

    if (port < 1 || port > UINT16_MAX || size >= sizeof ret_address->host)
        return false;
    if (size == 0) {
        text = host;
        size = strlen(host);
    }
    memmove(ret_address->host, text, size);
    ret_address->host[size] = '\0';
    ret_address->port = (uint16_t)port;
    return true;
}

enum idem_redis_redirect idem_redis_reply_redirect(const redisReply *reply, const char *host,
                                                   unsigned *ret_slot,
                                                   struct idem_redis_address *ret_address)
{
    bool moved = idem_redis_reply_is_error(reply, "MOVED");
    unsigned long slot;
    char *rest;

    if (idem_redis_reply_is_error(reply, "NOSCRIPT"))
        return IDEM_REDIS_REDIRECT_SCRIPTS;
    if (!moved && !idem_redis_reply_is_error(reply, "ASK"))
        return IDEM_REDIS_REDIRECT_NONE;
    slot = strtoul(reply->str + (moved ? 6 : 4), &rest, 10);
    if (*rest != ' ' || slot >= IDEM_REDIS_SLOTS || !address_read(rest + 1, host, ret_address))
        return IDEM_REDIS_REDIRECT_NONE;
    *ret_slot = (unsigned)slot;
    return moved ? IDEM_REDIS_REDIRECT_MOVED : IDEM_REDIS_REDIRECT_ASK;
}

#define WORDS_MAX 160

/* How errors begin that have a meaning here, and what to do about them. */
static const struct complaint {
    const char *words;
    int error;
    bool again;
    const char *sentence; /* after "Redis at HOST:PORT " */
} complaints[] = {
    {"LOADING", IDEM_ERR_UNAVAILABLE, true, "is loading its data after a start: wait for it"},
    {"READONLY", IDEM_ERR_UNAVAILABLE, true,
     "is a replica and takes no writes: name the master, or its sentinels"},
    {"MASTERDOWN", IDEM_ERR_UNAVAILABLE, true,
     "is a replica that has lost its master: name the master, or its sentinels"},
    {"CLUSTERDOWN", IDEM_ERR_UNAVAILABLE, true,
     "says that the cluster is down: see `redis-cli cluster info`"},
    {"TRYAGAIN", IDEM_ERR_UNAVAILABLE, true, "is moving the slot of this key: try again"},
    {"BUSY", IDEM_ERR_UNAVAILABLE, true,
     "is held up by a script: see `redis-cli script kill`, if it is not one of idem's"},
    {"OOM", IDEM_ERR_FULL, false, "is over maxmemory: raise it, or remove what is not needed"},
    {"NOAUTH", IDEM_ERR_UNAVAILABLE, false,
     "wants a password: write USER:PASSWORD@ before the host in the store's URL, or password= "
     "for a socket"},
    {"WRONGPASS", IDEM_ERR_UNAVAILABLE, false,
     "does not take the user or the password of the store's URL: correct them"},
    {"ERR AUTH", IDEM_ERR_UNAVAILABLE, false,
     "has no password set, and the store's URL gives one: see that it is the right server, or "
     "take the password out of the URL"},
    {"ERR DB index", IDEM_ERR_INVALID, false,
     "has no database of that number: name a lower one in the store's URL, or raise `databases` "
     "in its configuration"},
    {"ERR max number of clients", IDEM_ERR_UNAVAILABLE, true,
     "takes no more connections: raise its maxclients"},
    {"ERR unknown command", IDEM_ERR_INVALID, false,
     "does not know a command that idem needs: see that it is Redis 7 or later, and not a proxy"},
    {"NOPERM", IDEM_ERR_UNAVAILABLE, false,
     "does not let this user do that: see what its ACL needs in docs/guide/store-redis.md"},
    {"NOREPLICAS", IDEM_ERR_UNAVAILABLE, true,
     "has fewer replicas in touch than its min-replicas-to-write"},
    {"MISCONF", IDEM_ERR_UNAVAILABLE, true,
     "refuses writes because it cannot write to its disk: see its log"},
    {"UNBLOCKED", IDEM_ERR_UNAVAILABLE, true,
     "became a replica while its own replicas were waited for"},
    {"UNKILLABLE", IDEM_ERR_UNAVAILABLE, true, "is held up by a script that has written"},
    {"MOVED", IDEM_ERR_INVALID, false, "is part of a cluster: write redis+cluster: in the URL"},
};

/* The server's own words, for brackets; without a command's arguments, one of which may be a
 * password. */
static int words_size(const redisReply *reply)
{
    const char *arguments = strstr(reply->str, ", with args");
    size_t size = arguments ? (size_t)(arguments - reply->str) : reply->len;

    return size < WORDS_MAX ? (int)size : WORDS_MAX;
}

int idem_redis_reply_trouble(const redisReply *reply, const char *place,
                             struct idem_redis_trouble *trouble)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return idem_redis_trouble_set(trouble, IDEM_ERR_IO, false,
                                      "Redis at %s gave an answer that has no meaning here: see "
                                      "that nothing stands between it and idem",
                                      place);
    for (size_t i = 0; i < sizeof complaints / sizeof complaints[0]; i++) {
        const struct complaint *complaint = &complaints[i];

        if (idem_redis_reply_is_error(reply, complaint->words))
            return idem_redis_trouble_set(trouble, complaint->error, complaint->again,
                                          "Redis at %s %s (%.*s)", place, complaint->sentence,
                                          words_size(reply), reply->str);
    }
    return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, false,
                                  "Redis at %s answered with an error that idem does not expect: "
                                  "see what it says (%.*s)",
                                  place, words_size(reply), reply->str);
}

bool idem_redis_reply_is_unknown(const redisReply *reply)
{
    return idem_redis_reply_is_error(reply, "ERR unknown command");
}

int idem_redis_sentinel_missed(const char *place, const redisReply *reply,
                               struct idem_redis_trouble *trouble)
{
    return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                  "what listens at %s is no Sentinel: name the sentinels, whose "
                                  "port is 26379 unless set otherwise, or write redis: or "
                                  "redis+cluster: in the store's URL (%.*s)",
                                  place, words_size(reply), reply->str);
}

int idem_redis_sentinel_met(const char *place, struct idem_redis_trouble *trouble)
{
    return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                  "what listens at %s is a Sentinel and keeps no data: write "
                                  "redis+sentinel://%s/NAME in the store's URL, with the name of "
                                  "its master",
                                  place, place);
}

/* What the letters of scripts stand for. */
static enum idem_result result_of(int letter)
{
    static const struct {
        char letter;
        enum idem_result result;
    } letters[] = {
        {'A', IDEM_RESULT_ACQUIRED},  {'P', IDEM_RESULT_IN_PROGRESS},
        {'C', IDEM_RESULT_COMPLETED}, {'U', IDEM_RESULT_UNKNOWN},
        {'M', IDEM_RESULT_MISMATCH},  {'S', IDEM_RESULT_OTHER_PRINCIPAL},
        {'E', IDEM_RESULT_ENDED},     {'K', IDEM_RESULT_OK},
        {'L', IDEM_RESULT_LOST},      {'F', IDEM_RESULT_FOUND},
        {'N', IDEM_RESULT_ABSENT},    {'D', IDEM_RESULT_CHANGED},
        {'R', IDEM_RESULT_REFUSED},   {'X', IDEM_RESULT_CORRUPT},
    };

    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (letters[i].letter == letter)
            return letters[i].result;
    return IDEM_RESULT_NONE;
}

/* The numbers of a script's answer. */
struct said {
    enum idem_result result;
    int64_t now_us;
    uint64_t fence;
    uint32_t number; /* attempt, or the state that a person's op met */
    int64_t more;
};

static bool said_read(const redisReply *reply, struct said *ret_said)
{
    struct idem_reader reader;
    struct said said = {0};

    if (reply->type != REDIS_REPLY_STRING)
        return false;
    idem_reader_init(&reader, idem_bytes_make(reply->str, reply->len));
    said.result = result_of(idem_read_u8(&reader));
    said.now_us = (int64_t)idem_read_u64(&reader);
    if (reader.left > 0) {
        said.fence = idem_read_u64(&reader);
        said.number = idem_read_u32(&reader);
        said.more = (int64_t)idem_read_u64(&reader);
    }
    if (reader.failed || reader.left > 0 || said.result == IDEM_RESULT_NONE)
        return false;
    *ret_said = said;
    return true;
}

static void said_tell(struct idem_redis_item *item, const struct said *said)
{
    struct idem_op *op = item->op;

    op->result = said->result;
    op->out.now_us = said->now_us;
    switch (said->result) {
    case IDEM_RESULT_ACQUIRED:
    case IDEM_RESULT_IN_PROGRESS:
    case IDEM_RESULT_UNKNOWN:
        op->out.fence = said->fence;
        op->out.attempt = said->number;
        if (said->result == IDEM_RESULT_IN_PROGRESS)
            op->out.retry_after_us = said->more;
        else if (said->result == IDEM_RESULT_UNKNOWN)
            op->out.since_us = said->more;
        break;
    case IDEM_RESULT_OK:
        if (op->kind == IDEM_OP_COMPLETE)
            op->out.tombstoned = said->more == IDEM_REASON_NO_ROOM;
        break;
    default:
        break;
    }
    item->fence = said->fence;
    item->was = (enum idem_state)said->number;
    item->acted = said->result == IDEM_RESULT_OK && said->more == 1;
}

/* {answer, record} of claim and get. */
static int found_read(struct idem_redis_item *item, const redisReply *bytes,
                      struct idem_redis_trouble *trouble)
{
    struct idem_bytes blob = idem_bytes_make(bytes->str, bytes->len);
    struct idem_op *op = item->op;
    struct idem_record record;
    bool gone = false;

    if (idem_redis_record_decode(&op->id, blob, &record, &gone) || gone) {
        op->result = IDEM_RESULT_CORRUPT;
        return IDEM_OK;
    }
    if (idem_record_keep(&record, blob, op->out.now_us, &op->out.found))
        return idem_redis_trouble_memory(trouble);
    return IDEM_OK;
}

/* One [id, [field, blob]] of a stream. False when it is none of ours. */
static bool entry_read(const redisReply *entry, struct idem_audit_page *page, int *ret_error)
{
    const redisReply *fields;
    int64_t at_us;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
        entry->element[0]->type != REDIS_REPLY_STRING ||
        entry->element[1]->type != REDIS_REPLY_ARRAY)
        return false;
    fields = entry->element[1];
    if (fields->elements != 2 || fields->element[1]->type != REDIS_REPLY_STRING)
        return false;
    at_us = (int64_t)strtoull(entry->element[0]->str, NULL, 10);
    *ret_error = idem_audit_page_add(
        page, idem_bytes_make(fields->element[1]->str, fields->element[1]->len), at_us);
    return *ret_error != IDEM_ERR_CORRUPT;
}

static int audit_read(struct idem_redis_item *item, const redisReply *entries, const char *place,
                      struct idem_redis_trouble *trouble)
{
    struct idem_op *op = item->op;
    struct idem_audit_page page;
    int error = idem_audit_page_init(&page, op->in.audit.limit);

    for (size_t i = 0; !error && i < entries->elements && i < op->in.audit.limit; i++)
        if (!entry_read(entries->element[i], &page, &error)) {
            idem_audit_page_free(&page);
            return idem_redis_trouble_set(trouble, IDEM_ERR_CORRUPT, false,
                                          "the audit in Redis at %s holds an entry that idem did "
                                          "not write",
                                          place);
        }
    if (error) {
        idem_audit_page_free(&page);
        return idem_redis_trouble_memory(trouble);
    }
    idem_audit_page_finish(&page, entries->elements > op->in.audit.limit, op);
    return IDEM_OK;
}

static int pair_read(struct idem_redis_item *item, const redisReply *reply, const char *place,
                     struct idem_redis_trouble *trouble)
{
    const redisReply *second = reply->element[1];
    struct said said;

    if (!said_read(reply->element[0], &said))
        return idem_redis_reply_trouble(reply, place, trouble);
    said_tell(item, &said);
    if (item->op->kind == IDEM_OP_AUDIT && second->type == REDIS_REPLY_ARRAY)
        return audit_read(item, second, place, trouble);
    if (idem_op_wants_record(item->op) && second->type == REDIS_REPLY_STRING)
        return found_read(item, second, trouble);
    return idem_redis_reply_trouble(reply, place, trouble);
}

/* The key holds something that is no record, or ends within one, where the script read on. */
static bool error_is_damage(const redisReply *reply)
{
    return idem_redis_reply_is_error(reply, "WRONGTYPE") ||
           strstr(reply->str, "data string too short") != NULL;
}

/* An error that is a result of this very op. */
static bool error_is_result(struct idem_op *op, const redisReply *reply)
{
    bool starts = op->kind == IDEM_OP_CLAIM || op->kind == IDEM_OP_PUT;

    if (starts && idem_redis_reply_is_error(reply, "OOM"))
        op->result = IDEM_RESULT_FULL;
    else if (op->kind != IDEM_OP_AUDIT && error_is_damage(reply))
        op->result = IDEM_RESULT_CORRUPT;
    return op->result != IDEM_RESULT_NONE;
}

int idem_redis_reply_read(struct idem_redis_item *item, const redisReply *reply, const char *place,
                          struct idem_redis_trouble *trouble)
{
    struct idem_op *op = item->op;
    struct said said;

    if (reply->type == REDIS_REPLY_ERROR && error_is_result(op, reply))
        return IDEM_OK;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        return pair_read(item, reply, place, trouble);
    if (!said_read(reply, &said))
        return idem_redis_reply_trouble(reply, place, trouble);
    said_tell(item, &said);
    if (idem_op_wants_record(op) || op->kind == IDEM_OP_AUDIT)
        return idem_redis_reply_trouble(reply, place, trouble);
    return IDEM_OK;
}
