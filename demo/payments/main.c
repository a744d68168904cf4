/*
 * idem-payments: the reference application. A payment service as one would write it, that keeps its
 * own second line of defence and leaves retries to the gateway in front of it.
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http.h"

struct settings {
    const char *listen, *database;
};

static const char usage[] =
    "usage: idem-payments --database FILE [--listen ADDRESS:PORT]\n"
    "\n"
    "Serves payments over HTTP until SIGTERM or SIGINT, then ends what is under way and stops.\n"
    "  --database FILE         the SQLite file; made if it is not there\n"
    "  --listen ADDRESS:PORT   default 127.0.0.1:8081; port 0 lets the system choose\n"
    "Prints one line when it is ready: payments ready on URL\n";

/* 0 to go on; otherwise *ret_status is what to exit with. */
static int settings_read(int argc, char **argv, struct settings *ret_settings, int *ret_status)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"database", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct settings settings = {.listen = "127.0.0.1:8081"};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'l') {
            settings.listen = optarg;
        } else if (option == 'd') {
            settings.database = optarg;
        } else {
            fputs(usage, option == 'h' ? stdout : stderr);
            *ret_status = option == 'h' ? EXIT_SUCCESS : 2;
            return 1;
        }
    }
    if (!settings.database || optind != argc) {
        fputs(usage, stderr);
        *ret_status = 2;
        return 1;
    }
    *ret_settings = settings;
    return 0;
}

/* SIGTERM and SIGINT are blocked in every thread and waited for in this one. */
static int serve(const struct settings *settings, const sigset_t *stops)
{
    struct idem_message message = {"out of memory"};
    struct database *database = NULL;
    struct http_server *server = NULL;
    int error, signal_number;

    error = database_open(settings->database, &database, &message);
    if (error == 0)
        error = http_server_new(settings->listen, database, &server, &message);
    if (error == 0) {
        printf("payments ready on %s\n", http_server_url(server));
        fflush(stdout);
        sigwait(stops, &signal_number);
    } else {
        fprintf(stderr, "payments: %s\n", message.text);
    }
    http_server_free(server);
    database_close(database);
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct settings settings;
    sigset_t stops;
    int status;

    if (settings_read(argc, argv, &settings, &status))
        return status;
    if (sodium_init() < 0) {
        fprintf(stderr, "payments: libsodium cannot be used on this system\n");
        return EXIT_FAILURE;
    }
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stops, NULL);
    signal(SIGPIPE, SIG_IGN);
    return serve(&settings, &stops);
}
