/*
 * Record: everything that idem keeps of one id, and its life.
 *
 *               claim                    complete
 *     (absent) ───────▶ PROCESSING ───────────────▶ COMPLETED ──expires──▶ (absent)
 *         ▲                │  │  ▲                        ▲
 *         │ expires        │  │  │ claim (attempt+1)      │ resolve · the late owner's own complete
 *         │          fail  │  │  │                        │
 *         └── FAILED ◀─────┘  └──┼── abandon, or lease lapsed ──▶ UNKNOWN
 *                └───────────────┘◀── claim that takes an unknown over
 *
 * A lapsed lease *is* UNKNOWN: idem_record_state_at() says so without a writer having to act.
 * Instants are microseconds since 1970-01-01T00:00:00Z by the store's clock; lengths of time are
 * microseconds. IDEM_NEVER_US is the instant that never comes.
 */
#ifndef IDEM_RECORD_H
#define IDEM_RECORD_H

#include <idem/fingerprint.h>
#include <idem/id.h>

/* The numbers are stored: never change them. The words are those of the SQL schema. */
enum idem_state {
    IDEM_STATE_PROCESSING = 1,
    IDEM_STATE_COMPLETED = 2,
    IDEM_STATE_FAILED = 3, /* known not to have taken effect, or declared retryable by policy */
    IDEM_STATE_UNKNOWN = 4,
};

#define IDEM_STATE_COUNT 5 /* numbers above, plus the unused 0 */

const char *idem_state_text(enum idem_state state); /* "processing" …, NULL for none */

/* Why a record is UNKNOWN, or why an answer is not kept. The numbers are stored. */
enum idem_reason {
    IDEM_REASON_NONE = 0,
    IDEM_REASON_UNANSWERED = 1, /* sent to the upstream, no answer came */
    IDEM_REASON_TRUNCATED = 2,  /* the answer was cut short */
    IDEM_REASON_STATUS = 3,     /* the answer's status, by policy, does not tell */
    IDEM_REASON_DECLARED = 4,   /* the upstream said so: Idempotency-Outcome: unknown */
    IDEM_REASON_ABORTED = 5,    /* the gateway gave the request up after sending it */
    IDEM_REASON_TOO_LARGE = 6,  /* tombstone: the answer was over the route's or store's maximum */
    IDEM_REASON_NO_ROOM = 7,    /* tombstone: the store had no room for the answer */
    IDEM_REASON_RESOLVED = 8,   /* tombstone: a person said "it was executed" without an answer */
    IDEM_REASON_REPLACED = 9,   /* tombstone: the gateway was told to answer with something else */
    IDEM_REASON_INVALID = 10,   /* what came back is no final answer of HTTP */
};

const char *idem_reason_text(enum idem_reason reason); /* "unanswered" …, never NULL */

/* True for the reasons that a record may be UNKNOWN for, NONE among them. */
bool idem_reason_is_unknown(enum idem_reason reason);

/*
 * The kept answer. `headers` is a block of header lines in order with repeats kept, written with
 * idem_headers_append() and read with idem_headers_next(). A tombstone has a reason and no bytes.
 */
struct idem_answer {
    uint16_t status;            /* 100 to 999; 0 in a tombstone whose status is not known */
    uint16_t flags;             /* for the driver that made it; stores keep them as they are */
    enum idem_reason tombstone; /* NONE: this is an answer; otherwise why it is not kept */
    struct idem_bytes headers;
    struct idem_bytes body;
};

/* Set when a person settled the record. All empty otherwise. */
struct idem_resolution {
    struct idem_bytes who;
    struct idem_bytes why;
    int64_t at_us;
};

/* A record in memory. Views are borrowed: from the caller, or from the blob it was decoded from. */
struct idem_record {
    struct idem_id id;
    enum idem_kind kind; /* 0, scope and key empty: a fail whose claim was never seen left it */
    struct idem_bytes scope, key, method, path;
    struct idem_fingerprint fingerprint; /* salted */
    struct idem_principal principal;     /* salted */
    enum idem_state state;               /* as stored; see idem_record_state_at() */
    enum idem_reason reason;             /* why UNKNOWN; NONE when only the lease lapsed */
    struct idem_owner owner;
    uint64_t fence;
    uint32_t attempt;
    int64_t lease_us;       /* how long the claim was asked for */
    int64_t lease_until_us; /* instant */
    int64_t created_us, updated_us, expires_us;
    struct idem_answer answer; /* meaningful when COMPLETED */
    struct idem_resolution resolution;
};

/* True once the instant is past the record's life: it is then as good as absent. */
bool idem_record_expired_at(const struct idem_record *record, int64_t now_us);

/*
 * True when the claim is over by time: the lease ended, or it ends further ahead than twice its
 * length, which only a clock that was stepped back can bring about.
 */
bool idem_record_lapsed_at(const struct idem_record *record, int64_t now_us);

/* The state with the lease taken into account: a lapsed PROCESSING is UNKNOWN. */
enum idem_state idem_record_state_at(const struct idem_record *record, int64_t now_us);

/* Since when an UNKNOWN record is unknown: when it was abandoned, or when its lease ended. */
int64_t idem_record_unknown_since_us(const struct idem_record *record);

/*
 * Header blocks. Each line is appended after the others: u16 name size, u32 value size, name,
 * value, big-endian.
 *
 * idem_headers_append writes one line at `block` + `size`, never past `capacity`, and returns the
 * new size, or 0 when it does not fit or a part is over its field's width.
 * idem_headers_next takes the first line off *rest; false at the end or when the rest is damaged.
 */
size_t idem_headers_append(uint8_t *block, size_t size, size_t capacity, struct idem_bytes name,
                           struct idem_bytes value);
bool idem_headers_next(struct idem_bytes *rest, struct idem_bytes *ret_name,
                       struct idem_bytes *ret_value);

/*
 * The codec for stores that keep blobs: one versioned binary form, big-endian, with a checksum, so
 * that a damaged page is IDEM_ERR_CORRUPT and never a wrong answer.
 *
 * idem_record_size gives the exact size of the encoding; idem_record_encode writes exactly that
 * many bytes at `blob`. IDEM_ERR_INVALID when a part is over its maximum (limits.h) or a number is
 * none of its enum. Method and path, which are there for people, are cut at theirs. What the state
 * gives no meaning (the reason unless UNKNOWN, the answer unless COMPLETED) is not written.
 * idem_record_decode makes *ret_record view into `blob`, which must outlive it. Any bytes may be
 * given; what is not a whole, consistent record is IDEM_ERR_CORRUPT.
 */
IDEM_MUST_CHECK int idem_record_size(const struct idem_record *record, size_t *ret_size);
void idem_record_encode(const struct idem_record *record, uint8_t *blob, size_t size);
IDEM_MUST_CHECK int idem_record_decode(struct idem_bytes blob, struct idem_record *ret_record);

/* Just enough for a sweeper: the expiry instant of a blob. Reads neither the rest nor its checksum.
 */
IDEM_MUST_CHECK int idem_record_peek_expiry(struct idem_bytes blob, int64_t *ret_expires_us);

#endif
