/*
 * Gateway, running: nginx -t, then nginx itself, watched until its end.
 *
 *   1. nginx -t on the configuration; its sentence, and the line that it means, when it refuses
 *   2. nginx starts in a process group of its own: a Ctrl-C in the terminal reaches `idem` alone,
 *      or nginx would take it as "stop at once" and cut requests off
 *   3. ready, once a worker answers on the socket in the state directory
 *   4. TERM, INT, QUIT: QUIT to nginx, which finishes its requests; the drain time over, or a
 *      second signal that is no echo of the first: TERM; still there: KILL
 *   5. workers that crash again and again: as if told to end, but a failure
 *   6. when `idem` is killed, the kernel sends QUIT to nginx's master; its workers are bounded by
 *      worker_shutdown_timeout
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway.h"
#include "hint.h"

#define START_US_MAX    (30 * IDEM_SECOND_US)
#define START_POLL_US   (IDEM_SECOND_US / 50)
#define STOP_US_MAX     (3 * IDEM_SECOND_US) /* a worker that is told to ends within one */
#define ANSWER_MS_MAX   1000
#define OUTPUT_SIZE_MAX 65536
#define WAIT_US_MAX     (3600 * IDEM_SECOND_US) /* poll counts milliseconds in an int */

/* Wrappers signal the process and its group, or relay what the terminal sent to all: a second
 * signal this soon after the first is the same one. */
#define SAME_US_MAX IDEM_SECOND_US

/* Within so long each worker may crash once, as they do when the system runs out of memory, and so
 * many more, which is what systemd allows a service. */
#define CRASH_US_MAX (10 * IDEM_SECOND_US)
#define CRASHES_MAX  5

enum phase {
    PHASE_STARTING,
    PHASE_RUNNING,
    PHASE_DRAINING, /* QUIT was sent */
    PHASE_STOPPING, /* TERM was sent */
    PHASE_KILLING,  /* KILL was sent */
};

struct watch {
    const struct idem_gateway *gateway;
    pid_t nginx;      /* the master, and its process group */
    bool master_gone; /* it was reaped; workers may be left */
    int master_status;
    enum phase phase;
    int64_t deadline_us; /* when the phase has lasted too long */
    int alerts, signals; /* where nginx's alerts and our signals come in */
    int64_t crashes_us;  /* since when crashes are counted */
    int64_t crashes;
    int64_t told_us; /* when a signal first told it to end; 0: none has */
    bool failed;     /* nginx ended by itself, never became ready, or kept crashing */
    bool cut;        /* requests may have been cut off */
};

static int64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

/* --- nginx -t ------------------------------------------------------------------------------ */

/* In the child: never comes back. */
static void nginx_exec(const struct idem_gateway *gateway, bool test)
{
    char conf[PATH_MAX + 64];
    char prefix[PATH_MAX + 1];
    char *const run[] = {"nginx", "-p", prefix, "-c", conf, "-e", "stderr", test ? "-t" : NULL,
                         NULL};
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    snprintf(conf, sizeof conf, "%s/%s", gateway->state, IDEM_GATEWAY_CONF);
    snprintf(prefix, sizeof prefix, "%s/", gateway->state);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || chdir(gateway->state) != 0) {
        fprintf(stderr, "nginx: [emerg] %s: %s\n", gateway->state, strerror(errno));
        _exit(1);
    }
    execv(gateway->nginx, run);
    fprintf(stderr, "nginx: [emerg] cannot run %s: %s\n", gateway->nginx, strerror(errno));
    _exit(1);
}

