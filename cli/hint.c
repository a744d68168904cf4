/* Hint: see hint.h. */
#include "hint.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *program = "idem";
static const char *store;

void idem_hint_program(const char *name)
{
    program = name != NULL && strchr(name, '/') != NULL ? name : "idem";
}

void idem_hint_store(const char *url)
{
    store = url;
}

/* Appends one character when there is room for it and the end. */
static void char_append(char *text, size_t *size, char c)
{
    if (*size + 1 < IDEM_HINT_SIZE) {
        text[(*size)++] = c;
        text[*size] = '\0';
    }
}

static void text_append(char *text, size_t *size, const char *more)
{
    for (; *more != '\0'; more++) {
        char_append(text, size, *more);
    }
}

/* A word as a shell takes it: in quotes only when something in it would have a meaning. */
static void word_append(char *text, size_t *size, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";

    if (word[strspn(word, plain)] == '\0') {
        text_append(text, size, word);
        return;
    }
    char_append(text, size, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            text_append(text, size, "'\\'");
        }
        char_append(text, size, *word);
    }
    char_append(text, size, '\'');
}

const char *idem_hint_make(const char *command, char ret_text[IDEM_HINT_SIZE])
{
    size_t size = 0;

    ret_text[0] = '\0';
    word_append(ret_text, &size, program);
    char_append(ret_text, &size, ' ');
    text_append(ret_text, &size, command);
    if (store != NULL) {
        text_append(ret_text, &size, " --store ");
        word_append(ret_text, &size, store);
    }
    return ret_text;
}
