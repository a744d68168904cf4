
/*
 * Copyright (C) The idem authors
 *
 * The nginx module: a driver of the exchange (idem/exchange.h).
 *
 *   1. request.c   precontent handler: key, then body, then the REQUEST event;
 *                  identity.c: scope, fingerprint, principal; redirect.c:
 *                  what comes by again
 *   2. driver.c    executes the effects of the exchange
 *   3. filter.c    holds the answer until it is recorded; capture.c copies it;
 *                  evidence.c: what nginx knows of the upstream side
 *   4. answer.c    replays and refusals; headers.c: lists of header lines
 *   5. store.c     one executor a store and worker, and the jobs on it
 *   6. conf.c      directives; source.c and value.c their values; check.c and
 *                  check_store.c what "nginx -t" refuses
 *
 * Everything runs on the worker's event loop; only the executor has a thread.
 */


#ifndef _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_
#define _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <idem/exchange.h>
#include <idem/executor.h>
#include <idem/key.h>


/* bytes of a store's place that a line of the log may have */
#define NGX_HTTP_IDEMPOTENCY_PLACE_SIZE      256

/*
 * How long a worker that ends waits for its stores, beside the executor's own
 * grace: together they are the second that "at once" may take.
 */
#define NGX_HTTP_IDEMPOTENCY_EXIT_TIMEOUT    700

/* how long a leaving worker waits for verdicts that nobody waits for */
#define NGX_HTTP_IDEMPOTENCY_DRAIN_TIMEOUT   30000

/* our bit in r->buffered, next to those of nginx's own filters */
#define NGX_HTTP_IDEMPOTENCY_BUFFERED        0x08

/* the places of words in what the commands allow, see conf.c */
#define NGX_HTTP_IDEMPOTENCY_ON              0
#define NGX_HTTP_IDEMPOTENCY_OFF             1
#define NGX_HTTP_IDEMPOTENCY_HOLD            0
#define NGX_HTTP_IDEMPOTENCY_RETRY           1
#define NGX_HTTP_IDEMPOTENCY_CLOSED          0
#define NGX_HTTP_IDEMPOTENCY_OPEN            1

/* in struct idem_answer flags: headers_out.location was set */
#define NGX_HTTP_IDEMPOTENCY_LOCATION        0x0001


typedef struct ngx_http_idempotency_ctx_s  ngx_http_idempotency_ctx_t;


/* what happened to a request, for $idempotency_outcome */

typedef enum {
    NGX_HTTP_IDEMPOTENCY_NONE = 0,
    NGX_HTTP_IDEMPOTENCY_EXECUTED,
    NGX_HTTP_IDEMPOTENCY_REPLAYED,
    NGX_HTTP_IDEMPOTENCY_IN_PROGRESS,
    NGX_HTTP_IDEMPOTENCY_MISMATCH,
    NGX_HTTP_IDEMPOTENCY_UNKNOWN,
    NGX_HTTP_IDEMPOTENCY_REFUSED,
    NGX_HTTP_IDEMPOTENCY_BYPASSED
} ngx_http_idempotency_outcome_e;


typedef struct {
    ngx_str_t                        name;
    ngx_str_t                        url;         /* null-terminated */
    ngx_str_t                        label;       /* for the log: no password */
    ngx_str_t                        directory;   /* of an embedded store */
    ngx_msec_t                       timeout;     /* of one result */
    ngx_uint_t                       remote;      /* a server keeps it */

    /* the worker's own */

    struct idem_executor            *executor;
    ngx_connection_t                *connection;  /* of the eventfd */
    ngx_event_t                      housekeeping;
    ngx_event_t                      drain;       /* keeps the worker alive */
    ngx_msec_t                       drain_until;
    ngx_uint_t                       background;  /* jobs nobody waits for */
    void                            *trace;       /* lines from the thread */
} ngx_http_idempotency_store_t;


/* a module of nginx's own that sends requests on */

typedef struct {
    ngx_module_t                    *module;      /* NULL: not in this nginx */
    ngx_http_handler_pt              handler;
} ngx_http_idempotency_peer_t;


#define NGX_HTTP_IDEMPOTENCY_PEERS   5


typedef struct {
    ngx_array_t                      stores; /* ngx_http_idempotency_store_t */
    ngx_http_idempotency_peer_t      peers[NGX_HTTP_IDEMPOTENCY_PEERS];
    ngx_uint_t                       guards;      /* guarded locations */
    ngx_uint_t                       broken;      /* no filters: see module.c */
    ngx_queue_t                      live;        /* of contexts */
} ngx_http_idempotency_main_conf_t;


typedef struct {
    ngx_http_complex_value_t        *value;
    ngx_str_t                        header;      /* "$http_*": its name */
    size_t                           max;
    enum idem_key_syntax             syntax;
    unsigned                         required:1;
} ngx_http_idempotency_key_t;


