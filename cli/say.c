/* Say: sentences for people, on the error stream, in one form. */
#include <stdarg.h>
#include <stdio.h>

#include "cli.h"

static const char *speaker = "idem";

void idem_say_as(const char *command)
{
    speaker = command;
}

void idem_say_error(const char *format, ...)
{
    va_list arguments;

    /* Tables come first when both streams end in one file. */
    fflush(stdout);
    fprintf(stderr, "%s: ", speaker);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void idem_say_warning(const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fprintf(stderr, "%s: warning: ", speaker);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int idem_say_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return status;
    }
    idem_say_error("not all output could be written");
    return status == IDEM_EXIT_OK ? IDEM_EXIT_FAILURE : status;
}
