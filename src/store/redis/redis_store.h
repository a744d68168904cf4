/*
 * The Redis store's own files. What a batch goes through, from the front's call down to a socket:
 *
 *   redis.c    what the front calls; repeats a batch while its time lasts
 *   batch.c    one batch: routed, sent to every node, read back; redirected ops go again
 *   person.c   resolve and forget in a cluster, where the audit lives in another slot
 *   op.c       one op as a command        reply.c   a reply as the op's result
 *   record.c   the bytes of a record      script*.c what Redis does with them, one script an op
 *   route.c    which node has a key       sentinel.c, cluster.c  how nodes are found, slot.c
 *   login.c    a new connection proves that it may be trusted; settings.c judges what it showed
 *   link.c     one connection: bytes and replies within a deadline; tls.c, request.c
 *   salt.c, scan.c, describe.c, options.c  as they say
 *
 * Functions return 0 or a negative enum idem_error with the sentence in a struct
 * idem_redis_trouble, which also tells whether repeating the whole batch may help. All lengths of
 * time are microseconds; deadlines are instants of the monotonic clock.
 */
#ifndef IDEM_STORE_REDIS_STORE_H
#define IDEM_STORE_REDIS_STORE_H

#include <hiredis.h>
#include <sys/types.h>

#include <idem/store.h>

#include "store/server.h"

#define IDEM_REDIS_PREFIX_MAX   64
#define IDEM_REDIS_SOCKET_MAX   108 /* what the system takes as the path of a socket */
#define IDEM_REDIS_NODES_MAX    256 /* masters of a cluster */
#define IDEM_REDIS_SLOTS        16384
#define IDEM_REDIS_REPLICAS_MAX 64
#define IDEM_REDIS_KEY_MAX      (IDEM_REDIS_PREFIX_MAX + IDEM_ID_TEXT_SIZE)

enum idem_redis_topology {
    IDEM_REDIS_SINGLE,
    IDEM_REDIS_SENTINEL,
    IDEM_REDIS_CLUSTER,
};

struct idem_redis_options {
    enum idem_redis_topology topology;
    bool tls, sync;
    struct idem_server server;          /* user, password and hosts */
    char socket[IDEM_REDIS_SOCKET_MAX]; /* not empty: in place of the host */
    char master[IDEM_SERVER_TEXT_MAX];  /* the name that sentinels know it by */
    char sentinel_user[IDEM_SERVER_TEXT_MAX], sentinel_password[IDEM_SERVER_TEXT_MAX];
    char tls_ca[IDEM_SERVER_TEXT_MAX], tls_cert[IDEM_SERVER_TEXT_MAX],
        tls_key[IDEM_SERVER_TEXT_MAX];
    unsigned database;
    char prefix[IDEM_REDIS_PREFIX_MAX + 1];
    unsigned replicas; /* acknowledgements that a batch waits for */
    int64_t timeout_us;
};

/* Why something failed. */
struct idem_redis_trouble {
    int error;  /* negative */
    bool again; /* the same batch may succeed a moment later, perhaps elsewhere */
    struct idem_message message;
};

/* Fills the trouble and returns its error. */
int idem_redis_trouble_set(struct idem_redis_trouble *trouble, int error, bool again,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));
int idem_redis_trouble_memory(struct idem_redis_trouble *trouble);

int64_t idem_redis_now_us(void); /* monotonic */

/* options.c. A sentence never holds a password. */
IDEM_MUST_CHECK int idem_redis_options_read(const struct idem_url *url,
                                            struct idem_redis_options *ret_options,
                                            struct idem_message *message);

/* request.c: commands on their way, as bytes of the protocol. An append that finds no memory sets
 * `failed`, which is looked at once, before sending. */
struct idem_redis_request {
    uint8_t *bytes;
    size_t size, capacity;
    bool failed;
};

void idem_redis_request_deinit(struct idem_redis_request *request);
void idem_redis_request_clear(struct idem_redis_request *request);
void idem_redis_request_begin(struct idem_redis_request *request, size_t words);
void idem_redis_request_bytes(struct idem_redis_request *request, struct idem_bytes word);
void idem_redis_request_text(struct idem_redis_request *request, const char *word);
void idem_redis_request_number(struct idem_redis_request *request, uint64_t word);
/* A word of `size` bytes for the caller to fill before the next append; NULL when failed. */
uint8_t *idem_redis_request_word(struct idem_redis_request *request, size_t size);
/* A whole command of texts, at most 8, up to a NULL. */
void idem_redis_request_texts(struct idem_redis_request *request, const char *const *words);

