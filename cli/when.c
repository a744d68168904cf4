/* When: see when.h. */
#include "when.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COUNT_MAX (INT64_C(1) << 53)
#define DAY_US    (INT64_C(86400) * IDEM_SECOND_US)

struct unit {
    const char *name;
    int64_t size_us;
};

/* Longest names first, so that "ms" is not read as "m" and a stray "s". */
static const struct unit units[] = {
    {"us", 1},
    {"ms", 1000},
    {"s", IDEM_SECOND_US},
    {"m", 60 * IDEM_SECOND_US},
    {"h", 3600 * IDEM_SECOND_US},
    {"d", DAY_US},
    {"w", 7 * DAY_US},
};

#define UNIT_COUNT (sizeof units / sizeof units[0])

int64_t idem_instant_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

/* Reads digits off *text; false when there are none or the number is over `max`. */
static bool digits_take(const char **text, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;
    const char *next = *text;

    while (*next >= '0' && *next <= '9') {
        number = number * 10 + (*next++ - '0');
        if (number > max) {
            return false;
        }
    }
    if (next == *text) {
        return false;
    }
    *text = next;
    *ret_number = number;
    return true;
}

int idem_count_parse(const char *text, int64_t *ret_count, struct idem_message *message)
{
    const char *rest = text;
    int64_t count;

    if (!digits_take(&rest, COUNT_MAX, &count) || *rest != '\0') {
        idem_message_set(message, "\"%.64s\" is not a number", text);
        return IDEM_ERR_INVALID;
    }
    *ret_count = count;
    return IDEM_OK;
}

static const struct unit *unit_take(const char **text)
{
    size_t size = strspn(*text, "abcdefghijklmnopqrstuvwxyz");

    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (strlen(units[i].name) == size && memcmp(units[i].name, *text, size) == 0) {
            *text += size;
            return &units[i];
        }
    }
    return NULL;
}

int idem_duration_parse(const char *text, int64_t *ret_duration_us, struct idem_message *message)
{
    const char *rest = text;
    int64_t total = 0;

    if (strcmp(text, "never") == 0) {
        *ret_duration_us = IDEM_NEVER_US;
        return IDEM_OK;
    }
    do {
        const struct unit *unit;
        int64_t number;

        if (!digits_take(&rest, IDEM_TTL_US_MAX, &number) || (unit = unit_take(&rest)) == NULL) {
            idem_message_set(message, "\"%.64s\" is not a length of time; write 10s, 24h or 30d",
                             text);
            return IDEM_ERR_INVALID;
        }
        if (number > (IDEM_TTL_US_MAX - total) / unit->size_us) {
            idem_message_set(message, "\"%.64s\" is over 100 years", text);
            return IDEM_ERR_INVALID;
        }
        total += number * unit->size_us;
    } while (*rest != '\0');
    *ret_duration_us = total;
    return IDEM_OK;
}

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t month_days(int64_t year, int64_t month)
{
    static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month - 1] + (month == 2 && is_leap(year));
}

/* Reads exactly `width` digits between `min` and `max`. */
static bool field_take(const char **text, size_t width, int64_t min, int64_t max,
                       int64_t *ret_number)
{
    int64_t number = 0;

    for (size_t i = 0; i < width; i++) {
        char c = (*text)[i];

        if (c < '0' || c > '9') {
            return false;
        }
        number = number * 10 + (c - '0');
    }
    *text += width;
    *ret_number = number;
    return number >= min && number <= max;
}

static bool char_take(const char **text, const char *set)
{
    if (**text == '\0' || strchr(set, **text) == NULL) {
        return false;
    }
    ++*text;
    return true;
}

/* RFC 3339 5.6 full-date, as days since the epoch. */
static bool date_take(const char **text, int64_t *ret_days)
{
    int64_t year, month, day;
    int64_t days;

    if (!field_take(text, 4, 1970, 9999, &year) || !char_take(text, "-") ||
        !field_take(text, 2, 1, 12, &month) || !char_take(text, "-") ||
        !field_take(text, 2, 1, month_days(year, month), &day)) {
        return false;
    }
    days = (year - 1970) * 365 + (year - 1969) / 4 - (year - 1901) / 100 + (year - 1601) / 400;
    for (int64_t m = 1; m < month; m++) {
        days += month_days(year, m);
    }
    *ret_days = days + day - 1;
    return true;
}

/* RFC 3339 5.6 time-secfrac, rounded down to the microsecond. */
static bool fraction_take(const char **text, int64_t *ret_us)
{
    int64_t scale = IDEM_SECOND_US / 10;
    int64_t us = 0;

    if (!char_take(text, ".")) {
        *ret_us = 0;
        return true;
    }
    if (**text < '0' || **text > '9') {
        return false;
    }
    for (; **text >= '0' && **text <= '9'; ++*text) {
        us += (**text - '0') * scale;
        scale /= 10;
    }
    *ret_us = us;
    return true;
}

