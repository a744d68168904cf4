/*
 * Gateway: `idem gateway`, the module in a running nginx for people who do not know nginx.
 *
 *   1. check what was given, with nothing made or touched yet
 *   2. take the state directory; nobody else may run on it
 *   3. try the store as the user that will use it
 *   4. write the configuration, let nginx judge it, run nginx (gateway_run.c)
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"
#include "hint.h"

#define DRAIN_US_DEFAULT     (30 * IDEM_SECOND_US)
#define DRAIN_US_MAX         (3600 * IDEM_SECOND_US)
#define KEEPALIVE_US_DEFAULT IDEM_SECOND_US
#define KEEPALIVE_US_MAX     (3600 * IDEM_SECOND_US)

static const char about[] =
    "Runs nginx with the idempotency module in front of an HTTP API, in the foreground: every POST "
    "and PATCH with an Idempotency-Key is executed once, and retries get the first answer. Prints "
    "one line when it is ready. SIGTERM or SIGINT drains: requests under way are finished; a "
    "second "
    "one stops at once. SIGHUP reloads nginx.";

static const char examples[] =
    "  idem gateway --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000\n"
    "  idem gateway --listen :80 --upstream unix:/run/api.sock --required \\\n"
    "      --set 'idempotency_scope $remote_user;' --set 'idempotency_ttl 7d;'\n"
    "  idem gateway --listen :80 --upstream https://api.example.com --print-conf\n";

static int bounds_check(const struct idem_gateway *gateway, const struct idem_usage *usage)
{
    static const char *const levels[] = {"debug", "info", "notice", "warn", "error", "crit"};
    bool known = false;

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        known = known || strcmp(gateway->log_level, levels[i]) == 0;
    }
    if (!known) {
        return idem_args_wrong(usage, "--log-level takes debug, info, notice, warn, error or crit");
    }
    if (gateway->listen_text == NULL) {
        return idem_args_wrong(usage, "--listen ADDR:PORT is needed: where clients come in");
    }
    if (gateway->upstream_text == NULL) {
        return idem_args_wrong(usage, "--upstream URL is needed: where the API is");
    }
    if (gateway->workers < 1 || gateway->workers > IDEM_WORKERS_MAX) {
        return idem_args_wrong(usage, "--workers takes 1 to %d", IDEM_WORKERS_MAX);
    }
    if (gateway->drain_us > DRAIN_US_MAX) {
        return idem_args_wrong(usage, "--drain takes 0s to 1h");
    }
    if (gateway->keepalive_us > KEEPALIVE_US_MAX) {
        return idem_args_wrong(usage, "--keepalive takes 0s to 1h");
    }
    return IDEM_EXIT_OK;
}

/* Paths go into the configuration in quotes; a line end or control has no place there. */
static bool is_clean(const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == '$') {
            return false;
        }
    }
    return true;
}

static int words_check(struct idem_gateway *gateway, const struct idem_usage *usage)
{
    struct idem_message message;
    int error = idem_listen_parse(gateway->listen_text, &gateway->listen, &message);

    if (error == IDEM_OK) {
        error = idem_upstream_parse(gateway->upstream_text, &gateway->upstream, &message);
    }
    for (size_t i = 0; i < gateway->set.count && error == IDEM_OK; i++) {
        error = idem_directive_parse(gateway->set.items[i], gateway, &message);
    }
    if (error == IDEM_OK && gateway->required &&
        idem_directive_given(gateway, "idempotency_key", NULL)) {
        idem_message_set(&message,
                         "--required and --set 'idempotency_key ...;' exclude each other; "
                         "write the word required into the directive");
        error = IDEM_ERR_INVALID;
    }
    if (error == IDEM_OK) {
        error = idem_gateway_plan(gateway, &message);
    }
    if (error == IDEM_OK && !(is_clean(gateway->state) && is_clean(gateway->store_url) &&
                              is_clean(gateway->access_log))) {
        idem_message_set(&message, "paths and store URLs with $ or control characters cannot be "
                                   "given to nginx; in a URL, write $ as %%24");
        error = IDEM_ERR_INVALID;
    }
    if (error == IDEM_ERR_INVALID || error == IDEM_ERR_UNSUPPORTED) {
        return idem_args_wrong(usage, "%s", message.text);
    }
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        return IDEM_EXIT_FAILURE;
    }
    return IDEM_EXIT_OK;
}

static int conf_print(struct idem_gateway *gateway)
{
    struct idem_message message;

    /* The configuration may be for another machine: what is missing here is only told. */
    if (idem_gateway_find_module(gateway, &message) != IDEM_OK) {
        idem_say_warning("%s", message.text);
    }
    if (idem_gateway_find_authorities(gateway, &message) != IDEM_OK) {
        idem_say_warning("%s", message.text);
    }
    idem_gateway_conf(gateway, true, stdout);
    return idem_say_end(IDEM_EXIT_OK);
}

/* Everything up to the moment when nginx can start; the lock stays open from then on. */
static int gateway_prepare(struct idem_gateway *gateway, int *ret_lock,
                           struct idem_message *message)
{
    int error = idem_gateway_find_nginx(gateway, message);

    if (error == IDEM_OK) {
        error = idem_gateway_find_module(gateway, message);
    }
    if (error == IDEM_OK) {
        error = idem_gateway_find_authorities(gateway, message);
    }
    if (error == IDEM_OK) {
        error = idem_gateway_state(gateway, ret_lock, message);
    }
    if (error != IDEM_OK) {
        return error;
    }
    error = idem_listen_probe(&gateway->listen, message);
    if (error == IDEM_OK) {
        error = idem_gateway_store(gateway, message);
    }
    if (error == IDEM_OK) {
        error = idem_gateway_write_conf(gateway, message);
    }
    return error != IDEM_OK ? error : idem_gateway_test(gateway, message);
}

