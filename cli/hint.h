/*
 * Hint: command lines that a sentence tells a person to type. They run as they are printed: with
 * the program as it was called, and with the store unless it is found without being named.
 */
#ifndef IDEM_CLI_HINT_H
#define IDEM_CLI_HINT_H

#define IDEM_HINT_SIZE 4096

/* How this program was called: argv[0], borrowed. A word without a slash was found in PATH. */
void idem_hint_program(const char *name);

/* The store that hints name, borrowed; NULL when they need not name one. */
void idem_hint_store(const char *url);

/* "idem list --state unknown --store lmdb:/srv/idem" for "list --state unknown". */
const char *idem_hint_make(const char *command, char ret_text[IDEM_HINT_SIZE]);

#endif
