/*
 * Crash: the last word of a command whose store made it crash. LMDB trusts the bytes of its file:
 * damaged ones can end the process by a signal, with nothing said. This says what it was and what
 * to do.
 */
#ifndef IDEM_CLI_CRASH_H
#define IDEM_CLI_CRASH_H

/* Takes the store's directory. The advice is that of a store which LMDB itself finds damaged. */
#define IDEM_CRASH_SENTENCE                                                         \
    "using the store in %s crashed: its files are damaged, or the disk under them " \
    "is. " IDEM_CRASH_ADVICE
#define IDEM_CRASH_ADVICE                                                                        \
    "Restore the directory from a copy, or move it aside to begin with an empty store; then no " \
    "key used before is protected: a retry of an old request would execute again"

/*
 * From here on, SIGSEGV, SIGBUS and SIGABRT write this sentence to the file and end the process
 * with IDEM_EXIT_FAILURE. It is formatted now, because nothing can be formatted then. One at a
 * time: a second guard takes the place of the first.
 */
void idem_crash_guard(int file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The store is closed: a crash is the program's own again. Without a guard nothing happens. */
void idem_crash_lift(void);

#endif
