/* Gateway, state: the state directory, its lock, the worker's user and the store's directory. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <idem/store.h>

#include "crash.h"
#include "gateway.h"
#include "hint.h"
#include "place.h"

/* Exit statuses of the process that tries the store. */
enum tried {
    TRIED_GOOD = 0,
    TRIED_FAILED = 1,
    TRIED_FULL = 2, /* it refuses new keys */
    TRIED_AWAY = 3, /* its server cannot be reached now */
    TRIED_NEW = 4,  /* it was made by this opening */
};

/* --- planning ------------------------------------------------------------------------------ */

/* An absolute path without asking whether it exists; `.` and `..` stay as they are. */
static int path_absolute(const char *path, char ret_path[PATH_MAX], struct idem_message *message)
{
    char here[PATH_MAX] = "";
    size_t size;
    int written;

    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) {
        idem_message_set(message, "the current directory is gone: %s", strerror(errno));
        return IDEM_ERR_IO;
    }
    written = snprintf(ret_path, PATH_MAX, "%s%s%s", here, path[0] != '/' ? "/" : "", path);
    if (written < 0 || written >= PATH_MAX - 64) {
        idem_message_set(message, "the path is too long: %.200s", path);
        return IDEM_ERR_INVALID;
    }
    for (size = (size_t)written; size > 1 && ret_path[size - 1] == '/'; size--) {
        ret_path[size - 1] = '\0';
    }
    return IDEM_OK;
}

/* Root needs somebody else to be: a worker parses what strangers send. */
static int user_plan(struct idem_gateway *gateway, struct idem_message *message)
{
    static const char *const usual[] = {"www-data", "nginx", "nobody"};
    const struct passwd *entry = NULL;
    const struct group *group;

    gateway->as_root = geteuid() == 0;
    if (!gateway->as_root) {
        if (gateway->user != NULL) {
            idem_message_set(message, "--user needs root; without it nginx runs as you");
            return IDEM_ERR_INVALID;
        }
        return IDEM_OK;
    }
    if (gateway->user != NULL) {
        entry = getpwnam(gateway->user);
    }
    for (size_t i = 0; gateway->user == NULL && entry == NULL && i < 3; i++) {
        entry = getpwnam(usual[i]);
    }
    if (entry == NULL) {
        idem_message_set(message,
                         "there is no user %s for nginx's workers; name one with --user NAME",
                         gateway->user != NULL ? gateway->user : "www-data, nginx or nobody");
        return IDEM_ERR_INVALID;
    }
    gateway->worker_uid = entry->pw_uid;
    gateway->worker_gid = entry->pw_gid;
    snprintf(gateway->worker_user, sizeof gateway->worker_user, "%s", entry->pw_name);
    group = getgrgid(gateway->worker_gid);
    if (group == NULL) {
        idem_message_set(message, "the user %s has no group", gateway->worker_user);
        return IDEM_ERR_INVALID;
    }
    snprintf(gateway->worker_group, sizeof gateway->worker_group, "%s", group->gr_name);
    return IDEM_OK;
}

/* A relative directory would mean another place to nginx, which runs in the state directory. */
static int store_absolute(struct idem_gateway *gateway, const char *url,
                          struct idem_message *message)
{
    size_t scheme = strcspn(url, ":");
    bool relative =
        gateway->store_directory[0] != '\0' && url[scheme + (url[scheme] == ':')] != '/';
    char here[PATH_MAX];
    char place[IDEM_URL_SIZE_MAX];
    int written;

