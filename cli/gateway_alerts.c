/*
 * Gateway, alerts: what nginx's master says of its workers. nginx replaces a worker that crashed at
 * once, and again when the next one does, for ever: somebody has to count. Its alerts go to its log
 * and to a socket here. The kernel tells who sent one, so no worker, and nothing that a client can
 * have a worker log, speaks for the master.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway.h"

#define ALERT_SIZE_MAX 2048 /* nginx cuts a line at that */

int idem_gateway_alerts_open(const struct idem_gateway *gateway, int *ret_alerts)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = IDEM_GATEWAY_ALERTS};
    const int on = 1;
    int alerts = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (alerts < 0) {
        return IDEM_ERR_IO;
    }
    /* One that was left behind is in the way. Root's workers are somebody else; what they say is
     * passed over, but each time that they could not say it nginx would log that, too. */
    if ((unlink(IDEM_GATEWAY_ALERTS) != 0 && errno != ENOENT) ||
        bind(alerts, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(IDEM_GATEWAY_ALERTS, 0600) != 0 ||
        (gateway->as_root &&
         chown(IDEM_GATEWAY_ALERTS, gateway->worker_uid, gateway->worker_gid) != 0) ||
        setsockopt(alerts, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
        close(alerts);
        return IDEM_ERR_IO;
    }
    *ret_alerts = alerts;
    return IDEM_OK;
}

/* The next line, and the process that sent it; false when none waits. */
static bool line_take(int alerts, char ret_line[ALERT_SIZE_MAX + 1], pid_t *ret_sender)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec line = {.iov_base = ret_line, .iov_len = ALERT_SIZE_MAX};
    struct msghdr message = {.msg_iov = &line,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t size = recvmsg(alerts, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct ucred sender = {0};

    if (size < 0) {
        return false;
    }
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at != NULL; at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS) {
            memcpy(&sender, CMSG_DATA(at), sizeof sender);
        }
    }
    ret_line[size] = '\0';
    *ret_sender = sender.pid;
    return true;
}

/* nginx's sentences in ngx_process_get_status(), which are the same since 0.8. */
static enum idem_alert line_judge(const char *line, int *ret_signal)
{
    static const char crashed[] = " exited on signal ";
    const char *worker = strstr(line, "worker process ");
    const char *found = worker != NULL ? strstr(worker, crashed) : NULL;

    if (found != NULL) {
        *ret_signal = (int)strtol(found + sizeof crashed - 1, NULL, 10);
        return IDEM_ALERT_CRASHED;
    }
    if (worker != NULL && strstr(worker, " cannot be respawned") != NULL) {
        return IDEM_ALERT_LAST;
    }
    return IDEM_ALERT_OTHER;
}

enum idem_alert idem_gateway_alert_take(int alerts, pid_t master, int *ret_signal)
{
    char line[ALERT_SIZE_MAX + 1];
    pid_t sender;

    if (!line_take(alerts, line, &sender)) {
        return IDEM_ALERT_NONE;
    }
    return sender == master ? line_judge(line, ret_signal) : IDEM_ALERT_OTHER;
}
