/*
 * Gateway, configuration: what idem writes for nginx. Kept readable: `idem gateway --print-conf` is
 * how people who outgrow the command start their own.
 */
#include <string.h>
#include <sys/resource.h>

#include "gateway.h"

#define FILES_MAX       16384
#define CONNECTIONS_MAX 8192

/* A word of nginx's configuration in quotes, whatever is in it. */
static void word_write(FILE *out, const char *word)
{
    fputc('"', out);
    for (; *word != '\0'; word++) {
        if (*word == '"' || *word == '\\') {
            fputc('\\', out);
        }
        fputc(*word, out);
    }
    fputc('"', out);
}

static void line_word(FILE *out, const char *indent, const char *directive, const char *word)
{
    fprintf(out, "%s%s ", indent, directive);
    word_write(out, word);
    fputs(";\n", out);
}

static void line_path(FILE *out, const char *indent, const char *directive, const char *state,
                      const char *name)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", state, name);
    line_word(out, indent, directive, path);
}

static void main_write(const struct idem_gateway *gateway, bool shown, FILE *out)
{
    struct rlimit files = {.rlim_max = FILES_MAX};
    unsigned long limit, connections;

    (void)getrlimit(RLIMIT_NOFILE, &files);
    limit = files.rlim_max < FILES_MAX ? (unsigned long)files.rlim_max : FILES_MAX;
    /* A guarded request has two connections and may have a file for each body. */
    connections = limit / 2 < CONNECTIONS_MAX ? limit / 2 : CONNECTIONS_MAX;
    fputs("# Written by `idem gateway`; the next start writes it again.\n", out);
    line_word(out, "", "load_module", gateway->module);
    if (gateway->as_root) {
        fprintf(out, "user %s %s;\n", gateway->worker_user, gateway->worker_group);
    }
    fputs("daemon off;\nmaster_process on;\n", out);
    fprintf(out, "worker_processes %lld;\n", (long long)gateway->workers);
    fprintf(out, "worker_rlimit_nofile %lu;\n", limit);
    /* Bounds the drain when `idem` itself was killed and nobody counts the seconds. */
    fprintf(out, "worker_shutdown_timeout %llds;\n",
            (long long)(gateway->drain_us / IDEM_SECOND_US + 5));
    line_path(out, "", "pid", gateway->state, IDEM_GATEWAY_PID);
    fprintf(out, "error_log stderr %s;\n", gateway->log_level);
    if (!shown) {
        /* Where nobody listens, nginx would log that as well. */
        fputs("error_log syslog:server=unix:" IDEM_GATEWAY_ALERTS ",nohostname alert;\n", out);
    }
    fprintf(out, "\nevents {\n    worker_connections %lu;\n}\n\n", connections);
}