typedef struct {
    ngx_str_t                        statuses;
    enum idem_outcome                outcome;
} ngx_http_idempotency_rule_t;


typedef struct {
    ngx_str_t                        store_name;  /* data NULL: unset */
    ngx_http_idempotency_store_t    *store;       /* NULL: not guarded */

    ngx_http_idempotency_key_t      *key;
    ngx_http_complex_value_t        *scope;
    ngx_http_complex_value_t        *credential;  /* NULL: the default ones */
    ngx_uint_t                       credential_off;
    ngx_http_complex_value_t        *fingerprint; /* NULL: the default */
    ngx_uint_t                       methods;

    ngx_msec_t                       ttl;         /* 0: never */
    ngx_msec_t                       lease;
    ngx_msec_t                       unknown_ttl;
    size_t                           body_max;
    ngx_uint_t                       in_flight;
    ngx_uint_t                       unknown;
    ngx_array_t                     *outcomes;    /* of rules, NULL: none */
    ngx_uint_t                       close_delimited;
    ngx_array_t                     *hide_headers; /* of ngx_str_t, given */
    ngx_array_t                     *hidden;      /* these and the defaults */
    ngx_str_t                        replay_header;
    ngx_uint_t                       replay_status; /* 0: same */
    ngx_uint_t                       mismatch_status;
    ngx_uint_t                       fail;

    struct idem_policy               policy;      /* made at merge */
} ngx_http_idempotency_loc_conf_t;


/*
 * An answer under way to the store and to the client, held by both: malloc'd,
 * counted, freed by the last.
 */

typedef struct {
    ngx_uint_t                       refs;
    uint16_t                         flags;
    u_char                          *headers;     /* a block, see record.h */
    size_t                           headers_size;
    u_char                          *body;
    size_t                           body_size;
    size_t                           body_capacity;
} ngx_http_idempotency_answer_t;


struct ngx_http_idempotency_ctx_s {
    ngx_http_request_t              *request;
    ngx_http_idempotency_loc_conf_t *conf;        /* of the guarding location */
    ngx_queue_t                      live;
    ngx_queue_t                      jobs;

    struct idem_exchange             exchange;
    struct idem_fingerprinter        fingerprinter;
    ngx_str_t                        key;
    ngx_str_t                        scope;

    ngx_event_t                      deadline;    /* of the op waited for */
    ngx_event_t                      tick;
    enum idem_op_kind                waiting;     /* 0: for none */
    ngx_uint_t                      *gone;        /* 1 once it is freed */
    ngx_msec_t                       waiting_since;
    ngx_msec_t                       store_time;

    ngx_http_idempotency_answer_t   *answer;      /* captured */
    ngx_chain_t                     *pending;     /* not captured: overflow */
    ngx_chain_t                     *replacement; /* of what is held */
    ngx_http_idempotency_outcome_e   outcome;
    ngx_uint_t                       http_version; /* of the client */
    ngx_uint_t                       method;      /* that was guarded */
    struct idem_problem              refusal;     /* before there is a claim */

    unsigned                         error_page:1; /* saved while reading */
    unsigned                         hashing:1;   /* the body is being read */
    unsigned                         handling:1;  /* inside our handler */
    unsigned                         resume:1;    /* forward: run phases on */
    unsigned                         told:1;      /* attempt and fence pushed */
    unsigned                         held:1;      /* the header is held */
    unsigned                         upstreams:1; /* ... the upstream's own */
    unsigned                         failed:1;    /* ... after it failed */
    unsigned                         filtering:1; /* inside our filters */
    unsigned                         released:1;  /* may go out */
    unsigned                         replaced:1;  /* ... the replacement */
    unsigned                         flowing:1;   /* filters pass */
};


typedef struct {
    struct idem_job                  job;         /* first: see store.c */
    ngx_queue_t                      queue;       /* in ctx->jobs */
    ngx_http_idempotency_ctx_t      *ctx;         /* NULL: nobody waits */
    ngx_http_idempotency_store_t    *store;
    ngx_http_idempotency_answer_t   *answer;
} ngx_http_idempotency_job_t;


extern ngx_module_t  ngx_http_idempotency_module;


/* request.c */

ngx_int_t ngx_http_idempotency_handler(ngx_http_request_t *r);
ngx_http_idempotency_ctx_t *ngx_http_idempotency_get_ctx(
    ngx_http_request_t *r);
ngx_int_t ngx_http_idempotency_tell_upstream(ngx_http_idempotency_ctx_t *ctx,
    uint32_t attempt, uint64_t fence);
ngx_int_t ngx_http_idempotency_internal_error(ngx_http_request_t *r);
void ngx_http_idempotency_request_init(void);

/* redirect.c */

ngx_int_t ngx_http_idempotency_again(ngx_http_idempotency_ctx_t *ctx);

/* identity.c */

