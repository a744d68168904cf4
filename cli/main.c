/* Main: the table of subcommands, and the way to one of them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "hint.h"

static const struct idem_command commands[] = {
    {"gateway", "make an HTTP API safe to retry: run nginx with the module in front of it",
     idem_command_gateway},
    {"list", "list the records of a store, or who settled what", idem_command_list},
    {"show", "show one record and the answer that it keeps", idem_command_show},
    {"resolve", "settle a record whose outcome nobody knows", idem_command_resolve},
    {"forget", "remove records, so that their requests may execute again", idem_command_forget},
    {"sweep", "remove what has expired", idem_command_sweep},
    {"store check", "test a store and tell what its settings can lose", idem_command_store_check},
    {"store copy", "move the records of a store to another one", idem_command_store_copy},
    {"migrate", "make or change the tables of a store in PostgreSQL or MariaDB",
     idem_command_migrate},
    {"key", "make an idempotency key", idem_command_key},
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const char *command_name_at(const void *from, size_t i)
{
    (void)from;
    return i < COMMAND_COUNT ? commands[i].name : NULL;
}

static void help_print(FILE *stream)
{
    fprintf(stream, "Usage: idem COMMAND [OPTION]...\n\n"
                    "Makes HTTP retries safe: an operation is executed once, and every retry with "
                    "the\nsame Idempotency-Key gets the first answer.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(stream, "  %-12s  %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(stream, "\nOptions:\n  --help        print this and exit\n"
                    "  --version     print the version and exit\n\n"
                    "Examples:\n"
                    "  idem gateway --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000\n"
                    "  idem list --state unknown\n\n"
                    "idem COMMAND --help says more, and so does the manual: man idem\n");
}

/* How many words of argv the command's name takes, 0 when it is another. */
static int name_words(const char *name, int argc, char **argv)
{
    size_t first = strcspn(name, " ");

    if (strlen(argv[1]) != first || strncmp(argv[1], name, first) != 0) {
        return 0;
    }
    if (name[first] == '\0') {
        return 1;
    }
    return argc > 2 && strcmp(argv[2], name + first + 1) == 0 ? 2 : 0;
}

static int command_unknown(const char *word)
{
    const char *guess = idem_args_guess(word, command_name_at, NULL);

    /* The first word of a name of two alone. */
    for (size_t i = 0; guess == NULL && i < COMMAND_COUNT; i++) {
        size_t size = strlen(word);

        if (strncmp(commands[i].name, word, size) == 0 && commands[i].name[size] == ' ') {
            guess = commands[i].name;
        }
    }
    if (guess != NULL) {
        idem_say_error("there is no command \"%.64s\"; did you mean: idem %s", word, guess);
    } else {
        idem_say_error("there is no command \"%.64s\"; idem --help lists them", word);
    }
    return IDEM_EXIT_USAGE;
}

static int command_run(int argc, char **argv)
{
    static char speaker[32];

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        int words = name_words(commands[i].name, argc, argv);

        if (words > 0) {
            snprintf(speaker, sizeof speaker, "idem %s", commands[i].name);
            idem_say_as(speaker);
            return commands[i].run(argc - words, argv + words);
        }
    }
    return command_unknown(argv[1]);
}

/*
 * A standard stream that is closed (`>&-`, some service managers) would become the next file that
 * is opened, such as the store's own, and what is printed would be written over its records. A
 * directory in its place can be neither written nor read, so the failure is told like any other.
 */
static void streams_settle(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF &&
            open("/", O_RDONLY | O_DIRECTORY) != stream) {
            _exit(IDEM_EXIT_FAILURE);
        }
    }
}

int main(int argc, char **argv)
{
    streams_settle();
    /* A reader that went away (`| head`) is an error of write, told by idem_say_end. */
    signal(SIGPIPE, SIG_IGN);
    idem_hint_program(argv[0]);
    if (argc < 2) {
        help_print(stderr);
        return IDEM_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        help_print(stdout);
        return idem_say_end(IDEM_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("idem %s\n", IDEM_VERSION);
        return idem_say_end(IDEM_EXIT_OK);
    }
    return command_run(argc, argv);
}
