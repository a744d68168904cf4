/*
 * May the store live in this directory, and with which options? And: one environment per directory
 * and process, because closing a second one would drop the locks of the first (POSIX locks belong
 * to the process).
 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/lmdb/lmdb_store.h"

#define OPEN_MAX 64 /* directories that one process has open as stores */

/* The open stores of this process. A child after fork finds its parent's pid, and ignores them. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct idem_backend *open_stores[OPEN_MAX];

static int option_size(const struct idem_url_option *option, uint64_t min, uint64_t max,
                       uint64_t *ret_size, struct idem_message *message)
{
    if (idem_size_parse(option->value, ret_size) || *ret_size < min || *ret_size > max) {
        idem_message_set(message,
                         "%s=%s is not allowed: write bytes, or a number with k, m or g, "
                         "from %lluk to %llug",
                         option->name, option->value, (unsigned long long)(min >> 10),
                         (unsigned long long)(max >> 30));
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

static int option_read(const struct idem_url_option *option, struct idem_lmdb_options *options,
                       struct idem_message *message)
{
    if (strcmp(option->name, "size") == 0)
        return option_size(option, IDEM_LMDB_SIZE_MIN, IDEM_LMDB_SIZE_MAX, &options->size, message);
    if (strcmp(option->name, "reserve") == 0)
        return option_size(option, IDEM_LMDB_RESERVE_MIN, IDEM_LMDB_SIZE_MAX, &options->reserve,
                           message);
    if (strcmp(option->name, "sync") == 0) {
        options->sync = strcmp(option->value, "always") == 0;
        if (options->sync || strcmp(option->value, "off") == 0)
            return IDEM_OK;
        idem_message_set(message,
                         "sync=%s is not allowed: write sync=always (what is answered is "
                         "on disk) or sync=off (a power failure can lose keys)",
                         option->value);
        return IDEM_ERR_INVALID;
    }
    if (strcmp(option->name, "create") == 0) {
        options->create = strcmp(option->value, "yes") == 0;
        if (options->create || strcmp(option->value, "no") == 0)
            return IDEM_OK;
        idem_message_set(message,
                         "create=%s is not allowed: write create=yes (a store that is not there "
                         "is made) or create=no (it is an error)",
                         option->value);
        return IDEM_ERR_INVALID;
    }
    idem_message_set(message,
                     "the LMDB store has no option \"%s\": it takes size, sync, reserve and create",
                     option->name);
    return IDEM_ERR_INVALID;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Unless the URL says: a share of the map, and of the device, which others may need too. */
void idem_lmdb_reserve_choose(struct idem_backend *store)
{
    uint64_t reserve = store->options.size / IDEM_LMDB_RESERVE_SHARE;
    struct statvfs device;

    if (store->options.reserve > 0)
        return;
    reserve = smaller(reserve, IDEM_LMDB_RESERVE_DEFAULT_MAX);
    if (statvfs(store->directory, &device) == 0 && device.f_blocks > 0)
        reserve =
            smaller(reserve, (uint64_t)device.f_blocks * device.f_frsize / IDEM_LMDB_RESERVE_SHARE);
    store->options.reserve = reserve > IDEM_LMDB_RESERVE_MIN ? reserve : IDEM_LMDB_RESERVE_MIN;
}

int idem_lmdb_options_read(const struct idem_url *url, struct idem_lmdb_options *ret_options,
                           struct idem_message *message)
{
    struct idem_lmdb_options options = {
        .size = IDEM_LMDB_SIZE_DEFAULT, .sync = true, .create = true};

    if (url->place[0] == '\0') {
        idem_message_set(message, "the LMDB store needs a directory: write lmdb:DIRECTORY");
        return IDEM_ERR_INVALID;
    }
    for (size_t i = 0; i < url->option_count; i++) {
        int error = option_read(&url->options[i], &options, message);

        if (error)
            return error;
    }
    if (options.reserve > options.size / 2) {
        idem_message_set(message, "reserve=%s is not allowed: it may be at most half of size",
                         idem_url_option(url, "reserve"));
        return IDEM_ERR_INVALID;
    }
    *ret_options = options;
    return IDEM_OK;
}

void idem_lmdb_user_name(char *ret_name, size_t size)
{
    struct passwd entry, *found = NULL;
    char memory[1024];

    if (getpwuid_r(geteuid(), &entry, memory, sizeof memory, &found) == 0 && found)
        snprintf(ret_name, size, "%s", entry.pw_name);
    else
        snprintf(ret_name, size, "with id %lu", (unsigned long)geteuid());
}

static int directory_failure(const struct idem_backend *store, int code,
                             struct idem_message *message)
{
    char user[64];