ngx_int_t ngx_http_idempotency_fields(ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_hash_body(ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_principal(ngx_http_idempotency_ctx_t *ctx,
    struct idem_principal *principal);

/* driver.c */

void ngx_http_idempotency_step(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event);
void ngx_http_idempotency_store_result(ngx_http_idempotency_ctx_t *ctx,
    struct idem_op *op);
void ngx_http_idempotency_store_failed(ngx_http_idempotency_ctx_t *ctx,
    enum idem_op_kind kind, ngx_uint_t not_applied);
void ngx_http_idempotency_start(ngx_http_idempotency_ctx_t *ctx);
void ngx_http_idempotency_abort(ngx_http_idempotency_ctx_t *ctx);
void ngx_http_idempotency_cleanup(void *data);

/* capture.c */

ngx_int_t ngx_http_idempotency_head(ngx_http_idempotency_ctx_t *ctx);
ngx_int_t ngx_http_idempotency_body(ngx_http_idempotency_ctx_t *ctx,
    ngx_chain_t *in);

/* filter.c */

void ngx_http_idempotency_filter_init(void);
void ngx_http_idempotency_filter_remember(void);
ngx_uint_t ngx_http_idempotency_filter_intact(void);
void ngx_http_idempotency_release(ngx_http_idempotency_ctx_t *ctx,
    ngx_uint_t unrecorded);
void ngx_http_idempotency_send(ngx_http_idempotency_ctx_t *ctx,
    ngx_str_t *body);
void ngx_http_idempotency_answer_free(ngx_http_idempotency_answer_t *answer);

/* answer.c */

ngx_int_t ngx_http_idempotency_refuse(ngx_http_request_t *r,
    struct idem_problem *problem);
void ngx_http_idempotency_refuse_exchange(ngx_http_idempotency_ctx_t *ctx,
    struct idem_problem *problem);
void ngx_http_idempotency_replay(ngx_http_idempotency_ctx_t *ctx,
    struct idem_op *op);

/* headers.c */

ngx_uint_t ngx_http_idempotency_header_find(ngx_list_t *list, ngx_str_t *name,
    ngx_str_t *value);
void ngx_http_idempotency_header_hide(ngx_list_t *list, ngx_str_t *name);
ngx_int_t ngx_http_idempotency_header_push(ngx_http_request_t *r,
    ngx_list_t *list, ngx_str_t *name, ngx_str_t *value);
ngx_int_t ngx_http_idempotency_header_remove(ngx_http_request_t *r,
    ngx_list_t *list, ngx_str_t *name);
ngx_int_t ngx_http_idempotency_headers_capture(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_answer_t *answer);
ngx_int_t ngx_http_idempotency_headers_restore(ngx_http_request_t *r,
    const struct idem_answer *answer);

/* evidence.c */

enum idem_evidence ngx_http_idempotency_evidence(
    ngx_http_idempotency_ctx_t *ctx);
ngx_uint_t ngx_http_idempotency_answered(ngx_http_request_t *r);
ngx_uint_t ngx_http_idempotency_whole(ngx_http_request_t *r, size_t size,
    ngx_uint_t close_delimited);
enum idem_outcome ngx_http_idempotency_declared(ngx_http_request_t *r);

/* store.c */

ngx_int_t ngx_http_idempotency_store_init(ngx_cycle_t *cycle,
    ngx_http_idempotency_store_t *store);
void ngx_http_idempotency_store_exit(ngx_http_idempotency_store_t *store,
    ngx_msec_t wait);
ngx_int_t ngx_http_idempotency_submit(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect);
void ngx_http_idempotency_hold_worker(ngx_http_idempotency_store_t *store);
void ngx_http_idempotency_jobs_detach(ngx_http_idempotency_ctx_t *ctx);

/* value.c */

char *ngx_http_idempotency_bad_value(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value);
char *ngx_http_idempotency_bad_count(ngx_conf_t *cf, ngx_command_t *cmd);
ngx_uint_t ngx_http_idempotency_token(ngx_str_t *value);
ngx_uint_t ngx_http_idempotency_is(ngx_str_t *value, const char *word);

/*
 * source.c, value.c: the setters, each told by its command's "post" what is
 * allowed
 */

ngx_http_idempotency_store_t *ngx_http_idempotency_store_by_name(
    ngx_http_idempotency_main_conf_t *imcf, ngx_str_t *name);

char *ngx_http_idempotency_set_store(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_guard(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_scope(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_credential(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_time(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_ttl(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_word(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_outcome(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_body_max(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_hide(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_header(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_idempotency_set_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* conf.c, check.c */

extern ngx_command_t  ngx_http_idempotency_commands[];

void *ngx_http_idempotency_create_main_conf(ngx_conf_t *cf);
void *ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
char *ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
char *ngx_http_idempotency_check_store(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
ngx_int_t ngx_http_idempotency_find_peers(ngx_conf_t *cf);

/* variable.c */

ngx_int_t ngx_http_idempotency_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_IDEMPOTENCY_MODULE_H_INCLUDED_ */