/* Where a server listens. */
struct idem_redis_address {
    char host[IDEM_SERVER_TEXT_MAX]; /* or the path of a socket */
    uint16_t port;                   /* 0 for a socket */
};

#define IDEM_REDIS_PLACE_SIZE (IDEM_SERVER_TEXT_MAX + 8)

/* "host:port" for people. */
void idem_redis_address_format(const struct idem_redis_address *address,
                               char ret_text[IDEM_REDIS_PLACE_SIZE]);
bool idem_redis_address_equal(const struct idem_redis_address *a,
                              const struct idem_redis_address *b);

/* link.c: one connection. After any failure it is closed: a late reply must not be taken for the
 * next one. */
struct idem_redis_link {
    redisContext *context; /* NULL: closed */
    char place[IDEM_REDIS_PLACE_SIZE];
    bool heard; /* whoever is there has answered something */
};

IDEM_MUST_CHECK int idem_redis_link_open(struct idem_redis_link *link,
                                         const struct idem_redis_options *options,
                                         const struct idem_redis_address *address,
                                         int64_t deadline_us, struct idem_redis_trouble *trouble);
void idem_redis_link_close(struct idem_redis_link *link);
IDEM_MUST_CHECK int idem_redis_link_send(struct idem_redis_link *link,
                                         const struct idem_redis_request *request,
                                         int64_t deadline_us, struct idem_redis_trouble *trouble);
/* The caller frees the reply, which may be an error reply. */
IDEM_MUST_CHECK int idem_redis_link_receive(struct idem_redis_link *link, int64_t deadline_us,
                                            redisReply **ret_reply,
                                            struct idem_redis_trouble *trouble);
/* Sends one command of texts and receives its reply. */
IDEM_MUST_CHECK int idem_redis_link_ask(struct idem_redis_link *link, const char *const *words,
                                        int64_t deadline_us, redisReply **ret_reply,
                                        struct idem_redis_trouble *trouble);

/* A peer that has gone must be an error and not a signal: of this thread, between begin and end. */
struct idem_redis_quiet {
    bool blocked; /* by us, and so to be let through again */
};

void idem_redis_quiet_begin(struct idem_redis_quiet *quiet);
void idem_redis_quiet_end(const struct idem_redis_quiet *quiet);

/* tls.c, or tls_none.c where hiredis knows no TLS. */
IDEM_MUST_CHECK int idem_redis_tls_start(redisContext *context,
                                         const struct idem_redis_options *options, const char *host,
                                         struct idem_redis_trouble *trouble);
extern const bool idem_redis_tls_known;

/* What a server showed of itself when it was connected. */
struct idem_redis_settings {
    char version[24];
    bool valkey, sentinel, cluster, master;
    char run_id[48];
    bool config_seen; /* CONFIG GET is allowed */
    char policy[32];  /* maxmemory-policy, empty: not seen */
    uint64_t maxmemory, used_memory;
    bool aof;
    char fsync[16];        /* appendfsync, empty: not seen */
    bool fsync_suspended;  /* no-appendfsync-on-rewrite */
    unsigned replicas;     /* connected */
    unsigned replicas_min; /* min-replicas-to-write */
};

struct idem_redis_scripts;

/* login.c: authenticates a new connection, looks at the server and loads the scripts. */
IDEM_MUST_CHECK int idem_redis_login(struct idem_redis_link *link,
                                     const struct idem_redis_options *options, int64_t deadline_us,
                                     struct idem_redis_settings *ret_settings,
                                     struct idem_redis_scripts *scripts,
                                     struct idem_redis_trouble *trouble);
IDEM_MUST_CHECK int idem_redis_login_scripts(struct idem_redis_link *link,
                                             struct idem_redis_scripts *scripts,
                                             int64_t deadline_us,
                                             struct idem_redis_trouble *trouble);
/* As the store's user. */
IDEM_MUST_CHECK int idem_redis_login_begin(struct idem_redis_link *link,
                                           const struct idem_redis_options *options,
                                           int64_t deadline_us, struct idem_redis_trouble *trouble);