    idem_lmdb_user_name(user, sizeof user);
    switch (code) {
    case ENOENT:
        idem_message_set(message,
                         "the directory %s cannot be made because its parent does not "
                         "exist: make that first",
                         store->directory);
        return IDEM_ERR_UNAVAILABLE;
    case EACCES:
    case EPERM:
        idem_message_set(message,
                         "user %s may not make or enter the directory %s: give it to that "
                         "user (chown), or run as its owner",
                         user, store->directory);
        return IDEM_ERR_UNAVAILABLE;
    case EROFS:
        idem_message_set(message,
                         "the directory %s is on a file system that is mounted read-only, "
                         "and user %s must write there",
                         store->directory, user);
        return IDEM_ERR_UNAVAILABLE;
    case ENOTDIR:
        idem_message_set(message,
                         "%s is not a directory: name one that holds nothing but the store",
                         store->directory);
        return IDEM_ERR_INVALID;
    case ENOSPC:
    case EDQUOT:
        idem_message_set(message, "there is no room on the device to make the directory %s",
                         store->directory);
        return IDEM_ERR_FULL;
    default:
        idem_message_set(message, "the directory %s cannot be used: %s", store->directory,
                         strerror(code));
        return IDEM_ERR_IO;
    }
}

/* Local, and of a kind on which a memory map is shared by all who open it. */
static int filesystem_check(struct idem_backend *store, struct idem_message *message)
{
    struct statfs status;

    if (statfs(store->directory, &status))
        return directory_failure(store, errno, message);
    store->filesystem = idem_filesystem_find((unsigned long)status.f_type);
    if (!store->filesystem.refused)
        return IDEM_OK;
    idem_message_set(message,
                     "the directory %s is on %s, where the locks and the memory map that "
                     "LMDB needs are not shared reliably: choose a directory on a local disk, or "
                     "a store that has a server",
                     store->directory, store->filesystem.name);
    return IDEM_ERR_UNSAFE;
}

int idem_lmdb_directory_prepare(struct idem_backend *store, struct idem_message *message)
{
    struct stat status;

    if (store->options.create && mkdir(store->directory, 0700) && errno != EEXIST)
        return directory_failure(store, errno, message);
    if (stat(store->directory, &status)) {
        if (errno != ENOENT)
            return directory_failure(store, errno, message);
        idem_message_set(message, "there is no store in %s: there is no such directory",
                         store->directory);
        return IDEM_ERR_UNAVAILABLE;
    }
    if (!S_ISDIR(status.st_mode))
        return directory_failure(store, ENOTDIR, message);
    if (faccessat(AT_FDCWD, store->directory, R_OK | W_OK | X_OK, AT_EACCESS))
        return directory_failure(store, errno, message);
    store->device = status.st_dev;
    store->inode = status.st_ino;
    return filesystem_check(store, message);
}

static bool is_open_in_process(const struct idem_backend *other, const struct idem_backend *store)
{
    return other && other->pid == store->pid && other->device == store->device &&
           other->inode == store->inode;
}

int idem_lmdb_directory_enter(struct idem_backend *store, struct idem_message *message)
{
    size_t vacant = OPEN_MAX;
    bool taken = false;

    pthread_mutex_lock(&open_lock);
    for (size_t i = 0; i < OPEN_MAX; i++) {
        taken = taken || is_open_in_process(open_stores[i], store);
        if (!open_stores[i] || open_stores[i]->pid != store->pid)
            vacant = i;
    }
    if (!taken && vacant < OPEN_MAX)
        open_stores[vacant] = store;
    pthread_mutex_unlock(&open_lock);
    if (taken) {
        idem_message_set(message,
                         "the LMDB store in %s is open in this process already: declare "
                         "it once and share the handle",
                         store->directory);
        return IDEM_ERR_INVALID;
    }
    if (vacant == OPEN_MAX) {
        idem_message_set(message, "this process has %d LMDB stores open, which is the maximum",
                         OPEN_MAX);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

void idem_lmdb_directory_leave(struct idem_backend *store)
{
    pthread_mutex_lock(&open_lock);
    for (size_t i = 0; i < OPEN_MAX; i++)
        if (open_stores[i] == store)
            open_stores[i] = NULL;
    pthread_mutex_unlock(&open_lock);
}

int idem_lmdb_directory_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result;

    if (fd < 0)
        return errno;
    result = fsync(fd) ? errno : 0;
    close(fd);
    return result;
}

void idem_lmdb_file_give(const struct idem_backend *store, const char *name)
{
    struct stat directory, file;
    char path[IDEM_LMDB_PATH_SIZE];

    if (geteuid() != 0 || stat(store->directory, &directory) || directory.st_uid == 0)
        return;
    snprintf(path, sizeof path, "%s/%s", store->directory, name);
    if (lstat(path, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == 0 &&
        lchown(path, directory.st_uid, directory.st_gid))
        return; /* the server will say that it may not open it */
}
