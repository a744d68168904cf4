/* Place: see place.h. */
#include "place.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "crash.h"
#include "hint.h"

#define ROOT_STATE "/var/lib/idem"
#define LMDB_FILE  "data.mdb" /* the file that makes a directory an LMDB environment */

const char *idem_place_user(unsigned uid, char ret_text[IDEM_USER_TEXT_SIZE])
{
    const struct passwd *entry = getpwuid((uid_t)uid);

    if (entry != NULL) {
        snprintf(ret_text, IDEM_USER_TEXT_SIZE, "%s", entry->pw_name);
    } else {
        snprintf(ret_text, IDEM_USER_TEXT_SIZE, "uid %u", uid);
    }
    return ret_text;
}

static int path_make(char ret_path[PATH_MAX], const char *base, const char *rest,
                     struct idem_message *message)
{
    int size = snprintf(ret_path, PATH_MAX, "%s%s", base, rest);

    if (size < 0 || size >= PATH_MAX) {
        idem_message_set(message, "the path of the state directory is too long; give --state DIR");
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

int idem_place_state(char ret_path[PATH_MAX], struct idem_message *message)
{
    const char *state_home = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    const struct passwd *entry;

    if (geteuid() == 0) {
        return path_make(ret_path, ROOT_STATE, "", message);
    }
    if (state_home != NULL && state_home[0] == '/') {
        return path_make(ret_path, state_home, "/idem", message);
    }
    if (home == NULL || home[0] != '/') {
        entry = getpwuid(geteuid());
        home = entry != NULL ? entry->pw_dir : NULL;
    }
    if (home == NULL || home[0] != '/') {
        idem_message_set(message, "there is no home directory to keep the state in; give --state "
                                  "DIR, or --store URL, or set XDG_STATE_HOME");
        return IDEM_ERR_INVALID;
    }
    return path_make(ret_path, home, "/.local/state/idem", message);
}

bool idem_place_escape(const char *path, char *ret_text, size_t size)
{
    size_t used = 0;

    for (; *path != '\0'; path++) {
        if (used + sizeof "%25" > size) {
            return false;
        }
        if (strchr("%?&=#", *path) != NULL) {
            used += (size_t)snprintf(ret_text + used, size - used, "%%%02X", (unsigned char)*path);
        } else {
            ret_text[used++] = *path;
        }
    }
    ret_text[used] = '\0';
    return true;
}

int idem_place_store_url(const char *state, char ret_url[IDEM_URL_SIZE_MAX],
                         struct idem_message *message)
{
    char place[IDEM_URL_SIZE_MAX];
    int written = IDEM_URL_SIZE_MAX;

    if (idem_place_escape(state, place, sizeof place)) {
        written = snprintf(ret_url, IDEM_URL_SIZE_MAX, "lmdb:%s/store", place);
    }
    if (written < 0 || written >= IDEM_URL_SIZE_MAX) {
        idem_message_set(message, "the state directory's path is too long for a store URL");
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

#define BLANKS " \t\r\n"

/*
 * The URL in a line as fgets() gave it: all of it but the blanks around it and the end of the line,
 * so that it means what the same words on a command line mean. False when there is none, or when
 * the line did not fit: what was cut off might as well end another URL.
 */
static bool line_url(const char line[IDEM_URL_SIZE_MAX + 2], char ret_url[IDEM_URL_SIZE_MAX])
{
    size_t start = strspn(line, BLANKS);
    size_t end = strlen(line);

    if (end == IDEM_URL_SIZE_MAX + 1 && line[end - 1] != '\n') {
        return false;
    }
    while (end > start && strchr(BLANKS, line[end - 1]) != NULL) {
        end--;
    }
    if (end == start || end - start >= IDEM_URL_SIZE_MAX) {
        return false;
    }
    memcpy(ret_url, line + start, end - start);
    ret_url[end - start] = '\0';
    return true;
}

static int file_read(const char *path, char ret_url[IDEM_URL_SIZE_MAX],
                     struct idem_message *message)
{
    char line[IDEM_URL_SIZE_MAX + 2] = "";
    FILE *file = fopen(path, "re");
    bool failed = file == NULL;
    int reason = errno;

    if (file != NULL) {
        failed = fgets(line, sizeof line, file) == NULL && ferror(file);
        reason = errno;
        fclose(file);
    }
    if (failed) {
        idem_message_set(message, "cannot read the store's URL from the file %s: %s", path,
                         strerror(reason));
        return IDEM_ERR_INVALID;
    }
    if (!line_url(line, ret_url)) {
        idem_message_set(message, "the first line of %s must be a store URL of at most %d bytes",
                         path, IDEM_URL_SIZE_MAX - 1);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

const char *idem_place_hint(const char *option, const char *url, char text[IDEM_URL_SIZE_MAX])
{
    if (option == NULL || option[0] == '@') {
        return option;
    }
    idem_store_url_redact(url, text, IDEM_URL_SIZE_MAX);
    return text;
}

int idem_place_store(const char *option, char ret_url[IDEM_URL_SIZE_MAX],
                     struct idem_message *message)
{
    const char *url = option != NULL ? option : getenv("IDEM_STORE");
    char state[PATH_MAX];
    int error;

    if (url != NULL && strcmp(url, "@") == 0) {
        idem_message_set(message,
                         "behind @ stands the name of the file that holds the store's URL");
        return IDEM_ERR_INVALID;
    }
    if (url != NULL && url[0] == '@') {
        return file_read(url + 1, ret_url, message);
    }
    if (url != NULL && url[0] != '\0') {
        if (strlen(url) >= IDEM_URL_SIZE_MAX) {
            idem_message_set(message, "the store URL is over %d bytes", IDEM_URL_SIZE_MAX - 1);
            return IDEM_ERR_INVALID;
        }
        memcpy(ret_url, url, strlen(url) + 1);
        return IDEM_OK;
    }
    error = idem_place_state(state, message);
    return error != IDEM_OK ? error : idem_place_store_url(state, ret_url, message);
}

/* The sentence for a directory that stat() could not read. */
static int directory_missing(const char *directory, int reason, struct idem_message *message)
{
    char user[IDEM_USER_TEXT_SIZE];

    if (reason == EACCES) {
        idem_message_set(message,
                         "user %s may not look into %s; run this as the user that the "
                         "gateway runs as, or as root",
                         idem_place_user(geteuid(), user), directory);
        return IDEM_ERR_UNAVAILABLE;
    }
    if (reason == ENOENT) {
        idem_message_set(message,
                         "there is no store in %s; `idem gateway` makes it when it first "
                         "starts. If it is elsewhere, give --store URL or set IDEM_STORE",
                         directory);
        return IDEM_ERR_UNAVAILABLE;
    }
    idem_message_set(message, "%s: %s", directory, strerror(reason));
    return IDEM_ERR_UNAVAILABLE;
}

/* Checks that the directory holds a store that this user may use, and yields its owner. */
static int directory_check(const char *directory, uid_t *ret_owner, gid_t *ret_group,
                           struct idem_message *message)
{
    char user[IDEM_USER_TEXT_SIZE];
    char file[PATH_MAX];
    struct stat facts;

    if (stat(directory, &facts) != 0) {
        return directory_missing(directory, errno, message);
    }
    if (!S_ISDIR(facts.st_mode)) {
        idem_message_set(message, "%s is no directory; lmdb: takes the directory of the store",
                         directory);
        return IDEM_ERR_INVALID;
    }
    snprintf(file, sizeof file, "%s/" LMDB_FILE, directory);
    if (stat(file, &facts) != 0) {
        if (errno == ENOENT) {
            idem_message_set(message,
                             "%s is a directory without a store in it; check the path, or "
                             "start `idem gateway` once to make one",
                             directory);
            return IDEM_ERR_UNAVAILABLE;
        }
        return directory_missing(directory, errno, message);
    }
    if (geteuid() != 0 && access(file, R_OK | W_OK) != 0) {
        idem_place_user(facts.st_uid, user);
        idem_message_set(message,
                         "the store in %s belongs to user %s; run this as that user (sudo "
                         "-u %s idem ...) or as root",
                         directory, user, user);
        return IDEM_ERR_UNAVAILABLE;
    }
    *ret_owner = facts.st_uid;
    *ret_group = facts.st_gid;
    return IDEM_OK;
}

/* Opens as the owner of the files: what opening creates (a lock file, say) must be the owner's. */
static int store_open_as(const char *url, uid_t owner, gid_t group, struct idem_store **ret_store,
                         struct idem_message *message)
{
    bool become = geteuid() == 0 && owner != 0;
    int error;

    if (become && (setegid(group) != 0 || seteuid(owner) != 0)) {
        idem_message_set(message, "cannot act as the store's owner: %s", strerror(errno));
        return IDEM_ERR_UNAVAILABLE;
    }
    error = idem_store_open(url, NULL, ret_store, message);
    if (become && (seteuid(0) != 0 || setegid(getgid()) != 0)) {
        /* Cannot happen while the real user is root; going on with the wrong user must not. */
        abort();
    }
    return error;
}

/* A URL that cannot be right is the caller's mistake; everything later is the system's. */
static int url_settle(const char *option, char ret_url[IDEM_URL_SIZE_MAX], char **ret_directory,
                      struct idem_message *message)
{
    int error = idem_place_store(option, ret_url, message);

    if (error == IDEM_OK) {
        error = idem_store_url_check(ret_url, ret_directory, message);
    }
    return error == IDEM_ERR_INVALID || error == IDEM_ERR_UNSUPPORTED ? IDEM_PLACE_WRONG : error;
}

int idem_place_open(const char *option, bool create, char ret_shown[IDEM_URL_SIZE_MAX],
                    struct idem_store **ret_store, struct idem_message *message)
{
    char url[IDEM_URL_SIZE_MAX] = "";
    char *directory = NULL;
    uid_t owner = geteuid();
    gid_t group = getegid();
    int error = url_settle(option, url, &directory, message);

    idem_store_url_redact(url, ret_shown, IDEM_URL_SIZE_MAX);
    if (error != IDEM_OK) {
        return error;
    }
    /* What is found without an option is found so by the command of a hint too. */
    idem_hint_store(idem_place_hint(option, url, ret_shown));
    if (directory != NULL) {
        error = create ? IDEM_OK : directory_check(directory, &owner, &group, message);
        idem_crash_guard(STDERR_FILENO, "%s: " IDEM_CRASH_SENTENCE "\n", idem_say_speaker(),
                         directory);
    }
    free(directory); /* malloc'd, says idem_store_url_check */
    if (error == IDEM_OK) {
        error = store_open_as(url, owner, group, ret_store, message);
    }
    if (error != IDEM_OK) {
        idem_crash_lift();
    }
    return error;
}

void idem_place_close(struct idem_store *store)
{
    idem_store_close(store);
    idem_crash_lift();
}

int idem_place_exit(int outcome)
{
    if (outcome == IDEM_PLACE_WRONG) {
        return IDEM_EXIT_USAGE;
    }
    return outcome == IDEM_ERR_UNSAFE || outcome == IDEM_ERR_SELFTEST ? IDEM_EXIT_REFUSED
                                                                      : IDEM_EXIT_FAILURE;
}