static void paths_write(const struct idem_gateway *gateway, FILE *out)
{
    static const char *const names[][2] = {
        {"client_body_temp_path", "tmp/body"}, {"proxy_temp_path", "tmp/proxy"},
        {"fastcgi_temp_path", "tmp/fastcgi"},  {"uwsgi_temp_path", "tmp/uwsgi"},
        {"scgi_temp_path", "tmp/scgi"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        line_path(out, "    ", names[i][0], gateway->state, names[i][1]);
    }
}

static void log_write(const struct idem_gateway *gateway, FILE *out)
{
    if (gateway->access_log == NULL) {
        fputs("    access_log off;\n", out);
        return;
    }
    fputs("    log_format idem escape=json\n"
          "        '{\"time\":\"$time_iso8601\",\"client\":\"$remote_addr\","
          "\"method\":\"$request_method\",'\n"
          "        '\"uri\":\"$request_uri\",\"status\":$status,\"bytes\":$body_bytes_sent,"
          "\"seconds\":$request_time,'\n"
          "        '\"upstream_seconds\":\"$upstream_response_time\","
          "\"outcome\":\"$idempotency_outcome\",'\n"
          "        '\"id\":\"$idempotency_id\",\"attempt\":\"$idempotency_attempt\","
          "\"store_seconds\":\"$idempotency_store_time\"}';\n"
          "    access_log ",
          out);
    word_write(out, strcmp(gateway->access_log, "-") == 0 ? "/dev/stdout" : gateway->access_log);
    fputs(" idem;\n", out);
}

/* The name by which the upstream knows itself, without a port that goes without saying. */
static void upstream_name(const struct idem_upstream *upstream, char *ret_name, size_t size)
{
    bool usual = strcmp(upstream->port, upstream->tls ? "443" : "80") == 0;

    if (upstream->local) {
        snprintf(ret_name, size, "localhost");
        return;
    }
    idem_upstream_format(upstream, ret_name, size);
    if (usual) {
        ret_name[strlen(ret_name) - strlen(upstream->port) - 1] = '\0';
    }
}

static void upstream_write(const struct idem_gateway *gateway, FILE *out)
{
    const struct idem_upstream *upstream = &gateway->upstream;
    char server[PATH_MAX + 8];
    char name[PATH_MAX + 8];

    idem_upstream_format(upstream, server, sizeof server);
    upstream_name(upstream, name, sizeof name);
    fprintf(out, "\n    upstream idem_upstream {\n        server %s;\n", server);
    if (gateway->keepalive_us > 0) {
        /* A connection that the upstream closes just as a request leaves makes an unknown outcome:
         * idle ones go before any usual server would close them. */
        fprintf(out, "        keepalive 32;\n        keepalive_timeout %lldms;\n",
                (long long)(gateway->keepalive_us / 1000));
    }
    fputs("    }\n", out);
    /* A client of HTTP/1.0 may leave Host out; the upstream speaks HTTP/1.1, which needs one. */
    fprintf(out,
            "    map $http_host $idem_host {\n        default $http_host;\n        '' %s;\n    }\n",
            name);
}

/* --- the guarded location ------------------------------------------------------------------ */

/* A default line makes way when --set names the directive (and, for headers, the same header). */
static void default_line(const struct idem_gateway *gateway, FILE *out, const char *directive,
                         const char *first, const char *rest)
{
    if (idem_directive_given(gateway, directive, first[0] != '\0' ? first : NULL)) {
        return;
    }
    fprintf(out, "            %s%s%s %s;\n", directive, first[0] != '\0' ? " " : "", first, rest);
}

static void tls_write(const struct idem_gateway *gateway, FILE *out)
{
    char name[PATH_MAX + 8];

    upstream_name(&gateway->upstream, name, sizeof name);
    default_line(gateway, out, "proxy_ssl_server_name", "", "on");
    default_line(gateway, out, "proxy_ssl_name", "", gateway->upstream.host);
    default_line(gateway, out, "proxy_ssl_verify", "", "on");
    default_line(gateway, out, "proxy_ssl_verify_depth", "", "4");
    default_line(gateway, out, "proxy_ssl_protocols", "", "TLSv1.2 TLSv1.3");
    if (!idem_directive_given(gateway, "proxy_ssl_trusted_certificate", NULL) &&
        gateway->authorities[0] != '\0') {
        line_word(out, "            ", "proxy_ssl_trusted_certificate", gateway->authorities);
    }
    if (!idem_directive_given(gateway, "proxy_redirect", NULL)) {
        fprintf(out, "            proxy_redirect https://%s/ /;\n", name);
    }
}

static void proxy_write(const struct idem_gateway *gateway, FILE *out)
{
    const struct idem_upstream *upstream = &gateway->upstream;
    char name[PATH_MAX + 8];

    upstream_name(upstream, name, sizeof name);
    fprintf(out, "            proxy_pass %s://idem_upstream;\n", upstream->tls ? "https" : "http");
    default_line(gateway, out, "proxy_http_version", "", "1.1");
    default_line(gateway, out, "proxy_set_header", "Connection", "\"\"");
    /* An upstream behind TLS is somebody else's host and answers to its own name only; one on the
     * inside makes links for the name that the client used. */
    default_line(gateway, out, "proxy_set_header", "Host", upstream->tls ? name : "$idem_host");
    default_line(gateway, out, "proxy_set_header", "X-Forwarded-For", "$proxy_add_x_forwarded_for");
    default_line(gateway, out, "proxy_set_header", "X-Forwarded-Proto", "$scheme");
    if (upstream->tls) {
        tls_write(gateway, out);
    } else {
        default_line(gateway, out, "proxy_redirect", "", "off");
    }
}

static void location_write(const struct idem_gateway *gateway, FILE *out)
{
    fputs("        location / {\n            idempotency main;\n", out);
    if (gateway->required) {
        fputs("            idempotency_key $http_idempotency_key required;\n", out);
    }
    for (size_t i = 0; i < gateway->set.count; i++) {
        fprintf(out, "            %s\n", gateway->set.items[i]);
    }
    proxy_write(gateway, out);
    fputs("        }\n", out);
}

void idem_gateway_conf(const struct idem_gateway *gateway, bool shown, FILE *out)
{
    main_write(gateway, shown, out);
    fputs("http {\n", out);
    if (shown && strcmp(gateway->store_url, gateway->store_shown) != 0) {
        fputs("    # Write the store's password in place of ***.\n", out);
    }
    fputs("    idempotency_store main ", out);
    word_write(out, shown ? gateway->store_shown : gateway->store_url);
    fputs(";\n", out);
    paths_write(gateway, out);
    log_write(gateway, out);
    fputs("    server_tokens off;\n"
          "    tcp_nodelay on;\n"
          "    client_max_body_size 10m;\n"
          "    client_body_buffer_size 128k;\n",
          out);
    upstream_write(gateway, out);
    fprintf(out, "\n    server {\n        listen %s;\n", gateway->listen.text);
    location_write(gateway, out);
    fputs("    }\n\n"
          "    # Tells `idem gateway` that a worker is up. Relative to the state directory, where\n"
          "    # nginx runs, because the system allows few bytes for the path of a socket.\n"
          "    server {\n        listen unix:" IDEM_GATEWAY_SOCKET ";\n"
          "        access_log off;\n"
          "        location / {\n            return 204;\n        }\n    }\n}\n",
          out);
}