IDEM_MUST_CHECK int idem_redis_authenticate(struct idem_redis_link *link, const char *user,
                                            const char *password, int64_t deadline_us,
                                            struct idem_redis_trouble *trouble);

/* settings.c */
void idem_redis_settings_info(struct idem_redis_settings *settings, const redisReply *info);
void idem_redis_settings_config(struct idem_redis_settings *settings, const redisReply *config);
IDEM_MUST_CHECK int idem_redis_settings_judge(const struct idem_redis_settings *settings,
                                              const struct idem_redis_options *options,
                                              const char *place,
                                              struct idem_redis_trouble *trouble);

/* script.c: what Redis does, one script an op. */
enum idem_redis_script {
    IDEM_REDIS_SCRIPT_CLAIM,
    IDEM_REDIS_SCRIPT_RENEW,
    IDEM_REDIS_SCRIPT_COMPLETE,
    IDEM_REDIS_SCRIPT_FAIL,
    IDEM_REDIS_SCRIPT_ABANDON,
    IDEM_REDIS_SCRIPT_GET,
    IDEM_REDIS_SCRIPT_RESOLVE,
    IDEM_REDIS_SCRIPT_FORGET,
    IDEM_REDIS_SCRIPT_PUT,
    IDEM_REDIS_SCRIPT_AUDIT,
    IDEM_REDIS_SCRIPT_AUDIT_ADD,
    IDEM_REDIS_SCRIPT_SWEEP,
    IDEM_REDIS_SCRIPT_UNDO,
    IDEM_REDIS_SCRIPT_MARK,
    IDEM_REDIS_SCRIPT_COUNT,
};

#define IDEM_REDIS_SHA_SIZE 40

/* What SCRIPT LOAD answered; every server gives the same text the same name. */
struct idem_redis_scripts {
    char sha[IDEM_REDIS_SCRIPT_COUNT][IDEM_REDIS_SHA_SIZE + 1];
};

extern const char *const idem_redis_script_texts[IDEM_REDIS_SCRIPT_COUNT];

/* record.c: the bytes of a record, and of its parts, which scripts put together. */
#define IDEM_REDIS_HEAD_SIZE     55 /* state, fence, instants: what scripts read and write */
#define IDEM_REDIS_IDENTITY_SIZE (IDEM_OWNER_SIZE + 2 * (1 + IDEM_DIGEST_SIZE))
#define IDEM_REDIS_EXACT_MAX     (INT64_C(1) << 53) /* numbers below are exact in a script */

struct idem_writer;

/* owner, digests and what the claim told; an empty resolution ends it. */
size_t idem_redis_claim_size(const struct idem_record *record);
void idem_redis_claim_write(struct idem_writer *writer, const struct idem_record *record);
size_t idem_redis_answer_size(const struct idem_answer *answer);
void idem_redis_answer_write(struct idem_writer *writer, const struct idem_answer *answer);
size_t idem_redis_people_size(struct idem_bytes who, struct idem_bytes why);
void idem_redis_people_write(struct idem_writer *writer, struct idem_bytes who,
                             struct idem_bytes why);
/* A whole record. IDEM_ERR_UNSUPPORTED when a number is too large for scripts. */
IDEM_MUST_CHECK int idem_redis_record_size(const struct idem_record *record, size_t *ret_size);
void idem_redis_record_write(struct idem_writer *writer, const struct idem_record *record);
/* Views into the blob. IDEM_ERR_CORRUPT when it is no whole record. *ret_gone: it was forgotten,
 * only its fence is left. */
IDEM_MUST_CHECK int idem_redis_record_decode(const struct idem_id *id, struct idem_bytes blob,
                                             struct idem_record *ret_record, bool *ret_gone);

/* Keys. */
void idem_redis_key_record(const struct idem_redis_options *options, const struct idem_id *id,
                           char ret_key[IDEM_REDIS_KEY_MAX]);
void idem_redis_key_named(const struct idem_redis_options *options, const char *name,
                          char ret_key[IDEM_REDIS_KEY_MAX]);
#define IDEM_REDIS_NAME_SALT  "salt"
#define IDEM_REDIS_NAME_AUDIT "audit"

/* slot.c: where a cluster keeps a key. */
unsigned idem_redis_slot(const char *key);

