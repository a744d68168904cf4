/* Args: options in, targets filled, or one sentence that says what to do. See args.h. */
#include "args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "when.h"

#define HELP_INDENT    26
#define HELP_WIDTH     79
#define GUESS_WORD_MAX 32

/* --- guesses ------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b, size_t c)
{
    size_t smaller = a < b ? a : b;

    return smaller < c ? smaller : c;
}

/* Levenshtein's distance, over one row. Words over the maximum are never alike. */
static size_t words_distance(const char *a, const char *b)
{
    size_t row[GUESS_WORD_MAX + 1];
    size_t a_size = strlen(a);
    size_t b_size = strlen(b);

    if (a_size > GUESS_WORD_MAX || b_size > GUESS_WORD_MAX) {
        return GUESS_WORD_MAX;
    }
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];

            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_size];
}

const char *idem_args_guess(const char *word, const char *(*next)(const void *from, size_t i),
                            const void *from)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1;
    const char *candidate;

    for (size_t i = 0; (candidate = next(from, i)) != NULL; i++) {
        size_t distance = words_distance(word, candidate);

        if (distance <= best_distance && distance < strlen(word)) {
            best = candidate;
            best_distance = distance - (distance > 0);
        }
    }
    return best;
}

/* --- help ---------------------------------------------------------------------------------- */

/* Prints the text from column `indent` on, broken at blanks; the cursor is at `column`. */
static void help_wrap(const char *text, size_t column, size_t indent)
{
    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (column + word + 1 > HELP_WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        printf("%s%.*s", column > indent ? " " : "", (int)word, text);
        column += word + (column > indent);
        text += word + strspn(text + word, " ");
    }
    putchar('\n');
}

static void help_option(const char *name, const char *argument, const char *help)
{
    int column = printf("  --%s%s%s", name, argument ? " " : "", argument ? argument : "");

    if (column + 2 > HELP_INDENT) {
        printf("\n%*s", HELP_INDENT, "");
    } else {
        printf("%*s", HELP_INDENT - column, "");
    }
    help_wrap(help, HELP_INDENT, HELP_INDENT);
}

static void help_print(const struct idem_usage *usage)
{
    size_t start = (size_t)printf("Usage: idem %s ", usage->command);

    help_wrap(usage->synopsis, start, start);
    putchar('\n');
    help_wrap(usage->about, 0, 0);
    printf("\nOptions:\n");
    for (size_t i = 0; i < usage->option_count; i++) {
        help_option(usage->options[i].name, usage->options[i].argument, usage->options[i].help);
    }
    help_option("help", NULL, "print this and exit");
    printf("\nExamples:\n%s", usage->examples);
    printf("\nExit status: 0 done, 1 failed, 2 wrong usage, 3 no such record, 4 refused,\n"
           "5 the gateway cut requests off. The manual says more: man idem\n");
}

/* --- parsing ------------------------------------------------------------------------------- */

int idem_args_exit(int outcome)
{
    return outcome == IDEM_ARGS_HELP ? idem_say_end(IDEM_EXIT_OK) : IDEM_EXIT_USAGE;
}

int idem_args_wrong(const struct idem_usage *usage, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    idem_say_error("%s\n(see: idem %s --help)", text, usage->command);
    return IDEM_EXIT_USAGE;
}

static const char *option_name_at(const void *from, size_t i)
{
    const struct idem_usage *usage = from;

    return i < usage->option_count ? usage->options[i].name : NULL;
}

static const struct idem_option *option_find(const struct idem_usage *usage, const char *name,
                                             size_t name_size, size_t *ret_index)
{
    for (size_t i = 0; i < usage->option_count; i++) {
        const char *known = usage->options[i].name;

        if (strlen(known) == name_size && memcmp(known, name, name_size) == 0) {
            *ret_index = i;
            return &usage->options[i];
        }
    }
    return NULL;
}

static int option_unknown(const struct idem_usage *usage, const char *name, size_t name_size)
{
    char word[GUESS_WORD_MAX + 1];
    const char *guess;

    snprintf(word, sizeof word, "%.*s", (int)name_size, name);
    guess = idem_args_guess(word, option_name_at, usage);
    if (guess != NULL) {
        (void)idem_args_wrong(usage, "there is no option --%s; did you mean --%s?", word, guess);
    } else {
        (void)idem_args_wrong(usage, "there is no option --%s", word);
    }
    return IDEM_ARGS_WRONG;
}

