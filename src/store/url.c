/*
 * A URL is read in this order: the scheme up to the first ':', the place up to the first '?', then
 * options split at '&', each at its first '='. Percent-escapes are decoded last, so that "%3f" is a
 * question mark in a directory and never the start of options.
 */
#define _GNU_SOURCE /* memrchr */
#include "store/url.h"

#include <idem/store.h>
#include <stdio.h>

#include "base/ascii.h"

/* Where the decoded pieces go: url->memory, which is as large as any URL can need. */
struct pieces {
    char *next;
    size_t left;
    struct idem_message *message;
};

/* Decodes one character at text[*i], moving *i behind it; -1 when its escape is not one. */
static int character_decode(const char *text, size_t size, size_t *i)
{
    int high, low;

    if (text[*i] != '%')
        return (unsigned char)text[(*i)++];
    if (size - *i < 3)
        return -1;
    high = idem_hex_value((unsigned char)text[*i + 1]);
    low = idem_hex_value((unsigned char)text[*i + 2]);
    *i += 3;
    /* A NUL would cut the text short for whoever opens the directory. */
    return high < 0 || low < 0 || (high == 0 && low == 0) ? -1 : 16 * high + low;
}

/* Decodes text[0..size) into the pieces as a C string. */
static int piece_add(struct pieces *pieces, const char *text, size_t size, const char **ret_piece)
{
    char *start = pieces->next;

    for (size_t i = 0; i < size;) {
        int c = character_decode(text, size, &i);

        if (c < 0) {
            idem_message_set(pieces->message,
                             "the store URL has a '%%' that is not followed by two "
                             "hex digits other than 00; write a plain percent sign as %%25");
            return IDEM_ERR_INVALID;
        }
        if (pieces->left < 2) {
            idem_message_set(pieces->message, "the store URL is longer than %d bytes",
                             IDEM_URL_SIZE_MAX);
            return IDEM_ERR_INVALID;
        }
        *pieces->next++ = (char)c;
        pieces->left--;
    }
    *pieces->next++ = '\0';
    pieces->left--;
    *ret_piece = start;
    return IDEM_OK;
}

/* The size of the scheme that `text` starts with, 0 when it starts with none. */
static size_t scheme_size(const char *text)
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+");

    return text[size] == ':' && !(text[0] >= '0' && text[0] <= '9') ? size : 0;
}