/* Line `number` of the configuration, without its indent; empty when there is none. */
static void conf_line(const struct idem_gateway *gateway, long number, char *ret_line, size_t size)
{
    char path[PATH_MAX + 64];
    FILE *in;
    char *start;

    snprintf(path, sizeof path, "%s/%s", gateway->state, IDEM_GATEWAY_CONF);
    in = fopen(path, "re");
    ret_line[0] = '\0';
    for (long i = 0; in != NULL && i < number; i++) {
        if (fgets(ret_line, (int)size, in) == NULL) {
            ret_line[0] = '\0';
            break;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    ret_line[strcspn(ret_line, "\n")] = '\0';
    start = ret_line + strspn(ret_line, " ");
    memmove(ret_line, start, strlen(start) + 1);
}

/* nginx's sentence, out of "nginx: [emerg] SENTENCE in FILE:LINE", and the line that it means. */
static void refusal_tell(const struct idem_gateway *gateway, char *output,
                         struct idem_message *message)
{
    char *sentence = strstr(output, "[emerg] ");
    char line[512];
    char *place;
    size_t skip;

    if (sentence == NULL) {
        sentence = strstr(output, "[alert] ");
    }
    if (sentence == NULL) {
        output[strcspn(output, "\n")] = '\0';
        idem_message_set(message, "nginx refuses the configuration: %s", output);
        return;
    }
    sentence += strlen("[emerg] ");
    /* In its log's form the numbers of process and thread come first: "4711#4711: ". */
    skip = strspn(sentence, "0123456789#");
    sentence += skip > 0 && strncmp(sentence + skip, ": ", 2) == 0 ? skip + 2 : 0;
    sentence[strcspn(sentence, "\n")] = '\0';
    place = strstr(sentence, "/" IDEM_GATEWAY_CONF ":");
    if (place != NULL) {
        conf_line(gateway, strtol(place + strlen("/" IDEM_GATEWAY_CONF ":"), NULL, 10), line,
                  sizeof line);
        if (strncmp(line, "idempotency_store ", strlen("idempotency_store ")) == 0) {
            /* Its own line may hold a password, in quotes that no redaction knows. */
            snprintf(line, sizeof line, "idempotency_store main %.400s;", gateway->store_shown);
        }
        idem_message_set(message, "nginx refuses the configuration: %s\n(the line: %s)", sentence,
                         line);
    } else {
        idem_message_set(message, "nginx refuses the configuration: %s", sentence);
    }
}

static void output_read(int pipe, char *ret_output, size_t size_max)
{
    size_t size = 0;
    char spill[512];
    ssize_t got;

    do {
        bool full = size + 1 >= size_max;

        got = full ? read(pipe, spill, sizeof spill)
                   : read(pipe, ret_output + size, size_max - 1 - size);
        size += got > 0 && !full ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    ret_output[size] = '\0';
}

int idem_gateway_test(const struct idem_gateway *gateway, struct idem_message *message)
{
    static char output[OUTPUT_SIZE_MAX];
    int channel[2];
    int status = 1;
    pid_t child;

    if (pipe2(channel, O_CLOEXEC) != 0) {
        idem_message_set(message, "no pipe: %s", strerror(errno));
        return IDEM_ERR_IO;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        dup2(channel[1], STDERR_FILENO);
        nginx_exec(gateway, true);
    }
    close(channel[1]);
    if (child < 0) {
        idem_message_set(message, "no process: %s", strerror(errno));
        close(channel[0]);
        return IDEM_ERR_IO;
    }
    output_read(channel[0], output, sizeof output);
    close(channel[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        /* Warnings are nginx's to print: it does so when it starts. */
        return IDEM_OK;
    }
    refusal_tell(gateway, output, message);
    return IDEM_ERR_INVALID;
}

/* --- readiness ----------------------------------------------------------------------------- */

/*
 * Asks on the socket in the state directory, which nobody but our nginx can have bound while we
 * hold the lock. An answer means that a worker runs, and so that every listening port is bound.
 */
static bool worker_answers(const struct idem_gateway *gateway)
{
    static const char request[] = "GET / HTTP/1.0\r\n\r\n";
    static const char wanted[] = "HTTP/1.1 204";
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = IDEM_GATEWAY_SOCKET};
    const struct timeval patience = {.tv_usec = ANSWER_MS_MAX * 1000 - 1};
    char answer[sizeof wanted - 1];
    bool good = false;
    int socket_file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)gateway;
    if (socket_file < 0) {
        return false;
    }
    (void)setsockopt(socket_file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(socket_file, (const struct sockaddr *)&address, sizeof address) == 0 &&
        send(socket_file, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1 &&
        recv(socket_file, answer, sizeof answer, MSG_WAITALL) == sizeof answer) {
        good = memcmp(answer, wanted, sizeof answer) == 0;
    }
    close(socket_file);
    return good;
}

static void ready_tell(const struct idem_gateway *gateway)
{
    printf("idem gateway: ready on http://%s, upstream %s, store %s\n", gateway->listen.text,
           gateway->upstream_text, gateway->store_shown);
    fflush(stdout);
}

/* --- signals and the end ------------------------------------------------------------------- */

static void nginx_signal(const struct watch *watch, int number)
{
    /* Workers whose master is gone are reached through the group. */
    (void)kill(watch->master_gone ? -watch->nginx : watch->nginx, number);
}

static void phase_enter(struct watch *watch, enum phase phase)
{
    static const int signals[] = {0, 0, SIGQUIT, SIGTERM, SIGKILL};
    static const int64_t lasts_us[] = {START_US_MAX, INT64_MAX / 2, 0, STOP_US_MAX, STOP_US_MAX};
    int64_t lasts = phase == PHASE_DRAINING ? watch->gateway->drain_us : lasts_us[phase];

    watch->phase = phase;
    watch->deadline_us = clock_us() + lasts;
    if (phase == PHASE_KILLING) {
        (void)kill(-watch->nginx, SIGKILL);
    } else if (signals[phase] != 0) {
        nginx_signal(watch, signals[phase]);
    }
}

static void phase_expired(struct watch *watch)
{
    char hint[IDEM_HINT_SIZE];

    switch (watch->phase) {
    case PHASE_STARTING:
        idem_say_error("nginx started, but no worker answered within %d seconds",
                       (int)(START_US_MAX / IDEM_SECOND_US));
        watch->failed = true;
        phase_enter(watch, PHASE_STOPPING);
        break;
    case PHASE_DRAINING:
        idem_say_error(
            "the drain time is over and some requests are not answered, or their answers are not "
            "recorded; stopping all the same. What stays so has an unknown outcome: %s",
            idem_hint_make("list --state unknown", hint));
        watch->cut = true;
        phase_enter(watch, PHASE_STOPPING);
        break;
    default:
        watch->cut = true;
        phase_enter(watch, PHASE_KILLING);
        break;
    }
}

static void end_take(struct watch *watch)
{
    int64_t now_us = clock_us();
    bool first = watch->told_us == 0;
    char hint[IDEM_HINT_SIZE];

    if (first) {
        watch->told_us = now_us;
    }
    if (watch->phase <= PHASE_RUNNING) {
        phase_enter(watch, PHASE_DRAINING);
    } else if (watch->phase == PHASE_DRAINING && !first && now_us - watch->told_us >= SAME_US_MAX) {
        idem_say_error("second signal: stopping at once. Requests that are not answered, or whose "
                       "answers are not recorded, have an unknown outcome: %s",
                       idem_hint_make("list --state unknown", hint));
        watch->cut = true;
        phase_enter(watch, PHASE_STOPPING);
    }
}

static void signal_take(struct watch *watch, int number)
{
    switch (number) {
    case SIGTERM:
    case SIGINT:
    case SIGQUIT:
        end_take(watch);
        break;
    case SIGHUP:
    case SIGUSR1:
        if (watch->phase == PHASE_RUNNING) {
            nginx_signal(watch, number);
        }
        break;
    default: /* SIGCHLD: the loop reaps whenever it wakes */
        break;
    }
}

static void master_ended(struct watch *watch, int status)
{
    watch->master_gone = true;
    watch->master_status = status;
    if (watch->phase > PHASE_RUNNING) {
        return;
    }
    watch->failed = true;
    if (WIFSIGNALED(status)) {
        idem_say_error("nginx was killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    } else {
        idem_say_error("nginx ended by itself with status %d; its own words are above",
                       WEXITSTATUS(status));
    }
    /* Workers without a master would serve on, unwatched. They may finish what they have. */
    phase_enter(watch, PHASE_DRAINING);
}

/* Reaps what ended; false when nobody is left. */
static bool children_reap(struct watch *watch)
{
    for (;;) {
        int status;
        pid_t child = waitpid(-1, &status, WNOHANG);

        if (child == 0) {
            return true;
        }
        if (child < 0) {
            return errno != ECHILD;
        }
        if (child == watch->nginx) {
            master_ended(watch, status);
        }
    }
}

/* --- crashes ------------------------------------------------------------------------------- */

static void crash_take(struct watch *watch, int number)
{
    int64_t now_us = clock_us();
    char hint[IDEM_HINT_SIZE];

    if (now_us - watch->crashes_us > CRASH_US_MAX) {
        watch->crashes_us = now_us;
        watch->crashes = 0;
    }
    watch->crashes++;
    if (watch->crashes <= watch->gateway->workers + CRASHES_MAX) {
        return;
    }
    idem_say_error("nginx's workers crashed %lld times within %d seconds, the last one by signal "
                   "%d (%s); stopping, as the next would crash too. If the module %s was written "
                   "over while nginx had it loaded, or is another nginx's, install it anew. "
                   "Requests that were under way have an unknown outcome: %s",
                   (long long)watch->crashes, (int)(CRASH_US_MAX / IDEM_SECOND_US), number,
                   strsignal(number), watch->gateway->module,
                   idem_hint_make("list --state unknown", hint));
    watch->failed = true;
    phase_enter(watch, PHASE_DRAINING);
}

static void alerts_take(struct watch *watch)
{
    enum idem_alert alert;
    int number = 0;

    while ((alert = idem_gateway_alert_take(watch->alerts, watch->nginx, &number)) !=
           IDEM_ALERT_NONE) {
        if (watch->phase > PHASE_RUNNING) {
            continue;
        }
        if (alert == IDEM_ALERT_CRASHED) {
            crash_take(watch, number);
        } else if (alert == IDEM_ALERT_LAST) {
            idem_say_error("a worker of nginx could not start, and nginx tries no other; its own "
                           "words are above. Stopping, as clients would wait for ever");
            watch->failed = true;
            phase_enter(watch, PHASE_DRAINING);
        }
    }
}

/* --- the loop ------------------------------------------------------------------------------ */

static void event_wait(struct watch *watch)
{
    struct pollfd polled[] = {{.fd = watch->signals, .events = POLLIN},
                              {.fd = watch->alerts, .events = POLLIN}};
    int64_t left_us = watch->deadline_us - clock_us();
    struct signalfd_siginfo taken;

    if (watch->phase == PHASE_STARTING && left_us > START_POLL_US) {
        left_us = START_POLL_US;
    }
    left_us = left_us > 0 ? left_us : 0;
    left_us = left_us < WAIT_US_MAX ? left_us : WAIT_US_MAX;
    if (poll(polled, sizeof polled / sizeof polled[0], (int)((left_us + 999) / 1000)) > 0) {
        alerts_take(watch);
        if (read(watch->signals, &taken, sizeof taken) == (ssize_t)sizeof taken) {
            signal_take(watch, (int)taken.ssi_signo);
        }
    } else if (clock_us() >= watch->deadline_us) {
        phase_expired(watch);
    }
}

static int watch_until_end(struct watch *watch)
{
    while (children_reap(watch)) {
        if (watch->phase == PHASE_STARTING && worker_answers(watch->gateway)) {
            phase_enter(watch, PHASE_RUNNING);
            ready_tell(watch->gateway);
        }
        event_wait(watch);
    }
    if (watch->failed) {
        return IDEM_EXIT_FAILURE;
    }
    if (watch->cut || WIFSIGNALED(watch->master_status) || WEXITSTATUS(watch->master_status) != 0) {
        return IDEM_EXIT_CUT;
    }
    puts("idem gateway: stopped; every request that it had taken is answered");
    return idem_say_end(IDEM_EXIT_OK);
}

/* In the child. The parent's death is asked about once more, in case it came before the request. */
static void nginx_become(const struct idem_gateway *gateway, pid_t parent, const sigset_t *before)
{
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGQUIT) != 0 || getppid() != parent) {
        _exit(1);
    }
    sigprocmask(SIG_SETMASK, before, NULL);
    nginx_exec(gateway, false);
}

/* Signals wait to be read from now on, and so do alerts. 0, or -1 and errno. */
static int watch_begin(struct watch *watch, sigset_t *ret_before)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGCHLD};
    sigset_t signals;

    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&signals, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, ret_before);
    watch->signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    /* Workers of a killed master become our children, so that their end can be waited for. The
     * path of a socket is short only from within the state directory. */
    if (watch->signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
        chdir(watch->gateway->state) != 0 ||
        idem_gateway_alerts_open(watch->gateway, &watch->alerts) != IDEM_OK) {
        return -1;
    }
    return 0;
}

int idem_gateway_run(const struct idem_gateway *gateway)
{
    struct watch watch = {.gateway = gateway};
    pid_t parent = getpid();
    sigset_t before;

    if (watch_begin(&watch, &before) != 0) {
        idem_say_error("%s: %s", gateway->state, strerror(errno));
        return IDEM_EXIT_FAILURE;
    }
    fflush(NULL);
    watch.nginx = fork();
    if (watch.nginx < 0) {
        idem_say_error("no process: %s", strerror(errno));
        return IDEM_EXIT_FAILURE;
    }
    if (watch.nginx == 0) {
        nginx_become(gateway, parent, &before);
    }
    /* Also here, so that the group exists whichever of the two runs first. */
    (void)setpgid(watch.nginx, watch.nginx);
    phase_enter(&watch, PHASE_STARTING);
    return watch_until_end(&watch);
}
