/* Gateway, finding: nginx, the module, and certificates of authorities. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"

#define MODULE_FILE "ngx_http_idempotency_module.so"

/* Makes a path absolute; false when it is not there or not allowed in a configuration. */
static bool path_settle(const char *path, int mode, char ret_path[PATH_MAX])
{
    char found[PATH_MAX];

    if (realpath(path, found) == NULL || access(found, mode) != 0) {
        return false;
    }
    memcpy(ret_path, found, strlen(found) + 1);
    return true;
}

static bool search_path(const char *directories, const char *name, char ret_path[PATH_MAX])
{
    char path[PATH_MAX];

    while (*directories != '\0') {
        size_t size = strcspn(directories, ":");
        int written = snprintf(path, sizeof path, "%.*s/%s", (int)size, directories, name);

        /* An empty part of PATH means the current directory; running nginx from there is a trap. */
        if (size > 0 && written > 0 && (size_t)written < sizeof path &&
            path_settle(path, X_OK, ret_path)) {
            return true;
        }
        directories += size + (directories[size] == ':');
    }
    return false;
}

int idem_gateway_find_nginx(struct idem_gateway *gateway, struct idem_message *message)
{
    const char *path = getenv("PATH");

    if (gateway->nginx_option != NULL) {
        if (!path_settle(gateway->nginx_option, X_OK, gateway->nginx)) {
            idem_message_set(message, "--nginx %.200s: there is no program of that name",
                             gateway->nginx_option);
            return IDEM_ERR_INVALID;
        }
        return IDEM_OK;
    }
    if ((path != NULL && search_path(path, "nginx", gateway->nginx)) ||
        search_path("/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin:/opt/nginx/sbin", "nginx",
                    gateway->nginx)) {
        return IDEM_OK;
    }
    idem_message_set(message, "nginx is not installed, or not in PATH; install it (on Debian: apt "
                              "install nginx-core), or name it with --nginx FILE");
    return IDEM_ERR_UNAVAILABLE;
}

/* Beside the build, where meson puts it, or where it is installed. */
static bool module_search(char ret_module[PATH_MAX])
{
    static const char *const installed[] = {IDEM_MODULE_DIR "/" MODULE_FILE,
                                            "/usr/lib/nginx/modules/" MODULE_FILE,
                                            "/usr/lib64/nginx/modules/" MODULE_FILE};
    char self[PATH_MAX];
    char path[PATH_MAX + 64];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);

    if (size > 0) {
        self[size] = '\0';
        *strrchr(self, '/') = '\0';
        snprintf(path, sizeof path, "%s/../nginx/%s", self, MODULE_FILE);
        if (path_settle(path, R_OK, ret_module)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof installed / sizeof installed[0]; i++) {
        if (path_settle(installed[i], R_OK, ret_module)) {
            return true;
        }
    }
    return false;
}

int idem_gateway_find_module(struct idem_gateway *gateway, struct idem_message *message)
{
    if (gateway->module_option != NULL) {
        if (!path_settle(gateway->module_option, R_OK, gateway->module)) {
            idem_message_set(message, "--module %.200s: there is no such file",
                             gateway->module_option);
            return IDEM_ERR_INVALID;
        }
        return IDEM_OK;
    }
    if (module_search(gateway->module)) {
        return IDEM_OK;
    }
    /* What --print-conf shows when the module is on another machine. */
    snprintf(gateway->module, sizeof gateway->module, "%s/%s", IDEM_MODULE_DIR, MODULE_FILE);
    idem_message_set(message,
                     "the nginx module %s is not there; build and install idem with "
                     "nginx-dev present, or name the file with --module FILE",
                     MODULE_FILE);
    return IDEM_ERR_UNAVAILABLE;
}

int idem_gateway_find_authorities(struct idem_gateway *gateway, struct idem_message *message)
{
    static const char *const bundles[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/ssl/ca-bundle.pem",             /* openSUSE */
        "/etc/ssl/cert.pem",                  /* BSD, macOS */
    };
    const char *named = getenv("SSL_CERT_FILE");

    if (!gateway->upstream.tls ||
        idem_directive_given(gateway, "proxy_ssl_trusted_certificate", NULL) ||
        (idem_directive_given(gateway, "proxy_ssl_verify", "off"))) {
        return IDEM_OK;
    }
    if (named != NULL && path_settle(named, R_OK, gateway->authorities)) {
        return IDEM_OK;
    }
    for (size_t i = 0; i < sizeof bundles / sizeof bundles[0]; i++) {
        if (path_settle(bundles[i], R_OK, gateway->authorities)) {
            return IDEM_OK;
        }
    }
    idem_message_set(message, "there are no certificates of authorities to check the upstream's "
                              "with; install ca-certificates, or give --set "
                              "'proxy_ssl_trusted_certificate FILE;'");
    return IDEM_ERR_UNAVAILABLE;
}
