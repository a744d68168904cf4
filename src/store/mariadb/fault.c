/*
 * What the number of a failure means: for whoever repeats, and in a sentence for people. No
 * sentence holds a password; the server's own words name a user at most.
 */
#include <errmsg.h>
#include <mysqld_error.h>
#include <stdio.h>

#include "store/mariadb/mariadb_store.h"

/* Numbers that are not in the headers of every version. */
enum {
    ERROR_DISK_FULL_SYSTEM = 28, /* ENOSPC, as InnoDB tells it inside ER_GET_ERRNO */
    ERROR_CONNECTION_KILLED = 1927,
    ERROR_IDLE = 4031, /* MySQL: "disconnected by the server because of inactivity" */
    ERROR_SUPER_READ_ONLY = 1290,
    ERROR_READ_ONLY_TRANSACTION = 1792,
    ERROR_OFFLINE = 3032, /* these in MySQL only */
    ERROR_STARTING_OR_ENDING = 3168,
    ERROR_ROLLED_BACK_BY_PLUGIN = 3101, /* another member of its group was faster */
    ERROR_NOT_ENCRYPTED = 3159,
    ERROR_ACCOUNT_LOCKED = 3118,
    ERROR_ACCOUNT_LOCKED_MARIADB = 4151,
};

static bool is_conflict(unsigned code)
{
    return code == ER_LOCK_DEADLOCK || code == ER_LOCK_WAIT_TIMEOUT || code == ER_DUP_ENTRY ||
           code == ER_DATA_OUT_OF_RANGE || code == ERROR_ROLLED_BACK_BY_PLUGIN;
}

/* All of the client library's own numbers are about the connection, or end it. Without a number
 * it ran out of memory, and how far it got nobody knows. */
static bool is_lost(unsigned code)
{
    return code == 0 || (code >= CR_MIN_ERROR && code <= CR_MAX_ERROR) ||
           (code >= CER_MIN_ERROR && code <= CER_MAX_ERROR) || code == ER_SERVER_SHUTDOWN ||
           code == ER_NORMAL_SHUTDOWN || code == ERROR_CONNECTION_KILLED || code == ERROR_IDLE ||
           code == ERROR_SUPER_READ_ONLY || code == ERROR_READ_ONLY_TRANSACTION ||
           code == ER_QUERY_INTERRUPTED || code == ERROR_OFFLINE ||
           code == ERROR_STARTING_OR_ENDING;
}

/* InnoDB wraps the system's number in a sentence: "Got error 28 ...". */
static bool is_full(unsigned code, const char *words)
{
    char wrapped[32];

    snprintf(wrapped, sizeof wrapped, "error %d ", ERROR_DISK_FULL_SYSTEM);
    return code == ER_RECORD_FILE_FULL || code == ER_DISK_FULL ||
           (code == ER_GET_ERRNO && strstr(words, wrapped));
}

static bool is_schema(unsigned code)
{
    return code == ER_BAD_DB_ERROR || code == ER_NO_SUCH_TABLE || code == ER_BAD_FIELD_ERROR ||
           code == ER_NO_DB_ERROR;
}

static bool is_denied(unsigned code)
{
    return code == ER_DBACCESS_DENIED_ERROR || code == ER_TABLEACCESS_DENIED_ERROR ||
           code == ER_COLUMNACCESS_DENIED_ERROR || code == ER_SPECIFIC_ACCESS_DENIED_ERROR ||
           code == ERROR_ACCOUNT_LOCKED || code == ERROR_ACCOUNT_LOCKED_MARIADB ||
           code == ER_MUST_CHANGE_PASSWORD || code == ER_MUST_CHANGE_PASSWORD_LOGIN;
}

static int timed_out(struct idem_mariadb_link *link)
{
    idem_mariadb_disconnect(link);
    return idem_mariadb_fault(link, IDEM_ERR_TIMEOUT,
                              "the MariaDB server did not answer within the time allowed; whether "
                              "it applied what it was asked is not known: see that it runs, or "
                              "raise timeout= in the store URL");
}

int idem_mariadb_failure(struct idem_mariadb_link *link, unsigned code, const char *words)
{
    link->code = code;
    if (code == 0)
        words = "there is no memory left for the client library";
    if (link->timed_out)
        return timed_out(link);
    if (link->code == ER_DATA_OUT_OF_RANGE) /* the server's words are the guard, salt and all */
        words = "each was removed, or waited for too long, while it was written";
    if (is_conflict(link->code))
        return idem_mariadb_fault(link, IDEM_MARIADB_AGAIN,
                                  "the MariaDB server had too many conflicts on these keys: %s",
                                  words);
    if (is_lost(link->code)) {
        (void)!idem_mariadb_fault(link, IDEM_MARIADB_LOST,
                                  "the MariaDB server cannot be reached: %s (%u)", words,
                                  link->code);
        idem_mariadb_disconnect(link);
        return IDEM_MARIADB_LOST;
    }
    if (is_full(link->code, words))
        return idem_mariadb_fault(link, IDEM_MARIADB_FULL,
                                  "the MariaDB server has no room even for a verdict: %s", words);
    if (is_schema(link->code))
        return idem_mariadb_fault(link, IDEM_MARIADB_NO_TABLES,
                                  "idem's tables are not there: run `idem migrate URL` with this "
                                  "store's URL (%s)",
                                  words);
    if (link->code == ERROR_NOT_ENCRYPTED)
        return idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                                  "the MySQL server refuses: it takes encrypted connections only; "
                                  "say ssl=verify or ssl=on in the store URL");
    if (link->code == ER_ACCESS_DENIED_ERROR)
        return idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                                  "the MariaDB server refuses: %s; see that the store URL has the "
                                  "user and password that the server knows for this host",
                                  words);
    if (is_denied(link->code))
        return idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                                  "the MariaDB server refuses: %s; docs/guide/store-mariadb.md "
                                  "lists what the user must be granted",
                                  words);
    return idem_mariadb_fault(link, IDEM_ERR_IO, "the MariaDB server failed: %s (%u)", words,
                              link->code);
}
