/*
 * Args: the one parser of options. A subcommand declares a table; --help, the checks and the
 * sentences for what is wrong all come from it.
 */
#ifndef IDEM_CLI_ARGS_H
#define IDEM_CLI_ARGS_H

#include "cli.h"

#define IDEM_OPTIONS_MAX  32 /* options of one subcommand */
#define IDEM_OPERANDS_MAX 4  /* words that are no options */
#define IDEM_LIST_MAX     64 /* times that one repeatable option may be given */

struct idem_text_list {
    size_t count;
    const char *items[IDEM_LIST_MAX];
};

/* What an option takes, and the type that `target` points to. */
enum idem_option_kind {
    IDEM_OPTION_FLAG,     /* bool */
    IDEM_OPTION_TEXT,     /* const char *, never empty: "$UNSET" must not mean "the default" */
    IDEM_OPTION_ANY_TEXT, /* const char *, may be empty */
    IDEM_OPTION_LIST,     /* struct idem_text_list; may be repeated */
    IDEM_OPTION_COUNT,    /* int64_t, 0 or more */
    IDEM_OPTION_DURATION, /* int64_t, microseconds */
    IDEM_OPTION_INSTANT,  /* int64_t, microseconds since the epoch */
};

struct idem_option {
    const char *name; /* without the dashes */
    enum idem_option_kind kind;
    const char *argument; /* how --help calls its value; NULL for a flag */
    const char *help;     /* one sentence, no full stop */
    void *target;         /* holds the default before parsing */
};

struct idem_usage {
    const char *command;  /* "list" */
    const char *synopsis; /* what follows the name in the usage line */
    const char *about;    /* a paragraph */
    const char *examples; /* whole lines, each ended */
    const struct idem_option *options;
    size_t option_count;
    size_t operands_max;
};

struct idem_operands {
    size_t count;
    const char *items[IDEM_OPERANDS_MAX];
};

/* Outcomes of idem_args_parse besides IDEM_OK. */
enum idem_args_outcome {
    IDEM_ARGS_HELP = 1,  /* --help was printed */
    IDEM_ARGS_WRONG = 2, /* the sentence was printed */
};

/*
 * Fills the targets. Options and operands may be mixed; `--` ends the options. Values are borrowed
 * from argv. --help, -h wins over everything else.
 */
IDEM_MUST_CHECK int idem_args_parse(const struct idem_usage *usage, int argc, char **argv,
                                    struct idem_operands *ret_operands);

/* The exit status for an outcome of idem_args_parse. */
int idem_args_exit(int outcome);

/* Says the sentence, points to --help and returns IDEM_EXIT_USAGE. */
int idem_args_wrong(const struct idem_usage *usage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * The candidate that `word` was probably meant to be, or NULL. `next` yields the i-th candidate,
 * NULL after the last.
 */
const char *idem_args_guess(const char *word, const char *(*next)(const void *from, size_t i),
                            const void *from);

#endif
