/*
 * Op: one operation on a store, its inputs and what it answered. The contract of every store
 * (docs/guide/contract.md tells it as rules, test/contract checks them all).
 *
 * An op is filled by the caller, applied by idem_store_apply(), read by the caller, and released
 * with idem_op_deinit(). Input views are borrowed until the op has been applied.
 */
#ifndef IDEM_OP_H
#define IDEM_OP_H

#include <idem/record.h>

enum idem_op_kind {
    IDEM_OP_CLAIM = 1,
    IDEM_OP_RENEW,
    IDEM_OP_COMPLETE, /* the three verdicts … */
    IDEM_OP_FAIL,
    IDEM_OP_ABANDON, /* … end here */
    IDEM_OP_GET,
    IDEM_OP_SCAN,
    IDEM_OP_RESOLVE,
    IDEM_OP_FORGET,
    IDEM_OP_SWEEP,
    IDEM_OP_AUDIT,
    IDEM_OP_PUT,
};

#define IDEM_OP_COUNT (IDEM_OP_PUT + 1)

const char *idem_op_kind_text(enum idem_op_kind kind);

/* What one op came to. Which can follow which op stands at the op's input below. */
enum idem_result {
    IDEM_RESULT_NONE = 0, /* not applied (yet) */
    IDEM_RESULT_OK,
    IDEM_RESULT_ACQUIRED,
    IDEM_RESULT_IN_PROGRESS,
    IDEM_RESULT_COMPLETED,
    IDEM_RESULT_UNKNOWN,
    IDEM_RESULT_MISMATCH,
    IDEM_RESULT_OTHER_PRINCIPAL,
    IDEM_RESULT_ENDED,
    IDEM_RESULT_FULL,
    IDEM_RESULT_LOST,
    IDEM_RESULT_FOUND,
    IDEM_RESULT_ABSENT,
    IDEM_RESULT_CHANGED,
    IDEM_RESULT_REFUSED,
    IDEM_RESULT_CORRUPT, /* the record is damaged and left so; a person may forget it by force */
};

#define IDEM_RESULT_COUNT (IDEM_RESULT_CORRUPT + 1)

const char *idem_result_text(enum idem_result result);

enum idem_take_unknown {
    IDEM_TAKE_NONE = 0,  /* an UNKNOWN is answered `unknown` */
    IDEM_TAKE_FENCE = 1, /* it is taken over if its fence is still take_fence */
    IDEM_TAKE_ANY = 2,   /* it is taken over: policy `retry` only */
};

/*
 * claim → ACQUIRED{fence, attempt} · IN_PROGRESS{retry_after_us} · COMPLETED{record} ·
 *         UNKNOWN{since, fence, attempt} · MISMATCH · OTHER_PRINCIPAL · ENDED · FULL
 * IN_PROGRESS tells fence and attempt as well: who waits sees by them that another runs now.
 * The same owner's claim again: ACQUIRED with the same fence while its lease runs, ENDED after.
 * FULL is for whatever would start an execution, a take-over too.
 */
struct idem_claim {
    enum idem_kind kind;
    struct idem_bytes scope, key, method, path; /* kept for people */
    struct idem_fingerprint fingerprint;        /* plain: the store salts it */
    struct idem_principal principal;            /* plain: the store salts it */
    struct idem_owner owner;
    int64_t lease_us;
    int64_t unknown_ttl_us; /* kept this long after the lease if it never gets a verdict */
    int64_t ttl_us;         /* how long the answer will be kept: a hint for the expiry index */
    enum idem_take_unknown take;
    uint64_t take_fence;
};

/* renew → OK · LOST (lapsed, abandoned, taken over, absent). Never moves a lease back. */
struct idem_renew {
    struct idem_owner owner;
    int64_t lease_us;
    int64_t unknown_ttl_us;
};

/*
 * complete, fail, abandon → OK · LOST. The first complete or fail stands; the same verdict again by
 * the same owner is OK and changes nothing. On an absent id complete and abandon are LOST; fail
 * leaves FAILED{owner} for one lease, so that this owner's late claim finds ENDED.
 */
struct idem_verdict {
    struct idem_owner owner;
    struct idem_answer answer; /* complete */
    int64_t ttl_us;            /* complete, fail; IDEM_NEVER_US keeps it for ever */
    int64_t lease_us;          /* fail on an absent id */
    enum idem_reason reason;   /* abandon */
};

/*
 * get → FOUND{record} · ABSENT; with `match` set also MISMATCH · OTHER_PRINCIPAL, compared as a
 * claim would (a FAILED record has nothing to show, so its principal is not compared).
 * The record shows a lapsed lease as UNKNOWN.
 */
struct idem_get {
    bool match;
    struct idem_fingerprint fingerprint; /* plain */
    struct idem_principal principal;     /* plain */
};

/*
 * scan → OK{page, next, damaged}. No snapshot: a record may change or go between two pages. In id
 * order where the store keeps one (memory, LMDB, SQL); Redis has an order of its own, and may show
 * a record twice. A page may be empty though there is more. A damaged record is in no page,
 * whatever the filter; it is counted where it is passed over, and told by its id.
 */