/* RFC 3339 5.6 time-offset, as microseconds to add to reach UTC. */
static bool offset_take(const char **text, int64_t *ret_us)
{
    int64_t hours, minutes;
    bool east;

    if (char_take(text, "Zz")) {
        *ret_us = 0;
        return true;
    }
    east = **text == '+';
    if (!char_take(text, "+-") || !field_take(text, 2, 0, 23, &hours) || !char_take(text, ":") ||
        !field_take(text, 2, 0, 59, &minutes)) {
        return false;
    }
    *ret_us = (hours * 3600 + minutes * 60) * IDEM_SECOND_US * (east ? -1 : 1);
    return true;
}

static bool rfc3339_parse(const char *text, int64_t *ret_instant_us)
{
    int64_t days, hour, minute, second, fraction, offset;

    if (!date_take(&text, &days)) {
        return false;
    }
    if (*text == '\0') {
        *ret_instant_us = days * DAY_US;
        return true;
    }
    /* RFC 3339 5.6 allows a blank in place of the T, and 5.7 a leap second. */
    if (!char_take(&text, "Tt ") || !field_take(&text, 2, 0, 23, &hour) || !char_take(&text, ":") ||
        !field_take(&text, 2, 0, 59, &minute) || !char_take(&text, ":") ||
        !field_take(&text, 2, 0, 60, &second) || !fraction_take(&text, &fraction) ||
        !offset_take(&text, &offset) || *text != '\0') {
        return false;
    }
    *ret_instant_us =
        days * DAY_US + (hour * 3600 + minute * 60 + second) * IDEM_SECOND_US + fraction + offset;
    return true;
}

int idem_instant_parse(const char *text, int64_t now_us, int64_t *ret_instant_us,
                       struct idem_message *message)
{
    struct idem_message ignored;
    int64_t back_us;

    if (rfc3339_parse(text, ret_instant_us)) {
        return IDEM_OK;
    }
    if (idem_duration_parse(text, &back_us, &ignored) == IDEM_OK && back_us <= now_us) {
        *ret_instant_us = now_us - back_us;
        return IDEM_OK;
    }
    idem_message_set(
        message,
        "\"%.64s\" is not an instant; write 2026-04-13T08:00:00Z, 2026-04-13, or 2h for "
        "two hours ago",
        text);
    return IDEM_ERR_INVALID;
}

static const char *instant_write(int64_t instant_us, bool exact,
                                 char ret_text[IDEM_INSTANT_TEXT_SIZE])
{
    int64_t fraction = instant_us % IDEM_SECOND_US;
    time_t seconds;
    struct tm parts;
    char whole[24];

    if (instant_us == IDEM_NEVER_US) {
        snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "never");
        return ret_text;
    }
    if (fraction < 0) {
        fraction += IDEM_SECOND_US;
    }
    seconds = (time_t)((instant_us - fraction) / IDEM_SECOND_US);
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &parts) == 0) {
        /* Past the years that a calendar can write: the bare number is still the truth. */
        snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%lldus", (long long)instant_us);
        return ret_text;
    }
    if (exact) {
        snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%s.%06lldZ", whole, (long long)fraction);
    } else {
        snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%sZ", whole);
    }
    return ret_text;
}

const char *idem_instant_format(int64_t instant_us, char ret_text[IDEM_INSTANT_TEXT_SIZE])
{
    return instant_write(instant_us, false, ret_text);
}

const char *idem_instant_format_exact(int64_t instant_us, char ret_text[IDEM_INSTANT_TEXT_SIZE])
{
    return instant_write(instant_us, true, ret_text);
}

const char *idem_duration_format(int64_t duration_us, char ret_text[IDEM_INSTANT_TEXT_SIZE])
{
    if (duration_us == IDEM_NEVER_US) {
        snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "never");
        return ret_text;
    }
    /* Days are the largest unit: "3w 2d" is harder to read than "23d". */
    for (size_t i = UNIT_COUNT - 1; i-- > 1;) {
        int64_t count = duration_us / units[i].size_us;
        int64_t rest = duration_us % units[i].size_us / units[i - 1].size_us;

        if (count > 0) {
            if (rest > 0 && i > 2) {
                snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%lld%s %lld%s", (long long)count,
                         units[i].name, (long long)rest, units[i - 1].name);
            } else {
                snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%lld%s", (long long)count,
                         units[i].name);
            }
            return ret_text;
        }
    }
    snprintf(ret_text, IDEM_INSTANT_TEXT_SIZE, "%lldus", (long long)duration_us);
    return ret_text;
}