/* One op in a batch. */
enum idem_redis_stage {
    IDEM_REDIS_STAGE_ACT,       /* the op itself */
    IDEM_REDIS_STAGE_LOOK,      /* in a cluster, a person's op: would it act? */
    IDEM_REDIS_STAGE_RECORD,    /* it would: its audit entry is written first */
    IDEM_REDIS_STAGE_TAKE_BACK, /* it did not after all: the entry goes again */
    IDEM_REDIS_STAGE_UNDO, /* in a cluster: a record that was written under a salt that is gone */
};

struct idem_redis_node;

struct idem_redis_item {
    struct idem_op *op;
    enum idem_redis_stage stage;
    bool done, again;        /* again: was redirected, and so must what follows on its id */
    struct idem_owner token; /* of a forget: known again when it is repeated */
    bool acted;              /* a person's op: it would act, or has acted */
    bool asking;             /* sent with ASKING before it */
    unsigned redirects;
    struct idem_redis_address ask; /* where an ASK sent it, once; port 0: nowhere */
    uint64_t fence;                /* of the record that a person's op met */
    enum idem_state was;           /* its state */
    char entry[32];                /* id of its audit entry */
};

/* A server that holds records. */
struct idem_redis_node {
    struct idem_redis_address address;
    struct idem_redis_link link;
    struct idem_redis_settings settings;
    struct idem_redis_request request;
    /* Whose replies are to come, in this order; one more than a batch has looks at the salt. */
    struct idem_redis_item *sent[IDEM_BATCH_MAX + 1];
    size_t sent_count;
    char mark[IDEM_REDIS_KEY_MAX]; /* a key in a slot of its own, to be written before WAIT */
    unsigned slots;                /* in a cluster: how many it serves */
    bool worked;                   /* a batch went well since it was connected */
};

struct idem_backend {
    struct idem_redis_options options;
    struct idem_salt salt;
    struct idem_redis_scripts scripts;
    pid_t pid;
    bool made;                                           /* by this opening */
    bool down;                                           /* the last call did not get through */
    struct idem_redis_node *nodes[IDEM_REDIS_NODES_MAX]; /* one, unless a cluster */
    size_t node_count;
    uint16_t *slots; /* of a cluster: index of the node that serves each, plus 1 */
    bool map_stale;
    bool differs; /* the batch met another salt */
    uint64_t map_hash;
    struct idem_redis_item items[IDEM_BATCH_MAX];
    size_t item_count;
    struct idem_op check_op;      /* a sweep, which looks at the salt where that lives … */
    struct idem_redis_item check; /* … for ops that cannot */
};

/* route.c */
IDEM_MUST_CHECK int idem_redis_route(struct idem_backend *store, const char *key,
                                     int64_t deadline_us, struct idem_redis_node **ret_node,
                                     struct idem_redis_trouble *trouble);
/* Sends one command about a key to where it lives, and receives its reply, and who gave it. */
IDEM_MUST_CHECK int idem_redis_route_ask(struct idem_backend *store, const char *key,
                                         const struct idem_redis_request *request,
                                         int64_t deadline_us, redisReply **ret_reply,
                                         struct idem_redis_node **ret_node,
                                         struct idem_redis_trouble *trouble);
/* Connects a node if it is not; in a cluster, reads the map first. */
IDEM_MUST_CHECK int idem_redis_route_connect(struct idem_backend *store,
                                             struct idem_redis_node *node, int64_t deadline_us,
                                             struct idem_redis_trouble *trouble);
/* Makes all nodes known, though not connected. */
IDEM_MUST_CHECK int idem_redis_route_prepare(struct idem_backend *store, int64_t deadline_us,
                                             struct idem_redis_trouble *trouble);
IDEM_MUST_CHECK int idem_redis_node_add(struct idem_backend *store,
                                        const struct idem_redis_address *address,
                                        struct idem_redis_node **ret_node,
                                        struct idem_redis_trouble *trouble);
void idem_redis_node_free(struct idem_redis_node *node);
/* Closes what has replies to come, or all. */
void idem_redis_route_drop(struct idem_backend *store, bool all);

/* sentinel.c: where the master is. */
IDEM_MUST_CHECK int idem_redis_sentinel_find(const struct idem_redis_options *options,
                                             int64_t deadline_us,
                                             struct idem_redis_address *ret_address,
                                             struct idem_redis_trouble *trouble);

