/*
 * Gateway, directives: what --set may add to the guarded location. A reader of nginx's own syntax
 * (src/core/ngx_conf_file.c, ngx_conf_read_token), just strict enough that nothing leaves the place
 * where it is put.
 */
#include <string.h>
#include <strings.h>

#include "gateway.h"

enum place {
    PLACE_BETWEEN, /* before a word */
    PLACE_WORD,    /* in a bare word */
    PLACE_QUOTED,  /* in a quoted one */
};

struct reading {
    const char *text;
    enum place place;
    char quote;
    size_t words;              /* of the directive so far */
    char word[64];             /* the word so far, cut */
    size_t word_size;          /* its whole size */
    struct idem_directive now; /* the directive so far */
    const char *wrong;         /* the reason to refuse */
};

static void word_char(struct reading *reading, char c)
{
    if (reading->word_size + 1 < sizeof reading->word) {
        reading->word[reading->word_size] = c;
    }
    reading->word_size++;
}

static void word_end(struct reading *reading)
{
    bool whole = reading->word_size < sizeof reading->word;

    reading->word[whole ? reading->word_size : 0] = '\0';
    if (reading->words == 0) {
        memcpy(reading->now.name, reading->word, sizeof reading->word);
    } else if (reading->words == 1) {
        memcpy(reading->now.first, reading->word, sizeof reading->word);
    }
    reading->words++;
    reading->word_size = 0;
    reading->place = PLACE_BETWEEN;
}

/* The directives that make it a gateway: a second one of them would be another gateway. */
static const char *own_tell(const char *name)
{
    if (strcmp(name, "proxy_pass") == 0) {
        return "`idem gateway` writes proxy_pass itself; say where the API is with --upstream URL";
    }
    if (strcmp(name, "idempotency") == 0) {
        return "`idem gateway` writes idempotency itself: every request is guarded, with the store "
               "that --store URL names";
    }
    if (strcmp(name, "idempotency_store") == 0) {
        return "`idem gateway` writes idempotency_store itself; name the store with --store URL";
    }
    return NULL;
}

static void directive_end(struct reading *reading, struct idem_gateway *gateway)
{
    if (reading->words == 0) {
        reading->wrong = "there is a ; without a directive before it";
    } else if (gateway->directive_count == IDEM_DIRECTIVES_MAX) {
        reading->wrong = "that is too many directives";
    } else {
        reading->wrong = own_tell(reading->now.name);
        gateway->directives[gateway->directive_count++] = reading->now;
    }
    reading->now = (struct idem_directive){0};
    reading->words = 0;
}

/* One character; returns how many were used. */
static size_t char_read(struct reading *reading, const char *at, struct idem_gateway *gateway)
{
    if (*at == '{' || *at == '}') {
        reading->wrong = "braces are not allowed: only whole directives for the guarded location";
        return 1;
    }
    if ((unsigned char)*at < 0x20 && *at != '\t') {
        reading->wrong = "it has a control character or line end in it";
        return 1;
    }
    if (*at == '\\') {
        /* nginx takes the next character as it is, in words and in quotes alike. */
        if (at[1] == '\0') {
            reading->wrong = "it ends in a backslash";
            return 1;
        }
        reading->place = reading->place == PLACE_BETWEEN ? PLACE_WORD : reading->place;
        word_char(reading, at[1]);
        return at[1] == '{' || at[1] == '}' ? 1 : 2;
    }
    if (reading->place == PLACE_QUOTED) {
        if (*at != reading->quote) {
            word_char(reading, *at);
            return 1;
        }
        word_end(reading);
        if (at[1] != ' ' && at[1] != '\t' && at[1] != ';') {
            reading->wrong = "a blank or ; must follow a closing quote";
        }
        return 1;
    }
    if (*at == ' ' || *at == '\t' || *at == ';') {
        if (reading->place == PLACE_WORD) {
            word_end(reading);
        }
        if (*at == ';') {
            directive_end(reading, gateway);
        }
        return 1;
    }
    if (reading->place == PLACE_BETWEEN && (*at == '"' || *at == '\'')) {
        reading->place = PLACE_QUOTED;
        reading->quote = *at;
        return 1;
    }
    if (reading->place == PLACE_BETWEEN && *at == '#') {
        reading->wrong = "a comment would swallow what comes after it";
        return 1;
    }
    reading->place = PLACE_WORD;
    word_char(reading, *at);
    return 1;
}

int idem_directive_parse(const char *text, struct idem_gateway *gateway,
                         struct idem_message *message)
{
    struct reading reading = {.text = text};

    for (const char *at = text; *at != '\0' && reading.wrong == NULL;) {
        at += char_read(&reading, at, gateway);
    }
    if (reading.wrong == NULL && reading.place == PLACE_QUOTED) {
        reading.wrong = "a quote is not closed";
    }
    if (reading.wrong == NULL && (reading.place != PLACE_BETWEEN || reading.words > 0)) {
        reading.wrong = "it does not end in ;";
    }
    if (reading.wrong == NULL && text[strspn(text, " \t")] == '\0') {
        reading.wrong = "it is empty";
    }
    if (reading.wrong != NULL) {
        idem_message_set(message, "--set '%.200s': %s", text, reading.wrong);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

bool idem_directive_given(const struct idem_gateway *gateway, const char *name, const char *first)
{
    for (size_t i = 0; i < gateway->directive_count; i++) {
        const struct idem_directive *given = &gateway->directives[i];

        if (strcmp(given->name, name) == 0 &&
            (first == NULL || strcasecmp(given->first, first) == 0)) {
            return true;
        }
    }
    return false;
}
