/*
 * When: numbers, lengths of time and instants as people write and read them.
 */
#ifndef IDEM_CLI_WHEN_H
#define IDEM_CLI_WHEN_H

#include <stdint.h>

#include <idem/error.h>

/* The host's clock, in microseconds since the epoch. */
int64_t idem_instant_now_us(void);

/* A count: decimal digits only, at most 2^53. IDEM_ERR_INVALID with a sentence. */
IDEM_MUST_CHECK int idem_count_parse(const char *text, int64_t *ret_count,
                                     struct idem_message *message);

/*
 * A length of time: a number and a unit (us, ms, s, m, h, d, w), or several as in "1h30m", or
 * "never" for IDEM_NEVER_US. IDEM_ERR_INVALID with a sentence, also when it is over 100 years.
 */
IDEM_MUST_CHECK int idem_duration_parse(const char *text, int64_t *ret_duration_us,
                                        struct idem_message *message);

/*
 * An instant: RFC 3339 ("2026-04-13T08:00:00Z", with a fraction and any offset), a day
 * ("2026-04-13", its start in UTC), or a length of time that lies back from `now_us` ("2h").
 */
IDEM_MUST_CHECK int idem_instant_parse(const char *text, int64_t now_us, int64_t *ret_instant_us,
                                       struct idem_message *message);

#define IDEM_INSTANT_TEXT_SIZE 40

/* RFC 3339 in UTC, to the second for people or to the microsecond; "never" for IDEM_NEVER_US. */
const char *idem_instant_format(int64_t instant_us, char ret_text[IDEM_INSTANT_TEXT_SIZE]);
const char *idem_instant_format_exact(int64_t instant_us, char ret_text[IDEM_INSTANT_TEXT_SIZE]);

/* The two largest units: "2h 5m", "310ms"; "never" for IDEM_NEVER_US. */
const char *idem_duration_format(int64_t duration_us, char ret_text[IDEM_INSTANT_TEXT_SIZE]);

#endif