/* True when the option's name, its escapes decoded, says that the value is for nobody to see. */
static bool option_is_secret(const char *name, size_t size)
{
    static const char *const words[] = {"pass", "pwd", "secret", "token"};
    char text[32];
    size_t used = 0;

    for (size_t i = 0; i < size && used + 1 < sizeof text;) {
        int c = character_decode(name, size, &i);

        if (c < 0)
            return true; /* it is no option at all, so nobody knows what it is */
        text[used++] = (char)idem_to_lower(c);
    }
    text[used] = '\0';
    if (strcmp(text, "passfile") == 0)
        return false; /* where the password is, and not the password */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* Whether what follows these options may be the end of a password with a '&' in it. */
static bool is_behind_secret(const struct idem_url *url)
{
    for (size_t i = 0; i < url->option_count; i++)
        if (option_is_secret(url->options[i].name, strlen(url->options[i].name)))
            return true;
    return false;
}

static int option_add(struct pieces *pieces, struct idem_url *url, const char *text, size_t size)
{
    const char *equals = memchr(text, '=', size);
    struct idem_url_option *option = &url->options[url->option_count];
    size_t name_size = equals ? (size_t)(equals - text) : size;
    int error;

    if (!equals || name_size == 0) {
        /* It may be the end of a password: tell its name only when it cannot be. */
        bool secret = memchr(text, '@', size) || is_behind_secret(url);

        idem_message_set(pieces->message,
                         "the store URL's option \"%.*s\" has no value: write name=value%s",
                         secret ? 3 : (int)size, secret ? "***" : text,
                         secret ? ", and in a password '?' as %3F, '&' as %26" : "");
        return IDEM_ERR_INVALID;
    }
    if (url->option_count == IDEM_URL_OPTIONS_MAX) {
        idem_message_set(pieces->message, "the store URL has more than %d options",
                         IDEM_URL_OPTIONS_MAX);
        return IDEM_ERR_INVALID;
    }
    error = piece_add(pieces, text, name_size, &option->name);
    if (!error)
        error = piece_add(pieces, equals + 1, size - name_size - 1, &option->value);
    if (error)
        return error;
    if (idem_url_option(url, option->name)) {
        idem_message_set(pieces->message, "the store URL names the option \"%s\" twice",
                         is_behind_secret(url) ? "***" : option->name);
        return IDEM_ERR_INVALID;
    }
    url->option_count++;
    return IDEM_OK;
}

static int options_add(struct pieces *pieces, struct idem_url *url, const char *text)
{
    while (*text) {
        size_t size = strcspn(text, "&");
        int error = option_add(pieces, url, text, size);

        if (error)
            return error;
        text += size;
        if (*text == '&')
            text++;
    }
    return IDEM_OK;
}

int idem_url_parse(const char *text, struct idem_url *ret_url, struct idem_message *message)
{
    struct pieces pieces = {ret_url->memory, sizeof ret_url->memory, message};
    size_t scheme = scheme_size(text);
    const char *place = text + scheme + 1;
    size_t place_size;
    int error;

    ret_url->option_count = 0;
    if (strlen(text) >= IDEM_URL_SIZE_MAX) {
        idem_message_set(message, "the store URL is longer than %d bytes", IDEM_URL_SIZE_MAX - 1);
        return IDEM_ERR_INVALID;
    }
    if (scheme == 0) {
        /* It may be the line of a file that holds a password and nothing else: not shown. */
        idem_message_set(message,
                         "what names the store is not a URL: write lmdb:DIRECTORY, redis://HOST, "
                         "postgresql://HOST/DATABASE, mariadb://HOST/DATABASE or memory:");
        return IDEM_ERR_INVALID;
    }
    place_size = strcspn(place, "?");
    ret_url->raw_place = pieces.next;
    memcpy(pieces.next, place, place_size);
    pieces.next[place_size] = '\0';
    pieces.next += place_size + 1;
    pieces.left -= place_size + 1;
    error = piece_add(&pieces, text, scheme, &ret_url->scheme);
    if (!error)
        error = piece_add(&pieces, place, place_size, &ret_url->place);
    if (!error && place[place_size] == '?')
        error = options_add(&pieces, ret_url, place + place_size + 1);
    return error;
}

const char *idem_url_option(const struct idem_url *url, const char *name)
{
    for (size_t i = 0; i < url->option_count; i++)
        if (strcmp(url->options[i].name, name) == 0)
            return url->options[i].value;
    return NULL;
}

/* What the URL says is told in quotes, or as name=value; a part of it is enough. */
static bool message_tells(const struct idem_message *message, const char *text)
{
    char part[32];

    for (const char *before = "\"="; *before && text[0]; before++) {
        snprintf(part, sizeof part, "%c%s", *before, text);
        if (strstr(message->text, part))
            return true;
    }
    return false;
}

void idem_url_hide(const struct idem_url *url, struct idem_message *message)
{
    bool behind = false;

    for (size_t i = 0; i < url->option_count && message; i++) {
        const struct idem_url_option *option = &url->options[i];

        if (behind &&
            (message_tells(message, option->name) || message_tells(message, option->value))) {
            idem_message_set(message, "the store URL's options behind the password are not known, "
                                      "or have values that are not allowed; they may be its end "
                                      "and are not shown: write '&' in a password as %%26");
            return;
        }
        behind |= option_is_secret(option->name, strlen(option->name));
    }
}

/* The power of two that a unit stands for, or -1. */
static int unit_shift(const char *unit)
{
    if (unit[0] == '\0')
        return 0;
    if (unit[1] != '\0')
        return -1;
    switch (unit[0]) {
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    default:
        return -1;
    }
}

int idem_size_parse(const char *text, uint64_t *ret_size)
{
    uint64_t size = 0;
    size_t digits = strspn(text, "0123456789");
    int shift = unit_shift(text + digits);

    if (digits == 0 || shift < 0)
        return IDEM_ERR_INVALID;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');

        if (size > (UINT64_MAX - digit) / 10)
            return IDEM_ERR_INVALID;
        size = 10 * size + digit;
    }
    if (size > UINT64_MAX >> shift)
        return IDEM_ERR_INVALID;
    *ret_size = size << shift;
    return IDEM_OK;
}