    if (!relative) {
        memcpy(gateway->store_url, url, strlen(url) + 1);
        return IDEM_OK;
    }
    if (getcwd(here, sizeof here) == NULL) {
        idem_message_set(message, "the current directory is gone: %s", strerror(errno));
        return IDEM_ERR_IO;
    }
    written = idem_place_escape(here, place, sizeof place)
                  ? snprintf(gateway->store_url, sizeof gateway->store_url, "%.*s:%s/%s",
                             (int)scheme, url, place, url + scheme + 1)
                  : IDEM_URL_SIZE_MAX;
    if (written < 0 || written >= IDEM_URL_SIZE_MAX) {
        idem_message_set(message, "the store URL is over %d bytes", IDEM_URL_SIZE_MAX - 1);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

/* What people see of the store. A hint names the file that holds its URL, wherever it is typed. */
static int store_show(struct idem_gateway *gateway, const char *named, struct idem_message *message)
{
    char file[PATH_MAX];
    int written;
    int error;

    idem_store_url_redact(gateway->store_url, gateway->store_shown, sizeof gateway->store_shown);
    if (named == NULL || named[0] != '@') {
        memcpy(gateway->store_hint, gateway->store_shown, sizeof gateway->store_hint);
        return IDEM_OK;
    }
    error = path_absolute(named + 1, file, message);
    if (error != IDEM_OK) {
        return error;
    }
    written = snprintf(gateway->store_hint, sizeof gateway->store_hint, "@%s", file);
    if (written < 0 || (size_t)written >= sizeof gateway->store_hint) {
        idem_message_set(message, "the path is too long: %.200s", file);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

static int store_plan(struct idem_gateway *gateway, struct idem_message *message)
{
    const char *named = gateway->store != NULL ? gateway->store : getenv("IDEM_STORE");
    char url[IDEM_URL_SIZE_MAX];
    char *directory = NULL;
    int error;

    gateway->store_own = named == NULL || named[0] == '\0';
    if (gateway->store_own) {
        error = idem_place_store_url(gateway->state, url, message);
    } else {
        error = idem_place_store(named, url, message);
    }
    if (error == IDEM_OK) {
        error = idem_store_url_check(url, &directory, message);
    }
    if (error == IDEM_OK && directory != NULL) {
        error = path_absolute(directory, gateway->store_directory, message);
    }
    free(directory);
    if (error == IDEM_OK) {
        error = store_absolute(gateway, url, message);
    }
    if (error == IDEM_OK) {
        error = store_show(gateway, named, message);
    }
    if (error == IDEM_OK && strncmp(url, "memory:", 7) == 0 && gateway->workers > 1) {
        idem_message_set(message, "memory: is private to one process, so it goes with --workers 1");
        error = IDEM_ERR_INVALID;
    }
    return error;
}

/* A relative file is in the current directory, where the person who named it is. */
static int access_log_plan(struct idem_gateway *gateway, struct idem_message *message)
{
    const char *log = gateway->access_log;
    int error;

    if (log == NULL || strcmp(log, "-") == 0 || strncmp(log, "syslog:", 7) == 0) {
        return IDEM_OK;
    }
    error = path_absolute(log, gateway->access_log_path, message);
    if (error == IDEM_OK) {
        gateway->access_log = gateway->access_log_path;
    }
    return error;
}

int idem_gateway_plan(struct idem_gateway *gateway, struct idem_message *message)
{
    char state[PATH_MAX];
    int error = IDEM_OK;

    if (gateway->state_option != NULL) {
        error = path_absolute(gateway->state_option, gateway->state, message);
    } else {
        error = idem_place_state(state, message);
        error = error != IDEM_OK ? error : path_absolute(state, gateway->state, message);
    }
    if (error == IDEM_OK) {
        error = access_log_plan(gateway, message);
    }
    if (error == IDEM_OK) {
        error = user_plan(gateway, message);
    }
    return error != IDEM_OK ? error : store_plan(gateway, message);
}

/* --- directories --------------------------------------------------------------------------- */

static int write_refused(const char *path, struct idem_message *message)
{
    bool room = errno == ENOSPC || errno == EDQUOT;

    idem_message_set(message, "cannot write %s: %s; %schoose another directory with --state DIR",
                     path, strerror(errno), room ? "make room on that device, or " : "");
    return IDEM_ERR_IO;
}

/* Makes the directory and those above it. The last one gets `mode`, the others 0755. */
static int directory_make(const char *path, mode_t mode, struct idem_message *message)
{
    char part[PATH_MAX];
    size_t size = strlen(path);

    memcpy(part, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        if (mkdir(part, i == size ? mode : 0755) != 0 && errno != EEXIST) {
            idem_message_set(message,
                             "cannot make the directory %s: %s; choose another with "
                             "--state DIR",
                             part, strerror(errno));
            return IDEM_ERR_IO;
        }
        part[i] = i == size ? '\0' : '/';
    }
    return IDEM_OK;
}

static int lock_take(const struct idem_gateway *gateway, int *ret_lock,
                     struct idem_message *message)
{
    char path[PATH_MAX + 64];
    char holder[32] = "";
    int lock;

    snprintf(path, sizeof path, "%s/%s", gateway->state, IDEM_GATEWAY_LOCK);
    lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (lock < 0) {
        idem_message_set(message,
                         "cannot write in the state directory %s: %s; choose another with "
                         "--state DIR",
                         gateway->state, strerror(errno));
        return IDEM_ERR_IO;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        ssize_t size = read(lock, holder, sizeof holder - 1);

        holder[size > 0 ? size : 0] = '\0';
        holder[strcspn(holder, "\n")] = '\0';
        idem_message_set(message,
                         "a gateway runs on the state directory %s already (process %s); "
                         "give this one another with --state DIR",
                         gateway->state, holder[0] != '\0' ? holder : "unknown");
        close(lock);
        return IDEM_ERR_BUSY;
    }
    *ret_lock = lock;
    return IDEM_OK;
}

int idem_gateway_state(const struct idem_gateway *gateway, int *ret_lock,
                       struct idem_message *message)
{
    char path[PATH_MAX + 64];
    int lock = -1;
    /* Root's workers are somebody else and must pass through to the store and the bodies. */
    int error = directory_make(gateway->state, gateway->as_root ? 0711 : 0700, message);

    if (error == IDEM_OK) {
        error = lock_take(gateway, &lock, message);
    }
    if (error != IDEM_OK) {
        return error;
    }
    if (ftruncate(lock, 0) != 0 || dprintf(lock, "%ld\n", (long)getpid()) < 0) {
        snprintf(path, sizeof path, "%s/%s", gateway->state, IDEM_GATEWAY_LOCK);
        error = write_refused(path, message);
        close(lock);
        return error;
    }
    snprintf(path, sizeof path, "%s/tmp", gateway->state);
    error = directory_make(path, gateway->as_root ? 0711 : 0700, message);
    /* A socket that a killed nginx left behind would keep the next one from binding. */
    snprintf(path, sizeof path, "%s/%s", gateway->state, IDEM_GATEWAY_SOCKET);
    if (error == IDEM_OK && unlink(path) != 0 && errno != ENOENT) {
        idem_message_set(message, "cannot remove %s: %s", path, strerror(errno));
        error = IDEM_ERR_IO;
    }
    if (error != IDEM_OK) {
        close(lock);
        return error;
    }
    *ret_lock = lock;
    return IDEM_OK;
}

int idem_gateway_write_conf(const struct idem_gateway *gateway, struct idem_message *message)
{
    char path[PATH_MAX + 64];
    char fresh[PATH_MAX + 64];
    FILE *out;
    int file;
    bool good;

    snprintf(path, sizeof path, "%s/%s", gateway->state, IDEM_GATEWAY_CONF);
    snprintf(fresh, sizeof fresh, "%s/%s.new", gateway->state, IDEM_GATEWAY_CONF);
    /* Only for the owner: --set may carry a credential for the upstream. */
    file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    out = file >= 0 ? fdopen(file, "w") : NULL;
    if (out == NULL) {
        int error = write_refused(fresh, message);

        if (file >= 0) {
            close(file);
        }
        return error;
    }
    idem_gateway_conf(gateway, false, out);
    good = !ferror(out);
    good = fclose(out) == 0 && good;
    if (!good || rename(fresh, path) != 0) {
        return write_refused(path, message);
    }
    return IDEM_OK;
}

/* --- the store ----------------------------------------------------------------------------- */

/*
 * Gives the store's directory and its files to the worker's user. Only as root, and only while the
 * directory is root's: in one that belongs to somebody else, a name may be a trap.
 */
static int directory_give(const struct idem_gateway *gateway, struct idem_message *message)
{
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    int directory = open(gateway->store_directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat facts;
    int error = IDEM_OK;

    if (directory < 0 || fstat(directory, &facts) != 0) {
        idem_message_set(message, "the store's directory %s: %s", gateway->store_directory,
                         strerror(errno));
        error = IDEM_ERR_IO;
    } else if (facts.st_uid == 0 && gateway->worker_uid != 0) {
        for (size_t i = 0; i < sizeof files / sizeof files[0] && error == IDEM_OK; i++) {
            if (fchownat(directory, files[i], gateway->worker_uid, gateway->worker_gid,
                         AT_SYMLINK_NOFOLLOW) != 0 &&
                errno != ENOENT) {
                error = IDEM_ERR_IO;
            }
        }
        if (error != IDEM_OK || fchown(directory, gateway->worker_uid, gateway->worker_gid) != 0) {
            idem_message_set(message, "cannot give %s to %s: %s", gateway->store_directory,
                             gateway->worker_user, strerror(errno));
            error = IDEM_ERR_IO;
        }
    }
    if (directory >= 0) {
        close(directory);
    }
    return error;
}

static int directory_prepare(const struct idem_gateway *gateway, struct idem_message *message)
{
    struct stat facts;
    bool fresh = stat(gateway->store_directory, &facts) != 0 && errno == ENOENT;
    int error = directory_make(gateway->store_directory, 0700, message);

    /* A directory that the user named and that was there keeps its owner; what we made, we give. */
    if (error == IDEM_OK && gateway->as_root && (fresh || gateway->store_own)) {
        error = directory_give(gateway, message);
    }
    return error;
}

/* Says which part of the path stops this user, and what to do about it. */
static void reach_tell(const struct idem_gateway *gateway, struct idem_message *message)
{
    const char *advice = gateway->as_root ? ", or choose another user with --user NAME" : "";
    char user[IDEM_USER_TEXT_SIZE];
    char part[PATH_MAX];
    int reason = errno;

    idem_place_user(geteuid(), user);
    memcpy(part, gateway->store_directory, strlen(gateway->store_directory) + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(part, X_OK) != 0) {
            idem_message_set(message,
                             "the store's directory %s is out of reach for user %s, who may not "
                             "pass through %s; keep it elsewhere with --state DIR%s",
                             gateway->store_directory, user, part, advice);
            return;
        }
        *slash = '/';
    }
    idem_message_set(message,
                     "user %s may not write in the store's directory %s (%s); change its owner%s",
                     user, gateway->store_directory, strerror(reason), advice);
}

/* True when the store refuses new keys already: then the sentence is its own word on that. */
static bool store_is_full(struct idem_store *store, struct idem_message *message)
{
    static struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(facts[i].name, "claims") == 0 && strncmp(facts[i].value, "refused", 7) == 0) {
            idem_message_set(message, "%s", facts[i].value);
            return true;
        }
    }
    return false;
}

/* In the child: opens the store; what came of it, with a sentence in every case but two. */
static enum tried store_try_open(const struct idem_gateway *gateway, int report,
                                 struct idem_message *message)
{
    bool embedded = gateway->store_directory[0] != '\0';
    struct idem_store *store = NULL;
    enum tried tried = TRIED_GOOD;
    int error;

    if (embedded) {
        idem_crash_guard(report, IDEM_CRASH_SENTENCE, gateway->store_directory);
    }
    error = idem_store_open(gateway->store_url, NULL, &store, message);
    if (error == IDEM_OK && store_is_full(store, message)) {
        tried = TRIED_FULL;
    } else if (error == IDEM_OK) {
        /* Every store in memory is new, and nobody expects anything else. */
        tried = idem_store_is_new(store) && strncmp(gateway->store_url, "memory:", 7) != 0
                    ? TRIED_NEW
                    : TRIED_GOOD;
    } else if (!embedded && (error == IDEM_ERR_UNAVAILABLE || error == IDEM_ERR_TIMEOUT)) {
        tried = TRIED_AWAY;
    } else {
        tried = TRIED_FAILED;
    }
    idem_store_close(store);
    idem_crash_lift();
    if (error != IDEM_OK && message->text[0] == '\0') {
        idem_message_set(message, "%s", idem_error_text(error));
    }
    return tried;
}

/* In the child: becomes the worker's user, opens the store, says what came of it, ends. */
static void store_try(const struct idem_gateway *gateway, int report)
{
    struct idem_message message = {{0}};
    enum tried tried = TRIED_FAILED;
    ssize_t written;

    if (gateway->as_root &&
        (initgroups(gateway->worker_user, gateway->worker_gid) != 0 ||
         setgid(gateway->worker_gid) != 0 || setuid(gateway->worker_uid) != 0)) {
        idem_message_set(&message, "cannot become %s: %s", gateway->worker_user, strerror(errno));
    } else if (gateway->store_directory[0] != '\0' &&
               access(gateway->store_directory, R_OK | W_OK | X_OK) != 0) {
        reach_tell(gateway, &message);
    } else {
        tried = store_try_open(gateway, report, &message);
    }
    written = write(report, message.text, strlen(message.text));
    (void)written; /* nobody is left to tell; the exit status says it too */
    _exit((int)tried);
}

/* It starts all the same: what is recorded is replayed, and verdicts still get in. */
static void full_tell(const char *why)
{
    char hint[IDEM_HINT_SIZE];

    idem_say_warning("the store is full: a request with a new key gets 503 until there is room "
                     "(new keys are %s). What it holds: %s",
                     why, idem_hint_make("store check", hint));
}

/* It starts all the same: what is not guarded has nothing to do with the store. */
static void away_tell(const struct idem_gateway *gateway, const char *why)
{
    char hint[IDEM_HINT_SIZE], user[IDEM_USER_TEXT_SIZE + 64] = "";

    /* Root may read more, such as a file with the password. */
    if (gateway->as_root) {
        snprintf(user, sizeof user, ", as user %.*s like the workers", IDEM_USER_TEXT_SIZE,
                 gateway->worker_user);
    }
    idem_say_warning("the store %s cannot be used now (%s); until it can, guarded requests get 503 "
                     "and nothing of them is executed. To look at it%s: %s",
                     gateway->store_shown, why, user, idem_hint_make("store check", hint));
}

static int store_tried_tell(const struct idem_gateway *gateway, int status,
                            struct idem_message *message)
{
    switch (WIFEXITED(status) ? WEXITSTATUS(status) : TRIED_FAILED) {
    case TRIED_GOOD:
        return IDEM_OK;
    case TRIED_FULL:
        full_tell(message->text);
        return IDEM_OK;
    case TRIED_AWAY:
        away_tell(gateway, message->text);
        return IDEM_OK;
    case TRIED_NEW:
        idem_say_note("made a new, empty store in %s: no earlier key is protected",
                      gateway->store_directory[0] != '\0' ? gateway->store_directory
                                                          : gateway->store_shown);
        return IDEM_OK;
    default:
        break;
    }
    if (message->text[0] == '\0') {
        idem_message_set(message,
                         "trying the store %s ended without a word%s%s. If its files are "
                         "damaged: " IDEM_CRASH_ADVICE,
                         gateway->store_shown, WIFSIGNALED(status) ? ": " : "",
                         WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
    }
    return IDEM_ERR_UNAVAILABLE;
}

static int store_try_wait(const struct idem_gateway *gateway, pid_t child, int report,
                          struct idem_message *message)
{
    size_t size = 0;
    ssize_t got;
    int status;

    while ((got = read(report, message->text + size, sizeof message->text - 1 - size)) > 0 ||
           (got < 0 && errno == EINTR)) {
        size += got > 0 ? (size_t)got : 0;
    }
    message->text[size] = '\0';
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return store_tried_tell(gateway, status, message);
}

/* In a process of its own: LMDB must not be opened before nginx forks, nor by another user. */
static int store_try_apart(const struct idem_gateway *gateway, struct idem_message *message)
{
    int report[2];
    pid_t child;
    int error = IDEM_OK;

    if (pipe2(report, O_CLOEXEC) != 0) {
        idem_message_set(message, "no pipe: %s", strerror(errno));
        return IDEM_ERR_IO;
    }
    fflush(NULL); /* or the child would write what is waiting once more */
    child = fork();
    if (child == 0) {
        close(report[0]);
        store_try(gateway, report[1]);
    }
    close(report[1]);
    if (child < 0) {
        idem_message_set(message, "no process: %s", strerror(errno));
        error = IDEM_ERR_IO;
    } else {
        error = store_try_wait(gateway, child, report[0], message);
    }
    close(report[0]);
    return error;
}

int idem_gateway_store(const struct idem_gateway *gateway, struct idem_message *message)
{
    bool embedded = gateway->store_directory[0] != '\0';
    int error = embedded ? directory_prepare(gateway, message) : IDEM_OK;

    return error != IDEM_OK ? error : store_try_apart(gateway, message);
}