/* nginx opens /dev/stdout anew. If that is a file, both must append or they overwrite each other.
 */
static void output_share(const struct idem_gateway *gateway)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);

    if (gateway->access_log != NULL && strcmp(gateway->access_log, "-") == 0 && flags >= 0) {
        (void)fcntl(STDOUT_FILENO, F_SETFL, flags | O_APPEND);
    }
}

static int gateway_start(struct idem_gateway *gateway, const struct idem_usage *usage)
{
    struct idem_message message;
    int lock = -1;
    int status = IDEM_EXIT_FAILURE;
    int outcome;

    if (idem_upstream_is_listen(&gateway->upstream, &gateway->listen)) {
        return idem_args_wrong(usage,
                               "--upstream %.200s is where the gateway itself listens; name the "
                               "address of the API, and another one for --listen",
                               gateway->upstream_text);
    }
    output_share(gateway);
    idem_hint_store(gateway->store_hint);
    outcome = idem_upstream_probe(&gateway->upstream, &message);
    /* A gateway may well start before its API; a name that nobody knows is a mistake. */
    if (outcome == IDEM_UPSTREAM_SILENT) {
        idem_say_warning("nothing answers at %s yet (%s); until it does, requests get 502 and "
                         "nothing is executed",
                         gateway->upstream_text, message.text);
        outcome = IDEM_OK;
    }
    if (outcome == IDEM_OK) {
        outcome = gateway_prepare(gateway, &lock, &message);
    }
    if (outcome == IDEM_OK) {
        status = idem_gateway_run(gateway);
    } else {
        idem_say_error("%s", message.text);
    }
    if (lock >= 0) {
        close(lock);
    }
    return status;
}

static void options_make(struct idem_gateway *gateway, struct idem_option *ret_options, size_t size)
{
    const struct idem_option options[] = {
        {"listen", IDEM_OPTION_TEXT, "ADDR:PORT",
         "where clients come in: 127.0.0.1:8080, [::1]:8080, :8080 for every IPv4 address",
         &gateway->listen_text},
        {"upstream", IDEM_OPTION_TEXT, "URL",
         "where the API is: http://HOST:PORT, https://HOST:PORT or unix:/PATH",
         &gateway->upstream_text},
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else lmdb: in the state directory)", &gateway->store},
        {"required", IDEM_OPTION_FLAG, NULL, "refuse POST and PATCH without a key (400)",
         &gateway->required},
        {"set", IDEM_OPTION_LIST, "'DIRECTIVE ARGS;'",
         "add an nginx directive to the guarded location; may be repeated", &gateway->set},
        {"state", IDEM_OPTION_TEXT, "DIR",
         "where everything is kept (default: $XDG_STATE_HOME/idem, as root /var/lib/idem)",
         &gateway->state_option},
        {"workers", IDEM_OPTION_COUNT, "N",
         "worker processes (default: one a processor, 4 at most)", &gateway->workers},
        {"drain", IDEM_OPTION_DURATION, "T", "how long to wait for requests when stopping (30s)",
         &gateway->drain_us},
        {"keepalive", IDEM_OPTION_DURATION, "T",
         "how long an idle connection to the upstream is kept (1s; 0s: a new one each time); keep "
         "it "
         "below the upstream's own limit",
         &gateway->keepalive_us},
        {"user", IDEM_OPTION_TEXT, "NAME",
         "as root: the user of the workers (default: www-data, nginx or nobody)", &gateway->user},
        {"access-log", IDEM_OPTION_TEXT, "FILE",
         "log each request as a line of JSON; - is standard output (default: no log)",
         &gateway->access_log},
        {"log-level", IDEM_OPTION_TEXT, "LEVEL",
         "how much nginx says on standard error: debug, info, notice, warn (default), error, crit",
         &gateway->log_level},
        {"module", IDEM_OPTION_TEXT, "FILE", "the nginx module, when it is not found by itself",
         &gateway->module_option},
        {"nginx", IDEM_OPTION_TEXT, "FILE", "the nginx program, when it is not found by itself",
         &gateway->nginx_option},
        {"print-conf", IDEM_OPTION_FLAG, NULL, "print the configuration and exit; make nothing",
         &gateway->print_conf},
    };

    _Static_assert(sizeof options / sizeof options[0] == 15, "GATEWAY_OPTIONS");
    memcpy(ret_options, options, size);
}

#define GATEWAY_OPTIONS 15

static int64_t workers_default(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 1 ? 1 : processors > 4 ? 4 : processors;
}

int idem_command_gateway(int argc, char **argv)
{
    static struct idem_gateway gateway;
    struct idem_option options[GATEWAY_OPTIONS];
    const struct idem_usage usage = {"gateway", "--listen ADDR:PORT --upstream URL [OPTION]...",
                                     about,     examples,
                                     options,   GATEWAY_OPTIONS,
                                     0};
    struct idem_operands operands;
    int outcome;

    gateway.workers = workers_default();
    gateway.drain_us = DRAIN_US_DEFAULT;
    gateway.keepalive_us = KEEPALIVE_US_DEFAULT;
    gateway.log_level = "warn";
    options_make(&gateway, options, sizeof options);
    outcome = idem_args_parse(&usage, argc, argv, &operands);
    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    outcome = bounds_check(&gateway, &usage);
    if (outcome == IDEM_EXIT_OK) {
        outcome = words_check(&gateway, &usage);
    }
    if (outcome != IDEM_EXIT_OK) {
        return outcome;
    }
    return gateway.print_conf ? conf_print(&gateway) : gateway_start(&gateway, &usage);
}
