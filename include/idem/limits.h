/*
 * Limits: everything has a maximum, and it is named here.
 * Changing one changes what the stores must hold and what `idem` accepts; see docs/adr/.
 */
#ifndef IDEM_LIMITS_H
#define IDEM_LIMITS_H

#define IDEM_KEY_SIZE_MAX     1024 /* bytes in a key (RFC 9651, 3.3.3: Strings of 1024 must work) */
#define IDEM_KEY_SIZE_DEFAULT 255  /* what a route accepts unless told otherwise */
#define IDEM_SCOPE_SIZE_MAX   1024 /* bytes in a scope */
#define IDEM_METHOD_SIZE_MAX  32   /* bytes of the method kept for people; longer is cut */
#define IDEM_PATH_SIZE_MAX    2048 /* bytes of the path kept for people; longer is cut */
#define IDEM_WHO_SIZE_MAX     128  /* bytes naming who resolved or forgot a record */
#define IDEM_WHY_SIZE_MAX     512  /* bytes saying why */
#define IDEM_HEADER_LINES_MAX 256  /* header lines kept of one answer */
#define IDEM_HEADERS_SIZE_MAX 65536 /* bytes of all kept header lines, encoded */
#define IDEM_BODY_SIZE_MAX \
    (64u << 20) /* bytes in a kept answer body: the most that a route may ask for */
#define IDEM_RECORD_SIZE_MAX  (IDEM_BODY_SIZE_MAX + (1u << 18)) /* bytes in an encoded record */
#define IDEM_BATCH_MAX        512   /* operations applied to a store at once */
#define IDEM_QUEUE_MAX        16384 /* claims waiting in an executor; verdicts are never refused */
#define IDEM_SCAN_MAX         1000  /* records in one page of a scan */
#define IDEM_MESSAGE_SIZE_MAX 512   /* bytes in a sentence for people, terminator included */
#define IDEM_URL_SIZE_MAX     2048  /* bytes in a store URL */

#define IDEM_SECOND_US    INT64_C(1000000)
#define IDEM_LEASE_US_MIN (IDEM_SECOND_US / 10)
#define IDEM_LEASE_US_MAX (INT64_C(86400) * IDEM_SECOND_US)
#define IDEM_TTL_US_MAX   (INT64_C(86400) * 36500 * IDEM_SECOND_US)
#define IDEM_NEVER_US     INT64_MAX /* as an instant: never; as a ttl: for ever */

#endif
