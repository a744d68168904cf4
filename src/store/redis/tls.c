/*
 * TLS, as hiredis 1.0 and later carry it. The handshake is set up here and not by hiredis, which
 * would trust any certificate whose signer it knows, whatever server it is for.
 */
#include "store/redis/redis_store.h"

#include <arpa/inet.h>
#include <hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

const bool idem_redis_tls_known = true;

static int tls_fault(const char *what, struct idem_redis_trouble *trouble)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false, "%s: %s", what,
                                  reason ? reason : "no reason is told");
}

/* Whom to trust: the file in the URL, or what the system trusts. */
static int authorities_load(SSL_CTX *tls, const struct idem_redis_options *options,
                            struct idem_redis_trouble *trouble)
{
    int loaded = options->tls_ca[0] ? SSL_CTX_load_verify_locations(tls, options->tls_ca, NULL)
                                    : SSL_CTX_set_default_verify_paths(tls);

    if (loaded != 1)
        return tls_fault("the certificates that tls_ca names cannot be read", trouble);
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    return IDEM_OK;
}

/* Who we are, where the server asks for that. */
static int certificate_load(SSL_CTX *tls, const struct idem_redis_options *options,
                            struct idem_redis_trouble *trouble)
{
    if (options->tls_cert[0] == '\0')
        return IDEM_OK;
    if (SSL_CTX_use_certificate_chain_file(tls, options->tls_cert) != 1)
        return tls_fault("the certificate that tls_cert names cannot be read", trouble);
    if (SSL_CTX_use_PrivateKey_file(tls, options->tls_key, SSL_FILETYPE_PEM) != 1)
        return tls_fault("the key that tls_key names cannot be read, or is of another certificate",
                         trouble);
    return IDEM_OK;
}

/* The certificate must name the host of the URL: as an address, or as a name. */
static int host_expect(SSL *ssl, const char *host, struct idem_redis_trouble *trouble)
{
    unsigned char address[sizeof(struct in6_addr)];
    bool is_address =
        inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    int expected = is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
                              : SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);

    return expected == 1 ? IDEM_OK : tls_fault("the host cannot be asked for by TLS", trouble);
}

/* The handshake; the connection owns `ssl` once it has succeeded. */
static int handshake_run(redisContext *context, SSL *ssl, const char *host,
                         struct idem_redis_trouble *trouble)
{
    long verified;

    if (redisInitiateSSL(context, ssl) == REDIS_OK)
        return IDEM_OK;
    verified = SSL_get_verify_result(ssl);
    if (verified != X509_V_OK)
        idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, false,
                               "the certificate of Redis at %s is not to be trusted: %s. Name the "
                               "authority that signed it by tls_ca in the store's URL",
                               host, X509_verify_cert_error_string(verified));
    else
        idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                               "no TLS came about with Redis at %s: %s. See that it listens for "
                               "TLS at this port",
                               host, context->errstr);
    SSL_free(ssl);
    return trouble->error;
}

static int tls_begin(SSL_CTX *tls, redisContext *context, const struct idem_redis_options *options,
                     const char *host, struct idem_redis_trouble *trouble)
{
    int error = authorities_load(tls, options, trouble);
    SSL *ssl;

    if (!error)
        error = certificate_load(tls, options, trouble);
    if (error)
        return error;
    ssl = SSL_new(tls);
    if (!ssl)
        return idem_redis_trouble_memory(trouble);
    error = host_expect(ssl, host, trouble);
    if (error) {
        SSL_free(ssl);
        return error;
    }
    return handshake_run(context, ssl, host, trouble);
}

int idem_redis_tls_start(redisContext *context, const struct idem_redis_options *options,
                         const char *host, struct idem_redis_trouble *trouble)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    int error;

    if (!tls)
        return idem_redis_trouble_memory(trouble);
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    ERR_clear_error();
    error = tls_begin(tls, context, options, host, trouble);
    SSL_CTX_free(tls);
    return error;
}
