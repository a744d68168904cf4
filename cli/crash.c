/* Crash: see crash.h. */
#include "crash.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define STACK_SIZE 65536 /* a damaged tree may as well use up the usual stack */

static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT};
#define NUMBER_COUNT (sizeof numbers / sizeof numbers[0])

/* What the handler needs, made before it is needed. */
static char sentence[PATH_MAX + 1024];
static size_t sentence_size;
static int sentence_file;
static char stack[STACK_SIZE];
static struct sigaction before[NUMBER_COUNT];
static bool guarded;

/* Calls only what signal-safety(7) allows: the heap may be in pieces. */
static void crash_tell(int number)
{
    size_t told = 0;
    ssize_t written = 1;

    (void)number;
    while (told < sentence_size && written > 0) {
        written = write(sentence_file, sentence + told, sentence_size - told);
        told += written > 0 ? (size_t)written : 0;
    }
    _exit(IDEM_EXIT_FAILURE);
}

void idem_crash_guard(int file, const char *format, ...)
{
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = crash_tell,
                               .sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    sentence_size = strlen(sentence);
    sentence_file = file;
    /* Without the other stack the handler runs on the usual one, which mostly does. */
    (void)sigaltstack(&other, NULL);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        (void)sigaction(numbers[i], &action, guarded ? NULL : &before[i]);
    }
    guarded = true;
}

void idem_crash_lift(void)
{
    for (size_t i = 0; guarded && i < NUMBER_COUNT; i++) {
        (void)sigaction(numbers[i], &before[i], NULL);
    }
    guarded = false;
}