struct idem_scan {
    uint32_t states;     /* bit 1 << state, by the state at that moment; 0 = all */
    enum idem_kind kind; /* 0 = all */
    bool has_scope;      /* compare scope below */
    struct idem_bytes scope;
    int64_t updated_since_us;  /* 0 = all: records updated at or after this instant */
    int64_t updated_before_us; /* 0 = all: records updated before this instant */
    bool has_cursor;
    struct idem_id cursor;  /* out.next of the page before; in id order: only ids greater than it */
    unsigned prefix_digits; /* 0 to 64: only ids whose first so many hex digits are those of … */
    struct idem_id prefix;
    uint32_t limit; /* 1 to IDEM_SCAN_MAX */
};

/*
 * resolve → OK · CHANGED (fence or updated_at differ from those seen) · ABSENT · REFUSED (not
 * UNKNOWN, and not forced). Gives the record a new owner, so that a late one is fenced off; the
 * same resolve again, known by that owner, is OK.
 */
struct idem_resolve {
    uint64_t fence;
    int64_t updated_us;
    bool completed; /* true: was executed, answer below; false: was not, the next claim executes */
    struct idem_answer answer;
    int64_t ttl_us;
    struct idem_owner owner; /* fresh random bytes */
    struct idem_bytes who, why;
    bool force;
};

/* forget → OK · ABSENT · REFUSED (running PROCESSING, and not forced). Leaves an audit entry. */
struct idem_forget {
    struct idem_bytes who, why;
    bool force;
};

/* sweep → OK{removed}. Re-checks expiry inside the delete. */
struct idem_sweep {
    uint32_t limit;
};

/* audit → OK{audit page}: who resolved or forgot what, oldest first. */
struct idem_audit {
    int64_t after_us; /* entries later than this instant */
    uint32_t limit;
};

/*
 * put → OK · CHANGED · FULL. For copying a store: writes a record as it is, digests salted already
 * (the salts of both stores must be the same, see idem_store_adopt). The very same record again
 * (same owner, fence and updated_us) is OK. It takes the place of
 *   nothing, and of what has expired;
 *   the same fence, updated earlier (by another owner too: a person resolved it at the source);
 *   a lower fence that is FAILED or UNKNOWN at that moment: the source has taken that up again.
 * Anything else that is there stands, and is CHANGED. FULL also when only the answer has no room:
 * a copy is whole or not made.
 */
struct idem_put {
    struct idem_record record; /* its id is the op's */
};

struct idem_audit_entry {
    int64_t at_us;
    struct idem_id id;
    enum idem_op_kind what; /* RESOLVE or FORGET */
    enum idem_state was;    /* the state that was seen */
    uint64_t fence;
    struct idem_bytes who, why; /* into memory that the op owns */
};

/* A record with the memory that it views. */
struct idem_kept_record {
    struct idem_record record;
    void *memory; /* owned */
};

struct idem_op {
    enum idem_op_kind kind;
    struct idem_id id; /* not used by scan, sweep, audit */
    union {
        struct idem_claim claim;
        struct idem_renew renew;
        struct idem_verdict verdict;
        struct idem_get get;
        struct idem_scan scan;
        struct idem_resolve resolve;
        struct idem_forget forget;
        struct idem_sweep sweep;
        struct idem_audit audit;
        struct idem_put put;
    } in;

    enum idem_result result;
    struct {
        uint64_t fence;                   /* ACQUIRED, UNKNOWN, IN_PROGRESS */
        uint32_t attempt;                 /* ACQUIRED, UNKNOWN, IN_PROGRESS */
        int64_t since_us;                 /* UNKNOWN: instant */
        int64_t retry_after_us;           /* IN_PROGRESS: until the lease ends */
        int64_t now_us;                   /* the store's clock when the op was applied */
        struct idem_kept_record found;    /* COMPLETED, FOUND */
        struct idem_kept_record *page;    /* scan: owned array */
        struct idem_audit_entry *entries; /* audit: owned array */
        void *memory;                     /* audit: what the entries view */
        struct idem_id next;              /* scan: the cursor of the page after this one */
        size_t count;                     /* scan, audit: entries; sweep: records removed */
        size_t damaged;                   /* scan: records passed over, their bytes are damaged */
        struct idem_id *damaged_ids;      /* scan: owned array, their ids … */
        size_t damaged_id_count;          /* … but for those that have none that is one */
        size_t unknown_removed;           /* sweep: how many of those were UNKNOWN */
        bool more;                        /* scan, audit, sweep: there is more to do */
        bool tombstoned;                  /* complete: the store did not keep the answer … */
        bool oversized;                   /* … which is larger than it ever takes: else no room */
    } out;
};

/* Releases what the op owns, clears result and out. Inputs stay. Fine on a zeroed op, and twice. */
void idem_op_deinit(struct idem_op *op);

#endif