/* cluster.c: reads the slot map from any node that tells it. */
IDEM_MUST_CHECK int idem_redis_cluster_read(struct idem_backend *store, int64_t deadline_us,
                                            struct idem_redis_trouble *trouble);
/* One slot, as a MOVED told. */
IDEM_MUST_CHECK int idem_redis_cluster_moved(struct idem_backend *store, unsigned slot,
                                             const struct idem_redis_address *address,
                                             struct idem_redis_trouble *trouble);

/* op.c: appends the command of one item's stage. */
IDEM_MUST_CHECK int idem_redis_op_encode(const struct idem_backend *store,
                                         const struct idem_redis_item *item,
                                         struct idem_redis_request *request,
                                         struct idem_redis_trouble *trouble);
/* The key that decides where it goes. */
void idem_redis_op_key(const struct idem_backend *store, const struct idem_redis_item *item,
                       char ret_key[IDEM_REDIS_KEY_MAX]);

/* reply.c */
enum idem_redis_redirect {
    IDEM_REDIS_REDIRECT_NONE,
    IDEM_REDIS_REDIRECT_SCRIPTS, /* the server has forgotten its scripts */
    IDEM_REDIS_REDIRECT_MOVED,
    IDEM_REDIS_REDIRECT_ASK,
};

/* An error reply that says where or how to go on, with slot and address where it names one. */
enum idem_redis_redirect idem_redis_reply_redirect(const redisReply *reply, const char *host,
                                                   unsigned *ret_slot,
                                                   struct idem_redis_address *ret_address);
/* Any other error reply as trouble. */
int idem_redis_reply_trouble(const redisReply *reply, const char *place,
                             struct idem_redis_trouble *trouble);
bool idem_redis_reply_is_error(const redisReply *reply, const char *word);
/* The server knows no such command, as a server of another sort does not. */
bool idem_redis_reply_is_unknown(const redisReply *reply);
/* Where a Sentinel was to be is none; where Redis was to be, a Sentinel is. IDEM_ERR_INVALID. */
int idem_redis_sentinel_missed(const char *place, const redisReply *reply,
                               struct idem_redis_trouble *trouble);
int idem_redis_sentinel_met(const char *place, struct idem_redis_trouble *trouble);
/* The result of an op's own script. IDEM_ERR_IO when it is none that a script gives. */
IDEM_MUST_CHECK int idem_redis_reply_read(struct idem_redis_item *item, const redisReply *reply,
                                          const char *place, struct idem_redis_trouble *trouble);

/* person.c: in a cluster, what comes of a reply to an item that is not at its last stage. */
bool idem_redis_person_staged(const struct idem_backend *store, const struct idem_op *op);
IDEM_MUST_CHECK int idem_redis_person_reply(struct idem_redis_item *item, const redisReply *reply,
                                            const char *place, struct idem_redis_trouble *trouble);
void idem_redis_person_acted(struct idem_redis_item *item);

/* batch.c: applies all items once. Begin sets them up for the ops, reset makes them anew. */
void idem_redis_items_begin(struct idem_backend *store, struct idem_op *const *ops, size_t count);
void idem_redis_items_reset(struct idem_backend *store);
IDEM_MUST_CHECK int idem_redis_batch_run(struct idem_backend *store, int64_t deadline_us,
                                         struct idem_redis_trouble *trouble);

/* salt.c */
IDEM_MUST_CHECK int idem_redis_salt_keep(struct idem_backend *store, int64_t deadline_us,
                                         struct idem_salt *ret_salt,
                                         struct idem_redis_trouble *trouble);
/* The node no longer holds the store that was opened. IDEM_ERR_UNSAFE. */
int idem_redis_salt_differs(const struct idem_backend *store, const struct idem_redis_node *node,
                            struct idem_redis_trouble *trouble);
IDEM_MUST_CHECK int idem_redis_salt_adopt(struct idem_backend *store, const struct idem_salt *salt,
                                          int64_t deadline_us, struct idem_redis_trouble *trouble);

/* scan.c */
IDEM_MUST_CHECK int idem_redis_scan(struct idem_backend *store, struct idem_op *op,
                                    int64_t deadline_us, struct idem_redis_trouble *trouble);

/* describe.c */
size_t idem_redis_describe(struct idem_backend *store, struct idem_store_fact *facts, size_t max);

#endif