int idem_url_duration_parse(const char *text, int64_t *ret_length_us)
{
    static const struct {
        const char *name;
        int64_t length_us;
    } units[] = {{"ms", 1000},
                 {"s", IDEM_SECOND_US},
                 {"m", 60 * IDEM_SECOND_US},
                 {"h", 3600 * IDEM_SECOND_US}};
    size_t digits = strspn(text, "0123456789");
    int64_t number = 0;

    if (digits == 0 || digits > 9)
        return IDEM_ERR_INVALID;
    for (size_t i = 0; i < digits; i++)
        number = 10 * number + (text[i] - '0');
    for (size_t i = 0; number > 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].name) == 0) {
            *ret_length_us = number * units[i].length_us;
            return IDEM_OK;
        }
    }
    return IDEM_ERR_INVALID;
}

int idem_url_timeout_us(const struct idem_url *url, int64_t *ret_timeout_us,
                        struct idem_message *message)
{
    const char *text = idem_url_option(url, "timeout");

    if (!text) {
        *ret_timeout_us = IDEM_STORE_TIMEOUT_US;
        return IDEM_OK;
    }
    if (idem_url_duration_parse(text, ret_timeout_us) == IDEM_OK &&
        *ret_timeout_us >= IDEM_STORE_TIMEOUT_US_MIN &&
        *ret_timeout_us <= IDEM_STORE_TIMEOUT_US_MAX)
        return IDEM_OK;
    idem_message_set(message,
                     "the store URL's timeout \"%s\" is not a time from 10ms to 10m: write "
                     "timeout=500ms or timeout=5s",
                     text);
    return IDEM_ERR_INVALID;
}

/* Text in the making, cut at its size. */
struct redacted {
    char *text;
    size_t used, size;
};

static void redacted_add(struct redacted *redacted, const char *text, size_t size)
{
    size_t room = redacted->size - redacted->used - 1;

    size = size < room ? size : room;
    memcpy(redacted->text + redacted->used, text, size);
    redacted->used += size;
    redacted->text[redacted->used] = '\0';
}

/* The '@' behind a password that is not escaped may well stand behind a '/', a '?' or another '@'.
 */
static const char *credentials_end(const char *authority)
{
    const char *at = memrchr(authority, '@', strcspn(authority, "?"));

    return at ? at : strrchr(authority, '@');
}

void idem_store_url_redact(const char *url, char *ret_text, size_t size)
{
    struct redacted redacted = {ret_text, 0, size};
    const char *place = strstr(url, "://");
    const char *at = place ? credentials_end(place + 3) : NULL;
    const char *colon = at ? memchr(place + 3, ':', (size_t)(at - place - 3)) : NULL;
    bool is_option = false; /* what stands before the '?' is none */

    ret_text[0] = '\0';
    if (colon) {
        redacted_add(&redacted, url, (size_t)(colon + 1 - url));
        redacted_add(&redacted, "***", 3);
        url = at;
    }
    for (const char *end = url + strcspn(url, "?"); *url; end = url + strcspn(url, "&")) {
        const char *equals = is_option ? memchr(url, '=', (size_t)(end - url)) : NULL;
        bool secret = equals && option_is_secret(url, (size_t)(equals - url));

        redacted_add(&redacted, url, (size_t)((secret ? equals + 1 : end) - url));
        if (secret) {
            /* What follows may be the rest of it, with a '&' that is not escaped. */
            redacted_add(&redacted, "***&***", *end ? 7 : 3);
            return;
        }
        redacted_add(&redacted, end, *end ? 1 : 0); /* the '?' or '&' */
        url = *end ? end + 1 : end;
        is_option = true;
    }
}
