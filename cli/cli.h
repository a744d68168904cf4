/*
 * Cli: what the files of the `idem` command share. One file a subcommand; options are parsed in
 * args.c and nowhere else, output is written by say.c, grid.c and json.c and nowhere else.
 */
#ifndef IDEM_CLI_CLI_H
#define IDEM_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <idem/error.h>

/* Exit statuses, the same for every subcommand. The man page idem(1) lists them. */
enum idem_exit {
    IDEM_EXIT_OK = 0,
    IDEM_EXIT_FAILURE = 1, /* the store, the system or nginx refused; a sentence says what */
    IDEM_EXIT_USAGE = 2,   /* the command line makes no sense; nothing was done */
    IDEM_EXIT_ABSENT = 3,  /* there is no such record */
    IDEM_EXIT_REFUSED = 4, /* the record's state forbids it, or it changed meanwhile; the store's
                              settings cannot keep what its URL asks for */
    IDEM_EXIT_CUT = 5,     /* the gateway stopped before every request was answered */
};

/* A subcommand. argv[0] is its own name; what it returns is the exit status. */
struct idem_command {
    const char *name; /* one word, or two as in "store check" */
    const char *summary;
    int (*run)(int argc, char **argv);
};

int idem_command_gateway(int argc, char **argv);
int idem_command_list(int argc, char **argv);
int idem_command_show(int argc, char **argv);
int idem_command_resolve(int argc, char **argv);
int idem_command_forget(int argc, char **argv);
int idem_command_sweep(int argc, char **argv);
int idem_command_store_check(int argc, char **argv);
int idem_command_store_copy(int argc, char **argv);
int idem_command_migrate(int argc, char **argv);
int idem_command_key(int argc, char **argv);

/* Sentences for people go to the error stream, after the name of the command that speaks. */
void idem_say_as(const char *command);
const char *idem_say_speaker(void);
void idem_say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void idem_say_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void idem_say_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tells that output was lost, as on a full disk: IDEM_EXIT_FAILURE then, else `status`. */
int idem_say_end(int status);

#endif
