/* Say: sentences for people, on the error stream, in one form. */
#include <stdarg.h>
#include <stdio.h>

#include "cli.h"
#include "printable.h"

#define SENTENCE_SIZE_MAX 16384 /* two paths and a hint find room in it */

static const char *speaker = "idem";

void idem_say_as(const char *command)
{
    speaker = command;
}

const char *idem_say_speaker(void)
{
    return speaker;
}

static void sentence_say(const char *kind, const char *format, va_list arguments)
{
    static char raw[SENTENCE_SIZE_MAX], sentence[SENTENCE_SIZE_MAX];

    vsnprintf(raw, sizeof raw, format, arguments);
    idem_printable_cut(raw, sentence, sizeof sentence);
    /* Tables come first when both streams end in one file. */
    fflush(stdout);
    /* In one call, so that nginx, which may write there too, cannot come between. */
    fprintf(stderr, "%s: %s%s\n", speaker, kind, sentence);
}

void idem_say_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    sentence_say("", format, arguments);
    va_end(arguments);
}

void idem_say_note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    sentence_say("", format, arguments);
    va_end(arguments);
}

void idem_say_warning(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    sentence_say("warning: ", format, arguments);
    va_end(arguments);
}

int idem_say_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return status;
    }
    idem_say_error("not all output could be written");
    return status == IDEM_EXIT_OK ? IDEM_EXIT_FAILURE : status;
}