static int list_add(const struct idem_usage *usage, const struct idem_option *option,
                    const char *value)
{
    struct idem_text_list *list = option->target;

    if (list->count == IDEM_LIST_MAX) {
        (void)idem_args_wrong(usage, "--%s may be given %d times at most", option->name,
                              IDEM_LIST_MAX);
        return IDEM_ARGS_WRONG;
    }
    list->items[list->count++] = value;
    return IDEM_OK;
}

/* Stores one value by the option's kind. */
static int option_store(const struct idem_usage *usage, const struct idem_option *option,
                        const char *value)
{
    struct idem_message message;
    int error = IDEM_OK;

    switch (option->kind) {
    case IDEM_OPTION_FLAG:
        *(bool *)option->target = true;
        break;
    case IDEM_OPTION_TEXT:
        if (value[0] == '\0') {
            (void)idem_args_wrong(usage, "--%s is given an empty value", option->name);
            return IDEM_ARGS_WRONG;
        }
        *(const char **)option->target = value;
        break;
    case IDEM_OPTION_ANY_TEXT:
        *(const char **)option->target = value;
        break;
    case IDEM_OPTION_LIST:
        return list_add(usage, option, value);
    case IDEM_OPTION_COUNT:
        error = idem_count_parse(value, option->target, &message);
        break;
    case IDEM_OPTION_DURATION:
        error = idem_duration_parse(value, option->target, &message);
        break;
    case IDEM_OPTION_INSTANT:
        error = idem_instant_parse(value, idem_instant_now_us(), option->target, &message);
        break;
    }
    if (error != IDEM_OK) {
        (void)idem_args_wrong(usage, "--%s: %s", option->name, message.text);
        return IDEM_ARGS_WRONG;
    }
    return IDEM_OK;
}

/* One "--name", "--name=value" or "--name value"; *i moves to the last word that was used. */
static int option_take(const struct idem_usage *usage, int argc, char **argv, int *i, bool *seen)
{
    const char *name = argv[*i] + 2;
    size_t name_size = strcspn(name, "=");
    const char *value = name[name_size] == '=' ? name + name_size + 1 : NULL;
    size_t index = 0;
    const struct idem_option *option = option_find(usage, name, name_size, &index);

    if (option == NULL) {
        return option_unknown(usage, name, name_size);
    }
    if (seen[index] && option->kind != IDEM_OPTION_LIST) {
        (void)idem_args_wrong(usage, "--%s is given twice", option->name);
        return IDEM_ARGS_WRONG;
    }
    seen[index] = true;
    if (option->kind == IDEM_OPTION_FLAG) {
        if (value != NULL) {
            (void)idem_args_wrong(usage, "--%s takes no value", option->name);
            return IDEM_ARGS_WRONG;
        }
    } else if (value == NULL) {
        if (*i + 1 >= argc) {
            (void)idem_args_wrong(usage, "--%s needs a value: %s", option->name, option->argument);
            return IDEM_ARGS_WRONG;
        }
        value = argv[++*i];
    }
    return option_store(usage, option, value);
}

static bool help_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

int idem_args_parse(const struct idem_usage *usage, int argc, char **argv,
                    struct idem_operands *ret_operands)
{
    bool seen[IDEM_OPTIONS_MAX] = {false};
    struct idem_operands operands = {0};
    bool options_end = false;

    if (help_wanted(argc, argv)) {
        help_print(usage);
        return IDEM_ARGS_HELP;
    }
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && strncmp(argv[i], "--", 2) == 0) {
            int outcome = option_take(usage, argc, argv, &i, seen);

            if (outcome != IDEM_OK) {
                return outcome;
            }
        } else if (!options_end && argv[i][0] == '-' && argv[i][1] != '\0') {
            (void)idem_args_wrong(usage, "there is no option %s; options have two dashes", argv[i]);
            return IDEM_ARGS_WRONG;
        } else if (argv[i][0] == '\0') {
            (void)idem_args_wrong(usage, "there is an empty word");
            return IDEM_ARGS_WRONG;
        } else if (operands.count == usage->operands_max) {
            (void)idem_args_wrong(usage, "one word too many: %s", argv[i]);
            return IDEM_ARGS_WRONG;
        } else {
            operands.items[operands.count++] = argv[i];
        }
    }
    *ret_operands = operands;
    return IDEM_OK;
}
