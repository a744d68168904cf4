#include <idem/error.h>
#include <stdarg.h>
#include <stdio.h>

const char *idem_error_text(int error)
{
    switch (error) {
    case IDEM_OK:
        return "done";
    case IDEM_ERR_NOMEM:
        return "out of memory";
    case IDEM_ERR_INVALID:
        return "not allowed";
    case IDEM_ERR_UNAVAILABLE:
        return "store unavailable";
    case IDEM_ERR_CORRUPT:
        return "store holds damaged data";
    case IDEM_ERR_FULL:
        return "store is full";
    case IDEM_ERR_TIMEOUT:
        return "timed out";
    case IDEM_ERR_BUSY:
        return "too much is waiting";
    case IDEM_ERR_UNSAFE:
        return "store cannot keep what was asked";
    case IDEM_ERR_UNSUPPORTED:
        return "not supported";
    case IDEM_ERR_IO:
        return "input or output failed";
    case IDEM_ERR_SELFTEST:
        return "store failed its self-test";
    default:
        return "unknown error";
    }
}

void idem_message_set(struct idem_message *message, const char *format, ...)
{
    va_list arguments;

    if (message == NULL)
        return;
    va_start(arguments, format);
    /* A sentence that cannot be formatted is better empty than undefined. */
    if (vsnprintf(message->text, sizeof message->text, format, arguments) < 0)
        message->text[0] = '\0';
    va_end(arguments);
}
